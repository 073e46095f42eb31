"""Groups on a Dask cluster, whose workers may be on other machines."""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sdp_bench.bench.errors import RunFailedError, UserError, one_line
from sdp_bench.bench.executors import let_threads_sleep
from sdp_bench.bench.identity.software import differences, software

if TYPE_CHECKING:
    from distributed import Client, Security

T = TypeVar("T")

_MISSING = "the dask executor needs the package distributed (extra 'dask')"
_CONNECT = 10  # s, for a response of the scheduler and for the first worker


@dataclass(frozen=True)
class Tls:
    """PEM files that authenticate scheduler and client: authority, certificate and key."""

    ca: Path
    certificate: Path
    key: Path

    @property
    def security(self) -> Security:
        """Return Dask's form, with encryption required; a UserError if the files are invalid."""
        from distributed import Security

        security = Security(
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.certificate),
            tls_client_key=str(self.key),
            require_encryption=True,
        )
        try:
            security.get_connection_args("client")
        except OSError as error:  # ssl errors are OSErrors
            raise UserError(
                f"{self.ca}, {self.certificate} and {self.key} are not an authority's certificate, one of "
                f"this client and its key: {one_line(error)}"
            ) from error
        return security


class OtherSoftwareError(RunFailedError):
    """A worker has other code or libraries than the driver, and would compute other numbers."""


def check(scheduler: str | None, tls: Tls | None = None) -> None:
    """Check that workers are available before any work is done, since training nets takes hours.

    Parameters and errors are those of `DaskWorkers`.
    """
    if scheduler is not None:
        DaskWorkers(scheduler, 1, 1, tls).shutdown()
    elif importlib.util.find_spec("distributed") is None:
        raise UserError(_MISSING)


class DaskWorkers(Executor):
    """Workers of a Dask scheduler.

    A call whose worker is lost is given to another worker. Results return to the driver, the only process
    that writes.

    `scheduler` is an address such as ``tcp://host:8786``. Without it, a cluster of `jobs` processes starts on
    this machine and ends with the executor. `threads` is the number of BLAS threads per call. `tls` is for
    addresses that begin with ``tls://``.

    A UserError is raised if dask.distributed is not installed, or the address or a certificate is invalid. A
    RunFailedError is raised if the scheduler does not respond, has no workers, or has a worker with other
    code.
    """

    def __init__(self, scheduler: str | None, jobs: int, threads: int, tls: Tls | None = None) -> None:
        try:
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise UserError(_MISSING) from error
        # The error that ends a run is reported in one line; Dask logs tracebacks of its reconnection
        # attempts.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._threads = threads
        self._cluster = None
        security = tls and tls.security
        if scheduler and scheduler.startswith("tls://") and not (security or _has_certificate()):
            raise UserError(f"{scheduler} takes certificates: --tls-ca, --tls-cert and --tls-key")
        try:
            if scheduler is None:
                let_threads_sleep()
                self._cluster = LocalCluster(
                    n_workers=jobs, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
                )
            self._client: Client = _in_time(
                lambda: Client(self._cluster or scheduler, timeout=_CONNECT, security=security)
            )
        except ValueError as error:
            raise UserError(f"'{scheduler}' is no address of a Dask scheduler: {error}") from error
        except (OSError, TimeoutError) as error:
            raise RunFailedError(f"no Dask scheduler answers at {scheduler}") from error
        try:
            self._check_workers(scheduler)
        except BaseException:
            self._leave()
            raise
        self._executor = self._client.get_executor(pure=False)

    def _check_workers(self, scheduler: str | None) -> None:
        """Reject a cluster without workers, or with a worker that would compute other numbers."""
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT)
        except TimeoutError as error:
            raise RunFailedError(
                f"no worker is connected to the scheduler at {scheduler}; start one: dask worker {scheduler}"
            ) from error
        try:
            asked = _in_time(lambda: self._client.run(software, on_error="return"))
        except TimeoutError as error:
            raise RunFailedError(
                f"a worker of the scheduler at {scheduler} does not say which software it has"
            ) from error
        for worker, found in asked.items():
            if isinstance(found, Exception):
                raise OtherSoftwareError(
                    f"the worker at {worker} cannot use this package ({one_line(found)}); install it "
                    "there as here"
                )
            _compare(software(), found, worker)

    @property
    def workers(self) -> int:
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        inner = self._executor.submit(_call, dict(software()), self._threads, fn, *args, **kwargs)
        inner.add_done_callback(lambda ended: self._hand_on(ended, future))
        return future

    def _hand_on(self, ended: Future[Any], future: Future[Any]) -> None:
        """Pass on the end of a call; a lost scheduler ends all calls at once, without failures."""
        if ended.cancelled() or isinstance(ended.exception(), CancelledError):
            if self._client.status == "running":
                future.set_exception(CancelledError())
            else:
                where = self._client.scheduler.address if self._client.scheduler else "its address"
                future.set_exception(
                    RunFailedError(
                        f"the Dask scheduler at {where} has gone; what was finished is kept, the "
                        "same command goes on from there"
                    )
                )
        elif error := ended.exception():
            future.set_exception(error)
        else:
            future.set_result(ended.result())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, or stop it if it was started here."""
        self._executor.shutdown(wait=wait and not cancel_futures)
        self._leave()

    def _leave(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _has_certificate() -> bool:
    """Return whether Dask's own configuration contains client certificates."""
    from distributed import Security

    return Security().get_connection_args("client")["ssl_context"] is not None


def _in_time(make: Callable[[], T]) -> T:
    """Return the result of `make` within twice Dask's timeout; Dask waits forever for a silent port."""
    made: Future[T] = Future()

    def work() -> None:
        try:
            made.set_result(make())
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            made.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return made.result(timeout=2 * _CONNECT)


def _compare(wanted: Mapping[str, str], found: Mapping[str, str], worker: str) -> None:
    """Raise an OtherSoftwareError if a worker's versions differ from the driver's."""
    if other := differences(wanted, found):
        raise OtherSoftwareError(
            f"the worker at {worker} would give other numbers ({other}); install the same there"
        )


def _call(wanted: Mapping[str, str], threads: int, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    import torch
    from distributed import get_worker

    # Checked for each call: workers join after the driver's check.
    _compare(wanted, software(), get_worker().address)
    torch.set_num_threads(threads)
    return fn(*args, **kwargs)
