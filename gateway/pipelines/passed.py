"""A stream of the last step, forwarded as the pipeline's."""

from __future__ import annotations

from adapters.base import Answer
from adapters.call import CallTrace


class PassedStream(Answer):
    """Forwards the pieces of a stream as they come. Its usage is the sum of all steps."""

    __slots__ = ("_inner", "_trace")

    def __init__(self, inner: Answer, trace: CallTrace) -> None:
        super().__init__(content_type=inner.content_type, body=None, status=inner.status, form=inner.form)
        self.pool, self.endpoint, self.headers = inner.pool, inner.endpoint, inner.headers
        self._inner = inner
        self._trace = trace
        inner.when_ended(self._inner_ended)

    def _inner_ended(self, inner: Answer, error: BaseException | None) -> None:
        self.usage = self._trace.spent()[0] or inner.usage
        self.end(error)

    async def __anext__(self) -> bytes:
        return await self._inner.__anext__()

    async def aclose(self) -> None:
        await self._inner.aclose()
        await super().aclose()
