"""An answer's tensors, whatever wire it came by."""

from adapters.base import Answer
from adapters.errors import BackendError, InferenceError
from adapters.tensors import Inferred
from adapters.wire import compression, oip_answers

MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of an answer that is compressed, once it is not."""


def inferred(answer: Answer) -> Inferred:
    """Of a whole answer. Raises `BackendError`."""
    assert answer.body is not None
    form = answer.form
    if form.wire == "oip-grpc":
        from adapters.wire import oip_proto_answers  # with an extra, which an upstream of this wire needs

        return oip_proto_answers.decode_infer_response(answer.body)
    if form.wire != "oip-http":
        raise BackendError("The upstream answered no tensors.", code="upstream_bad_response")
    body = answer.body
    if form.encoding:
        try:
            body = compression.decompress(body, form.encoding, MAX_ANSWER)
        except InferenceError:
            raise BackendError("The upstream's answer cannot be read.", code="upstream_bad_response") from None
    return oip_answers.decode_response(body, form.header_length)
