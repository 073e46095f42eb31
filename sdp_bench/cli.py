"""The command ``sdp-bench``.

Exit codes: 0 fine, 1 regression found (and nothing else), 2 usage or bad input, 3 something failed
to run, 130 interrupted. Nothing heavy is imported before a command needs it, so `--help` is instant.
"""

from __future__ import annotations

import io
import sys
import traceback
import warnings

import click

from sdp_bench.commands import check_rule, exchange, gate, nets, report, run, selfcheck, validate
from sdp_bench.commands.options import FAILED

BAD_INPUT, INTERRUPTED = 2, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sdp-bench")
def cli() -> None:
    """Benchmark and validate rules that propagate distributions through neural networks."""


for _command in (
    *(run.list_, run.run, report.report, run.runtime, exchange.replay, exchange.merge, exchange.export_),
    *(exchange.import_, exchange.diff, exchange.results, nets.recipes, nets.train, gate.check),
    *(check_rule.check_rule, validate.validate, gate.oracles, nets.cache, selfcheck.selfcheck),
):
    cli.add_command(_command)


def main() -> None:
    """Entry point: runs a command and turns every way it can end into its exit code."""
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"  # one line, and not its place
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a verdict is worth more than its σ
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; what was finished is kept, the same command goes on from there", err=True)
        code = INTERRUPTED
    except SystemExit as stop:
        # Commands end with a number; anything else comes from code that is not ours.
        code = stop.code if isinstance(stop.code, int) else FAILED
    except Exception as error:  # noqa: BLE001  the last one to see it
        expected = getattr(error, "exit_code", None)
        if expected is None:
            traceback.print_exc()
        click.echo(f"Error: {error}", err=True)
        code = expected or FAILED
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
