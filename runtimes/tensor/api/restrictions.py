"""Parts of the interface that need a secret (Triton's restricted APIs).

    --restrict model-repository,shared-memory:admin-key=SECRET

Over gRPC the header has the prefix that Triton gives it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from adapters.errors import Forbidden
from runtimes.tensor.api.routes import GROUPS

GRPC_PREFIX = "triton-grpc-protocol-"


@dataclass(frozen=True, slots=True)
class Restriction:
    """Groups of the interface, and the header with their secret."""

    groups: tuple[str, ...]
    header: str
    secret: str


def parse(text: str) -> Restriction:
    """Parse one restriction. Raises `ValueError` with the expected form."""
    names, _, pair = text.partition(":")
    header, _, secret = pair.partition("=")
    groups = tuple(name.strip() for name in names.split(","))
    if unknown := [name for name in groups if name not in GROUPS]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(GROUPS)}")
    if not header.strip() or not secret:
        raise ValueError("write GROUP,GROUP:HEADER=SECRET")
    return Restriction(groups, header.strip().lower(), secret)


class Restrictions:
    """All restrictions of a server. False if there are none."""

    def __init__(self, given: Iterable[Restriction] = ()) -> None:
        self._of: dict[str, Restriction] = {}
        for restriction in given:
            for group in restriction.groups:
                if group in self._of:
                    raise ValueError(f"{group} is restricted twice")
                self._of[group] = restriction

    def __bool__(self) -> bool:
        return bool(self._of)

    def check(self, group: str, header: Callable[[str], str | None], prefix: str = "") -> None:
        """Raise `Forbidden` for a request without the secret; `header` returns a header by its name in lower case."""
        restriction = self._of.get(group)
        if restriction is None:
            return
        name = prefix + restriction.header
        if not hmac.compare_digest((header(name) or "").encode(), restriction.secret.encode()):
            raise Forbidden(f"This API is restricted, expecting header '{name}'.")
