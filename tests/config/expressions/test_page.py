"""docs/expressions.md lists every function with its signature."""

from pathlib import Path

from config.expressions.functions import FUNCTIONS


def test_the_page_lists_every_function() -> None:
    page = Path("docs/expressions.md").read_text()
    assert [rule.usage for rule in FUNCTIONS.values() if rule.usage not in page] == []
