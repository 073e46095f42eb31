"""Report phrases that plain English replaces, in files or in lines added since the branch left main."""

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

PHRASES = {
    r"(?<!there )(is|are|was|were) no(ne)?(?! longer| more| less)": "does not exist, is not a",
    r"beside": "next to, compared with, in addition to",
    r"told|tells?": "reports, shows, is distinguishable from",
    r"ask(s|ed|ing)?": "requests, tests, checks, requires",
    r"(of|by) which|whose": "a compound noun, or a second sentence",
    r"of (yours|its own|their own)": "your, separate",
    r"anew|shall": "again; must",
    r"go(es)? on|stands? (in|on|there|with)": "resumes, continues; is listed in",
    r"(in|takes?|took) the place of": "instead of, replaces",
    r"each(?=\s*[,.;:)])": "'each' with a noun",
}


def findings(path: Path, lines: set[int] | None = None) -> list[str]:
    """Return one line for each phrase in Markdown prose or docstrings, in all lines by default."""
    text = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".md":
        fences = itertools.accumulate(line.lstrip().startswith("```") for line in text)
        prose = {i for i, fence in enumerate(fences, 1) if fence % 2 == 0 and text[i - 1][:4].strip()}
    else:
        tree = ast.parse("\n".join(text))
        docs = [n for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
        prose = {i for node in docs for i in range(node.lineno, node.end_lineno + 1)}
    found = []
    for number in sorted(prose if lines is None else prose & lines):
        without_code = re.sub(r"`[^`]*`|\]\(\S+", "``", text[number - 1])
        for phrase, better in PHRASES.items():
            match = re.search(rf"\b(?:{phrase})(?!\w)", without_code)
            if match:
                found.append(f"{path}:{number}: {match[0].strip()} -> {better}")
    return found


def added() -> dict[Path, set[int]]:
    """Return the lines by file that differ from the common ancestor with main, if git has it."""
    found: dict[Path, set[int]] = {}
    for name in ("@{upstream}", "origin/main", "main"):
        words = f"git diff -U0 --no-prefix --diff-filter=d --merge-base {name} -- *.md *.py".split()
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("+++ "):
                lines = found.setdefault(Path(line[4:].rstrip()), set())
            elif match := re.match(r"@@ .* \+(\d+),?(\d*) @@", line):
                lines |= set(range(int(match[1]), int(match[1]) + int(match[2] or 1)))
        if done.returncode == 0:
            break
    return found


if __name__ == "__main__":
    chosen = {Path(name): None for name in sys.argv[1:]} or added()
    sys.exit("\n".join(line for path, lines in chosen.items() for line in findings(path, lines)) or 0)
