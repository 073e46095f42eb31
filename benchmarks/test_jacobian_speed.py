"""Speed of Jacobians beside those of torch: `pytest benchmarks/test_jacobian_speed.py --benchmark-enable`.

Ours walks back through autograd's graph for all outputs at once (`sdp_ref/jacobian/backward.py`); torch's are
`vmap` of `torch.func.vjp` over the outputs, all at once or three at a time, `vmap` of `jacrev` over the rows,
and `torch.autograd.grad` with stacked cotangents. All take ReLU's derivative at 0 from the right, by the same
means. Methods take turns, every ratio is the median of ratios of one round, and the clock is that of
`sdp_bench.bench.runtime.timing`. Results are asserted to agree, nothing is asserted about time.
"""

import statistics
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev, vjp, vmap

from sdp_bench.bench.nets.architectures import Architecture, ImageArchitecture
from sdp_bench.bench.runtime.timing import Ratio, by_turns
from sdp_ref.jacobian.jacobian import RightDerivative, jacobian_of

IMAGES = {"cnn3": 64, "resnet18": 8}


def case(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if name == "iris":
        return Architecture(4).build(), torch.randn(10, 4)
    return ImageArchitecture(name).build(), torch.rand(IMAGES[name], 3, 32, 32)


def basis(value: Tensor) -> Tensor:
    m = value[0].numel()
    return torch.eye(m).reshape(m, 1, *value.shape[1:]).expand(m, *value.shape)


def by_vjp(net: nn.Module, x: Tensor, chunk: int | None) -> Tensor:
    with RightDerivative():
        value, pull = vjp(lambda v: net(v.clone()), x)
    return vmap(lambda g: pull(g)[0], chunk_size=chunk)(basis(value)).transpose(0, 1)


def by_jacrev(net: nn.Module, x: Tensor) -> Tensor:
    with RightDerivative():
        return vmap(jacrev(lambda v: net(v.clone().unsqueeze(0)).squeeze(0)))(x)


def by_stacked_cotangents(net: nn.Module, x: Tensor) -> Tensor:
    point = x.detach().requires_grad_()
    with RightDerivative():
        value = net(point.clone())
    return torch.autograd.grad(value, point, basis(value), is_grads_batched=True)[0].transpose(0, 1)


def methods(net: nn.Module, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    return {
        "ours": lambda: jacobian_of(net, x)[1],
        "vmap of vjp": lambda: by_vjp(net, x, None),
        "vmap of vjp, 3 at a time": lambda: by_vjp(net, x, 3),
        "vmap of jacrev": lambda: by_jacrev(net, x),
        "stacked cotangents": lambda: by_stacked_cotangents(net, x),
    }


@pytest.mark.parametrize("name", ["iris", *IMAGES])
def test_jacobian(benchmark, name: str, threads: int, capsys: pytest.CaptureFixture[str]) -> None:
    net, x = case(name)
    works = methods(net, x)
    expected = works["ours"]()
    for work in works.values():
        assert torch.allclose(work().reshape(expected.shape), expected, rtol=1e-3, atol=1e-5)
    times = by_turns(works, 15 if benchmark.enabled else 1)
    with capsys.disabled():
        print(f"\n{name}, {threads} thread(s)")
        for method, seconds in times.items():
            ratio = Ratio.of(seconds, times["ours"])
            print(
                f"  {method:26s} {1e3 * statistics.median(seconds):9.2f} ms"
                f" {ratio.median:6.2f} x ours [{ratio.lower:.2f}, {ratio.upper:.2f}]"
            )
    benchmark.pedantic(works["ours"], rounds=1)
