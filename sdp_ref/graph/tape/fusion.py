"""Fusion of pointwise ops of a tape to one function of one value.

The result of a comparison has no law; but ``where(x > 0, f(x), g(x))`` is a function of x, with moments like
any other. An op that reads booleans, or several values that derive from one, is therefore fused with the ops
that it depends on, back to that value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sdp_ref.activations.elementwise import OPERATORS, activation_of
from sdp_ref.activations.pointwise import Quadrature
from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.tape.entries import Entry, Ref, leaves, mapped
from sdp_ref.graph.tape.replay import PerExample, Replay, Value

_KEEPS = frozenset(  # keep every component in its position; torch has no tag for this
    ["to", "_to_copy", "float", "double", "type_as", "detach", "contiguous", "alias", "lift_fresh"]
)
_POINTWISE = frozenset(["where", "masked_fill"])  # not all overloads have the tag
_LARGER = frozenset(["maximum", "minimum", "max", "min", "fmax", "fmin"])
_STEPS = frozenset(["sign", "sgn", "floor", "ceil", "round", "trunc", "fix"])  # constant between jumps
# up to 7e5, with a relative spacing of at most 1/500
_GRID = torch.linspace(-21, 21, 20001, dtype=torch.float64).sinh() * 1e-3
_TINY = 1e-30  # a bisection does not reach 0 exactly
_MOST_BENDS = 64


@dataclass(frozen=True)
class _Node:
    """A pointwise op with scalar constants, which returns value `output` of the tape."""

    replay: Replay
    output: int

    def corners(self, made: Mapping[int, Tensor]) -> Iterator[Tensor]:
        """Values that change at kinks and jumps of the op, and nowhere else."""
        name, taken = self.replay.name, [made[i] for i in self.replay.taken]
        if name in _STEPS or not made[self.output].is_floating_point():
            yield made[self.output]
        elif name in _LARGER and len(taken) == 2:
            yield taken[0] > taken[1]
        elif name in OPERATORS and len(taken) == 1:
            entry = self.replay.entry
            kind = OPERATORS[name]
            activation = activation_of(kind.from_op(name, *entry.args[1:], **entry.kwargs))
            places = activation.corners if isinstance(activation, Quadrature) else activation.kinks
            for place in places:
                yield taken[0] > place


class Composition:
    """A sequence of pointwise ops on values of one shape, as a function of values `sources` of the tape."""

    def __init__(self, nodes: Sequence[_Node], sources: Sequence[int]) -> None:
        self.nodes, self.sources = tuple(nodes), tuple(sources)

    def __call__(self, *values: Tensor) -> Tensor:
        """Apply to tensors of one shape, which is arbitrary."""
        return self._made(*values)[self.nodes[-1].output]

    def _made(self, *values: Tensor) -> dict[int, Tensor]:
        made = dict(zip(self.sources, values, strict=True))
        for node in self.nodes:
            made[node.output] = node.replay.applied_to(made, 1, values[0])
        return made

    @torch.no_grad()
    def bends(self) -> tuple[float, ...]:
        """Kinks and jumps of a function of one value, to rounding.

        They are located on a grid of 20 001 points up to 7e5 on both sides, densest at 0. Two that are
        between the same points are missed.
        """
        flips = [(number, i) for number, s in enumerate(self._signals(_GRID)) for i in _changes(s)]
        if len(flips) > _MOST_BENDS:
            raise NoFormulaError(f"a function of one value that bends more than {_MOST_BENDS} times")
        found = set()
        for number, i in flips:
            low, high = _GRID[i : i + 1], _GRID[i + 1 : i + 2]
            before = self._signals(low)[number]
            while low < (middle := (low + high) / 2) < high and float(high - low) > _TINY / 10:
                same = bool(self._signals(middle)[number] == before)
                low, high = (middle, high) if same else (low, middle)
            ends = [0.0 if abs(float(end)) < _TINY else float(end) for end in (low, high)]
            # prefer the end that looks like a literal of the source
            found.add(min(ends, key=lambda end: len(repr(end))))
        return tuple(sorted(found))

    def _signals(self, x: Tensor) -> list[Tensor]:
        made = self._made(x)
        return [signal.expand_as(x) for node in self.nodes for signal in node.corners(made)]


def _changes(signal: Tensor) -> list[int]:
    return (signal[1:] != signal[:-1]).nonzero().squeeze(1).tolist()


class Fusion:
    """Values of a tape that are computed pointwise, and their inputs."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._from: dict[int, int] = {}  # the nearest value that determines it alone
        self._truths: set[int] = set()  # values that are not floating-point numbers
        # floating-point values derived from these only, with few distinct numbers
        self._levels: set[int] = set()

    def note(self, output: int, replay: Replay, made: Value) -> None:
        """Record a value if its components depend on the corresponding components of its inputs."""
        real = replay.entry.real[replay.which]
        if not real:
            self._truths.add(output)
        entry = _of_numbers(replay, made)
        if entry is None:
            return
        if real and replay.taken and self._truths | self._levels >= set(replay.taken):
            self._levels.add(output)
        same = Replay(entry, replay.which, replay.taken, replay.layout, replay.dtype)
        self._nodes[output] = _Node(same, output)
        origin = self._origin(list(replay.taken))
        if origin is not None:
            self._from[output] = origin

    def reads_truths(self, replay: Replay) -> bool:
        """Whether an op reads values that are not floating-point numbers, such as comparisons."""
        return not self._truths.isdisjoint(replay.taken)

    def is_one(self, replay: Replay) -> bool:
        """Whether an op depends on comparisons, so that it is better fused with its inputs."""
        reads = self._levels.intersection(replay.taken) or self.reads_truths(replay)
        return bool(reads) or replay.name in _LARGER

    def of_one(self, output: int) -> Composition | None:
        """A recorded value as a function of the nearest value that determines it, if there is one."""
        origin = self._from.get(output)
        return None if origin is None else self._composed(output, lambda index: index == origin)

    def of_real(self, output: int) -> Composition | None:
        """A recorded value as a function of floating-point values, replacing booleans by their inputs."""
        noted = output in self._nodes
        return self._composed(output, lambda index: index not in self._truths) if noted else None

    def _origin(self, taken: list[int]) -> int | None:
        """The nearest floating-point value that determines all of the given values."""
        lines = []
        for index in taken:
            line = [index]
            while line[-1] in self._from:
                line.append(self._from[line[-1]])
            lines.append(line)
        common = [i for i in lines[0] if i not in self._truths and all(i in line for line in lines[1:])]
        return common[0] if common else None

    def _composed(self, output: int, ends: Callable[[int], bool]) -> Composition | None:
        needed, sources, waiting = {output}, set(), [*self._nodes[output].replay.taken]
        while waiting:
            index = waiting.pop()
            if ends(index):
                sources.add(index)
            elif index not in self._nodes:
                return None
            elif index not in needed:
                needed.add(index)
                waiting.extend(self._nodes[index].replay.taken)
        return Composition([node for i, node in self._nodes.items() if i in needed], sorted(sources))


