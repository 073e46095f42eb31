import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from sdp_bench.bench.results.queries import keys
from sdp_bench.bench.results.tables import filled
from sdp_bench.reports.tables.frame import by_kind, csv_lines
from tests.reports import made_up
from tests.reports.made_up import checked


def test_the_table_says_what_each_measurement_is_called_by():
    frame = checked(made_up.frame(depths=(1,), nets=1, inputs=1, suites=("iris-w1",)).assign(unit="u"))
    named = frame.assign(key="u/" + frame["rule"].astype(str) + "/" + frame["metric_spec"].astype(str))
    assert keys(frame).tolist() == named["key"].tolist()
    assert b"".join(csv_lines(frame)).decode() == named.to_csv(index=False, lineterminator="\n")


@settings(max_examples=20)
@given(st.lists(st.one_of(st.none(), st.text(max_size=3))), st.lists(st.text(max_size=3), min_size=1))
def test_categories_are_the_texts_in_their_order(some, others):
    for texts in (some, others, [*some, *others]):
        column = filled(pd.Series(texts, dtype=object))
        assert column.tolist() == [text or "" for text in texts]
        assert list(column.cat.categories) == sorted({*filter(None, texts), ""})
    assert by_kind(column, len).tolist() == [len(text) for text in column]
    assert by_kind(column, str.upper).astype(str).tolist() == [text.upper() for text in column]
