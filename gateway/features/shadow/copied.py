"""One copy: the request of the client, and its answer while the client reads it."""

from typing import NamedTuple

from adapters.answer import Answer
from adapters.call import Call
from adapters.requests import ModelRequest
from config.schema.config import TimeoutConfig
from gateway.auth.keys import Principal
from gateway.features.shadow.answers import WholeAnswer
from policies.shadowing.live import LiveShadow, SpendHold
from policies.shadowing.pairs import AnswerTimes

MOST_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer that is compared."""
MOST_BYTES = 64 * 1024 * 1024
"""Bytes of all requests and answers that copies hold."""


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
