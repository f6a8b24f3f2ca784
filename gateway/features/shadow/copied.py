"""One copy: the request of the client, and its answer while the client reads it.

A request is never copied if its copy would change state, or have effects outside of the model.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from adapters.answer import Answer
from adapters.call import Call
from adapters.errors import CallerError, CapacityError, InferenceError, Unavailable, UpstreamTimeout
from adapters.requests import AppRequest, GenerateRequest, InferRequest, ModelRequest
from adapters.wire import decoding
from adapters.wire.native_chat import NativeChat
from adapters.wire.oip.bodies import HttpPayload
from adapters.wire.openai.model_field import CODEC as PASSED
from config.schema.config import TimeoutConfig
from gateway.auth.keys import Principal
from gateway.features.shadow.answers import WholeAnswer
from policies.shadowing.live import LiveShadow, SpendHold
from policies.shadowing.pairs import AnswerTimes

STATEFUL = ("previous_response_id", "conversation", "background", "container")
"""Fields that refer to the state of a server."""
ON_THE_SERVER = ("mcp_servers", "web_search_options", "plugins")
"""Fields that let the server itself act."""
OF_THE_CLIENT = frozenset({None, "function", "custom"})
"""Kinds of tools that the client executes, not the server."""
MOST_TOOLS = 64 * 1024
"""Bytes of tools that are decoded. A request with more is not copied."""
SAFE_METHODS = frozenset({"GET", "HEAD"})
_EMPTY = frozenset({b"null", b"false", b"[]", b"{}"})
MOST_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer that is compared."""
MOST_BYTES = 64 * 1024 * 1024
"""Bytes of all requests and answers that copies hold."""


class _Tool(msgspec.Struct):
    type: Any = None


_tools = msgspec.json.Decoder(list[_Tool]).decode


def exclusion(request: ModelRequest) -> str:
    """The reason why a request is not copied: `state`, `effects` or `operation`; empty if it may be."""
    if request.sequence:
        return "state"
    if isinstance(request, GenerateRequest):
        return _of_text(request)
    if isinstance(request, InferRequest):
        return _of_tensors(request)
    if isinstance(request, AppRequest):
        return _of_app(request)
    return "operation"


def _of_tensors(request: InferRequest) -> str:
    payload = request.payload
    if isinstance(payload, HttpPayload) and payload.encoding and not payload.opened:
        return "operation"  # it is forwarded compressed, and is not decompressed for a copy
    return ""


def _of_text(request: GenerateRequest) -> str:
    try:
        fields = request.payload.native if isinstance(request, NativeChat) else request.fields
    except CallerError:
        return "operation"
    return exclusion_of_fields(fields)


def exclusion_of_fields(fields: Mapping[str, Raw]) -> str:
    """The reason by the fields of a text request's body."""
    if _given(fields, "store") or any(_given(fields, name) for name in STATEFUL):
        return "state"
    if "tools" in fields and len(memoryview(fields["tools"])) > MOST_TOOLS:
        return "operation"
    if any(_given(fields, name) for name in ON_THE_SERVER) or _has_tools_of_the_server(fields):
        return "effects"
    return ""


def _given(fields: Mapping[str, Raw], name: str) -> bool:
    """Whether a field has a value other than none, false or empty."""
    return name in fields and bytes(memoryview(fields[name])[:8]).strip() not in _EMPTY


def _has_tools_of_the_server(fields: Mapping[str, Raw]) -> bool:
    """Whether the server itself would execute a tool, such as a search or a program."""
    if "tools" not in fields:
        return False
    try:
        return any(tool.type not in OF_THE_CLIENT for tool in _tools(fields["tools"]))
    except (*decoding.MALFORMED_JSON, TypeError):
        return bytes(memoryview(fields["tools"])[:8]).strip() not in _EMPTY


def _of_app(request: AppRequest) -> str:
    """Apps: only methods without effects, and inferences. Uploads are not copied."""
    if request.content_type.startswith("multipart/"):
        return "state"
    if request.method in SAFE_METHODS or request.codec is PASSED:
        return ""
    return "" if request.method == "POST" and request.repeatable else "effects"


class NotCompared(Exception):
    """The reason why a copy has no answer to compare."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CopiedRequest(NamedTuple):
    """A request of a client, as it was received and as it was sent."""

    principal: Principal
    received: ModelRequest
    sent: ModelRequest
    call: Call
    timeout: TimeoutConfig
    began: float
    """Monotonic seconds at the begin of the call."""


class ShadowCopy:
    """One copy: the request, and the client's answer while the client reads it."""

    __slots__ = ("_budget", "answer", "ended", "held", "pieces", "request", "shadow", "spend", "times")

    def __init__(self, shadow: LiveShadow, request: CopiedRequest, answer: Answer, budget: "CopyBudget") -> None:
        self.shadow = shadow
        self.request = request
        self.answer = answer
        self.pieces: list[bytes] | None = []
        """The pieces of the answer; None if it is too large."""
        self.held = request.received.size
        self.ended = 0.0
        """Monotonic seconds at the end of the client's answer."""
        self.spend: SpendHold | None = None
        self.times: AnswerTimes | None = None
        """The times of the shadow's answer."""
        self._budget = budget
        budget.held += self.held

    def add(self, piece: bytes) -> None:
        """Hold a piece of the client's answer."""
        if self.pieces is None:
            return
        size = len(piece)
        if self.held - self.request.received.size + size > MOST_ANSWER or self._budget.held + size > MOST_BYTES:
            self.pieces = None
            return
        self.pieces.append(piece)
        self.held += size
        self._budget.held += size

    def release(self) -> None:
        """Return the memory."""
        self._budget.held -= self.held
        self.held = 0

    def primary(self) -> WholeAnswer | None:
        """The client's answer; None if it is too large."""
        return None if self.pieces is None else whole(self.answer, b"".join(self.pieces), self.request.sent.operation)


class CopyBudget:
    """The bytes that all copies of a process hold."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0


def whole(answer: Answer, data: bytes, operation: str) -> WholeAnswer:
    """An answer whose bytes are read."""
    is_stream = answer.body is None
    return WholeAnswer(answer.status, operation, answer.form, answer.content_type, is_stream, data)


async def read_answer(answer: Answer) -> bytes:
    """All bytes of an answer. Raises `NotCompared` for one that is too large."""
    if answer.body is not None:
        if len(answer.body) > MOST_ANSWER:
            raise NotCompared("size")
        return answer.body
    pieces, size = list[bytes](), 0
    try:
        async for piece in answer:
            size += len(piece)
            if size > MOST_ANSWER:
                raise NotCompared("size")
            pieces.append(piece)
    finally:
        await answer.aclose()
    return b"".join(pieces)


def reason_of(error: InferenceError) -> str:
    """The reason of a copy without an answer."""
    if isinstance(error, Unavailable) and error.code == Unavailable.code:
        return "unavailable"
    if isinstance(error, CapacityError):
        return "busy"
    if isinstance(error, UpstreamTimeout) or error.kind == "deadline":
        return "timeout"
    return "unreachable" if error.kind == "transport" else "failed"
