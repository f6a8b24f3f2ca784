"""A streamed body of an HTTP response, forwarded unchanged."""

from adapters.http1.client import ClientResponse
from adapters.stream import Stream
from adapters.types import Form, Usage


class ForwardedBody(Stream):
    """A body in the pieces in which it arrives."""

    __slots__ = ("_response",)

    def __init__(
        self, response: ClientResponse, *, content_type: str, usage: Usage, form: Form, status: int = 200
    ) -> None:
        super().__init__(content_type=content_type, usage=usage, form=form, status=status)
        self._response = response

    async def _next(self, patience: float | None = None) -> bytes:
        response = self._response
        while (piece := response.take()) is None:
            await response.more(patience)
        if not piece:
            raise StopAsyncIteration
        self.usage.bytes += len(piece)
        return piece

    async def _drop(self) -> None:
        self._response.close()
