"""Ops without exact moments in a joint law, linearised at the mean."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from sdp_ref.graph.nonlinear import Norm, mean_field, softmax_dim
from sdp_ref.graph.ops import pointwise
from sdp_ref.jacobian.local import in_dtype, linear_part
from sdp_ref.rules.full.budget import Budget
from sdp_ref.rules.full.joint import Joint, Live, Rows
from sdp_ref.rules.full.steps import LinearStep, MeanStep


def linearised(module: nn.Module) -> MeanStep:
    """Step of any differentiable op: its value and its derivative at the means."""

    def bind(*means: Tensor) -> tuple[Tensor, Rows]:
        return linear_part(partial(in_dtype, module), means)

    return MeanStep(bind, single=pointwise(module))


class NormStep(LinearStep):
    """A norm, linearised at its mean scale: the mean square under the law replaces that at the mean.

    The module is one of :data:`~sdp_ref.graph.nonlinear.NORMS`.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def bound(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        (value,) = inputs
        mean = joint.means[value]
        form = Norm.of(self.module, mean)
        z, inverse = form.scores(mean, _excess(form, joint, value))

        def rows(x: Tensor) -> Tensor:
            t = x.reshape(*x.shape[:2], *z.shape[1:])
            if form.centred:
                t = t - t.mean(-1, keepdim=True)
            score, divisor = z.unsqueeze(1), inverse.unsqueeze(1)
            y = (t - score * (score * t).mean(-1, keepdim=True)) * divisor
            y = y.reshape(x.shape)
            return y if form.gain is None else y * form.gain

        return form.finished(z, mean), rows


def _excess(form: Norm, joint: Live, value: int) -> Tensor:
    """Mean increase of the mean squares of groups by the noise, (B, groups, 1)."""
    trace, total = joint.group_sums(value, form.groups)
    n = joint.size(value) // form.groups
    return trace / n - total / n**2 if form.centred else trace / n


class SoftmaxStep(LinearStep):
    """A softmax with its mean-field mean and the derivative of that."""

    def __init__(self, module: nn.Softmax) -> None:
        self.module = module

    def take(
        self, joint: Joint, budget: Budget, number: int, inputs: tuple[int, ...], others: tuple[int, ...]
    ) -> None:
        mean = joint.means[inputs[0]]
        n = mean.shape[softmax_dim(self.module, mean)]
        budget.fit(joint, joint.size(inputs[0]), entries=5 * n * joint.size(inputs[0]))
        super().take(joint, budget, number, inputs, others)

    def bound(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        (value,) = inputs
        mean = joint.means[value]
        dim = softmax_dim(self.module, mean) % mean.ndim
        event, places = mean.shape[1:], torch.arange(joint.size(value))
        grouped = places.reshape(event).movedim(dim - 1, -1)
        own = joint.within(value, grouped.flatten(0, -2) if grouped.ndim > 1 else grouped.unsqueeze(0))
        variance = own.diagonal(dim1=2, dim2=3)
        between = variance.unsqueeze(3) + variance.unsqueeze(2) - own - own.mT
        scores = mean.movedim(dim, -1)
        p, jacobian = mean_field(scores.reshape(variance.shape), between.clamp(min=0))

        def rows(x: Tensor) -> Tensor:
            t = x.movedim(dim + 1, -1)
            y = torch.einsum("bgij,brgj->brgi", jacobian, t.reshape(*t.shape[:2], *variance.shape[1:]))
            return y.reshape(t.shape).movedim(-1, dim + 1)

        return p.reshape(scores.shape).movedim(-1, dim), rows
