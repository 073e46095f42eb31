"""A Dask scheduler at tls://, with certificates from Dask's own configuration."""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.executors.dask import DaskWorkers

pytest.importorskip("distributed")


def configured(ca, certificate, key):
    """Dask's configuration for a client, as DASK_DISTRIBUTED__COMM__TLS__CA_FILE and others set it."""
    import dask.config

    prefix = "distributed.comm.tls"
    names = f"{prefix}.ca-file", f"{prefix}.client.cert", f"{prefix}.client.key"
    return dask.config.set(dict(zip(names, map(str, (ca, certificate, key)), strict=True)))


def test_an_address_without_certificates_is_rejected_in_one_line():
    with pytest.raises(UserError, match=r"tls://127\.0\.0\.1:1 needs certificates.*DASK_DISTRIBUTED__COMM"):
        DaskWorkers("tls://127.0.0.1:1", 1, 1)


@pytest.mark.parametrize("content", ["not a certificate", None])
def test_files_that_are_not_certificates_are_rejected_in_one_line(tmp_path, content):
    file = tmp_path / "some.pem"
    if content is not None:
        file.write_text(content)
    with configured(file, file, file), pytest.raises(UserError, match="certificates") as caught:
        DaskWorkers("tls://127.0.0.1:1", 1, 1)
    assert "\n" not in str(caught.value)


@pytest.fixture
def pem(tmp_path):
    """An authority's certificate, and one of a client with its key."""
    if not shutil.which("openssl"):
        pytest.skip("certificates are made by openssl")
    ca, ca_key, own, key, request = (
        tmp_path / f"{name}.pem" for name in ("ca", "ca_key", "own", "key", "req")
    )

    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *new, "-keyout", ca_key, "-out", ca, "-subj", "/CN=authority", "-days", 1)
    openssl("req", *new, "-keyout", key, "-out", request, "-subj", "/CN=own")
    signed = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", 1)
    openssl("x509", "-req", "-in", request, *signed, "-out", own)
    return ca, own, key


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_calls_run_behind_an_encrypted_address(tmp_path, pem):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    address = f"tls://127.0.0.1:{port}"
    files = [
        word for pair in zip(("--tls-ca-file", "--tls-cert", "--tls-key"), pem, strict=True) for word in pair
    ]
    processes = []

    def start(program, *words):
        command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *words, *files, "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(subprocess.Popen(command, cwd=tmp_path, **quiet))

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--protocol", "tls")
        start("worker", address, "--nthreads", "1", "--no-nanny")
        deadline = time.monotonic() + 60
        while True:
            try:
                with configured(*pem):
                    executor = DaskWorkers(address, 1, 1)
                break
            except RunFailedError:
                assert time.monotonic() < deadline
        assert executor.submit(os.getpid).result(timeout=60) == processes[1].pid
        executor.shutdown()
    finally:
        for process in processes:
            process.kill()
            process.wait()
