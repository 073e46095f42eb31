"""Measurements as a frame and as CSV."""

from __future__ import annotations

import math

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from sdp_bench.bench.results.queries import keys
from sdp_bench.bench.results.tables import filled
from sdp_bench.bench.text import table
from sdp_bench.reports.tables.frame import by_kind, checked, csv_lines
from tests.reports import made_up

TEXTS = st.one_of(
    st.none(), st.text(max_size=4), st.sampled_from(["a,b", 'say "x"', "two\nlines", "=1", "µ"])
)
NUMBERS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1e-5, 1e16, math.nan, math.inf]))


def as_pandas(frame):
    return frame.to_csv(index=False, lineterminator="\n").encode()


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.tuples(TEXTS, NUMBERS, st.one_of(st.none(), st.integers(-3, 2**60)), st.booleans())))
def test_the_table_is_what_pandas_writes_of_plain_columns(rows):
    columns = list(zip(*rows, strict=True)) or [()] * 4
    plain = pd.DataFrame(
        {
            "text": pd.Series(columns[0], dtype=object),
            "value": pd.Series(columns[1], dtype=float),
            "few": pd.Series(columns[1], dtype=float),
            "count": pd.Series(columns[2], dtype="Int64"),
            "told": pd.Series(columns[3], dtype=bool),
        }
    )
    typed = plain.assign(text=plain["text"].astype("category"))
    assert b"".join(csv_lines(typed)) == as_pandas(table(plain))


def test_the_table_says_what_each_measurement_is_called_by():
    frame = checked(made_up.frame(depths=(1,), nets=1, inputs=1, suites=("iris-w1",)).assign(unit="u"))
    named = frame.assign(key="u/" + frame["rule"].astype(str) + "/" + frame["metric_spec"].astype(str))
    assert keys(frame).tolist() == named["key"].tolist()
    assert b"".join(csv_lines(frame)) == as_pandas(named)


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))), st.lists(st.text(max_size=3), min_size=1))
def test_categories_are_the_texts_in_their_order(some, others):
    for texts in (some, others, [*some, *others]):
        column = filled(pd.Series(texts, dtype=object))
        assert column.tolist() == [text or "" for text in texts]
        assert list(column.cat.categories) == sorted({*filter(None, texts), ""})
    assert by_kind(column, len).tolist() == [len(text) for text in column]
    assert by_kind(column, str.upper).astype(str).tolist() == [text.upper() for text in column]
