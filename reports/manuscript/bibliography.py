"""References to cite, as BibTeX, with the content of ``CITATION.cff``."""

from __future__ import annotations

from sdp_bench.bench.environment import version

TITLE = "sdp-bench"
ABSTRACT = "Benchmarks and validates rules that propagate distributions through neural networks."
LICENSE = "MIT"
AUTHORS = "{sdp-bench developers}"
PAPER_TITLE = "Uncertainty Quantification via Stable Distribution Propagation"
PAPER_PLACE = "International Conference on Learning Representations (ICLR)"
PAPER_YEAR = 2024
PAPER_AUTHORS = (
    *("Petersen, Felix", "Mishra, Aashwin", "Kuehne, Hilde", "Borgelt, Christian", "Deussen, Oliver"),
    "Yurochkin, Mikhail",
)

SOFTWARE, PAPER = "sdp-bench", "petersen2024uncertainty"
"""Keys of the entries."""


def bibliography() -> str:
    """Entries of the installed package and of the paper whose rules it measures."""
    software = {
        "title": f"{{{TITLE}}}: {ABSTRACT}",
        "author": AUTHORS,
        "version": version("sdp-bench"),
        "note": f"Version {version('sdp-bench')}. License: {LICENSE}",
    }
    paper = {
        "title": PAPER_TITLE,
        "author": " and ".join(PAPER_AUTHORS),
        "booktitle": PAPER_PLACE,
        "year": str(PAPER_YEAR),
    }
    entries = (_entry("misc", SOFTWARE, software), _entry("inproceedings", PAPER, paper))
    return "% sdp-bench: what to cite\n" + "\n".join(entries)


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}\n}}\n"
