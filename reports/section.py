"""Sections of the report: each is a folder of `sections` with a class and its template."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from sdp_ref.registry import RegistryError, installed, loaded, members

from .numbers import Number
from .results import Results
from .site import SitePage, suite
from .style.names import RuleTraits

GROUP = "sdp_bench.sections"
"""Entry point group of sections in other packages."""

Context = Mapping[str, Any]
"""Variables of a template."""


@dataclass(frozen=True)
class RenderedSection:
    """What a section made for one page; `navigation` holds anchors and titles. See :class:`Section`."""

    page: SitePage
    order: int
    navigation: Sequence[Sequence[str]]
    html: str
    notes: Sequence[str] = ()


class Section:
    """A part of a report: values computed from the results, and ``template.html`` next to its module.

    The template makes ``<section id="NAME">``. It can use the variables (`context`) that :meth:`build`
    returns, the filters of :mod:`sdp_bench.reports.writing`, the macros of ``parts.html`` and
    ``tables.html``, and `link`, which links a number to the list of rows behind it.

    `name` is the anchor of the section, and `title` that in the navigation. `page` is its page; by default
    it has a page of its own, on which sections are in ascending `order`. `experiments` are those that the
    section displays in its own way; experiments that no section names are shown as tables.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    page: ClassVar[SitePage | None] = None
    order: ClassVar[int]
    experiments: ClassVar[tuple[str, ...]] = ()

    def build(self, results: Results) -> Context | None:  # noqa: ARG002
        """Return the template's variables, by default none, or None to omit the section."""
        return {}

    def spread(self, context: Context) -> Iterable[tuple[SitePage, Context]]:
        """Return the pages of the section with their variables, by default all of them on :attr:`page`."""
        return [(self.page or suite(self.name, self.title), context)]

    def navigation(self, context: Context) -> Iterable[tuple[str, str]]:  # noqa: ARG002
        """Return anchors and titles for the navigation, several if the template has several sections."""
        return [(self.name, self.title)]

    def numbers(self, results: Results, context: Context) -> Iterable[Number]:  # noqa: ARG002
        """Return the numbers that link to the measurements behind them, by default none.

        If two numbers rest on the same measurements, both link to the list of the first.
        """
        return ()

    def files(self, results: Results, context: Context) -> Mapping[str, str]:  # noqa: ARG002
        """Return the texts of files next to the pages by name, by default none."""
        return {}

    def notes(self, context: Context) -> Iterable[str]:  # noqa: ARG002
        """Return lines that the command prints after the page is written, by default none."""
        return ()

    @property
    def template(self) -> Path:
        return Path(inspect.getfile(type(self))).with_name("template.html")


class Study(Section):
    """A section on the measurements of its :attr:`experiments`; it is omitted if there are none."""

    def build(self, results: Results) -> Context | None:
        measurements = results.frame[results.frame["experiment"].isin(self.experiments)]
        return None if measurements.empty else self.content(measurements, results.traits)

    def content(self, measurements: pd.DataFrame, traits: RuleTraits) -> Context | None:
        """Return the template's variables from at least one measurement, or None to omit the section."""
        raise NotImplementedError


def sections() -> list[Section]:
    """Return the sections of this package and of installed plug-ins, in the order of the page.

    Raises RegistryError if a module or an entry point does not provide a section.
    """
    built_in = members("sdp_bench.reports.sections", "sdp_bench.reports.section.Section")
    classes: list[type[Section]] = list(built_in.values())
    for point in installed(GROUP, built_in).values():
        section_class = loaded(point, type)
        if not issubclass(section_class, Section):
            raise RegistryError(f"the entry point '{point.name}' ({GROUP}): {point.value} is no Section")
        classes.append(section_class)
    return sorted((section_class() for section_class in classes), key=lambda section: section.order)


def tabulated(results: Results, sections: Iterable[Section]) -> Results:
    """Results whose tables leave out the experiments that a section displays in its own way."""
    return replace(results, untabled=frozenset(name for section in sections for name in section.experiments))
