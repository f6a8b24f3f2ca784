"""The answer of the last step as the pipeline's: its usage is the sum of all steps."""

from __future__ import annotations

from typing import Any

import msgspec

from adapters.answer import Answer
from adapters.call import Call, CallTrace
from adapters.stream import Stream
from adapters.types import Usage
from adapters.wire import sse
from gateway.features.pipelines.bodies.large_bodies import counts
from gateway.traffic.generated_text import events_of

_encode = msgspec.json.Encoder().encode


def has_several(trace: CallTrace) -> bool:
    """Whether more than one step has a usage, so that the last step's own is not that of the pipeline."""
    return sum(step.usage is not None for step in trace.steps) > 1


class PassedStream(Stream):
    """Forwards the events of a stream as they come.

    If other steps have a usage too, the event with the usage, if the client requested it, has the sum.
    """

    __slots__ = ("_call", "_inner", "_sums")

    def __init__(self, inner: Answer, call: Call) -> None:
        super().__init__(content_type=inner.content_type, usage=inner.usage, status=inner.status, form=inner.form)
        self.pool, self.endpoint, self.headers = inner.pool, inner.endpoint, inner.headers
        self._inner = inner
        self._call = call
        is_outermost = call.step is None  # it sums the steps of inner pipelines too
        self._sums = is_outermost and inner.form.wire == "openai" and call.trace.spent()[0] is not None
        inner.when_ended(self._take_usage)

    def _take_usage(self, inner: Answer, _: BaseException | None) -> None:
        self.usage = self._call.trace.spent(self._call.step)[0] or inner.usage

    async def _next(self, patience: float | None = None) -> bytes:
        piece = await self._inner.__anext__()
        if not self._sums or b'"usage"' not in piece:
            return piece
        return b"".join(self._summed(event, body) for event, body in events_of(piece))

    def _summed(self, event: bytes, body: dict[str, Any] | None) -> bytes:
        own = None if body is None else body.get("usage")
        earlier = self._call.trace.spent()[0]
        if body is None or not isinstance(own, dict) or earlier is None:
            return event
        prompt, completion = own.get("prompt_tokens") or 0, own.get("completion_tokens") or 0
        total = Usage(earlier.prompt_tokens + prompt, earlier.completion_tokens + completion)
        return sse.encode(_encode({**body, "usage": counts(total)}))

    async def _drop(self) -> None:
        await self._inner.aclose()
