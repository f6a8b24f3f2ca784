"""The hosts of Anthropic's Messages: its own API, and the clouds that serve the same messages.

                   Anthropic, AWS, Foundry    Vertex AI                     Bedrock
    path           /v1/messages               …/models/M:rawPredict         /model/M/invoke
    of a stream    the same                   …/models/M:streamRawPredict   /model/M/invoke-with-response-stream
    the model      in the body                in the path                   in the path
    `stream`       in the body                in the body                   not sent
    the version    a header                   in the body                   in the body
    the betas      a header                   a header                      in the body
    a stream has   events                     events                        binary frames

Everything else in a body passes unchanged. A host leaves out betas and fields that it is known to refuse, and reports
them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from adapters.http1.message import Headers
from adapters.ignored_fields import SCOPE, IgnoredFields
from adapters.paths import segment
from adapters.wire import sse
from adapters.wire.error_table import ErrorBody, decode_error
from config.schema.protocols.language import AnthropicProtocol

Body = Mapping[str, Any]
"""The fields of a message: encoded values, or values to encode."""

_encode = msgspec.json.Encoder().encode
_list = msgspec.json.Decoder(list[Raw]).decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode

# Betas. A cloud refuses a request with one that it does not know.

IN_CLOUDS = frozenset({
    "compact-2026-01-12", "computer-use-2025-01-24", "computer-use-2025-11-24", "context-1m-2025-08-07",
    "context-management-2025-06-27", "dangerous-tool-use-2026-09-03", "interleaved-thinking-2025-05-14",
    "thinking-binding-controls-2026-08-01", "thinking-display-updates-2026-08-18", "tool-search-tool-2025-10-19",
})  # fmt: skip
_AT_VERTEX = IN_CLOUDS | {"compact-2026-09-04", "per-turn-control-2026-07-01", "web-search-2025-03-05"}
_NOT_AT_FOUNDRY = frozenset({
    "advisor-tool-2026-03-01", "compact-2026-01-12", "fast-mode-2026-02-01", "fine-grained-tool-streaming-2025-05-14",
    "output-128k-2025-02-19", "thinking-binding-controls-2026-08-01", "token-efficient-tools-2025-02-19",
})  # fmt: skip
_RENAMED = {"advanced-tool-use-2025-11-20": "tool-search-tool-2025-10-19"}
"""Anthropic's own name of a beta, and that of the clouds."""

# Fields.

_HINTS = ("service_tier", "speed")
"""Fields that change no answer, which clouds refuse."""
_NESTED = frozenset({"content", "messages", "system", "tools"})
"""Fields that hold blocks with cache marks, or blocks with such fields."""


class MessagesHost:
    """Anthropic's own API. `base` is the path of the endpoint's URL."""

    streamed = "text/event-stream"
    """The content type of a stream."""
    health: str | None = "/v1/models"
    """The path of the health check; None if the servers have no path that costs nothing."""

    def __init__(self, options: AnthropicProtocol, base: str) -> None:
        self._version = options.its_version
        self._betas = options.betas
        self.base = base.removesuffix("/v1")

    def message(self, model: str, *, stream: bool) -> bytes:
        """Return the target of a message. Raises `CallerError` for a name that cannot be in a path."""
        return f"{self.base}/v1/messages".encode()

    def count(self, model: str) -> bytes:
        """Return the target of a count of tokens."""
        return f"{self.base}/v1/messages/count_tokens".encode()

    def fields(self) -> list[tuple[str, str]]:
        """Return the header fields of every request."""
        return [("anthropic-version", self._version)]

    def named_betas(self, client: str, ignored: IgnoredFields) -> list[str]:
        """Return the betas of the pool and those of the client that the host knows. Others are ignored."""
        if not client:
            return list(self._betas)
        names = [name.strip() for name in client.split(",")]
        passed = [here for name in names if (here := self._name_here(name)) is not None]
        if len(passed) < len(names):
            ignored.ignore("betas")
        return list(dict.fromkeys([*self._betas, *passed]))

    def _name_here(self, beta: str) -> str | None:
        """The host's name of a beta; None if it refuses it."""
        return beta

    def beta_fields(self, betas: list[str]) -> list[tuple[str, str]]:
        """Return the header field of betas."""
        named = ",".join(betas)
        return [("anthropic-beta", named)] if named else []

    def body(self, message: Body, betas: list[str], ignored: IgnoredFields) -> bytes:
        """Encode a message."""
        return _encode(message)

    def count_body(self, message: Body, betas: list[str], ignored: IgnoredFields) -> bytes:
        """Encode a message whose tokens are counted."""
        return _encode(message)

    def splitter(self, limit: int) -> sse.EventSplitter:
        """Return what splits a stream into events of at most `limit` bytes."""
        return sse.Splitter(limit)

    def error(self, headers: Headers, body: bytes) -> ErrorBody:
        """Decode the body of an error."""
        return decode_error(body)

    def count_of(self, body: bytes) -> bytes:
        """Return the answer to a count in Anthropic's form."""
        return body


