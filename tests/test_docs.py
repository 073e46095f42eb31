"""What the documentation shows is run: examples and their outputs, commands, links, the built site.

A page's ```python blocks share one namespace, from top to bottom. A ```text block right after one is
what it prints. Numbers in it may differ by the page's `<!-- tolerance: 0.002 -->` before the block, where
there is one, since rounding differs between CPUs; all else must be equal.
"""

import contextlib
import io
import re
import shlex
import sys
import tomllib
import types
from dataclasses import dataclass

import click
import pytest
import torch

import sdp_ref as sr
from sdp_bench import oracles
from sdp_bench.bench import rules
from sdp_bench.bench.experiments import chosen, preset
from sdp_bench.bench.plugins.plugin import ENTRY_POINTS
from sdp_bench.cli import cli
from tests.attacks.calls import leaves, parsed
from tests.english import findings
from tests.project import ROOT, python, run_cell
from tests.reports.helpers import Outline

DOCS = ROOT / "docs"
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
}
README_TOLERANCE = 2e-3  # of ratios from 10^6 samples

_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_OUTPUT = re.compile(
    r"\s*(?:<!-- tolerance: (?P<tolerance>[\d.e-]+) -->\s*)?```text\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Example:
    code: str
    line: int
    output: str | None
    tolerance: float


def examples(page):
    text = TEXTS[page]
    found = []
    for block in _FENCE.finditer(text):
        if block[1] != "python":
            continue
        shown = _OUTPUT.match(text, block.end())
        given = shown["tolerance"] if shown else None
        tolerance = float(given) if given else README_TOLERANCE if page == "README.md" else 0.0
        line = text.count("\n", 0, block.start(2))
        found.append(Example(block[2], line, shown["text"] if shown else None, tolerance))
    return found


def run(page, name="example"):
    """Run a page's examples, check what they print, and give their names."""
    module = types.ModuleType(name)
    with contextlib.ExitStack() as stack:
        if name not in sys.modules:
            sys.modules[name] = module  # dataclasses look their module up
            stack.callback(sys.modules.pop, name)
        stack.enter_context(torch.random.fork_rng(devices=[]))
        for example in examples(page):
            source = "\n" * example.line + example.code  # so that tracebacks name the page's lines
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                run_cell(source, vars(module), page)
            if example.output is not None:
                same(printed.getvalue(), example.output, example.tolerance)
    return module.__dict__


def same(printed, shown, tolerance):
    """Equal but for spaces, and for numbers within a tolerance."""
    told = f"printed:\n{printed}\nshown:\n{shown}"
    words = [" ".join(_NUMBER.sub("#", text).split()) for text in (printed, shown)]
    assert words[0] == words[1], told
    numbers = [[float(n) for n in _NUMBER.findall(text)] for text in (printed, shown)]
    assert all(abs(a - b) <= tolerance + 1e-12 for a, b in zip(*numbers, strict=True)), told


LONG = ("docs/adding.md", "docs/python.md")  # read all committed results, and measure


@pytest.mark.rounding
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page in LONG else [])
        for page in TEXTS
        if examples(page)
    ],
)
def test_the_examples_of_a_page_run_and_print_what_it_shows(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # The page on Python validates objects of a notebook, which are in the main module.
    run(page, "__main__" if page == "docs/python.md" else "example")


def test_every_block_of_code_is_found():
    """But for those with the title of a file, which are tried as files."""
    for page, text in TEXTS.items():
        assert len(examples(page)) == len(
            re.findall(r"^\s*(?:```|~~~)\s*(?:python|py)\b(?! title=)", text, re.MULTILINE)
        ), page


def test_the_rules_of_the_contributing_guide_and_the_page_on_rules_do_what_they_say():
    x = sr.DiagonalGaussian(torch.zeros(1, 2), torch.ones(1, 2))
    softplus = torch.nn.Sequential(torch.nn.Softplus())
    names = run("CONTRIBUTING.md")
    assert sr.propagate(softplus, x, names["Mine"]()).variance.tolist() == [[0.25, 0.25]]

    names = run("docs/rules.md")
    net, x = names["net"], names["x"]
    linearised = sr.propagate(net[:2], x, "sdp").variance
    assert torch.allclose(sr.propagate(net[:2], x, names["Mine"]()).variance, linearised, rtol=1e-5)
    tiny = sr.DiagonalGaussian(x.mean.double(), x.variance.double() * 1e-16)
    skip = names["Skip"]().double()
    expected = sr.propagate(skip, tiny, "sdp").covariance
    assert torch.allclose(sr.propagate(skip, tiny, names["Full"]()).covariance, expected, rtol=1e-6)


def rule_of(name):
    return rules.find(f"{DOCS / 'examples' / name}").load()


def test_the_tutorial_prints_its_rule_in_full():
    file = (DOCS / "examples" / "second_order.py").read_text(encoding="utf-8")
    assert examples("docs/tutorial.md")[0].code == file
    assert len(file.splitlines()) <= 45
    mixture = (DOCS / "examples" / "mixture.py").read_text(encoding="utf-8")
    assert mixture in [example.code for example in examples("docs/tutorial.md")]
    assert len(mixture.splitlines()) < 40


def test_the_entry_point_that_the_tutorial_shows_is_one_of_rules():
    (block,) = (found[2] for found in _FENCE.finditer(TEXTS["docs/tutorial.md"]) if found[1] == "toml")
    groups = tomllib.loads(block)["project"]["entry-points"]
    assert list(groups) == [ENTRY_POINTS]
    assert all(re.fullmatch(r"[\w.]+:\w+", address) for address in groups[ENTRY_POINTS].values())


def test_the_mixture_rule_is_sdp_on_affine_nets_and_nears_the_truth_at_a_kink():
    torch.manual_seed(0)
    affine = torch.nn.Linear(3, 2).double()
    x = sr.Gaussian(torch.ones(2, 3).double(), torch.diag_embed(torch.rand(2, 3).double()))
    law, sdp = sr.propagate(affine, x, rule_of("mixture.py:Split")), sr.propagate(affine, x, "sdp")
    assert isinstance(law, sr.Mixture)
    assert torch.allclose(law.mean, sdp.mean, rtol=1e-12)
    assert torch.allclose(law.covariance, sdp.covariance, rtol=1e-12)
    x = sr.DiagonalGaussian(torch.zeros(1, 1).double(), torch.ones(1, 1).double())
    law = sr.propagate(torch.nn.ReLU(), x, rule_of("mixture.py:Split:pieces=101"))
    assert law.mean.item() == pytest.approx((2 * torch.pi) ** -0.5, rel=0.01)
    assert law.variance.item() == pytest.approx(0.5 - 0.5 / torch.pi, rel=0.01)


def test_the_template_is_sdp_times_its_parameter():
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(4, 9), torch.nn.GELU(), torch.nn.Linear(9, 3)
    )
    x = sr.DiagonalGaussian(torch.ones(2, 2, 2), torch.ones(2, 2, 2))
    sdp = sr.propagate(net, x, "sdp")
    assert torch.allclose(
        sr.propagate(net, x, rule_of("template.py:MyRule")).covariance, sdp.covariance, rtol=1e-4
    )
    wider = rule_of("template.py:MyRule:inflation=2.0")
    assert wider.spec == "my_rule:inflation=2.0"
    assert torch.allclose(sr.propagate(net, x, wider).covariance, 2 * sdp.covariance, rtol=1e-4)
    with pytest.raises(ValueError, match="positive inflation"):
        type(wider)(inflation=-1.0)


