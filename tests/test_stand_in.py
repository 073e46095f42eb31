"""The stand-in obeys the rules of an accelerator, so that tests on it mean something."""

import copy

import pytest
import torch
from torch import nn

from tests.stand_in import StandIn


@pytest.fixture
def on():
    """A tensor on the stand-in, which has waited for nothing yet."""
    with StandIn() as stand_in:
        yield torch.arange(6.0).reshape(2, 3).to(stand_in.device)
        assert torch.ones(3).device.type != stand_in.device.type  # the host's own stay its own


def waited(x):
    return list(x.owner.synchronisations)


def test_what_comes_to_the_host_is_counted(on):
    assert on.owner.copied == 0
    on.cpu(), torch.empty(3).copy_(on[0]), on[:, 0].tolist()
    assert on.owner.copied == 6 + 3 + 2
    on.sum().item(), on.clone().copy_(torch.ones(2, 3)), on.to(torch.float64)
    assert on.owner.copied == 11


MIXED = {
    "add": lambda x: x + torch.ones(3),
    "mm": lambda x: x @ torch.ones(3, 2),
    "a number among vectors": lambda x: torch.stack([x[0, 0], torch.tensor(1.0)]),
    "a mask of the host": lambda x: x.masked_fill(torch.tensor([True, False, True]), 0.0),
    "out": lambda x: torch.mm(x, x.mT, out=torch.empty(2, 2)),
    "in place of a number": lambda x: torch.tensor(1.0).add_(x[0, 0]),
}


@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_two_places_do_not_meet(on, name):
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*lazy:0 and cpu"):
        MIXED[name](on)
    assert waited(on) == []


def test_numbers_of_the_host_and_its_indices_are_taken_as_cuda_takes_them(on):
    number, rows = torch.tensor(2.0), torch.tensor([1, 0])
    assert (on * number).tolist() == [[0, 2, 4], [6, 8, 10]]
    assert torch.where(on > 2, on, number).tolist() == [[2, 2, 2], [3, 4, 5]]
    assert on[rows].tolist() == [[3, 4, 5], [0, 1, 2]]
    changed = on.clone()
    changed[rows[:1], 2] = number
    assert changed.tolist() == [[0, 1, 2], [3, 4, 2]]


WAITS = {
    "item": lambda x: x[0, 0].item(),
    "float": lambda x: float(x.sum()),
    "cpu": lambda x: x.cpu(),
    "copied into the host's": lambda x: torch.empty(2, 3).copy_(x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "equal": lambda x: torch.equal(x, x),
    "cholesky": lambda x: torch.linalg.cholesky(torch.eye(2, device=x.device)),
}


@pytest.mark.parametrize("name", WAITS)
def test_what_the_host_waits_for_is_counted(on, name):
    WAITS[name](on)
    assert len(waited(on)) == 1


def test_work_on_the_device_is_not_waited_for(on):
    weight = torch.full((2, 3), 0.5, device=on.device, requires_grad=True)
    loss = nn.functional.linear(on, weight, torch.zeros(2, device=on.device)).relu().square().sum()
    loss.backward()
    torch.linalg.cholesky_ex(on @ on.mT)
    torch.full((3,), 2.0).to(on.device)
    on[1:].mul_(3)
    assert waited(on) == []
    assert {loss.device, weight.grad.device} == {on.device}


def test_a_device_has_no_numpy_and_no_generator_of_the_host(on):
    for refused in (on.numpy, lambda: on.__array__()):
        with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\) to copy the tensor to host memory first"):
            refused()
    own = torch.Generator()
    for draw in (lambda: torch.randn(2, generator=own, device=on.device), lambda: on.normal_(generator=own)):
        with pytest.raises(RuntimeError, match=r"device type for generator but found 'cpu'"):
            draw()
    before = torch.random.get_rng_state()
    drawn = torch.randn(4, device=on.device)
    assert torch.equal(before, torch.random.get_rng_state())
    assert drawn.device == on.device


def test_modules_move_are_cast_and_copied(on):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).eval()
    expected = copy.deepcopy(net).double()(on.cpu().double())
    moved = copy.deepcopy(net.to(on.device)).double()
    assert {p.device for p in moved.parameters()} == {on.device}
    assert torch.equal(moved(on.double()).cpu(), expected)
    back = moved.cpu()
    assert {type(p) for p in back.parameters()} == {nn.Parameter}
    assert torch.equal(back(on.cpu().double()), expected)


def test_the_device_is_known_to_torch_only_inside():
    with StandIn() as stand_in:
        x = torch.tensor([1.0, 2.0], device=stand_in.device)
    assert not hasattr(torch, "lazy")
    assert (x + x).cpu().tolist() == [2.0, 4.0]  # what is on it stays on it
    with pytest.raises(RuntimeError):
        torch.ones(3).to(stand_in.device)
