"""A call of an adapter, and how it ended."""

import asyncio
import re
from typing import NamedTuple

from adapters.base import Adapter
from adapters.call import Call
from adapters.errors import InferenceError
from adapters.requests import InferRequest, ModelRequest
from adapters.types import Deadline
from adapters.upstreams.inferred import inferred
from adapters.wire.oip import proto_responses as oip_proto_answers

OUTER = 60.0
"""Seconds after which something hangs."""
SOON = Deadline(0.25, 0.25, 0.15)
"""From now on: of an attack that ends by one of these."""
LATER = Deadline(40.0, 30.0, 30.0)
MOST = 64 * 1024 * 1024


def _check(piece: bytes) -> None:
    """Read it as a front of another wire does: one of gRPC passes it on."""
    oip_proto_answers.decode_infer_response(oip_proto_answers.split_stream_response(piece)[1])


_OWN = re.compile(rb'"created":\d+,|"id":"msg_[0-9a-f]{24}",')
"""When it was answered, and the gateway's own id, which are others the next time."""


class Outcome(NamedTuple):
    body: bytes = b""
    error: InferenceError | None = None


async def outcome(adapter: Adapter, request: ModelRequest, times: Deadline) -> Outcome:
    """How a call ends. Any other exception than an `InferenceError` is the test's failure."""
    now = asyncio.get_running_loop().time()
    body = bytearray()
    try:
        answer = await adapter.call(request, Call(Deadline(now + times.at, times.first_byte, times.idle)))
        try:
            if answer.body is not None:
                body += answer.body
                if answer.form.wire in ("oip-http", "oip-grpc") and isinstance(request, InferRequest):
                    inferred(answer)
            else:
                async for piece in answer:
                    body += piece
                    if answer.form.wire == "oip-grpc":
                        _check(piece)
                    assert len(body) < MOST, "it never ends"
        finally:
            await answer.aclose()
            assert answer.ended
    except InferenceError as error:
        return Outcome(_OWN.sub(b"", body), error)
    return Outcome(_OWN.sub(b"", body))
