"""Objects that a rule must not modify: the tensors of the input, and the net."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.activations import activation
from sdp_ref.conformance import cases
from sdp_ref.conformance.cases import chain
from sdp_ref.conformance.subject import Subject
from sdp_ref.conformance.trial import Case, Verdict
from sdp_ref.laws import Law


def inputs_kept(subject: Subject, seed: int) -> Iterator[Case]:
    """The tensors of the input law keep values, gradients and flags."""

    def judge(net: nn.Module, x: Law) -> Verdict:
        tensors = {f.name: v for f in fields(x) if isinstance(v := getattr(x, f.name), Tensor)}
        before = {name: (v.clone(), v.requires_grad, v.shape) for name, v in tensors.items()}
        subject.predict(net, x)
        for name, v in tensors.items():
            value, flag, shape = before[name]
            changed = [
                text
                for text, differs in (
                    ("values", v.shape != shape or not torch.equal(v, value)),
                    ("requires_grad", v.requires_grad != flag),
                    (".grad", v.grad is not None),
                )
                if differs
            ]
            if getattr(x, name) is not v:
                changed.append("identity")
            if changed:
                calls = (
                    f"kept, before = x.{name}, x.{name}.clone()\nrule.propagate(net, x)\n"
                    f"print(before)\nprint(kept, kept.requires_grad, kept.grad, kept is x.{name})"
                )
                return Verdict(False, f"{name} of the input changed: {', '.join(changed)}", calls=calls)
        return Verdict(True)

    for net, x in cases.generic(subject, seed):
        yield Case(net, x.to(torch.float64, copy=True), judge)


def net_kept(subject: Subject, seed: int) -> Iterator[Case]:
    """Weights, buffers, gradients, hooks and training flags are unchanged, in both modes of the net."""

    def judge(net: nn.Module, x: Law) -> Verdict:
        before = _state(net)
        subject.predict(net, x)
        after = _state(net)
        changed = [key for key in {**before, **after} if not _equal(before.get(key), after.get(key))]
        if not changed:
            return Verdict(True)
        name = changed[0]
        calls = (
            "import copy\nbefore = copy.deepcopy(net)\nrule.propagate(net, x)\n"
            "for a, b in zip(before.modules(), net.modules()):\n"
            "    print(a.training, b.training, a._forward_hooks, b._forward_hooks)\n"
            "for (name, a), (_, b) in zip(before.named_parameters(), net.named_parameters()):\n"
            "    print(name, a.requires_grad, b.requires_grad, a.grad, b.grad)\n"
            "print(before.state_dict(), net.state_dict())"
        )
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return Verdict(False, f"{name} of the net changed{more}", calls=calls)

    def prepared(net: nn.Module, *, training: bool) -> nn.Module:
        net = copy.deepcopy(net).requires_grad_()
        return net.train(training)

    ladder = [(net, x) for net, x in cases.generic(subject, seed)]
    for training in (False, True):
        for net, x in ladder:
            yield Case(prepared(net, training=training), x, judge)
    name = cases.representative(subject)[0]
    for extra in (nn.BatchNorm1d(2, dtype=torch.float64), nn.Dropout(0.5)):
        net = cases.dense((2, 2, 1), name, seed)
        with_extra = chain(net[0], extra, activation(name).build(), net[2])
        yield Case(prepared(with_extra, training=False), cases.diagonal(2, seed), judge)


def _state(net: nn.Module) -> dict[str, Any]:
    state: dict[str, Any] = {"structure": [type(module).__name__ for module in net.modules()]}
    for path, module in net.named_modules():
        at = f"'{path}'" if path else "the whole"
        state[f"training flag of {at}"] = module.training
        for name, value in vars(module).items():
            if name.endswith("hooks"):
                state[f"{name.strip('_')} of {at}"] = len(value)
    for kind, named in (("parameter", net.named_parameters()), ("buffer", net.named_buffers())):
        for name, tensor in named:
            state[f"{kind} {name}"] = tensor.detach().clone()
            state[f"requires_grad of {name}"] = tensor.requires_grad
            state[f"gradient of {name}"] = None if tensor.grad is None else tensor.grad.clone()
    return state


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and a == b
