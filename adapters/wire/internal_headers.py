"""Headers from the gateway to its own LLM runtime: the tenant of a request and its priority.

A client of the gateway cannot set them, since the gateway does not forward them. A direct client of the runtime can
set them.
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
"""A response header: the scope of a refusal, `tenant` or `server`. The runtime's queue is fair, so a full queue rejects
only requests of one tenant."""

PRIORITIES: Mapping[str, int] = {"high": -1, "normal": 0, "low": 1, "batch": 2}
"""vLLM's `priority`: the lowest value is served first."""


class HeaderFields(Protocol):
    """The headers of a message."""

    def get(self, name: str, /) -> str | None: ...


class InternalHeaders(NamedTuple):
    """Decoded headers. `priority` is None without the header. `seconds` is the remaining time for the response."""

    tenant: str = ""
    share: float = 1.0
    priority: int | None = None
    seconds: float = inf
    salt: str | None = None
    """The group that shares cached prefixes, if it is not the tenant."""


def encode(tenant: str, share: float, priority: str, seconds: float, salt: str) -> tuple[tuple[str, str], ...]:
    """Encode the headers."""
    standing = (TENANT, tenant), (SHARE, f"{share:g}"), (PRIORITY, priority), (TIMEOUT, f"{seconds:.3f}")
    return (*standing, (SALT, salt))


def decode(fields: HeaderFields) -> InternalHeaders:
    """Decode the headers. Raises `CallerError` for values that `encode` does not produce."""
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