class AwsHost(MessagesHost):
    """Claude Platform on AWS: Anthropic's own API in a workspace."""

    def __init__(self, options: AnthropicProtocol, base: str) -> None:
        super().__init__(options, base)
        self._workspace = options.workspace

    def fields(self) -> list[tuple[str, str]]:
        own = super().fields()
        return own if self._workspace is None else [*own, ("anthropic-workspace-id", self._workspace)]


class FoundryHost(MessagesHost):
    """Microsoft Foundry: the paths of Anthropic's own API below `/anthropic`."""

    health = None

    def __init__(self, options: AnthropicProtocol, base: str) -> None:
        super().__init__(options, base or "/anthropic")

    def _name_here(self, beta: str) -> str | None:
        return None if beta in _NOT_AT_FOUNDRY else beta


class CloudHost(MessagesHost):
    """What clouds with the model in the path have in common: the model in the path, the version in the body."""

    health = None
    _accepted: frozenset[str] = IN_CLOUDS

    def fields(self) -> list[tuple[str, str]]:
        return []

    def _name_here(self, beta: str) -> str | None:
        beta = _RENAMED.get(beta, beta)
        return beta if beta in self._accepted else None

    def _fields_here(self, message: Body, ignored: IgnoredFields) -> dict[str, Any]:
        """The fields without the model and without those that the clouds refuse."""
        fields = {name: _in_block(name, value, ignored) for name, value in message.items() if name != "model"}
        for name in _HINTS:
            if fields.pop(name, None) is not None:
                ignored.ignore(name)
        return fields


class VertexHost(CloudHost):
    """Vertex AI: a publisher's model, called raw."""

    _accepted = _AT_VERTEX

    def __init__(self, options: AnthropicProtocol, base: str) -> None:
        super().__init__(options, base)
        project, location = segment(options.project or ""), segment(options.place)
        self._models = f"{self.base}/v1/projects/{project}/locations/{location}/publishers/anthropic/models"

    def message(self, model: str, *, stream: bool) -> bytes:
        return f"{self._models}/{segment(model)}:{'streamRawPredict' if stream else 'rawPredict'}".encode()

    def count(self, model: str) -> bytes:
        return f"{self._models}/count-tokens:rawPredict".encode()

    def body(self, message: Body, betas: list[str], ignored: IgnoredFields) -> bytes:
        return _encode({"anthropic_version": self._version, **self._fields_here(message, ignored)})

    def count_body(self, message: Body, betas: list[str], ignored: IgnoredFields) -> bytes:
        fields = self._fields_here(message, ignored)
        return _encode({"anthropic_version": self._version, **fields, "model": message["model"]})


def _in_block(name: str, value: Any, ignored: IgnoredFields) -> Any:
    """A field of a message or of a block, without the `scope` of cache marks: the clouds refuse it. All other bytes
    are unchanged."""
    if name not in _NESTED and name != "cache_control":
        return value
    raw = bytes(value) if isinstance(value, Raw) else _encode(value)
    if b'"scope"' not in raw:
        return value
    if name == "cache_control":
        mark = _object(raw) if raw[:1] == b"{" else {}
        if "scope" not in mark:
            return value
        ignored.ignore(SCOPE)
        return {field: each for field, each in mark.items() if field != "scope"}
    return _without_scope(raw, ignored)


def _without_scope(raw: bytes, ignored: IgnoredFields) -> Raw:
    if raw[:1] == b"[":
        return Raw(_encode([_without_scope(bytes(each), ignored) for each in _list(raw)]))
    if raw[:1] == b"{":
        return Raw(_encode({name: _in_block(name, each, ignored) for name, each in _object(raw).items()}))
    return Raw(raw)
