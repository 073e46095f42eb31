"""Experiments that train image classifiers: the images, and the group of one model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import ImageClassification, LabelledImages
from sdp_bench.bench.errors import UserError, outside
from sdp_bench.bench.experiments.base import Expansion
from sdp_bench.bench.experiments.replicates import Replicated, ReplicateExperiment, ReplicateGroup
from sdp_bench.bench.experiments.versions import of_method
from sdp_bench.bench.identity import keys
from sdp_bench.bench.methods.classifiers.training import (
    BATCH,
    VERSION,
    Model,
    Objective,
    TrainingImages,
    get_model,
)
from sdp_bench.bench.results.record import Record, Unit

if TYPE_CHECKING:
    from sdp_bench.bench.experiments.scope import Scope


_PUBLISHED = 60_000
"""Approximate number of training images in the published sets."""


@dataclass(frozen=True, eq=False)
class ImageSplits:
    """Training and test images of a data set.

    At most `trained` and `tested` images are used, cycling through the classes, each in a fixed shuffle.
    `kind` is the type of the training images, which also defines their net. A UserError is raised if a number
    is not positive, a label is out of range, or all training images have the same class.
    """

    train: LabelledImages
    test: LabelledImages
    trained: int | None = None
    tested: int | None = None
    kind: type[TrainingImages] = TrainingImages

    def __post_init__(self) -> None:
        for name, count in (("train", self.trained), ("test", self.tested)):
            if count is not None and count < 1:
                raise UserError(f"images to {name} on must be positive, got {count}")
        if self.train.shape != self.test.shape:
            shapes = f"{self.train.shape} and {self.test.shape}"
            raise UserError(f"images to train and test on must have one shape, got {shapes}")
        _ = self.problem

    @classmethod
    def load(
        cls,
        name: str,
        trained: int | None = None,
        tested: int | None = None,
        kind: type[TrainingImages] = TrainingImages,
    ) -> ImageSplits:
        """Return both splits of a named data set; a DataMissingError if it is not available."""
        known = dataset(name, ImageClassification)
        return cls(known.load("train"), known.load("test"), trained, tested, kind)

    @cached_property
    def problem(self) -> TrainingImages:
        rows = self.train.in_turn(self.trained)
        return self.kind(self.train.pixels[rows], self.train.labels[rows])

    @cached_property
    def tests(self) -> tuple[Tensor, Tensor]:
        """Test images, as bytes, and their labels."""
        rows = self.test.in_turn(self.tested)
        return self.test.pixels[rows], self.test.labels[rows]

    @property
    def description(self) -> str:
        return (
            f"trained on {len(self.problem.labels)} images of {self.train.description}; tested on "
            f"{len(self.tests[1])} of {self.test.description}, classes in turn"
        )


@dataclass(frozen=True, eq=False)
class ClassifierGroup(ReplicateGroup):
    """One model: trained, or taken from the cache, and measured.

    Attributes
    ----------
    dataset : str
    objective : Objective
    epochs : int
    trained, tested : int or None
        As :class:`ImageSplits` takes them.
    steps : int
        Of an attack; 0 where there is none.
    """

    dataset: str
    objective: Objective = field(repr=False)
    epochs: int
    # as in `ImageSplits`
    trained: int | None
    tested: int | None
    steps: int
    kind: ClassVar[type[TrainingImages]] = TrainingImages

    def unit(self, seed: int) -> Unit:
        objective = self.objective
        return Unit(
            self.replicated.key(seed),
            sigma=objective.sigma if objective.rule else None,
            dataset=self.dataset,
            objective=objective.name,
            seed=seed,
            design=self.replicated.text,
        )

    @property
    def title(self) -> str:
        scale = f" at {self.objective.sigma:g}" if self.objective.rule else ""
        return f"{self.name} {self.dataset} {self.objective.name}{scale} seed {self.seeds[0]}"

    @classmethod
    def methods_of(cls, objective: Objective, methods: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG003
        """Return those methods of the experiment that apply to models of an objective."""
        return methods

    @property
    def batches(self) -> int:
        return self.epochs * -(-(self.trained or _PUBLISHED) // BATCH)

    def model(self, images: ImageSplits, seed: int) -> Model:
        """Return the trained net of a seed."""
        return get_model(images.problem, self.objective, seed, self.epochs, self.device)

    def numbers(
        self, images: ImageSplits, seed: int, methods: Sequence[str]
    ) -> Iterator[tuple[str, str, float, str | None]]:
        """Yield method, metric, value and component of each measurement of a seed's model."""
        raise NotImplementedError

    def records(self, methods: Sequence[str]) -> Iterator[Record]:
        for seed in self.seeds:
            with outside():
                images = ImageSplits.load(self.dataset, self.trained, self.tested, self.kind)
                found = list(self.numbers(images, seed, methods))
            for method, metric, value, component in found:
                yield self.record(seed, method, metric, value, component)


def expanded(
    experiment: ReplicateExperiment,
    scope: Scope,
    kind: type[ClassifierGroup],
    objectives: Iterable[Objective],
    design: object = (),
) -> Expansion:
    """Groups of an experiment: sets of images times objectives times scales times seeds.

    Parameters
    ----------
    experiment : ReplicateExperiment
    scope : Scope
    kind : type of ClassifierGroup
    objectives : iterable of Objective
        Each is taken at every scale, and once where it propagates no law.
    design : plain values
        What else the numbers depend on.

    Returns
    -------
    Expansion

    Raises
    ------
    DataMissingError
        If the images are not there.
    UserError
        As :class:`ImageSplits`.
    """
    size = experiment.size(scope.settings)
    epochs, steps = size.epochs or 1, size.steps or 0
    groups = []
    for name in size.datasets or ():
        images = ImageSplits.load(name, size.samples, size.inputs, kind.kind)
        data = keys.digest(images.problem.pixels, images.problem.labels, *images.tests)
        for objective in (at for one in objectives for at in one.at(size.sigmas or ())):
            how = f"{objective.label}, adam {objective.learning_rate:g}, {epochs} epochs of batch {BATCH}"
            identity = keys.digest(
                data, epochs, steps, BATCH, objective.learning_rate, objective.label, design
            )
            attack = f"; attacks of {steps} steps" if steps else ""
            text = f"{images.description}; {how}{attack}"
            network = images.problem.architecture.label
            replicated = Replicated(experiment.name, f"{name} {network}", text, identity[:16])
            versions = of_method(experiment.version, VERSION, objective.rule)
            own = (experiment.name, experiment.metrics, versions, replicated)
            methods = kind.methods_of(objective, experiment.rules)
            for seed in range(size.nets or 0):
                shared = (*own, methods, (seed,), scope.settings.sampling.device)
                groups.append(kind(*shared, name, objective, epochs, size.samples, size.inputs, steps))
    return Expansion(groups)
