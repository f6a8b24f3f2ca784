"""Continues a stream at another endpoint when its own endpoint fails."""

from collections.abc import Callable

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import BackendError, InferenceError
from adapters.requests import GenerateRequest, ModelRequest
from adapters.stream import Stream
from adapters.wire.openai import transcript
from adapters.wire.openai.transcript import Fields, Mode, Transcript
from policies.retry import MOST_RESUMES, ResumeBudget

BROKEN = ("transport", "backend")


class Resume:
    """An `Upstream` whose streams survive the failure of their endpoint, if the pool's engine can continue text.

    The client never receives a part twice or changed. If the rest cannot be generated, the stream breaks as usual.
    """

    def __init__(
        self, upstream: Upstream, pool: str, *, mode: Mode, budget: ResumeBudget, clock: Callable[[], float]
    ) -> None:
        self._upstream = upstream
        self.pool = pool
        self.mode = mode
        self.budget = budget
        self.clock = clock

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if not isinstance(request, GenerateRequest) or not transcript.can_continue(request, self.mode):
            return await self._upstream.call(request, call)
        worded = request.with_fields(transcript.initial_fields(request, self.mode))
        answer = await self._upstream.call(worded, call)
        return answer if answer.body is not None else ResumedStream(self, request, call, answer)

    async def rest(self, request: GenerateRequest, fields: Fields, call: Call) -> Answer:
        """The rest of an answer, from another endpoint. Raises `InferenceError`."""
        answer = await self._upstream.call(request.with_fields(fields), call.attempt())
        if answer.body is not None:
            raise BackendError("The upstream did not stream the rest of its answer.")
        return answer


class ResumedStream(Stream):
    """One answer from several streams, each of which continues the one before."""

    __slots__ = ("_call", "_inner", "_left", "_request", "_resume", "_transcript")

    def __init__(self, resume: Resume, request: GenerateRequest, call: Call, inner: Answer) -> None:
        super().__init__(content_type=inner.content_type, usage=inner.usage, status=inner.status)
        self.pool, self.endpoint = inner.pool, inner.endpoint
        self._resume = resume
        self._request = request
        self._call = call
        self._inner = inner
        self._transcript = Transcript(resume.mode)
        self._left = MOST_RESUMES
        resume.budget.open += 1

    async def _next(self, patience: float | None = None) -> bytes:
        while True:
            try:
                piece = await self._inner.__anext__()
            except InferenceError as error:
                await self._carry_on(error)
                continue
            if out := self._transcript.take(piece):
                return out

    async def _carry_on(self, error: InferenceError) -> None:
        """Continue at another endpoint. Raises the error that broke the stream if that is impossible."""
        resume, request = self._resume, self._request
        fields = self._transcript.rest(request)
        if error.kind not in BROKEN or fields is None or not self._left or not resume.budget.allow(resume.clock()):
            raise error
        self._left -= 1
        try:
            inner = await resume.rest(request, fields, self._call)
        except InferenceError as failure:
            self._call.trace.event("resume_failure", resume.pool)
            raise error from failure
        self._call.trace.event("resume", resume.pool)
        self._transcript.resumed()
        inner.usage.bytes += self._inner.usage.bytes
        self._inner = inner
        self.endpoint = inner.endpoint

    def end(self, error: BaseException | None) -> None:
        if not self.ended:
            self._resume.budget.open -= 1
            self.usage = self._transcript.usage(self._inner.usage)
        super().end(error)

    async def _drop(self) -> None:
        await self._inner.aclose()
