# sdp-bench on CPUs.
#   docker build . -t sdp-bench
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" sdp-bench run --all --preset smoke
# Results land in the folder that is mounted, as the user who runs it.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

# From PyPI torch brings CUDA along, some 6 GB on Linux; PyTorch's own index has builds for CPUs of some 200 MB.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

WORKDIR /src
COPY . .
# Only torch comes from that index: with two indexes, pip would take any package from either.
RUN pip install --no-cache-dir --no-deps --index-url "$TORCH_INDEX" --constraint constraints.txt torch \
    && pip install --no-cache-dir --constraint constraints.txt . && rm -rf /src/*

# Trained nets and image sets; any user may write there, as --user may name one that is not known here.
ENV SDP_BENCH_CACHE=/cache HOME=/tmp
RUN useradd --uid 1000 bench && mkdir -m 1777 /cache && install -d -o bench /work
USER 1000
WORKDIR /work
ENTRYPOINT ["sdp-bench"]
CMD ["--help"]
