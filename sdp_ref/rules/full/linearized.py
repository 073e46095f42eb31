"""Ops without exact moments beside the values that are read later: linearised at the mean."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from sdp_ref.graph.norms import Norm
from sdp_ref.graph.parameters import in_dtype
from sdp_ref.jacobian.local import linear_part
from sdp_ref.rules.full.joint import Joint, Rows
from sdp_ref.rules.full.steps import LinearStep


def linearised(module: nn.Module) -> LinearStep:
    """Step of any differentiable op: its value at the means, and its derivative there.

    Parameters
    ----------
    module : nn.Module
        Of one value or several, each row by itself.

    Returns
    -------
    LinearStep
    """

    def bind(*means: Tensor) -> tuple[Tensor, Rows]:
        return linear_part(partial(in_dtype, module), means)

    return LinearStep(bind)


class NormStep(LinearStep):
    """A norm, linearised with its mean scale: the mean of the mean squares in the stead of that at the mean.

    Parameters
    ----------
    module : nn.Module
        One of :data:`~sdp_ref.graph.norms.NORMS`.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(self._bound)
        self.module = module

    def bound(self, joint: Joint, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        """See :class:`LinearStep`."""
        (value,) = inputs
        mean = joint.means[value]
        return self._bound(mean, _excess(Norm.of(self.module, mean), joint, value))

    def _bound(self, mean: Tensor, excess: Tensor | float = 0.0) -> tuple[Tensor, Rows]:
        form = Norm.of(self.module, mean)
        z, inverse = form.scores(mean, excess)

        def rows(x: Tensor) -> Tensor:
            t = x.reshape(*x.shape[:2], *z.shape[1:])
            if form.centred:
                t = t - t.mean(-1, keepdim=True)
            score, divisor = z.unsqueeze(1), inverse.unsqueeze(1)
            y = (t - score * (score * t).mean(-1, keepdim=True)) * divisor
            y = y.reshape(x.shape)
            return y if form.gain is None else y * form.gain

        return form.finished(z, mean), rows


def _excess(form: Norm, joint: Joint, value: int) -> Tensor:
    """By how much noise raises the mean squares of groups on average, (B, groups, 1)."""
    variance = joint.independent(value)
    if variance is not None:
        rows = form.grouped(variance)
        trace, n = rows.sum(-1, keepdim=True), rows.shape[-1]
        total = trace
    else:
        block = joint.block(value, value)
        n = block.shape[-1] // form.groups
        own = block.unflatten(2, (form.groups, n)).unflatten(1, (form.groups, n))
        own = own.diagonal(dim1=1, dim2=3)  # (B, n, n, groups)
        trace = own.diagonal(dim1=1, dim2=2).sum(-1, keepdim=True)
        total = own.sum((1, 2)).unsqueeze(-1)
    return trace / n - total / n**2 if form.centred else trace / n
