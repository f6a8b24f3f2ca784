"""Pages have short sentences. Those for users have no goals, tests and benchmarks of ours."""

import re
from pathlib import Path

import pytest

from tests.house.sentences import MOST_WORDS, long_sentences, sentences
from tests.house.tree import exceptions

FOR_DEVELOPERS = [Path("CONTRIBUTING.md"), *sorted(Path("loadtests").glob("*.md")), Path("tests/FAILURES.md")]
FOR_USERS = [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]
BENCHMARKS = Path("docs/performance.md")
_COMMAND_OF_A_BENCHMARK = r"\bmake (?:bench|simulate|soak|accuracy)-|loadtests/"
_AUTHOR = r"\btests/|\btest_\w+|\bmake conformance|\b[Tt]he goals? (?:is|are|of)\b|\(goal\b|\bNot met\b"
_ALLOWED = ("](../loadtests/README.md)", "](loadtests/README.md)", "<!--")


def lines_of_the_author(page: Path) -> list[str]:
    """The lines of a user's page about tests, goals and benchmarks. Links to the page of benchmarks are none."""
    pattern = _AUTHOR if page == BENCHMARKS else f"{_AUTHOR}|{_COMMAND_OF_A_BENCHMARK}"
    lines = (line for line in page.read_text().splitlines() if not any(text in line for text in _ALLOWED))
    return [line for line in lines if re.search(pattern, line)]


def unfinished() -> dict[str, tuple[int, int]]:
    """Pages that are not rewritten yet, with the most long sentences and lines of the author that they may have."""
    rows = (line.split() for line in exceptions("pages.txt"))
    return {page: (int(sentences_), int(lines)) for page, sentences_, lines in rows}


@pytest.mark.parametrize("page", [*FOR_DEVELOPERS, *FOR_USERS], ids=str)
def test_sentences_are_short(page: Path) -> None:
    offenders = long_sentences(page.read_text())
    allowed = unfinished().get(str(page), (0, 0))[0]
    assert len(offenders) <= allowed, f"more than {MOST_WORDS} words:\n" + "\n".join(offenders)


@pytest.mark.parametrize("page", FOR_USERS, ids=str)
def test_pages_of_users_have_no_work_of_the_author(page: Path) -> None:
    offenders = lines_of_the_author(page)
    allowed = unfinished().get(str(page), (0, 0))[1]
    assert len(offenders) <= allowed, "move to CONTRIBUTING.md or loadtests/README.md:\n" + "\n".join(offenders)


def test_the_list_of_unfinished_pages_only_shrinks() -> None:
    for page, allowed in unfinished().items():
        of_author = lines_of_the_author(Path(page)) if Path(page) in FOR_USERS else []
        present = len(long_sentences(Path(page).read_text())), len(of_author)
        assert any(present), f"{page} is finished: remove it from pages.txt"
        assert present == allowed, f"{page} has {present} now: write these numbers into pages.txt"


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
