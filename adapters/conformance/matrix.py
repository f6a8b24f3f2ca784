"""The results of checks, as data."""

from typing import Literal

import msgspec

How = Literal["real", "conformance server", "foreign"]
"""The server behind the adapter: the system itself, a server built from its published documents, or a server that
another party operates."""
Verdict = Literal["passed", "failed", "absent"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one feature of one system.

    `why` is empty for `passed`. For `absent` it states why the protocol lacks the feature, or why this server cannot
    show it.
    """

    system: str
    feature: str
    verdict: Verdict
    why: str = ""
    how: How
    version: str


def encode(cells: list[Cell]) -> bytes:
    """Encode results as stored: one line for each result, so that a diff shows each change as one line."""
    lines = ",\n".join(msgspec.json.encode(cell).decode() for cell in cells)
    return f"[\n{lines}\n]\n".encode()


def decode(body: bytes) -> list[Cell]:
    """Decode stored results. Raises `msgspec.ValidationError`."""
    return msgspec.json.decode(body, type=list[Cell])
