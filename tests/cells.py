"""Code run as a notebook runs its cells: its source is kept, and belongs to no module to be imported."""

import itertools
import linecache

_numbers = itertools.count()


def run_cell(source, space, page="cell"):
    """Run some code in a namespace; `page` is where it is from, for tracebacks."""
    name = f"<{page} {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), space)
