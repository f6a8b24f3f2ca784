"""Codecs of the Open Inference Protocol that servers on both sides of it run, each at the right place."""

from __future__ import annotations

from adapters.offload.pool import LARGE, run
from adapters.tensors import Inference, Inferred
from adapters.wire import oip, oip_answers


async def decode_message(message: bytes) -> Inference:
    """A `ModelInferRequest`. Raises `CallerError`."""
    from adapters.wire import oip_proto  # with an extra, which a server of gRPC has

    if len(message) < LARGE:
        return oip_proto.decode_infer_request(message)
    return await run(oip_proto.parsed_bytes(message), oip_proto.decode_infer_request, message)


async def decode_body(body: bytes, header_length: int | None, model: str, version: str) -> Inference:
    """A request over HTTP. Raises `CallerError`."""
    size = len(body) if header_length is None else header_length
    if size < LARGE:
        return oip.decode_request(body, header_length, model, version)
    return await run(size, oip.decode_request, body, header_length, model, version)


async def encode_body(inferred: Inferred, wanted: oip_answers.Wanted = False) -> tuple[bytes, int | None]:
    """A response over HTTP. Raises `CallerError`."""
    size = oip_answers.json_bytes(inferred, wanted)
    if size < LARGE:
        return oip_answers.encode_response(inferred, wanted)
    return await run(size, oip_answers.encode_response, plain(inferred), wanted)


def plain(inferred: Inferred) -> Inferred:
    """The response alone, without what a server adds to it."""
    return Inferred(inferred.model_name, inferred.model_version, inferred.id, inferred.parameters, inferred.outputs)
