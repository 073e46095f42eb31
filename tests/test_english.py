"""The check of added text: phrases are found in prose and docstrings, not in code."""

from tests.english import findings


def test_phrases_are_found_in_prose_and_not_in_code(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Good.\n```text\nit is none\n```\nA rule `beside` it is none.\n\n    told\nAgain, anew.\n"
    )
    assert [line.split(":")[1] for line in findings(page)] == ["5", "8"]
    assert len(list(findings(page, {8}))) == 1


def test_phrases_are_found_in_docstrings(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('"""Return one.\n\nAs told.\n"""\n\nx = "told"  # told\n')
    assert [line.split(":")[1] for line in findings(module)] == ["3"]
