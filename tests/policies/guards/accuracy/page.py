"""The tables of docs/guards.md: `python -m tests.policies.guards.accuracy.page` writes them anew."""

from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path

from tests.policies.guards.accuracy import measure

Make = Callable[[], str]
PAGE = Path("docs/guards.md")
SECRETS = "| secrets of | texts | found |\n|---|---|---|\n"
OTHERS = "| kind | forbidden | found | precision |\n|---|---|---|---|\n"
LANGUAGES = "| languages, `confidence: 0.9` | found | precision |\n|---|---|---|\n"
_NONE = "texts without a secret"


def secrets() -> str:
    scores = measure.secrets()
    rows = [
        f"| {kind} | {score.values} | {_percent(score.recall)} |" for kind, score in scores.items() if kind != _NONE
    ]
    return SECRETS + _lines(rows)


def others() -> str:
    scores = {"`secrets`, all": measure.total(measure.secrets().values())}
    scores |= {"`urls`": measure.urls(), "`words` with `lookalikes`": measure.words()}
    scores |= {f"`{entity}`": score for entity, score in measure.personal().items()}
    return OTHERS + _lines(
        f"| {name} | {score.values} | {_percent(score.recall)} | {_percent(score.precision)} |"
        for name, score in scores.items()
    )


def languages() -> str:
    """Needs the extra `languages`."""
    scores = measure.languages()
    scores["all"] = measure.total(scores.values())
    return LANGUAGES + _lines(
        f"| {name} | {score.caught} of {score.values} | {_percent(score.precision)} |" for name, score in scores.items()
    )


def table(page: str, head: str) -> str:
    """The table of a page that begins with a head, with its rows."""
    begin = page.index(head)
    rows = page[begin + len(head) :].splitlines(keepends=True)
    return head + "".join(takewhile(lambda row: row.startswith("|"), rows))


def written(page: str) -> str:
    """The page with its tables of this code."""
    for head, make in ((SECRETS, secrets), (OTHERS, others), (LANGUAGES, languages)):
        page = page.replace(table(page, head), make())
    return page


def _percent(share: float | None) -> str:
    """Rounded down, so that 100 % is all of them."""
    return "–" if share is None else f"{int(share * 1000 + 1e-6) / 10:g} %"


def _lines(rows: Iterable[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
