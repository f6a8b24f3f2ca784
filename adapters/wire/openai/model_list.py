"""A server's list of models in OpenAI's form."""

import msgspec

from adapters.wire import decoding


class ListedModel(msgspec.Struct):
    """One entry of the list."""

    id: str = ""
    owned_by: str | None = None
    parent: str | None = None
    """The base model of a LoRA adapter."""


class _List(msgspec.Struct):
    data: list[ListedModel] = []


_decode = msgspec.json.Decoder(_List).decode


def decode_models(body: bytes) -> list[ListedModel]:
    """Decode a list of models. Raises `BackendError`."""
    return decoding.decode(_decode, body, "list of models").data
