"""Foreign texts on a terminal: no control characters, and no markup."""

from rich.text import Text


def plain(value: object) -> Text:
    """A text that a terminal shows as it is."""
    return Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value)))
