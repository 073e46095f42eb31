"""Groups on a Dask cluster, whose workers may be on other machines."""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import RunFailedError, UserError, one_line
from ..identity import differences, software
from . import let_threads_sleep, uninterrupted

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

_MISSING = "the dask executor needs the package distributed (extra 'dask')"
_CERTIFICATES = ", ".join(
    f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
)
_CONNECT = 10  # s, for a response of the scheduler and for the first worker


def check(scheduler: str | None) -> None:
    """Check that workers are available before any work is done, since training nets takes hours.

    Parameters and errors are those of `DaskWorkers`.
    """
    if scheduler is not None:
        DaskWorkers(scheduler, 1, 1).shutdown()
    elif importlib.util.find_spec("distributed") is None:
        raise UserError(_MISSING)


class DaskWorkers(Executor):
    """Workers of a Dask scheduler.

    A call whose worker is lost is given to another worker. Results return to the driver, the only process
    that writes.

    `scheduler` is an address such as ``tcp://host:8786``; certificates for ``tls://`` addresses come from
    Dask's configuration. Without it, a cluster of `jobs` processes starts on this machine and ends with the
    executor. `threads` is the number of BLAS threads per call.

    A UserError is raised if dask.distributed is not installed, or the address or Dask's configuration is
    invalid. A RunFailedError is raised if the scheduler does not respond, has no workers, or has a worker
    with other code.
    """

    def __init__(self, scheduler: str | None, jobs: int, threads: int) -> None:
        try:
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise UserError(_MISSING) from error
        # Every error that matters ends the run in one line; Dask also logs tracebacks of its reconnection
        # attempts.
        for name in logging.root.manager.loggerDict:
            if name.partition(".")[0] == "distributed":  # Dask gives some of its loggers a level of their own
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._threads = threads
        self._cluster = None
        try:
            if scheduler is None:
                let_threads_sleep()
                with uninterrupted():
                    self._cluster = LocalCluster(
                        n_workers=jobs,
                        threads_per_worker=1,
                        host="127.0.0.1",
                        dashboard_address=":0",  # any free port
                        silence_logs=logging.CRITICAL,
                    )
            else:
                _check_address(scheduler)
            self._client: Client = _in_time(lambda: Client(self._cluster or scheduler, timeout=_CONNECT))
        except (OSError, TimeoutError) as error:
            raise RunFailedError(f"no Dask scheduler answers at {scheduler} ({one_line(error)})") from error
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
            answers = _in_time(lambda: self._client.run(software, on_error="return"))
        except (OSError, TimeoutError) as error:
            raise RunFailedError(
                f"a worker of the scheduler at {scheduler} does not report its software versions"
            ) from error
        for worker, answer in answers.items():
            if isinstance(answer, Exception):
                raise RunFailedError(
                    f"the worker at {worker} cannot use this package ({one_line(answer)}); install it "
                    "there as here"
                )
            _compare(software(), answer, worker)

    @property
    def workers(self) -> int:
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            inner = self._executor.submit(_call, dict(software()), self._threads, fn, *args, **kwargs)
        except RuntimeError as error:  # the client has closed itself
            raise self._gone() from error
        inner.add_done_callback(lambda ended: self._hand_on(ended, future))
        return future

    def _hand_on(self, ended: Future[Any], future: Future[Any]) -> None:
        """Pass on the end of a call; a lost scheduler ends all calls at once, without failures."""
        if ended.cancelled() or isinstance(ended.exception(), CancelledError):
            future.set_exception(CancelledError() if self._client.status == "running" else self._gone())
        elif error := ended.exception():
            future.set_exception(error)
        else:
            future.set_result(ended.result())

    def _gone(self) -> RunFailedError:
        where = self._client.scheduler.address if self._client.scheduler else "its address"
        return RunFailedError(
            f"the Dask scheduler at {where} has gone; finished groups are kept, and the same command resumes"
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, or stop it if it was started here."""
        self._executor.shutdown(wait=wait and not cancel_futures)
        self._leave()

    def _leave(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _check_address(scheduler: str) -> None:
    """Reject an invalid address or certificate; a client that fails prints tracebacks when Python ends."""
    from distributed import Security
    from distributed.comm import resolve_address

    try:
        resolve_address(scheduler)
    except ValueError as error:
        raise UserError(f"'{scheduler}' is not an address of a Dask scheduler: {error}") from error
    if scheduler.startswith("tls://"):
        try:
            context = Security().get_connection_args("client")["ssl_context"]
        except OSError as error:  # ssl errors are OSErrors
            raise UserError(f"cannot use the certificates in {_CERTIFICATES}: {one_line(error)}") from error
        if context is None:
            raise UserError(f"{scheduler} needs certificates in Dask's configuration: {_CERTIFICATES}")


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


def _compare(expected: Mapping[str, str], actual: Mapping[str, str], worker: str) -> None:
    """Raise a RunFailedError if a worker's code or libraries differ, so that it would give other numbers."""
    if other := differences(expected, actual):
        raise RunFailedError(
            f"the worker at {worker} would give other numbers ({other}); install the same versions there"
        )


def _call(
    expected: Mapping[str, str], threads: int, fn: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    import torch
    from distributed import get_worker

    # Checked for each call: workers join after the driver's check.
    _compare(expected, software(), get_worker().address)
    torch.set_num_threads(threads)
    return fn(*args, **kwargs)
