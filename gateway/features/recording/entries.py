"""The stored record of one request: MessagePack arrays, so new fields are appended with a default."""

from typing import TypeVar

import msgspec

from adapters.types import Feature

FEATURES: tuple[Feature, ...] = ("tools", "json_schema", "vision")
"""The features of a request. A bit of `RecordEntry.features` stands for each."""


class Holder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A client: its identity, which the entries of a frame share."""

    tenant: str
    key: str = ""
    roles: tuple[str, ...] = ("user",)
    labels: dict[str, str] = {}
    scope: dict[str, tuple[str, ...]] | None = None
    """The names of each kind that the credential is restricted to; None without scopes."""
    team: str = ""


class Usages(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The measured usage of an answer, as charged."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    rows: int = 0
    bytes: int = 0
    device_ms: float = 0.0
    exact: bool = False
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


class RecordedVerdict(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a guard did about the texts that it has found in one side of a request."""

    guard: str
    action: str
    """That of the guard, or `error` for texts that it could not judge."""
    mode: str
    on: str
    texts: int = 1

    @property
    def hides(self) -> bool:
        """Whether the record cannot have what was found."""
        if self.mode != "enforce":
            return False
        return self.action == "mask" or self.action == "replace" or (self.action == "block" and self.on == "answer")


class RecordEntry(msgspec.Struct, array_like=True, gc=False):
    """One request. Times are Unix seconds, or seconds since the arrival."""

    number: int
    """The number of the request in its segment; its content has the same."""
    id: str
    holder: int
    """Index of the client in the frame."""
    arrival: int
    """Unix time in nanoseconds."""
    operation: str
    # the request
    model: str = ""
    """The name that the client sent; empty if the request was refused before its body was read."""
    version: str = ""
    kind: str = ""
    """The class of the request."""
    stream: bool = False
    prompt_tokens: int = 0
    max_tokens: int | None = None
    n: int = 1
    rows: int = 0
    size: int = 0
    """Bytes of the body."""
    features: int = 0
    user: str = ""
    """A stand-in for the end user; empty without one."""
    sequence: str = ""
    """A stand-in for the sequence; empty without one."""
    headers: dict[str, str] = {}
    # the decision
    decided: float = 0.0
    configured: str = ""
    """The model, as configured; empty if there is none."""
    route: int = -1
    arm: str | None = None
    pools: tuple[str, ...] = ()
    """The pools of the decision in their order. `model:NAME` for an arm that is a model."""
    draws: tuple[float, ...] = ()
    """The random numbers of the decision."""
    comparison: tuple[str, tuple[float, ...]] | None = None
    """The rollout of the route, and the shares of its arms at that time."""
    amounts: tuple[float, ...] = ()
    """The reserved amounts; empty if nothing was reserved."""
    reserved: int = 0
    """The reserved cost in picos."""
    reproduces: bool = True
    """Whether the stored facts lead to the stored decision. If not, the decision is taken from the record."""
    # the end
    pool: str = ""
    endpoint: str = ""
    attempts: tuple[str, ...] = ()
    """The endpoints to which the request was sent."""
    status: int = 0
    error: str = ""
    """The kind of the error; empty for an answer."""
    code: str = ""
    usage: Usages | None = None
    cost: tuple[int, str] | None = None
    """Picos and currency."""
    first_byte: float | None = None
    end: float = 0.0
    queued: float = 0.0
    cached: str = ""
    guards: tuple[RecordedVerdict, ...] = ()


class Content(msgspec.Struct, array_like=True, gc=False):
    """The body of a request and its answer, redacted."""

    number: int
    path: str = ""
    """The path to which the request can be sent again; empty if it cannot."""
    method: str = "POST"
    headers: dict[str, str] = {}
    """The headers that belong to the body."""
    body: bytes = b""
    digest: bytes = b""
    """A keyed digest of the body before its redaction."""
    redacted: bool = False
    """Whether the body or the answer differs from the client's."""
    answer: bytes | None = None
    """The answer; of a stream, a JSON object with its joined texts."""
    answer_type: str = ""
    answer_headers: dict[str, str] = {}
    streamed: bool = False
    truncated: bool = False
    """Whether the answer is incomplete here: too long, broken, or left by the client."""


class EntriesFrame(msgspec.Struct, array_like=True):
    """Some requests in the order of their ends."""

    holders: list[Holder]
    entries: list[RecordEntry]


class ContentsFrame(msgspec.Struct, array_like=True):
    """The contents of some requests."""

    contents: list[Content]


class PolicyFrame(msgspec.Struct):
    """The policy in force. It is the first frame of a segment, and a changed one begins a new segment."""

    digests: dict[str, str]
    """By part of the configuration: a digest of its text."""
    share: float
    """The recorded share of the requests."""
    started: float
    headers: tuple[str, ...] = ()
    """The recorded headers."""


T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode


def encode(frame: msgspec.Struct) -> bytes:
    """Encode a frame."""
    return _encode(frame)


def decode(data: bytes, kind: type[T]) -> T:
    """Decode a frame. Raises `msgspec.MsgspecError`."""
    return msgspec.msgpack.decode(data, type=kind)
