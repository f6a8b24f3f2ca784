"""The bodies of requests about texts: `/v1/embeddings`, `/tokenize` and `/detokenize`.

A worker process decodes large ones: this module needs no engine.
"""

from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.wire.body import field, open_body
from adapters.wire.openai import embeddings as wire
from adapters.wire.openai.known_fields import DefinedFields
from runtimes.llm.api.messages import MAX_MESSAGES, Message, check_continued, check_messages
from runtimes.llm.api.thinking_fields import Variables
from runtimes.llm.api.tools import MAX_TOOLS, Tool
from runtimes.llm.api.unknown_fields import EMBEDDING, GENERATING, UnknownFields

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


def decode_embeddings(body: bytes, hints: IgnoredFields) -> EmbeddingsBody:
    """Raises `CallerError` that names the parameter at fault."""
    fields = open_body(body)
    if "input" not in fields:
        raise CallerError("`input` is missing.", param="input")
    UnknownFields(EMBEDDING, hints).ignore_given({name: fields[name] for name in sorted(fields.keys() - _FIELDS)})
    request = wire.decode(fields)
    # Only null means the default model: an empty name is of no model.
    named = field(fields, "model", _name) is not None
    truncate = field(fields, "truncate_prompt_tokens", _truncation)
    return EmbeddingsBody(
        request.model if named else None, request.inputs, request.base64, request.dimensions, truncate
    )


MAX_TOKENS = 1 << 18


class TokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The messages of a chat, or the prompt of a completion.

    Without `add_special_tokens` a prompt has no beginning-of-text token; for a chat the template decides.
    `return_token_strs` requests the tokens' names too.
    """

    model: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = None
    prompt: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = True
    return_token_strs: bool | None = None
    chat_template_kwargs: Variables | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None


class DetokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Token ids to decode. A control token is decoded to its name, or left out with `skip_special_tokens`."""

    tokens: Annotated[list[Annotated[int, Meta(ge=0, le=2**32 - 1)]], Meta(max_length=MAX_TOKENS)]
    model: str | None = None
    skip_special_tokens: bool = False


Body = TypeVar("Body", TokenizeBody, DetokenizeBody)
_tokenize = DefinedFields[TokenizeBody](TokenizeBody)
_detokenize = DefinedFields[DetokenizeBody](DetokenizeBody)


def decode_tokenize(body: bytes, hints: IgnoredFields) -> TokenizeBody:
    """Raises `CallerError`."""
    decoded = _decoded(_tokenize, body, hints)
    if (decoded.messages is None) == (decoded.prompt is None):
        raise CallerError("Give either `messages` or `prompt`.", param="messages")
    check_messages(decoded.messages or [])
    if decoded.continue_final_message:
        check_continued(decoded.messages or [])
    return decoded


def decode_detokenize(body: bytes, hints: IgnoredFields) -> DetokenizeBody:
    """Raises `CallerError`."""
    return _decoded(_detokenize, body, hints)


def _decoded(fields: DefinedFields[Body], body: bytes, hints: IgnoredFields) -> Body:
    try:
        return fields.reporting(UnknownFields(GENERATING, hints)).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallerError(f"The body is not valid: {error}.") from None
