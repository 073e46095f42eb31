"""The command ``sdp-bench``.

Exit codes: 0 success, 1 negative verdict, 2 usage or bad input, 3 something failed to run, 130 interrupted,
143 terminated, 141 the reader closed the pipe. If both 1 and 3 apply, ``check`` and ``validate`` exit with 1.
Heavy modules are imported only by commands that need them, so that ``--help`` is instant.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress

import click

from sdp_bench.bench.errors import one_line
from sdp_bench.bench.executors import let_threads_sleep
from sdp_bench.commands import (
    advise,
    budget,
    check_rule,
    echo,
    exchange,
    gate,
    nets,
    report,
    run,
    sample,
    validate,
)
from sdp_bench.commands.options import FAILED
from sdp_ref.errors import on_one_line

BAD_INPUT, INTERRUPTED = 2, 130
_CLEAN_UP = 10.0  # s after an interrupt, until another one ends the process at once
UNREAD = 141
"""Exit code of the shell for ``yes | head``, after SIGPIPE. Not 0: an unread verdict is not a pass."""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
)
@click.version_option(package_name="sdp-bench")
def cli() -> None:
    """Benchmark and validate rules that propagate distributions through neural networks."""


for _command in (
    run.list_,
    run.run,
    report.report,
    run.runtime,
    exchange.replay,
    exchange.export_,
    exchange.diff,
    exchange.results,
    nets.recipes,
    nets.train,
    gate.check,
    advise.advise,
    budget.budget,
    sample.sample,
    check_rule.check_rule,
    validate.validate,
    nets.cache,
):
    cli.add_command(_command)


def main() -> None:
    """Entry point: run a command, and convert every way in which it can end into its exit code."""
    let_threads_sleep()
    # one line, without the location
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # print the verdict even if σ cannot be encoded
    sys.exit(_flushed(_ended()))


def _ended() -> int:
    """Run a command and return its exit code; errors from elsewhere print one line on standard error."""
    streams = sys.stdout, sys.stderr
    interrupt = _Interrupt()
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, interrupt)
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        usage, begin, message = shown.getvalue().partition("Error: ")
        _say(f"{usage}{begin}{on_one_line(message)}")
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # click treats it as an interrupt at a prompt
            return _failed(error.__cause__)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # Python resets other handlers before it ends
        _say("interrupted; a run keeps its finished measurements, and the same command resumes it")
        return interrupt.exit_code
    except SystemExit as stop:
        # If the reader closed the pipe, click and rich exit with the code of a bad verdict. Click replaces
        # the streams in this case.
        if sys.stdout is not streams[0] or isinstance(stop.__context__, BrokenPipeError):
            code = UNREAD
        else:  # commands exit with an integer; anything else is from foreign code
            code = stop.code if type(stop.code) is int else FAILED
    except BaseException as error:  # noqa: BLE001  the last one to see it
        return _failed(error)
    finally:
        sys.stdout, sys.stderr = streams
    return code if isinstance(code, int) else 0


class _Interrupt:
    """Handler of interrupts and of termination.

    The first signal ends the command, and the next ones do not cut its clean-up short.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self.exit_code = INTERRUPTED

    def __call__(self, number: int, _: object) -> None:
        if self._first is None:
            self._first = time.monotonic()
            self.exit_code = 128 + number  # as a shell reports it
            raise KeyboardInterrupt
        if time.monotonic() - self._first > _CLEAN_UP:
            os._exit(self.exit_code)


def _failed(error: BaseException) -> int:
    """Report an error: in one line if the user can fix it, with a traceback if it is a bug."""
    expected = getattr(error, "exit_code", None)
    if expected in (BAD_INPUT, FAILED):
        _say(f"Error: {on_one_line(str(error))}")
        return int(expected)
    if not isinstance(error, OSError | MemoryError):  # caused by the machine: disk full, too many open files
        traceback.print_exc()
    _say(f"Error: {one_line(error)}")
    return FAILED


def _flushed(code: int) -> int:
    """Flush standard output now: at interpreter exit a failure would give another exit code."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard what is still buffered
        if isinstance(error, BrokenPipeError):
            return code or UNREAD
        if not code:
            _say(f"Error: cannot write to standard output: {error.strerror}")
        return code or FAILED
    return code


def _say(line: str) -> None:
    with suppress(OSError):  # standard error is closed
        echo(line, err=True)