@pytest.mark.parametrize("name", ["second_order.py:SecondOrder", "template.py:MyRule", "mixture.py:Split"])
def test_the_example_rules_refuse_noise_without_a_covariance(name):
    x = sr.Cauchy(torch.zeros(1, 2), torch.ones(1, 2))
    with pytest.raises(sr.UnsupportedError, match="Cauchy"):
        sr.propagate(torch.nn.Linear(2, 1), x, rule_of(name))


def test_the_template_passes_the_conformance_kit():
    assert sr.check_rule(rule_of("template.py:MyRule")).passed


@pytest.mark.rounding
@pytest.mark.slow
def test_the_tutorials_rule_passes_the_conformance_kit_as_the_tutorial_prints_it():
    report = sr.check_rule(rule_of("second_order.py:SecondOrder"))
    assert report.passed
    (shown,) = re.findall(r"```text\n(rule 'my_second_order'\n.*?)```", TEXTS["docs/tutorial.md"], re.DOTALL)
    same(str(report), shown, 0.0)


def blocks_of_code(text):
    """Fenced blocks of shell, and indented ones."""
    fenced = [block[2] for block in _FENCE.finditer(text) if block[1] in ("sh", "console", "bash", "yaml")]
    return [*fenced, *re.findall(r"(?:^ {4}[^\n]*\n)+", _FENCE.sub("", text), re.MULTILINE)]


