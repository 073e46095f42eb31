"""Pages made from files of the repository, and docstrings' cross-references, for MkDocs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
HISTORY = "reports/baselines/speed-history.html"
LINKS = {
    **PAGES,
    "LICENSE": "licence.md",
    "CITATION.cff": "licence.md",
    "entries/README.md": "benchmark.md",  # not a page of the site
    HISTORY: "speed-history.html",
}

_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
_UPWARDS = re.compile(r"\]\(\.\./([^)#\s]+)")
_TYPE = re.compile(r"<code>([^\n]*(?:shape\(|, optional\))[^\n]*)</code>")
_ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|exc):<code>~?([^<]+)</code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that come from other folders of the repository."""
    made = {page: _relinked((ROOT / name).read_text(encoding="utf-8")) for name, page in PAGES.items()}
    made["licence.md"] = _licence()
    made[LINKS[HISTORY]] = (ROOT / HISTORY).read_text(encoding="utf-8")
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Turn links to files outside this folder, which work in a checkout, into links to their pages."""
    return _UPWARDS.sub(lambda match: "](" + LINKS.get(match[1], f"../{match[1]}"), markdown)


def on_page_content(html: str, **_: object) -> str:
    """Turn roles in docstrings, such as :func:`sdp_ref.rule`, into links."""
    # The parser of types turns "Tensor, shape (B, m)" into a tuple; undo that.
    html = _TYPE.sub(lambda match: f"<code>{_untupled(match[1])}</code>", html)
    return _ROLE.sub(r'<autoref optional identifier="\1"><code>\1</code></autoref>', html)


def _untupled(kind: str) -> str:
    if kind.startswith("(") and kind.endswith(")"):
        kind = kind[1:-1]
    return kind.replace("shape(", "shape (")


def _relinked(text: str) -> str:
    """Return the text of a file in the root with links relative to ``docs/``."""
    return _LINK.sub(lambda match: "](" + LINKS.get(match[1], match[1].removeprefix("docs/")), text)


def _licence() -> str:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    return (
        f"# Licence and citation\n\n{licence}\n## How to cite\n\n`CITATION.cff`:\n\n```yaml\n{citation}```\n"
    )
