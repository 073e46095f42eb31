import numpy as np

from sdp_bench.reports.statistics.rows import Labels


def test_labels_are_those_of_the_same_rows_in_whatever_order():
    addresses = {Labels([3, 1, 2]): "here"}
    assert addresses[Labels(np.array([2, 3, 1]))] == addresses[Labels((1, 2, 3))] == "here"
    assert Labels([1, 2]) not in addresses
    assert Labels([1, 2, 4]) != Labels([1, 2, 3])


def test_labels_are_given_as_numbers_ascending():
    labels = Labels([3, 1, 2])
    assert list(labels) == [1, 2, 3]
    assert (labels[0], labels[-1], labels[1:], len(labels)) == (1, 3, [2, 3], 3)
    assert np.asarray(labels).tolist() == [1, 2, 3]
    assert not Labels()


def test_labels_of_many_rows_take_few_bytes():
    assert np.asarray(Labels(range(1000))).nbytes == 4000
