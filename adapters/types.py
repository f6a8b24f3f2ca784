"""The domain's nouns: what was asked, what it cost. No I/O, no protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from msgspec import Raw

Feature = Literal["tools", "json_schema", "vision"]
"""What a request may ask of a model beside text."""


@dataclass(slots=True)
class Usage:
    """What an answer cost so far. `exact` is False while it is our own count and not the server's word."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    exact: bool = False
    rows: int = 0
    """Of tensors: the batch's first dimension."""
    bytes: int = 0
    """Of the answer's body, as the upstream sent it."""
    device_ms: float = 0
    """Of the model's device, where the server tells."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Codec:
    """The wire that a request came by: what of it is read, or read again, only when somebody wants to know.

    This one knows none, for a request that came by no wire.
    """

    def asks_for(self, request: GenerateRequest, feature: Feature) -> bool:
        return False

    def rename(self, request: GenerateRequest, model: str) -> None:
        """Let it ask for its model by another name."""
        request.model = model

    def rewrite(self, request: GenerateRequest, fields: dict[str, Raw]) -> None:
        """Put others in the place of its fields."""
        request.fields = fields


NO_WIRE = Codec()


@dataclass(slots=True)
class GenerateRequest:
    """A request for text, as far as routing and limits need to know it.

    `fields` are the body's top-level values, still encoded: an adapter splices the upstream's body from them
    without touching what nobody here reads.
    """

    path: ClassVar[str]
    operation: ClassVar[str]
    """As the access log names it."""

    model: str
    fields: dict[str, Raw] = field(repr=False)
    stream: bool = False
    include_usage: bool = False
    """Whether the client itself asked for usage at the end of its stream."""
    prompt_tokens: int = 0
    """An estimate; the truth comes with the answer."""
    max_tokens: int | None = None
    n: int = 1
    size: int = 0
    """Bytes of the body."""
    user: str | None = None
    prompt: memoryview = field(default=memoryview(b""), repr=False)
    """The prompt's own value among `fields`, as the client sent it."""
    tenant: str = ""
    key: str = ""
    """The key's id, never its secret."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Lower-case names. With tenant and key, what balancing may go by; no adapter sends them on."""
    request_id: str = ""
    tried: tuple[str, ...] = ()
    """Endpoints that were asked: for another attempt, others are preferred."""
    events: tuple[tuple[str, str], ...] = ()
    """What happened to it on its way beyond an attempt, each with the pool's or model's name."""
    upstream_seconds: float = 0.0
    """Time spent waiting for upstreams to begin; the rest, but for the queue, is the gateway's own."""
    queue_seconds: float = 0.0
    """Time spent waiting for a place at an upstream."""
    priority: Literal["high", "normal", "low"] | None = None
    """Its route's, in a full pool; None for its tenant's."""
    passed_by: list[str] | None = None
    """Pools that were full, of a request that is to go elsewhere first; None: it waits where it comes to."""
    codec: Codec = field(default=NO_WIRE, repr=False)
    _features: dict[Feature, bool] | None = field(default=None, repr=False)

    def asks_for(self, feature: Feature) -> bool:
        """Found out when it is first wanted, and then remembered."""
        known = self._features
        if known is None:
            known = self._features = {}
        if feature not in known:
            known[feature] = self.codec.asks_for(self, feature)
        return known[feature]


@dataclass(slots=True)
class ChatRequest(GenerateRequest):
    """`/v1/chat/completions`."""

    path: ClassVar[str] = "/chat/completions"
    operation: ClassVar[str] = "chat"


@dataclass(slots=True)
class CompletionRequest(GenerateRequest):
    """`/v1/completions`."""

    path: ClassVar[str] = "/completions"
    operation: ClassVar[str] = "text_completion"


class Deadline(NamedTuple):
    """The end of every wait of one call. `at` is absolute loop time; the others are seconds."""

    at: float
    first_byte: float
    idle: float
