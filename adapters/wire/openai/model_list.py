"""A server's list of models, as OpenAI and those that speak like it have it."""

import msgspec

from adapters.wire import decoding


class ListedModel(msgspec.Struct):
    """One of them."""

    id: str = ""
    owned_by: str | None = None
    parent: str | None = None
    """Of a LoRA adapter: the model that it adapts."""


class _List(msgspec.Struct):
    data: list[ListedModel] = []


_decode = msgspec.json.Decoder(_List).decode


def decode_models(body: bytes) -> list[ListedModel]:
    """Raises `BackendError`."""
    return decoding.decode(_decode, body, "list of models").data
