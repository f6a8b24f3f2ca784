"""KServe's v1 beyond what it has in common with TensorFlow Serving's REST."""

from typing import Any

import msgspec

from adapters.wire import decoding

_object = msgspec.json.Decoder(dict[str, Any]).decode


class _Ready(msgspec.Struct):
    ready: bool | str = True


_ready = msgspec.json.Decoder(_Ready).decode


def is_ready(body: bytes) -> bool:
    """Whether a model is ready, from its own path. Older servers send a text; another body counts as ready."""
    try:
        ready = _ready(body).ready
    except decoding.MALFORMED_JSON:
        return True
    return ready if isinstance(ready, bool) else ready.lower() == "true"


def is_request(body: bytes) -> bool:
    """Whether there is anything in it that a model could have taken for its input."""
    try:
        return bool(_object(body))
    except decoding.MALFORMED_JSON:
        return True  # NaN, which is no JSON, is let pass
