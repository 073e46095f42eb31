import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdp_bench.oracles.partitions.counting import Edges

coarse = st.integers(-4, 4).map(float)  # so that edges repeat and values meet them
fine = st.floats(-1e6, 1e6, allow_subnormal=False)
# the table has one step, or most of it is empty
unlike = st.sampled_from([0.0, 5e-324, 1e-300, -1e30, 1e30, -1.7e308, 1.7e308])
numbers = st.one_of(coarse, fine, unlike)


@given(st.lists(numbers, max_size=70), st.lists(numbers, min_size=1), st.integers(0, 3))
def test_the_table_finds_what_a_search_finds(edges: list[float], values: list[float], open_ends: int) -> None:
    line = np.r_[np.sort(edges), np.full(open_ends, np.inf)]
    looked_up = np.r_[values, edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)]
    with np.errstate(over="ignore"):  # of differences between the largest floats
        found = Edges(line).below(looked_up)
    assert np.array_equal(found, np.searchsorted(line, looked_up))
