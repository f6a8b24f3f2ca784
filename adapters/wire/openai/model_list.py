"""A server's list of models, as OpenAI and those that speak like it have it."""

import msgspec

from adapters.errors import BackendError


class Listed(msgspec.Struct):
    """One of them."""

    id: str = ""
    owned_by: str | None = None
    parent: str | None = None
    """Of a LoRA adapter: the model that it adapts."""


class _List(msgspec.Struct):
    data: list[Listed] = []


_decode = msgspec.json.Decoder(_List).decode


def decode_models(body: bytes) -> list[Listed]:
    """Raises `BackendError`."""
    try:
        return _decode(body).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BackendError("The upstream's list of models cannot be read.", code="upstream_bad_response") from None
