"""What a check found, as data."""

from typing import Literal

import msgspec

How = Literal["real", "conformance server", "foreign"]
"""What stood behind the adapter: the system itself, a server built from its published documents, or one that somebody
else runs."""
Verdict = Literal["passed", "failed", "absent"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One feature of one system. `why` is empty for what passed; of `absent` it is why the protocol has no such thing,
    or why this server cannot show it."""

    system: str
    feature: str
    verdict: Verdict
    why: str = ""
    how: How
    version: str


def encode(cells: list[Cell]) -> bytes:
    """As they are kept: a line each, so that a change shows as one."""
    lines = ",\n".join(msgspec.json.encode(cell).decode() for cell in cells)
    return f"[\n{lines}\n]\n".encode()


def decode(body: bytes) -> list[Cell]:
    """Raises `msgspec.ValidationError`."""
    return msgspec.json.decode(body, type=list[Cell])
