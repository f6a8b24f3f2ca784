"""Text Generation Inference's own API (its OpenAPI document, 3.x): `/generate` and `/generate_stream`."""

from typing import Any, NamedTuple

import msgspec

from adapters.errors import CallerError, Unsupported
from adapters.wire import decoding, failure_text
from adapters.wire.openai.request_codec import Count
from adapters.wire.text.generated_text import Token
from adapters.wire.text.prompt_request import LENGTHS, Options

SUPPORTED = LENGTHS | {
    "temperature", "top_p", "top_k", "typical_p", "seed", "stop", "frequency_penalty", "repetition_penalty",
    "logprobs", "top_logprobs", "best_of", "echo", "response_format", "truncate", "watermark",
}  # fmt: skip
"""The supported fields of a request."""
REASONS = {"length": "length", "eos_token": "stop", "stop_sequence": "stop"}
STATUS_OF_TYPE = {"validation": 422, "template_error": 422, "tool_error": 422, "overloaded": 429, "healthcheck": 503}
"""Statuses of error types. A stream reports a refusal in its first event."""
_ANY_JSON = {"type": "object", "properties": {}, "additionalProperties": True}
_UNSIGNED = 2**64


class GeneratedToken(msgspec.Struct):
    """A token. In a prompt, the first token has no log probability, and no token is special."""

    text: str
    logprob: float | None = None
    special: bool = False


class Details(msgspec.Struct):
    """The finish reason, the token counts, and the tokens of a whole response."""

    finish_reason: str
    generated_tokens: Count = 0
    input_length: Count | None = None
    prefill: list[GeneratedToken] = []
    tokens: list[GeneratedToken] = []
    top_tokens: list[list[GeneratedToken]] = []


class GenerateResponse(msgspec.Struct):
    """A whole response, or the error in a 200."""

    generated_text: str | None = None
    details: Details | None = None
    error: str | None = None
    error_type: str = ""


class StreamResponse(GenerateResponse):
    """An event of a stream: a token, and the whole text with the last token."""

    token: GeneratedToken | None = None
    top_tokens: list[GeneratedToken] = []


class TgiRefusal(NamedTuple):
    """An error's message and status."""

    message: str
    status: int


class _Id(msgspec.Struct):
    id: int


class _Error(msgspec.Struct):
    error: str | None = None
    error_type: str = ""


_encode = msgspec.json.Encoder().encode
_whole = msgspec.json.Decoder(GenerateResponse).decode
_event = msgspec.json.Decoder(StreamResponse).decode
_all_tokens = msgspec.json.Decoder(list[_Id]).decode
_error = msgspec.json.Decoder(_Error).decode


def encode_request(prompt: str, options: Options, *, stream: bool, adapter: str | None = None) -> bytes:
    """Encode the body. Raises `Unsupported` for combinations that the server does not support."""
    fields: dict[str, Any] = {"details": True, "do_sample": options.temperature != 0}
    if (length := options.length) is not None:
        fields["max_new_tokens"] = length
    if options.temperature:
        fields["temperature"] = options.temperature
    for name in ("top_p", "typical_p"):  # 1 has no effect and is omitted
        if (share := getattr(options, name)) is not None and share < 1:
            fields[name] = share
    if options.top_k is not None and options.top_k > 0:
        fields["top_k"] = options.top_k
    if options.seed is not None:
        fields["seed"] = options.seed % _UNSIGNED
    if options.stops:
        fields["stop"] = options.stops
    for name in ("frequency_penalty", "repetition_penalty", "truncate", "watermark"):
        if getattr(options, name):
            fields[name] = getattr(options, name)
    if options.tops:
        fields["top_n_tokens"] = options.tops
    fields |= _prompt_details(options, stream)
    if (schema := _schema(options)) is not None:
        fields["grammar"] = {"type": "json", "value": schema}
    if adapter is not None:
        fields["adapter_id"] = adapter
    return _encode({"inputs": prompt, "parameters": fields})


def _prompt_details(options: Options, stream: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if options.best_of is not None and options.best_of > 1:
        if stream:
            raise Unsupported("`best_of` is not supported in streams.", param="best_of")
        fields["best_of"] = options.best_of
    if options.echo and options.tops is not None:
        if stream:
            raise Unsupported("`echo` with `logprobs` is not for streams of this model's servers.", param="echo")
        fields["decoder_input_details"] = True
    return fields


def _schema(options: Options) -> dict[str, Any] | None:
    format_ = options.response_format
    if format_ is None or format_.type == "text":
        return None
    if format_.type == "json_object":
        return _ANY_JSON
    if format_.type == "json_schema" and format_.json_schema is not None and format_.json_schema.schema is not None:
        return format_.json_schema.schema
    raise CallerError("`response_format` is text, json_object or json_schema with a schema.", param="response_format")


def encode_prompt(prompt: str) -> bytes:
    """Encode a request for a prompt's tokens."""
    return _encode({"inputs": prompt})


def encode_count(body: bytes) -> bytes:
    """Convert a list of tokens to Anthropic's token count. Raises `BackendError`."""
    with decoding.Checked():
        return _encode({"input_tokens": len(_all_tokens(body))})


def decode_whole(body: bytes) -> tuple[str, Details]:
    """Decode a whole response to its text and details. Raises `BackendError`."""
    whole = decoding.decode(_whole, body)
    if whole.error is not None:
        raise failure_text.server_failure(whole.error)
    if whole.generated_text is None or whole.details is None:
        raise decoding.bad_response("The upstream's response has no text or no details.")
    return whole.generated_text, whole.details


def decode_event(data: bytes) -> StreamResponse:
    """Decode an event of a stream. Raises `BackendError`."""
    event = decoding.decode(_event, data, "stream")
    if event.error is None and event.token is None:
        raise decoding.malformed("stream")
    return event


def is_last(data: bytes) -> bool:
    """Whether an event has the whole text or an error. Most events have neither, and need not be decoded."""
    return b'"generated_text":null' not in data


def refusal(body: bytes, status: int) -> TgiRefusal:
    """Decode a refusal from an error's body, or from an event of a stream, for which `status` is 200."""
    try:
        decoded = _error(body)
    except decoding.MALFORMED_JSON:
        return TgiRefusal("", status)
    return TgiRefusal(decoded.error or "", STATUS_OF_TYPE.get(decoded.error_type, 500) if status == 200 else status)


def tokens(details: Details, *, echo: bool) -> list[Token]:
    """Convert the tokens of a whole response."""
    before = [Token(one.text, one.logprob) for one in details.prefill] if echo else []
    tops = details.top_tokens or [[]] * len(details.tokens)
    return before + [token(one, top) for one, top in zip(details.tokens, tops, strict=False) if not one.special]


def token(generated: GeneratedToken, tops: list[GeneratedToken]) -> Token:
    """Convert a token of a stream."""
    likely = [(top.text, top.logprob) for top in tops if top.logprob is not None]
    return Token(generated.text, generated.logprob, likely)
