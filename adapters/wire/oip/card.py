"""The parameters of a model's metadata over gRPC.

Triton's `ModelMetadataResponse` has no such field. MLServer's has `map<string, InferParameter> parameters = 6`, and
clients of Triton and KServe ignore it.
"""

from collections.abc import Mapping
from typing import Any

from adapters.tensors import Data
from adapters.wire.proto_fields import MalformedMessage, head, split, tag

_PARAMETERS = tag(6)
_KEY, _VALUE, _STRING = tag(1), tag(2), tag(3)


def add_parameters(response: Any, parameters: Mapping[str, Any]) -> None:
    """Add the parameters that are texts to a `ModelMetadataResponse`."""
    fields = [_entry(name, text) for name, text in parameters.items() if isinstance(text, str)]
    response.MergeFromString(b"".join(_field(_PARAMETERS, field) for field in fields))


def read_parameters(response: Any) -> dict[str, str]:
    """The parameters of a `ModelMetadataResponse` that are texts. Empty if the field has another meaning there."""
    try:
        *_, entries = split(response.SerializeToString(), tag(15), _PARAMETERS)
        return {name: text for name, text in map(_read, entries) if name and text}
    except MalformedMessage:
        return {}


def _read(entry: Data) -> tuple[str, str]:
    _, name, values = split(entry, _KEY, _VALUE)
    texts = [split(value, _STRING, tag(15))[1] for value in values]
    return name, "".join(texts)


def _entry(name: str, text: str) -> bytes:
    value = _field(_STRING, text.encode(errors="replace"))
    return _field(_KEY, name.encode(errors="replace")) + _field(_VALUE, value)


def _field(number: int, content: bytes) -> bytes:
    return head(number, len(content)) + content
