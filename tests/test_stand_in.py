"""The stand-in obeys the rules of an accelerator, so that tests on it mean something."""

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


def test_values_copied_to_the_host_are_counted(on):
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
def test_synchronisations_with_the_host_are_counted(on, name):
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


def test_views_share_their_numbers_and_transforms_of_torch_pass_through(on):
    whole = on.clone()
    whole[:, 1] = 7.0
    whole.view(-1)[5] = 9.0
    assert whole.tolist() == [[0, 7, 2], [3, 7, 9]]
    tangent = torch.func.jvp(torch.sin, (on,), (torch.ones_like(on),))[1]
    gradient = torch.func.vmap(torch.func.grad(lambda row: row.sin().sum()))(on)
    assert torch.equal(tangent.cpu(), on.cpu().cos())
    assert torch.equal(gradient.cpu(), on.cpu().cos())
