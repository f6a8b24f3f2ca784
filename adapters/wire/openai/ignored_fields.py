"""Request fields that a model has no use for: left out and listed in a header, or refused on a strict route.

A translation between two protocols keeps the fields that both have. `sift` decides about every other field. Those in
`CHANGED` are refused, because the answer would be another one without them. All others only steer the servers of their
own protocol.
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.wire.openai.operation_fields import FIELDS, NOTHING

STRICT = "x-headrace-strict"
"""The gateway's header to the LLM runtime: refuse such fields."""
IGNORED = "x-headrace-ignored"
"""The header of an answer that lists the fields which were left out."""
NAMES = frozenset({"metadata", "prediction", "reasoning_effort", "verbosity"})
"""Optional fields of a chat. `stop` with an empty text is another one."""
MAX_LISTED = 16
LONGEST_NEUTRAL = 64
"""Bytes, with white space."""
OTHER = "other"
"""The name of a field whose own name no header or label may have."""
_SAFE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_LABELS = FIELDS | {
    "betas", "client_metadata", "citations", "compaction", "container", "diagnostics", "inference_geo",
    "reasoning.summary", "reasoning_details", "server_tool_use", "stop_sequences", "thread", "tool_search",
    "user_profile_id", "web_search", "web_search_call",
}  # fmt: skip
_ONE_CHOICE = "its servers return one answer for each request"
_NO_PENALTY = "its servers have no such control of the sampling"
_NO_LOGPROBS = "its servers report no log probabilities"
_NO_GRAMMAR = "its servers follow no grammar: use `response_format` with a JSON schema"
_NO_SOUND = "its servers return text only"
_OLD_TOOLS = "it is the old form of tools: use `tools`"
NOT_STORED = "no files and no responses are stored here, so send it in full"
CHANGED: Mapping[str, tuple[str, frozenset[bytes]]] = {
    "audio": (_NO_SOUND, frozenset()),
    "background": (NOT_STORED, frozenset()),
    "best_of": (_ONE_CHOICE, frozenset((b"1",))),
    "conversation": (NOT_STORED, frozenset()),
    "frequency_penalty": (_NO_PENALTY, frozenset((b"0.0",))),
    "function_call": (_OLD_TOOLS, frozenset((b'"none"',))),
    "functions": (_OLD_TOOLS, frozenset()),
    "grammar": (_NO_GRAMMAR, frozenset()),
    "guided_choice": (_NO_GRAMMAR, frozenset()),
    "guided_grammar": (_NO_GRAMMAR, frozenset()),
    "guided_json": (_NO_GRAMMAR, frozenset()),
    "guided_regex": (_NO_GRAMMAR, frozenset()),
    "inference_geo": ("it demands a region of Anthropic's own servers", frozenset()),
    "logit_bias": (_NO_PENALTY, frozenset()),
    "logprobs": (_NO_LOGPROBS, frozenset()),
    "mcp_servers": ("its servers call no tools by themselves: give the tools as functions", frozenset()),
    "modalities": (_NO_SOUND, frozenset((b'["text"]',))),
    "moderation": ("its servers moderate no inputs and answers", frozenset()),
    "n": (_ONE_CHOICE, frozenset((b"1",))),
    "presence_penalty": (_NO_PENALTY, frozenset((b"0.0",))),
    "previous_response_id": (NOT_STORED, frozenset()),
    "prompt": (NOT_STORED, frozenset()),
    "repetition_penalty": (_NO_PENALTY, frozenset((b"1", b"1.0"))),
    "structured_outputs": (_NO_GRAMMAR, frozenset()),
    "top_logprobs": (_NO_LOGPROBS, frozenset()),
}
"""Fields that change the answer and that another protocol may lack: the reason of a refusal, and the values beside
`NOTHING` that change nothing."""
_DEFAULTS = {
    "include_reasoning": frozenset((b"true",)),
    "service_tier": frozenset((b'"auto"', b'"default"')),
    "speed": frozenset((b'"standard"',)),
    "thinking": frozenset((b'{"type":"disabled"}',)),
    "truncation": frozenset((b'"disabled"',)),
    "verbosity": frozenset((b'"medium"',)),
}
"""Values of other fields that request nothing."""
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
        """Leave a field out. A name that is not safe in a header becomes `OTHER`. Raises `CallerError` on a strict
        route."""
        name = name if _SAFE.fullmatch(name) else OTHER
        if self.strict:
            raise _refusal(name)
        if name not in self.ignored and len(self.ignored) < MAX_LISTED:
            self.ignored.append(name)

    def sift(self, fields: Mapping[str, Raw], translated: Container[str]) -> None:
        """Ignore or refuse the fields that a translation does not keep. Raises `CallerError`."""
        for name, raw in fields.items():
            if name in translated or requests_nothing(name, raw):
                continue
            if name in CHANGED:
                message = f"`{name}` is not possible with this model: {CHANGED[name][0]}."
                raise CallerError(message, param=name, code="unsupported_parameter")
            self.ignore(name)

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


def requests_nothing(name: str, raw: Raw) -> bool:
    """Whether a field has a value that has no effect. Such values are short: a longer one is not read."""
    if len(memoryview(raw)) > LONGEST_NEUTRAL:
        return False
    value = msgspec.json.format(bytes(raw), indent=-1)
    neutral = CHANGED[name][1] if name in CHANGED else _DEFAULTS.get(name, ())
    return value in NOTHING or value in neutral


def label(name: str) -> str:
    """The name of an ignored field as a metric's label: one of a fixed set."""
    return name if name in _LABELS else OTHER


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
