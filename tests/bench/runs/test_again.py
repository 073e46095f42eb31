import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

from sdp_bench.bench.results.unfinished import MeasuredAgain
from sdp_bench.bench.runs import again
from sdp_bench.bench.runs.again import Part, measure_again


class Told:
    """Steps of a meter; `first` is set when any of the work is said to be done."""

    def __init__(self):
        self.steps, self.first = [], threading.Event()

    @contextmanager
    def meter(self, title):
        yield self

    def done(self, count, total, text, share=None):
        self.steps.append((count, total, text, share))
        if share:
            self.first.set()


def test_progress_is_told_before_the_first_group_has_ended(monkeypatch):
    told = Told()

    def measured(group, cells):
        assert told.first.wait(30), "nothing was said while the group was measured"
        return SimpleNamespace(records=(), failures=())

    monkeypatch.setattr(again, "run_group", measured)
    monkeypatch.setattr(again, "_FIRST", 0.01)
    parts = [Part(SimpleNamespace(title="the longest"), frozenset({("u", "sdp", "tv")}), 600.0)]
    made = measure_again(
        parts, MeasuredAgain(), lambda: ThreadPoolExecutor(1), lambda cells, records: None, told
    )
    assert not made.failures
    count, total, text, share = next(step for step in told.steps if step[3])
    assert (count, total, text) == (0, 1, "the longest")
    assert 0 < share < 1
    assert told.steps[-1][:2] == (1, 1)
