"""What the gateway tells its own LLM runtime of a request in headers: whose it is, and how urgent.

No client can say it: the gateway sends on no header of a client's. Whoever asks the runtime itself may.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple, Protocol

from adapters.errors import CallerError

TENANT = "x-headrace-tenant"
SHARE = "x-headrace-share"
PRIORITY = "x-headrace-priority"
TIMEOUT = "x-headrace-timeout"
SALT = "x-headrace-salt"
REFUSED = "x-headrace-refused"
"""Of an answer: whose requests the runtime refuses, the `tenant`'s or all (`server`). Its queue is fair, so what is
refused for want of a place is the tenant's own."""

PRIORITIES: Mapping[str, int] = {"high": -1, "normal": 0, "low": 1}
"""As vLLM's `priority` counts: the lowest goes first."""


class HeaderFields(Protocol):
    """Of a message."""

    def get(self, name: str, /) -> str | None: ...


class InternalHeaders(NamedTuple):
    """`priority` None: nothing was said. `seconds` is how long the answer may take from now on."""

    tenant: str = ""
    share: float = 1.0
    priority: int | None = None
    seconds: float = inf
    salt: str | None = None
    """Whose prefixes it may share, where that is not its tenant's alone."""


def encode(tenant: str, share: float, priority: str, seconds: float, salt: str) -> tuple[tuple[str, str], ...]:
    """As header fields."""
    standing = (TENANT, tenant), (SHARE, f"{share:g}"), (PRIORITY, priority), (TIMEOUT, f"{seconds:.3f}")
    return (*standing, (SALT, salt))


def decode(fields: HeaderFields) -> InternalHeaders:
    """Raises `CallerError` for what `encode` does not write."""
    priority = fields.get(PRIORITY)
    if priority is not None and priority not in PRIORITIES:
        raise CallerError(f"`{PRIORITY}` is {', '.join(PRIORITIES)}.", param=PRIORITY)
    rank = None if priority is None else PRIORITIES[priority]
    tenant, salt = fields.get(TENANT) or "", fields.get(SALT)
    return InternalHeaders(tenant, _number(fields, SHARE, 1.0), rank, _number(fields, TIMEOUT, inf), salt)


def _number(fields: HeaderFields, name: str, default: float) -> float:
    text = fields.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < inf:
        raise CallerError(f"`{name}` is a number above 0.", param=name)
    return number
