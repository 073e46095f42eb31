"""Prepared rules follow every change of the net that they were prepared for."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

import sdp_ref as sr

RULES = (
    "marginal_sdp",
    "moment_matching",
    "low_rank",
    "third_cumulants",
    "dvia",
    "exact",
    "sdp",
    "unscented",
    "split:k=3",
)


def normals(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def law(n=3, batch=2):
    return sr.DiagonalGaussian(normals(batch, n), normals(batch, n).square() + 0.1)


class Net(nn.Module):
    """A function of parameters ``w`` and of buffers, as a module."""

    def __init__(self, function, w, **buffers):
        super().__init__()
        self.function = function
        self.w = nn.Parameter(w)
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x):
        return self.function(self, x)


def standardised(net, x):
    w = net.w
    return F.linear(x, (w - w.mean(1, keepdim=True)) / w.std(1, keepdim=True), net.w.sum(1))


class Assigned(nn.Module):
    """A net that gives a layer its weight as a plain tensor."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(normals(2, 3))
        self.layer = nn.Linear(3, 2, bias=False).double()
        del self.layer.weight

    def forward(self, x):
        self.layer.weight = self.w.sigmoid()
        return self.layer(x)


def perceptron():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double().eval()


def wrapped(wrap):
    def make():
        net = perceptron()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of the older functions
            wrap(net[0])
        return net

    return make


NETS = {
    "standardised": lambda: Net(standardised, normals(2, 3)),
    "transposed": lambda: Net(lambda net, x: x @ net.w.T, normals(2, 3)),
    "split": lambda: Net(lambda net, x: x @ net.w.chunk(2, 1)[1], normals(3, 4)),
    "buffer": lambda: Net(lambda net, x: x * net.scale.square() + net.w, normals(3), scale=normals(3)),
    "token": lambda: Net(
        lambda net, x: torch.cat([net.w.expand(len(x), -1), x], 1), torch.zeros(1, 2).double()
    ),
    "number": lambda: Net(lambda net, x: x * net.w.mean().item(), normals(3)),
    "list": lambda: Net(lambda net, x: x * net.w.tolist()[1], normals(3)),
    "array": lambda: Net(lambda net, x: x + torch.from_numpy(2 * net.w.detach().numpy()), normals(3)),
    "branch": lambda: Net(lambda net, x: x if net.w.sum() > 0 else 3 * x, -torch.ones(3).double()),
    "indices": lambda: Net(lambda net, x: x[:, net.order] * net.w, normals(2), order=torch.tensor([2, 0])),
    "assigned": Assigned,
    "pruned": wrapped(lambda layer: prune.random_unstructured(layer, "weight", amount=4)),
    "weight_norm": wrapped(nn.utils.weight_norm),
    "spectral_norm": wrapped(nn.utils.spectral_norm),
    "parametrised": wrapped(parametrizations.weight_norm),
    "layers": perceptron,
}


def optimise(net):
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(net.parameters(), 0.7).step()


def load(net, assign=False):
    state = {
        name: 1.3 * value + 0.1 if value.is_floating_point() and "mask" not in name else value
        for name, value in net.state_dict().items()
    }
    net.load_state_dict(state, assign=assign)


def write_data(net):
    for parameter in net.parameters():
        parameter.data.mul_(-1.5).add_(0.2)


def replace_data(net):
    for parameter in net.parameters():
        parameter.data = 0.5 - parameter.data


def write_array(net):
    for parameter in net.parameters():
        parameter.detach().numpy()[...] += 0.3


def change_buffers(net):
    for buffer in net.buffers():
        buffer.copy_(1 - buffer if buffer.is_floating_point() else (buffer + 1) % 3)


CHANGES = {
    "optimiser": optimise,
    "load": load,
    "assign": lambda net: load(net, assign=True),
    "data": write_data,
    "new data": replace_data,
    "numpy": write_array,
    "buffers": change_buffers,
}


def assert_same(found, wanted):
    torch.testing.assert_close(found.mean, wanted.mean)
    torch.testing.assert_close(found.variance, wanted.variance)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", NETS)
def test_a_prepared_rule_follows_parameters_and_buffers(name, change):
    x = law()
    for rule in RULES:
        for gradients in (False, True):
            net = NETS[name]()
            with torch.set_grad_enabled(gradients):
                predict = sr.rule(rule).prepare(net)
                before = predict(x).mean.detach().clone()
                with torch.no_grad():
                    CHANGES[change](net)
                assert_same(predict(x), sr.rule(rule).propagate(net, x))
            if change in ("data", "new data"):
                assert not torch.allclose(predict(x).mean, before)


