"""Streams of responses over gRPC, each a `ModelStreamInferResponse`."""

from functools import partial

from adapters.http2.exchange import Exchange
from adapters.requests import InferRequest
from adapters.types import OIP_GRPC, Usage
from adapters.upstreams.grpc_refusals import device_ms_of, refuse
from adapters.upstreams.grpc_stream import GrpcStream
from adapters.upstreams.oip import refusals as oip_refusals
from adapters.wire import failure_text
from adapters.wire.oip import proto_responses as oip_proto_answers


class InferMessages(GrpcStream):
    """A stream of a decoupled model. Responses of another message type become a `ModelStreamInferResponse`."""

    __slots__ = ("_request",)

    def __init__(self, exchange: Exchange, request: InferRequest) -> None:
        usage = Usage(rows=request.row_count, exact=True)
        no = partial(refuse, request)
        super().__init__(exchange, no, content_type="application/grpc", usage=usage, form=OIP_GRPC)
        self._request = request

    def _read(self, message: bytes) -> bytes:
        if oip_proto_answers.is_bare(message):
            return oip_proto_answers.encode_stream_response(message)
        if oip_proto_answers.is_failure(message):
            words, by_model, code = oip_proto_answers.decode_stream_error(message)
            if (reported := failure_text.reported_failure(code, words)) is not None:
                raise reported
            if self._begun or by_model:
                raise failure_text.model_failure(words)
            raise oip_refusals.refused_in_stream(self._request, words)
        return message

    def _over(self) -> None:
        self.usage.device_ms = device_ms_of(self._exchange.trailers)
