"""Pages have short sentences. Those for users begin with an example, and have no goals and benchmarks of ours."""

import re
from pathlib import Path

import pytest

from tests.house.sentences import MOST_WORDS, long_sentences, sentences

FOR_DEVELOPERS = [Path("CONTRIBUTING.md"), *sorted(Path("loadtests").glob("*.md")), Path("tests/FAILURES.md")]
FOR_USERS = [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]
BENCHMARKS = Path("docs/performance.md")
TABLES = [Path("docs/README.md"), Path("docs/servers/conformance.md")]
FIRST_LINES = 40
_COMMAND_OF_A_BENCHMARK = r"\bmake (?:bench|simulate|soak|accuracy|test)\b|\bloadtests\b"
_AUTHOR = r"\btests/|\btest_\w+|\bmake conformance|\b[Tt]he goals? (?:is|are|of)\b|\(goal\b|\bNot met\b"
_ALLOWED = ("loadtests/README.md)", "<!--")


def lines_of_the_author(page: Path) -> list[str]:
    """The lines of a user's page about tests, goals and benchmarks. Links to the page of benchmarks are none."""
    pattern = _AUTHOR if page == BENCHMARKS else f"{_AUTHOR}|{_COMMAND_OF_A_BENCHMARK}"
    lines = (line for line in page.read_text().splitlines() if not any(text in line for text in _ALLOWED))
    return [line for line in lines if re.search(pattern, line)]


@pytest.mark.parametrize("page", [*FOR_DEVELOPERS, *FOR_USERS], ids=str)
def test_sentences_are_short(page: Path) -> None:
    offenders = long_sentences(page.read_text())
    assert offenders == [], f"write sentences of at most {MOST_WORDS} words, one rule each"


@pytest.mark.parametrize("page", FOR_USERS, ids=str)
def test_pages_of_users_have_no_work_of_the_author(page: Path) -> None:
    assert lines_of_the_author(page) == [], "move these to CONTRIBUTING.md, tests/FAILURES.md or loadtests/"


@pytest.mark.parametrize("page", [page for page in FOR_USERS if page not in TABLES], ids=str)
def test_pages_of_users_begin_with_an_example(page: Path) -> None:
    assert "```" in "\n".join(page.read_text().splitlines()[:FIRST_LINES]), "show a file or a command that works first"


def test_sentences_of_paragraphs_lists_and_cells() -> None:
    page = (
        "# A title\n\nOne of `several words of code`, e.g. this. Two [of a\nlink](https://a.b).\n\n- Three.\n- Four\n  "
        "five.\n\n| six | seven. Eight |\n|---|---|\n\n```yaml\nnone: 1\n```\n<!-- none -->\n"
    )
    expected = ["A title", "One of …, e.g. this.", "Two of a link.", "Three.", "Four five.", "six", "seven.", "Eight"]
    assert [sentence for sentence in sentences(page) if re.search(r"\w", sentence)] == expected


def test_a_long_sentence_is_reported() -> None:
    words = " ".join(["Word"] * MOST_WORDS)
    assert long_sentences(f"{words}. {words} `code` https://an.address – |.") == []
    assert long_sentences(f"{words}.\n\n- {words} more.") == [f"{words} more."]
