"""Where groups run: local processes, or a Dask cluster."""


class WorkerError(RuntimeError):
    """A worker did not finish its work: that work has failed, and nothing else has."""


class WorkerDiedError(WorkerError):
    """A worker ended in the middle of its work (killed, or out of memory)."""


class TimeLimitError(WorkerError):
    """Work took longer than its limit and was stopped."""


class MemoryLimitError(WorkerError):
    """Work took more memory than its limit and was stopped."""
