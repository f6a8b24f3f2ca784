"""The fields of a request for embeddings. A worker process decodes large ones: this module needs no engine."""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from adapters.wire.body import field, open_body
from adapters.wire.openai import embeddings as wire

_FIELDS = frozenset({"model", "input", "encoding_format", "dimensions", "user", "truncate_prompt_tokens"})
_name = msgspec.json.Decoder(str | None)
_truncation = msgspec.json.Decoder(Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None)


class EmbeddingsBody(NamedTuple):
    """A request. `truncate` is vLLM's: a longer text is cut to that many tokens, or by -1 to the model's limit."""

    model: str | None
    inputs: wire.Inputs
    base64: bool
    dimensions: int | None
    truncate: int | None


def decode(body: bytes) -> EmbeddingsBody:
    """Raises `CallerError` that names the parameter at fault."""
    fields = open_body(body)
    if "input" not in fields:
        raise CallerError("`input` is missing.", param="input")
    if unknown := sorted(fields.keys() - _FIELDS):
        raise CallerError(f"Unknown parameter: `{unknown[0]}`.", param=unknown[0], code="unknown_parameter")
    request = wire.decode(fields)
    # Only null means the default model: an empty name is of no model.
    named = field(fields, "model", _name) is not None
    truncate = field(fields, "truncate_prompt_tokens", _truncation)
    return EmbeddingsBody(
        request.model if named else None, request.inputs, request.base64, request.dimensions, truncate
    )
