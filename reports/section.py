"""Sections, which pages are made of: each a folder of `sections` with a class and its template."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from sdp_bench.reports.numbers.number import Number
from sdp_bench.reports.results import Results
from sdp_bench.reports.site import SitePage, suite
from sdp_ref.registry import RegistryError, installed, loaded, members

GROUP = "sdp_bench.sections"
"""Entry points by which other packages bring sections."""

Context = Mapping[str, Any]
"""What a template is filled with."""


class Section:
    """A part of a report: what it shows, made of the results, and ``template.html`` beside its module.

    The template makes ``<section id="NAME">``. It sees what :meth:`build` gives, the filters of
    :mod:`sdp_bench.reports.writing`, the macros of ``parts.html`` and ``tables.html``, and `link`, which has
    a number lead to the list of the rows that it rests on.

    Attributes
    ----------
    name : str
        Its anchor.
    title : str
        In the navigation.
    page : SitePage, optional
        That it stands on; without any it has one of its own.
    order : int
        Place on the page: sections stand in ascending order.
    experiments : tuple of str
        Experiments whose results it shows in its own way; those that no section names are shown as tables.
    beside : bool
        Whether it also stands in the report of the committed results, beside what that has.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    page: ClassVar[SitePage | None] = None
    order: ClassVar[int]
    experiments: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[bool] = False

    def build(self, results: Results) -> Context | None:
        """What the template shows, by default nothing of the results; None for no section."""
        del results
        return {}

    def spread(self, context: Context) -> Iterable[tuple[SitePage, Context]]:
        """Pages that it stands on, and what its template shows on each.

        Parameters
        ----------
        context : mapping
            What :meth:`build` made.

        Returns
        -------
        iterable of (SitePage, mapping)
            By default all of it on its :attr:`page`.
        """
        return [(self.page or suite(self.name, self.title), context)]

    def navigation(self, context: Context) -> Iterable[tuple[str, str]]:
        """Anchors and titles for the page's navigation, where its template makes more sections than one."""
        del context
        return [(self.name, self.title)]

    def numbers(self, results: Results, context: Context) -> Iterable[Number]:
        """Numbers that lead to the measurements that they rest on.

        Of two that rest on the same measurements the first one's list is made, and both lead there.

        Parameters
        ----------
        results : Results
        context : mapping
            What :meth:`build` made of them.

        Returns
        -------
        iterable of Number
            By default none.
        """
        del results, context
        return ()

    def said(self, context: Context) -> Iterable[str]:
        """Lines that the command says when the page is made, by default none."""
        del context
        return ()

    @property
    def template(self) -> Path:
        """File of its template."""
        return Path(inspect.getfile(type(self))).with_name("template.html")


def sections() -> list[Section]:
    """Sections of the package and of those that are installed beside it, in the order of the page.

    Returns
    -------
    list of Section

    Raises
    ------
    RegistryError
        If a file or an entry point is no section.
    """
    own = members("sdp_bench.reports.sections", "sdp_bench.reports.section.Section")
    kinds: list[type[Section]] = list(own.values())
    for point in installed(GROUP, own).values():
        kind = loaded(point, type)
        if not issubclass(kind, Section):
            raise RegistryError(f"the entry point '{point.name}' ({GROUP}): {point.value} is no Section")
        kinds.append(kind)
    return sorted((kind() for kind in kinds), key=lambda section: section.order)


def tabulated(results: Results, sections: Iterable[Section]) -> Results:
    """Results whose tables are of the experiments that no section shows in its own way."""
    return replace(results, untabled=frozenset(name for one in sections for name in one.experiments))
