"""A process that times one version of rules; a script with its own imports.

It uses only torch and public names of `sdp_ref`, so that it can time built-in rules of other versions. Its
argument is JSON: the module search path, and a memory limit in bytes or null. It reads pickles: rules by name
(specs of built-in rules, or plug-ins), nets by name, inputs (B, *event), the standard deviation of the noise,
and a clock; then requests (rule, net, repetitions). It answers each request with a line of JSON: seconds per
repetition, or the text of an error, and ends when its input ends.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

OVER_MEMORY = 77
"""Exit code after the memory limit was exceeded."""
_WATCH = 0.25  # s


def main() -> None:
    parent = os.getppid()
    sys.path[:], memory = json.loads(sys.argv[1])
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what rules read
    os.dup2(2, 1)  # what rules print
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    threading.Thread(target=_watch, args=(parent, memory), daemon=True).start()
    rules, nets, inputs, sigma, clock = pickle.load(requests)  # noqa: S301  of the parent process
    works: dict[tuple[str, str], Callable[[], object]] = {}
    while requests.peek(1):
        rule, net, repetitions = pickle.load(requests)  # noqa: S301
        answer: float | str
        try:
            if (rule, net) not in works:
                works[rule, net] = _work(rules[rule], nets[net], inputs, sigma)
            answer = _seconds(works[rule, net], repetitions, clock)
        except BaseException as error:  # noqa: BLE001  a rule may raise anything
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=answers, flush=True)


def _work(rule: Any, net: Any, inputs: Any, sigma: float) -> Callable[[], object]:
    """Return one propagation, after the set-up for the net."""
    import torch

    import sdp_ref

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    rule = sdp_ref.rule(rule) if isinstance(rule, str) else rule.load()
    if hasattr(rule, "with_seeds"):
        rule = rule.with_seeds(list(range(len(inputs))))
    law = sdp_ref.DiagonalGaussian(inputs, torch.full_like(inputs, sigma**2))
    propagate = rule.prepare(net) if hasattr(rule, "prepare") else functools.partial(rule.propagate, net)
    # The garbage collector would visit what has been imported, which is not the same in both versions.
    gc.collect()
    gc.freeze()
    return functools.partial(propagate, law)


def _seconds(work: Callable[[], object], repetitions: int, clock: Callable[[], float]) -> float:
    """Return the seconds of one execution; the first of several fills the caches and is not timed."""
    if repetitions > 1:
        work()
    start = clock()
    for _ in range(repetitions):
        work()
    return (clock() - start) / repetitions


def _watch(parent: int, memory: int | None) -> None:
    """End this process when its parent has ended, or when it exceeds a number of bytes."""
    import psutil

    process = psutil.Process()
    while os.getppid() == parent:
        if memory is not None and process.memory_info().rss > memory:
            os._exit(OVER_MEMORY)
        time.sleep(_WATCH)
    os._exit(1)


if __name__ == "__main__":
    main()
