"""A scripted upstream with latency, chunks and faults. It records each call.

The module ships with the code: the layers above an adapter are tested on virtual time against an upstream that
fulfils the contract of `Upstream`.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Literal

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import DeadlineError, InferenceError, UpstreamSilent, UpstreamTimeout
from adapters.requests import ModelRequest
from adapters.stream import Stream
from adapters.types import OPENAI, Form, Usage

End = Literal["running", "whole", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Script:
    """The script of one call: wait `latency`, then send `chunks` with a pause of `gap`, then raise `fault` if set.

    `fault_after` is the number of chunks before the fault; 0 raises the fault instead of an answer. Times are in
    seconds.
    """

    chunks: tuple[bytes, ...] = (b"data: {}\n\n", b"data: [DONE]\n\n")
    latency: float = 0.0
    gap: float = 0.0
    fault: InferenceError | None = None
    fault_after: int = 0
    form: Form = OPENAI
    usage: Usage = field(default_factory=lambda: Usage(prompt_tokens=3, completion_tokens=2, exact=True))


@dataclass(slots=True)
class Played:
    """The record of one call."""

    request: ModelRequest
    call: Call
    end: End = "running"


class FakeAdapter:
    """Executes its scripts in order and repeats the last one. `probe` fails while `healthy` is False."""

    def __init__(self, *scripts: Script, name: str = "fake") -> None:
        first: Iterable[Script] = scripts or (Script(),)
        self._scripts = chain(first, repeat((scripts or (Script(),))[-1]))
        self.name = name
        self.healthy = True
        self.calls: list[Played] = []
        self.closed = False

    @property
    def in_flight(self) -> int:
        return sum(call.end == "running" for call in self.calls)

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        script = next(self._scripts)
        record = Played(request, call)
        self.calls.append(record)
        try:
            await _wait(script.latency, call.deadline.first_byte, call.deadline.at)
            if script.fault is not None and script.fault_after == 0:
                raise script.fault
        except BaseException as error:
            record.end = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
            raise
        if request.stream:
            return _FakeStream(script, record, call)
        record.end = "whole"
        body = b"".join(script.chunks)
        return Answer(content_type="application/json", body=body, usage=replace(script.usage), form=script.form)

    async def probe(self, timeout: float) -> None:
        if not self.healthy:
            raise UpstreamTimeout("The fake is unhealthy.")

    async def aclose(self) -> None:
        self.closed = True


class _FakeStream(Stream):
    __slots__ = ("_deadline", "_record", "_script", "_sent")

    def __init__(self, script: Script, record: Played, call: Call) -> None:
        super().__init__(content_type="text/event-stream", usage=Usage(), form=script.form)
        self._script = script
        self._record = record
        self._deadline = call.deadline
        self._sent = 0

    async def _next(self, patience: float | None = None) -> bytes:
        script = self._script
        try:
            if self._sent:
                await _wait(script.gap, self._deadline.idle, self._deadline.at)
            if script.fault is not None and self._sent == script.fault_after:
                raise script.fault
        except InferenceError:
            self._record.end = "failed"
            raise
        if self._sent == len(script.chunks):
            self._record.end = "whole"
            self.usage = replace(script.usage)
            raise StopAsyncIteration
        self._sent += 1
        self.usage.completion_tokens += 1
        return script.chunks[self._sent - 1]

    async def _drop(self) -> None:
        if self._record.end == "running":
            self._record.end = "cancelled"


async def _wait(seconds: float, limit: float, at: float) -> None:
    """Sleep like a slow server, and fail like the HTTP client."""
    left = at - asyncio.get_running_loop().time()
    await asyncio.sleep(min(seconds, limit, max(left, 0.0)))
    if seconds > left:
        raise DeadlineError("The request's deadline has passed.")
    if seconds > limit:
        raise UpstreamSilent("The upstream was silent for too long.")
