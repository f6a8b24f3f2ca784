"""Request fields that a model has no use for: left out and listed in a header, or refused on a strict route."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapters.errors import CallerError

STRICT = "x-headrace-strict"
"""The gateway's header to the LLM runtime: refuse such fields."""
IGNORED = "x-headrace-ignored"
"""The header of an answer that lists the fields which were left out."""
NAMES = frozenset({"metadata", "prediction", "reasoning_effort", "verbosity"})
"""Optional fields of a chat. `stop` with an empty text is another one."""
MAX_LISTED = 16
_CODES = {"thread": "thread_unsupported_request"}
"""Codes by which client libraries recover; other fields have the common code."""


class HeaderLookup(Protocol):
    """The headers of a message."""

    def get(self, name: str, /) -> str | None: ...


@dataclass(slots=True)
class IgnoredFields:
    """The ignored fields of one request, under the names of a chat's fields."""

    strict: bool = False
    ignored: list[str] = field(default_factory=list)
    dropped: frozenset[str] = frozenset()
    """Fields that the route drops."""

    @classmethod
    def of(cls, headers: HeaderLookup) -> "IgnoredFields":
        """Read the gateway's header."""
        return cls(headers.get(STRICT) == "true")

    def ignore(self, name: str) -> None:
        """Leave a field out. Raises `CallerError` on a strict route."""
        if self.strict:
            raise _refusal(name)
        if name not in self.ignored and len(self.ignored) < MAX_LISTED:
            self.ignored.append(name)

    def add(self, names: Iterable[str]) -> None:
        """Add fields that the model's server ignored."""
        self.ignored += [name for name in names if name not in self.ignored][: MAX_LISTED - len(self.ignored)]

    def enforce(self, strict: bool, dropped: frozenset[str]) -> None:
        """Apply the route's strictness to the ignored fields. The route drops `dropped`. Raises `CallerError`."""
        self.strict, self.dropped = strict, dropped
        if self.ignored:
            self.ignored[:] = [name for name in self.ignored if name not in dropped]
        if strict and self.ignored:
            raise _refusal(self.ignored[0])

    def stops(self, stop: str | list[str] | None) -> list[str]:
        """The stop strings of a response. An empty string is ignored."""
        given = [stop] if isinstance(stop, str) else stop or []
        if "" in given:
            self.ignore("stop")
        return [text for text in given if text]


def _refusal(name: str) -> CallerError:
    message = f"`{name}` has no effect on this model, and its route is strict: leave the field out."
    return CallerError(message, param=name, code=_CODES.get(name, "unsupported_parameter"))


def allowed_tools(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace `tool_choice: {type: allowed_tools}` by the allowed tools and the mode.

    Other values are unchanged. Raises `CallerError` for an unknown tool.
    """
    match fields.get("tool_choice"):
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            names = {_name_of(tool) for tool in allowed}
        case _:
            return fields
    given = fields.get("tools")
    tools = [tool for tool in given if _name_of(tool) in names] if isinstance(given, list) else []
    if missing := names - {_name_of(tool) for tool in tools}:
        name = sorted(map(str, missing))[0]
        raise CallerError(f"`tool_choice` allows {name[:64]}, which `tools` does not have.", param="tool_choice")
    return {**fields, "tools": tools, "tool_choice": mode}


def _name_of(tool: Any) -> str | None:
    match tool:
        case {"function": {"name": str(name)}}:
            return name
    return None
