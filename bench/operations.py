"""Counts of floating-point operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop, sdpa_flop

from sdp_ref.graph.recording import by_ordinary_attention


def operations(work: Callable[[], object]) -> float:
    """Return the number of floating-point operations of a call, with those of autograd.

    A multiplication and an addition of a product of matrices or vectors, or of a convolution, are two
    operations, as in torch's ``FlopCounterMode``. Factorisations, solvers and Fourier transforms take the
    leading term of the textbook. Fused attention counts as the ops that it replaces. Any other op takes one
    operation for each element of its largest tensor, whatever the function; custom ops with more work are
    therefore underestimated. Sparse matrices count as dense and complex numbers as real. Views, clones and
    conversions are free, as are `zeros`, `ones` and work outside torch; concatenation counts.
    """
    attention = sdpa_kernel(SDPBackend.MATH)  # products of matrices and softmax, forward and backward
    with by_ordinary_attention(), attention, _Counter() as counter:  # type: ignore[no-untyped-call]
        work()
    return counter.total


class _Counter(TorchDispatchMode):
    total = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:  # in inference mode, torch does not decompose ops before they arrive here
            out = func.decompose(*args, **kwargs)
        if out is not NotImplemented:
            return out
        out = func(*args, **kwargs)
        name = func.overloadpacket.__name__.removesuffix("_")  # ops in place have the formula of the others
        packet = getattr(getattr(torch.ops, func.namespace), name, func.overloadpacket)
        of_torch = func.namespace in ("aten", "mkldnn", "quantized")
        if formula := flop_registry.get(packet):
            self.total += formula(*args, **kwargs, out_val=out)
        elif of_torch and (formula := _FORMULAS.get(name)):
            options = {option: value for option, value in kwargs.items() if not isinstance(value, Tensor)}
            self.total += formula(out, *args, **options)
        elif name not in _FREE and not func.is_view:
            tensors = [leaf for leaf in tree_leaves((args, out)) if isinstance(leaf, Tensor)]
            self.total += max((tensor.numel() for tensor in tensors), default=0)
        return out


_FREE = {
    "_to_copy",
    "clone",
    "copy",
    "detach",
    "empty",
    "zeros",
    "_unsafe_view",
    "_reshape_alias",
    "full",
    "ones",
}


def _product(out: Tensor, left: Tensor) -> float:
    return 2.0 * out.numel() * left.shape[-1]


def _convolution(out: Tensor, weight: Tensor) -> float:
    return 2.0 * out.numel() * weight[0].numel()


def _trilinear(a: Tensor, b: Tensor, c: Tensor, *expanded: Sequence[int]) -> float:
    """Sums over products of three tensors, to which `expanded` adds dimensions of size 1."""
    shapes = []
    for values, dims in zip((a, b, c), expanded, strict=False):
        for dim in dims:
            values = values.unsqueeze(dim)
        shapes.append(values.shape)
    return 2.0 * math.prod(torch.broadcast_shapes(*shapes))


def _lstm(x: Tensor, of_input: Tensor, of_state: Tensor) -> float:
    """One layer: products, and 18 elementwise operations for each unit, as without the fused kernel."""
    return x[..., 0].numel() * (2.0 * (of_input.numel() + of_state.numel()) + 18 * of_state.shape[1])


def _recurrent(x: Tensor, weights: Sequence[Tensor]) -> float:
    return 2.0 * x[..., 0].numel() * sum(weight.numel() for weight in weights)


def _pool(out: Tensor, kernel: Sequence[int], dims: int) -> float:
    return float(out.numel() * (math.prod(kernel) if len(kernel) > 1 else kernel[0] ** dims))


def _fourier(complex_values: Tensor | None, x: Tensor, dims: Sequence[int]) -> float:
    """5 N log2 N operations for N complex numbers, and half as many for real ones (Van Loan 1992)."""
    n = math.prod(x.shape[dim] for dim in dims)
    return (2.5 if complex_values is None else 5.0) * x.numel() * math.log2(max(1, n))


def _sizes(a: Tensor) -> tuple[int, int, int]:
    """Number of matrices of a batch, and their larger and smaller dimensions."""
    return math.prod(a.shape[:-2]), max(a.shape[-2:]), min(a.shape[-2:])


def _cubes(a: Tensor) -> float:
    """n^3 for each n x n matrix of a batch."""
    return float(a.numel() * a.shape[-1])


def _lu(a: Tensor) -> float:
    batch, m, n = _sizes(a)
    return batch * (m * n**2 - n**3 / 3)


def _solved(a: Tensor, x: Tensor) -> float:
    """Forward and backward substitution with factors of the size of `a`, for all columns of `x`."""
    return 2.0 * x.numel() * a.shape[-1]


def _householder(a: Tensor) -> float:
    """QR factorisation; the columns of Q take as many operations again."""
    batch, m, n = _sizes(a)
    return batch * (2 * m * n**2 - 2 / 3 * n**3)


def _reflections(b: Tensor, count: int) -> float:
    """Product of an orthogonal matrix, given by `count` reflections, with the columns of `b`."""
    return float(math.prod(b.shape[:-2]) * b.shape[-1] * (4 * b.shape[-2] * count - 2 * count**2))


def _least_squares(a: Tensor, b: Tensor) -> float:
    """QR factorisation, product of the transpose of Q with the right sides, and substitution."""
    right = b if b.ndim == a.ndim else b.unsqueeze(-1)
    batch, _, n = _sizes(a)
    return _householder(a) + _reflections(right, n) + batch * n**2 * right.shape[-1]


def _svd(a: Tensor, left: Tensor, right: Tensor) -> float:
    """The least count in figure 8.6.1 of Golub and Van Loan (2013)."""
    batch, m, n = _sizes(a)
    counts = [4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3]
    if max(left.shape[-1], right.shape[-2]) == n:
        counts += [14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3]
    return float(batch * min(counts))


def _pseudoinverse(a: Tensor, hermitian: bool = False, **_: Any) -> float:
    """A decomposition, and the product of its factors."""
    batch, m, n = _sizes(a)
    product = 2 * batch * m * n**2
    if hermitian:
        return 9 * _cubes(a) + product
    return _svd(a, a[..., :n, :n], a[..., :n, :n]) + product


def _exponential(a: Tensor) -> float:
    """Five products and repeated squaring (Bader, Blanes and Casas 2019)."""
    norms = torch.linalg.matrix_norm(a, 1).flatten().tolist()
    squarings = sum(math.ceil(math.log2(norm)) for norm in norms if 1 < norm < math.inf)
    return 2.0 * a.shape[-1] ** 3 * (5 * len(norms) + squarings)


_FORMULAS: dict[str, Callable[..., float]] = {
    # products of matrices and vectors
    "mv": lambda _, a, *__: 2.0 * a.numel(),
    "addmv": lambda _, __, a, *___, **____: 2.0 * a.numel(),
    "dot": lambda _, a, *__: 2.0 * a.numel(),
    "vdot": lambda _, a, *__: 2.0 * a.numel(),
    "addr": lambda out, *_, **__: 2.0 * out.numel(),
    "addbmm": lambda out, _, a, *__, **___: _product(out, a) * len(a),
    "_addmm_activation": lambda out, _, a, *__, **___: _product(out, a),
    "_sparse_addmm": lambda out, _, a, *__, **___: _product(out, a),
    "_trilinear": lambda _, *args, **__: _trilinear(*args[:6]),
    # distances between rows: differences and their norms
    "_cdist_forward": lambda _, a, b, *__: 2.0 * a.numel() * b.shape[-2],
    "_cdist_backward": lambda _, __, a, b, *___: 2.0 * a.numel() * b.shape[-2],
    "_euclidean_dist": lambda _, a, b: 2.0 * a.numel() * b.shape[-2],
    "_pdist_forward": lambda out, a, *_: 2.0 * out.numel() * a.shape[-1],
    "_pdist_backward": lambda _, grad, a, *__: 2.0 * grad.numel() * a.shape[-1],
    # layers
    "conv_tbc": lambda out, _, weight, *__: 2.0 * out.numel() * weight[..., 0].numel(),
    "mkldnn_convolution": lambda out, _, weight, *__: _convolution(out, weight),
    "_convolution_pointwise": lambda out, _, weight, *__: _convolution(out, weight),
    "mkldnn_rnn_layer": lambda _, *args: _lstm(*args[:3]),
    "mkldnn_rnn_layer_backward": lambda _, *args: 2 * _lstm(*args[:3]),
    "_cudnn_rnn": lambda _, x, weights, *__: _recurrent(x, weights),
    "_cudnn_rnn_backward": lambda _, x, weights, *__: 2 * _recurrent(x, weights),
    "_scaled_dot_product_flash_attention_for_cpu": lambda _, q, k, v, *__, **___: sdpa_flop(
        q.shape, k.shape, v.shape
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        lambda _, grad, q, k, v, *__, **___: sdpa_backward_flop(grad.shape, q.shape, k.shape, v.shape)
    ),
    "embedding": lambda out, *_: float(out.numel()),
    "_embedding_bag": lambda _, table, index, *__: float(index.numel() * table.shape[-1]),
    "_embedding_bag_forward_only": lambda _, table, index, *__: float(index.numel() * table.shape[-1]),
    "avg_pool2d": lambda out, _, kernel, *__: _pool(out, kernel, 2),
    "avg_pool3d": lambda out, _, kernel, *__: _pool(out, kernel, 3),
    "avg_pool2d_backward": lambda _, grad, __, kernel, *___: _pool(grad, kernel, 2),
    "avg_pool3d_backward": lambda _, grad, __, kernel, *___: _pool(grad, kernel, 3),
    "max_pool2d_with_indices": lambda out, _, kernel, *__: _pool(out[0], kernel, 2),
    "max_pool3d_with_indices": lambda out, _, kernel, *__: _pool(out[0], kernel, 3),
    "_fft_c2c": lambda _, x, dims, *__: _fourier(x, x, dims),
    "_fft_r2c": lambda _, x, dims, *__: _fourier(None, x, dims),
    "_fft_c2r": lambda out, _, dims, *__: _fourier(None, out, dims),
    # factorisations and solvers (Blackford and Dongarra 1999, LAPACK working note 41, appendix C; Golub and
    # Van Loan 2013, "Matrix computations")
    "linalg_cholesky_ex": lambda _, a, **__: _cubes(a) / 3,
    "cholesky": lambda _, a, *__: _cubes(a) / 3,
    "linalg_ldl_factor_ex": lambda _, a, **__: _cubes(a) / 3,
    "cholesky_inverse": lambda _, a, *__: 2 / 3 * _cubes(a),
    "linalg_lu": lambda _, a, **__: _lu(a),
    "linalg_lu_factor_ex": lambda _, a, **__: _lu(a),
    "_linalg_det": lambda _, a: _lu(a),
    "_linalg_slogdet": lambda _, a: _lu(a),
    "_linalg_solve_ex": lambda out, a, *_, **__: _lu(a) + _solved(a, out[0]),
    "linalg_inv_ex": lambda _, a, **__: 2 * _cubes(a),
    "linalg_lu_solve": lambda out, a, *_, **__: _solved(a, out),
    "linalg_ldl_solve": lambda out, a, *_, **__: _solved(a, out),
    "cholesky_solve": lambda out, _, a, *__: _solved(a, out),
    "_cholesky_solve_helper": lambda out, _, a, *__: _solved(a, out),
    "linalg_solve_triangular": lambda out, a, *_, **__: _solved(a, out) / 2,
    "triangular_solve": lambda out, _, a, *__: _solved(a, out[0]) / 2,
    # 4/3 m n^2 for m x n matrices: right without Q for m = n. Counts of `compute` depend on it.
    "linalg_qr": lambda _, a, *__: 4 / 3 * _cubes(a),
    "geqrf": lambda _, a: _householder(a),
    "linalg_householder_product": lambda out, *_: _householder(out),
    "ormqr": lambda _, __, tau, b, *___: _reflections(b, tau.shape[-1]),
    "linalg_lstsq": lambda _, a, b, *__, **___: _least_squares(a, b),
    "_linalg_svd": lambda out, a, *_, **__: _svd(a, out[0], out[2]),
    "linalg_pinv": lambda _, a, **options: _pseudoinverse(a, **options),
    # torch computes vectors for `eigvalsh` and `svdvals` too, while operations are counted
    "_linalg_eigh": lambda _, a, *__: 9 * _cubes(a),
    "linalg_eig": lambda _, a: 25 * _cubes(a),
    "linalg_matrix_exp": lambda _, a: _exponential(a),
}
_QUANTISED_LINEAR = ("linear", "linear_relu", "linear_dynamic", "linear_relu_dynamic", "linear_dynamic_fp16")
for _name in (
    "_int_mm",
    "_grouped_mm",
    "_weight_int8pack_mm",
    "mkldnn_linear",
    "_linear_pointwise",
    *_QUANTISED_LINEAR,
):
    _FORMULAS[_name] = lambda out, a, *_, **__: _product(out, a)
for _name in ("conv1d", "conv2d", "conv3d"):  # quantised, with packed weights
    _FORMULAS[_name] = _FORMULAS[f"{_name}_relu"] = lambda out, _, packed, *__: _convolution(
        out, packed.unpack()[0]
    )