def command_lines(text):
    code = "\n".join(blocks_of_code(text)).replace("\\\n", " ")
    lines = re.sub(r"\$\([^)]*\)", "WORD", code).splitlines()
    found = [re.findall(r"(?:^|[\s/;&(])sdp-bench\s+([^#;&|>)`]+)", line) for line in lines]
    return [match.strip() for matches in found for match in matches]


COMMANDS = [(page, line) for page, text in TEXTS.items() for line in dict.fromkeys(command_lines(text))]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line}" for page, line in COMMANDS])
def test_the_commands_that_a_page_shows_exist_with_their_options(page, line):
    context = parsed(shlex.split(line))
    if context.info_name == "run":
        chosen([name for name in context.params["experiments"] if name != "..."])
        preset(context.params["preset"])


def inline_commands(text):
    return re.findall(r"(?<!`)`sdp-bench ([^`]+)`", _FENCE.sub("", text))


def test_commands_named_in_the_text_exist_with_their_options():
    for page, text in TEXTS.items():
        for line in inline_commands(text):
            words = shlex.split(line)
            if words[0] in ("COMMAND", "--help", "-h", "--version"):
                continue
            command = cli.commands.get(words[0])
            assert command is not None, f"{page}: {line}"
            known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
            unknown = [w for w in words if w.startswith("--") and w != "--help" and w not in known]
            assert not unknown, f"{page}: {line}"


@pytest.mark.parametrize(
    ("path", "command"), leaves(cli), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_the_help_of_a_command_has_an_example_and_describes_every_option(path, command):
    (example,) = command_lines(f"    {command.epilog.splitlines()[-1].strip()}\n")
    assert parsed(shlex.split(example)).command is command
    assert all(param.help for param in command.params if isinstance(param, click.Option))


def test_the_page_of_commands_names_all_of_them():
    named = {line.split()[0] for line in inline_commands(TEXTS["docs/commands.md"])}
    assert set(cli.commands) <= named


def test_the_make_targets_that_pages_name_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, text in TEXTS.items():
        code = [*blocks_of_code(text), *re.findall(r"(?<!`)`([^`\n]+)`", _FENCE.sub("", text))]
        named = {m for piece in code for m in re.findall(r"^\s*make ([a-z][\w-]*)", piece, re.MULTILINE)}
        assert named <= targets, page


def test_the_citation_file_is_that_of_this_version():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # all that the format requires
    assert citation["cff-version"] == "1.2.0"
    for field, theirs in (("title", "name"), ("version", "version"), ("license", "license")):
        assert citation[field] == project[theirs]
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= set(paper)
    assert [author["family-names"] for author in paper["authors"]][:2] == ["Petersen", "Mishra"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    words = ("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    done = python(*words, NO_MKDOCS_2_WARNING="1", PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assets = Outline()
        assets.feed(text)
        assert assets.fetched or page.name == "speed-history.html"  # one file
        for address in assets.fetched:
            assert not re.match(r"(?:\w+:)?//", address), f"{page.name} loads {address}"
            if "404" not in page.name and not address.startswith(("data:", "#", ".")) and "/" in address:
                assert (page.parent / address).exists(), f"{page.name} lacks {address}"
        assert 'class="mermaid"' not in text  # the theme would fetch its diagrams' code
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_api_pages_have_every_public_name(site):
    for package in (sr, oracles):
        assets = Outline()
        assets.feed(
            (site / "api" / f"{package.__name__.removeprefix('sdp_bench.')}.html").read_text(encoding="utf-8")
        )
        shown = {anchor.rpartition(".")[2] for anchor in assets.ids if anchor}
        assert set(package.__all__) <= shown


def test_phrases_are_found_in_prose_and_docstrings_and_not_in_code(tmp_path):
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("Ok.\n```text\nit is none\n```\nA rule `beside` it is none.\n\n    told\nAgain, anew.\n")
    assert [line.split(":")[1] for line in findings(page)] == ["5", "8"]
    assert len(list(findings(page, {8}))) == 1
    module.write_text('"""Return one.\n\nAs told.\n"""\n\nx = "told"  # told\n')
    assert [line.split(":")[1] for line in findings(module)] == ["3"]
