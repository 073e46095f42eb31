"""Groups on a Dask cluster: an executor whose workers may be on other machines."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from sdp_bench.bench.errors import RunFailedError, UserError

if TYPE_CHECKING:
    from distributed import Client

_CONNECT = 10  # s


class DaskWorkers(Executor):
    """Workers of a Dask scheduler.

    A call whose worker is lost is given to another one; results come back to the driver, which
    alone writes.

    Parameters
    ----------
    scheduler : str, optional
        Address such as ``tcp://host:8786``. Without it a cluster of `jobs` processes is started on
        this machine, and ended with the executor.
    jobs : int
        Workers to start where no scheduler is given.
    threads : int
        BLAS threads of each call.

    Raises
    ------
    UserError
        If dask.distributed is not installed, or the address is not one.
    RunFailedError
        If no scheduler answers at the address.
    """

    def __init__(self, scheduler: str | None, jobs: int, threads: int) -> None:
        try:
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise UserError("the dask executor needs the package distributed (extra 'dask')") from error
        self._threads = threads
        self._cluster = None
        try:
            if scheduler is None:
                self._cluster = LocalCluster(
                    n_workers=jobs, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
                )
            self._client: Client = Client(self._cluster or scheduler, timeout=_CONNECT)
        except ValueError as error:
            raise UserError(f"'{scheduler}' is no address of a Dask scheduler: {error}") from error
        except (OSError, TimeoutError) as error:
            raise RunFailedError(f"no Dask scheduler answers at {scheduler}") from error
        self._executor = self._client.get_executor(pure=False)

    @property
    def workers(self) -> int:
        """Workers that are connected now."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call; see :class:`concurrent.futures.Executor`."""
        call = functools.partial(_call, self._threads, fn)
        future: Future[Any] = self._executor.submit(call, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, or end it if it was started here."""
        self._executor.shutdown(wait=wait and not cancel_futures)
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _call(threads: int, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    import torch

    torch.set_num_threads(threads)
    return fn(*args, **kwargs)
