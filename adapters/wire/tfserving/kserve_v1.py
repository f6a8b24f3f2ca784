"""The part of KServe's v1 that differs from TensorFlow Serving's REST."""

from typing import Any

import msgspec

from adapters.wire import decoding

_object = msgspec.json.Decoder(dict[str, Any]).decode


class _Ready(msgspec.Struct):
    ready: bool | str = True


_ready = msgspec.json.Decoder(_Ready).decode


def is_ready(body: bytes) -> bool:
    """Whether the body of a model's path reports it as ready. Older servers send a text; any other body is ready."""
    try:
        ready = _ready(body).ready
    except decoding.MALFORMED_JSON:
        return True
    return ready if isinstance(ready, bool) else ready.lower() == "true"


def is_request(body: bytes) -> bool:
    """Whether a body may contain a model's input."""
    try:
        return bool(_object(body))
    except decoding.MALFORMED_JSON:
        return True  # the body may contain NaN, which is not JSON
