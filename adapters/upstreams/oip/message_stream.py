"""Streams of responses over gRPC, each a `ModelStreamInferResponse`."""

from adapters.base import Answer
from adapters.http2.exchange import Exchange
from adapters.http2.status import GrpcError
from adapters.requests import InferRequest
from adapters.types import OIP_GRPC, Usage
from adapters.upstreams.grpc_refusals import device_ms_of, refuse
from adapters.upstreams.oip import refusals as oip_refusals
from adapters.wire import model_failures
from adapters.wire.oip import proto_responses as oip_proto_answers


class MessageStream(Answer):
    """A stream of a decoupled model. Responses of another message type become a `ModelStreamInferResponse`."""

    __slots__ = ("_begun", "_exchange", "_first", "_request")

    def __init__(self, exchange: Exchange, request: InferRequest) -> None:
        usage = Usage(rows=request.rows, exact=True)
        super().__init__(content_type="application/grpc", body=None, usage=usage, form=OIP_GRPC)
        self._exchange = exchange
        self._request = request
        self._first: bytes | None = None
        self._begun = False

    async def begun(self) -> "MessageStream":
        """Wait for the first response or the end of the stream. A failure here permits a retry at another endpoint."""
        self._first = await self._read()
        return self

    async def __anext__(self) -> bytes:
        message, self._first = self._first, None
        try:
            if message is None and not self.ended:
                message = await self._next()
        except BaseException as error:
            self._exchange.cancel()
            self.end(error)
            raise
        if message is None:
            self.end(None)
            raise StopAsyncIteration
        self.usage.bytes += len(message)
        return message

    async def _next(self) -> bytes | None:
        try:
            return await self._read()
        except GrpcError as error:
            refuse(self._request, error)

    async def _read(self) -> bytes | None:
        message = await self._exchange.read()
        if message is None:
            self.usage.device_ms = device_ms_of(self._exchange.trailers)
            return None
        if oip_proto_answers.is_bare(message):
            message = oip_proto_answers.encode_stream_response(message)
        elif oip_proto_answers.is_failure(message):
            words, by_model, code = oip_proto_answers.decode_stream_error(message)
            if (found := model_failures.reported(code, words)) is not None:
                raise found
            if self._begun or by_model:
                raise model_failures.failed(words)
            raise oip_refusals.refused_in_stream(self._request, words)
        self._begun = True
        return message

    async def aclose(self) -> None:
        self._exchange.cancel()
        await super().aclose()


class OneMessage(Answer):
    """A stream of one whole response."""

    __slots__ = ("_message",)

    def __init__(self, message: bytes, usage: Usage) -> None:
        super().__init__(content_type="application/grpc", body=None, usage=usage, form=OIP_GRPC)
        self._message = message

    async def __anext__(self) -> bytes:
        message, self._message = self._message, b""
        if message:
            return message
        self.end(None)
        raise StopAsyncIteration
