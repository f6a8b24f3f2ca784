"""The table of a server's conformance."""

import io

import pytest
from rich.console import Console

from adapters.conformance.matrix import Cell
from gateway.process.foreign.examination import table_of


@pytest.mark.parametrize("text", ["[/]", "[red]passed[/]", "[link=http://x]a", "a\x1b]0;b\x07", "a\0b", "[/bold]\rx"])
def test_texts_of_a_server_are_shown_as_they_are(text: str) -> None:
    written = io.StringIO()
    cell = Cell(system=text, feature="f", verdict="failed", why=text, how="foreign", version=text)
    Console(file=written, width=200, force_terminal=False).print(table_of([cell]))
    shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
    assert written.getvalue().count(shown) == 3
