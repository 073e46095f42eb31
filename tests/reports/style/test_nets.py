import pytest

from sdp_bench.reports.style.nets import NetKind


@pytest.mark.parametrize(
    ("activation", "depth", "label"),
    [
        ("relu", 1, "1 ReLU layer"),
        ("leaky_relu", 4, "4 Leaky-ReLU layers"),
        ("resnet18", 18, "ResNet-18"),
        ("own:theirs", 3, "theirs"),
    ],
)
def test_a_kind_of_nets_has_a_name_for_people(activation, depth, label):
    assert NetKind(activation, depth).label == label


def test_an_image_classifier_is_one_by_its_architecture():
    assert NetKind("cnn3", 3).is_classifier
    assert not NetKind("relu", 3).is_classifier