def replace_layer(net):
    net[2] = nn.Linear(4, 2).double()


def replace_parameter(net):
    net[0].weight = nn.Parameter(normals(4, 3))


def parametrise(net):
    parametrizations.orthogonal(net[0])


def hook(net):
    net[1].register_forward_hook(lambda _module, _args, result: 2 * result)


def replace_attribute(net):
    net[1].negative_slope = 0.5


def prune_layer(net):
    prune.l1_unstructured(net[2], "weight", amount=3)


def insert(net):
    net.append(nn.Linear(2, 2).double())


@pytest.mark.parametrize(
    "change",
    [
        replace_layer,
        replace_parameter,
        parametrise,
        hook,
        replace_attribute,
        prune_layer,
        insert,
    ],
)
@pytest.mark.parametrize("function", [False, True])
def test_a_prepared_rule_follows_the_structure(change, function):
    x = law()
    for rule in RULES:
        net = perceptron()
        net[1] = nn.LeakyReLU(0.1) if rule != "dvia" else nn.ReLU()
        called = (lambda v, net=net: net(v)) if function else net
        predict = sr.rule(rule).prepare(called)
        before = predict(x)
        change(net)
        after = predict(x)
        assert_same(after, sr.rule(rule).propagate(net, x))
        if not (rule == "dvia" and change is replace_attribute):
            assert not torch.allclose(after.variance, before.variance)


def test_a_new_mask_of_a_pruned_layer_is_followed():
    x = law()
    net = perceptron()
    prune.random_unstructured(net[0], "weight", amount=2)
    predict = sr.rule("moment_matching").prepare(net)
    predict(x)
    net[0].weight_mask.zero_()
    constant = predict(x)
    torch.testing.assert_close(constant.variance, torch.zeros(2, 2).double())
    torch.testing.assert_close(constant.mean, net(x.mean))


@pytest.mark.parametrize(
    "rule", ["marginal_sdp", "moment_matching", "marginal_moment_matching", "low_rank", "third_cumulants"]
)
@pytest.mark.parametrize("times", [1, 2])
def test_training_through_a_prepared_rule_is_that_of_the_closed_form(rule, times):
    """y = w x with w = exp(2 a): mean w m and variance w^2 v, trained by both."""
    x = law(n=2, batch=3)
    net = Net(lambda net, v: F.linear(v, (2 * net.w).exp()), torch.tensor([[0.1, -0.4], [0.3, 0.0]]).double())
    a = net.w.detach().clone().requires_grad_()
    predict = sr.rule(rule).prepare(net)
    optimisers = [torch.optim.Adam([parameter], 0.1) for parameter in (net.w, a)]
    for _ in range(4):
        for optimiser in optimisers:
            optimiser.zero_grad()
        for _ in range(times):  # without a step in between, gradients add
            y = predict(x)
            w = (2 * a).exp()
            (y.mean.square().sum() + y.variance.sum()).backward()
            ((x.mean @ w.mT).square().sum() + (x.variance @ w.square().mT).sum()).backward()
        torch.testing.assert_close(net.w.grad, a.grad)
        for optimiser in optimisers:
            optimiser.step()
    torch.testing.assert_close(net.w, a)


def test_gradients_reach_a_rule_that_was_first_called_without_them():
    x = law()
    for make in (NETS["standardised"], NETS["transposed"], NETS["split"]):
        for mode in (torch.no_grad, torch.inference_mode):
            net = make()
            predict = sr.rule("moment_matching").prepare(net)
            with mode():
                predict(x)
            predict(x).mean.sum().backward()
            (expected,) = torch.autograd.grad(net(x.mean).sum(), net.w)
            torch.testing.assert_close(net.w.grad, expected)


def test_nets_that_compute_no_weights_are_traced_once():
    calls = []
    net = perceptron()
    net[1].register_forward_hook(lambda *_: calls.append(1))
    predict = sr.rule("marginal_sdp").prepare(net)
    predict(law())
    before = len(calls)
    for change in (optimise, load, write_data, write_array):
        with torch.no_grad():
            change(net)
        predict(law())
    assert len(calls) == before