def _of_numbers(replay: Replay, made: Value) -> Entry | None:
    """A pointwise entry with scalar constants; None if it is not pointwise."""
    tagged = torch.Tag.pointwise in getattr(replay.entry.function, "tags", ())
    taken = list(replay.taken.values())
    if not (tagged or replay.name in _KEEPS | _POINTWISE) or replay.entry.draws or made.layout is None:
        return None
    if any(v.layout != made.layout or v.shape != made.shape for v in taken):
        return None
    mixed = False

    def number(leaf: Any) -> Any:
        nonlocal mixed
        constant = leaf.row if isinstance(leaf, PerExample) else leaf
        if not isinstance(constant, Tensor):
            mixed = mixed or not (leaf is None or isinstance(leaf, Ref | bool | int | float | torch.dtype))
            return leaf
        flat = constant.reshape(-1)
        if not flat.numel() or bool((flat != flat[0]).any()):
            mixed = True
            return leaf
        return flat[0]

    if replay.name in _KEEPS:  # only the dtype of other arguments matters
        dtypes = [v for v in leaves((replay.entry.args, replay.entry.kwargs)) if isinstance(v, torch.dtype)]
        function = torch.ops.aten.to.dtype if dtypes else torch.ops.aten.alias.default
        return replace(replay.entry, function=function, args=(replay.entry.args[0], *dtypes), kwargs={})
    entry = replace(
        replay.entry, args=mapped(number, replay.entry.args), kwargs=mapped(number, replay.entry.kwargs)
    )
    return None if mixed else entry
