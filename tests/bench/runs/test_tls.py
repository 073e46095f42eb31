"""A Dask scheduler at tls://: who is let in, and what is said of files that are none."""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.executors.dask import DaskWorkers, Tls

pytest.importorskip("distributed")


def test_an_address_without_certificates_is_refused_in_a_line():
    with pytest.raises(UserError, match=r"tls://127\.0\.0\.1:1 takes certificates: --tls-ca"):
        DaskWorkers("tls://127.0.0.1:1", 1, 1)


def test_files_that_are_no_certificates_are_told(tmp_path):
    file = tmp_path / "some.pem"
    file.write_text("no certificate")
    with pytest.raises(UserError, match="are not an authority's certificate") as caught:
        DaskWorkers("tls://127.0.0.1:1", 1, 1, Tls(file, file, file))
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
    return Tls(ca, own, key)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_calls_run_behind_an_encrypted_address(tmp_path, pem):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    address = f"tls://127.0.0.1:{port}"
    files = ("--tls-ca-file", pem.ca, "--tls-cert", pem.certificate, "--tls-key", pem.key)
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
                executor = DaskWorkers(address, 1, 1, pem)
                break
            except RunFailedError:
                assert time.monotonic() < deadline
        assert executor.submit(os.getpid).result(timeout=60) == processes[1].pid
        executor.shutdown()
    finally:
        for process in processes:
            process.kill()
            process.wait()
