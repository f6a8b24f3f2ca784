"""The messages between the gateway and the process that reads drafts."""

from typing import Literal

import msgspec

DraftTask = Literal["show", "check", "replay"]
MOST_TEXT = 8 * 1024**2
"""Bytes of a draft: the bound of the file itself."""


class RecordedSource(msgspec.Struct, frozen=True):
    """The recorded traffic that a draft is tried with."""

    folder: str
    key: str
    since: float
    """Unix seconds. Earlier requests are left out."""


class DraftOrder(msgspec.Struct, frozen=True):
    """One order. `body` is the client's body of JSON, which the gateway does not decode; or a text."""

    task: DraftTask
    path: str
    placeholder_key: bytes
    in_force: str
    """The text of the configuration in force."""
    on_disk: bytes
    body: bytes = b""
    text: str | None = None
    """The draft of an order without a body."""
    record: RecordedSource | None = None


class DraftResult(msgspec.Struct, frozen=True):
    """The result: JSON for the client, and what the gateway itself needs."""

    body: bytes
    status: int = 200
    text: str = ""
    """A valid draft with its secrets, for `check`."""
    tests_failed: int = 0


class DraftBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a client."""

    text: str
    """The draft."""
