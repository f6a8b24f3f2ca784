"""Decodes the options of a chat or completion, for servers that accept prompts and few options.

A field that would change the response and that the server does not support is rejected, not dropped: the client could
not detect that the response ignores the field. A field that the gateway does not know is left out and reported.
"""

from collections.abc import Container
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError, Unsupported
from adapters.ignored_fields import FIELDS, NAMES, NOTHING, IgnoredFields
from adapters.requests import ChatRequest, CompletionRequest, GenerateRequest
from adapters.wire import decoding
from adapters.wire.openai.request_codec import Count

MAX_STOPS = 64
MAX_STOP = 4096
DEFAULT_TOKENS = 16
"""OpenAI's default for the maximum tokens of a completion."""

_CHAT = frozenset(("messages", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"))
_ACCOUNTING = frozenset((
    "model", "stream", "stream_options", "user", "store", "safety_identifier", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "service_tier", "parallel_tool_calls", "tool_choice", "n",
))  # fmt: skip
"""Fields about the client and its accounting, and fields that only modify rejected fields."""
_NEUTRAL = {
    "best_of": frozenset((b"1",)),
    "function_call": frozenset((b'"none"',)),
    "logprobs": frozenset((b"false",)),
    "modalities": frozenset((b'["text"]',)),
    "response_format": frozenset((b'{"type":"text"}',)),
    "top_k": frozenset((b"-1",)),
    "top_p": frozenset((b"1", b"1.0")),
    "typical_p": frozenset((b"1", b"1.0")),
    "repetition_penalty": frozenset((b"1", b"1.0")),
    "presence_penalty": frozenset((b"0.0",)),
    "frequency_penalty": frozenset((b"0.0",)),
    "min_p": frozenset((b"0.0",)),
    "length_penalty": frozenset((b"1", b"1.0")),
    "skip_special_tokens": frozenset((b"true",)),
}
"""Neutral values other than null, false, zero and empty values."""

Text = Annotated[str, Meta(min_length=1, max_length=MAX_STOP)]


class JsonSchema(msgspec.Struct):
    """The schema in `response_format`."""

    schema: dict[str, Any] | None = None


class ResponseFormat(msgspec.Struct):
    """The format of a response: `text`, `json_object` or `json_schema`."""

    type: str
    json_schema: JsonSchema | None = None


class Options(msgspec.Struct):
    """Options of generation, with OpenAI's names, and the usual names of options that OpenAI does not have."""

    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    min_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    typical_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Text | Annotated[list[Text], Meta(max_length=MAX_STOPS)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    length_penalty: float | None = None
    ignore_eos: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=20)] | None = None
    echo: bool | None = None
    response_format: ResponseFormat | None = None
    truncate: Annotated[int, Meta(ge=1)] | None = None
    watermark: bool | None = None
    adapter_id: str | None = None
    bad_words: list[Text] | None = None

    @property
    def stops(self) -> list[str]:
        """The texts that end the response, which does not contain them."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def length(self) -> int | None:
        """The maximum number of tokens of the response."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def tops(self) -> int | None:
        """The number of alternatives with log probabilities for each token; None for no log probabilities."""
        logprobs = self.logprobs
        if logprobs is None or logprobs is False:
            return None
        return (self.top_logprobs or 0) if logprobs is True else logprobs


_DEFINED = FIELDS.union(Options.__struct_fields__)
_encode = msgspec.json.Encoder().encode
_options = msgspec.json.Decoder(Options).decode
_stop = msgspec.json.Decoder(str | list[str] | None).decode
_prompt = msgspec.json.Decoder(str | list[Any]).decode

LENGTHS = frozenset(("max_tokens", "max_completion_tokens"))


def options(request: GenerateRequest, supported: Container[str], ignored: IgnoredFields) -> Options:
    """Decode the options. `supported` are the server's fields; fields without effect are added to `ignored`.

    Raises `CallerError` that names an invalid field.
    """
    request.payload.report(ignored)
    if request.n > 1:
        raise Unsupported("`n` must be 1: this model's servers return one answer for each request.", param="n")
    given: dict[str, Raw] = {}
    for name, raw in request.fields.items():
        if name in _ACCOUNTING or (name in _CHAT if isinstance(request, ChatRequest) else name == "prompt"):
            continue
        if bytes(raw) == b"null":
            continue
        if (name in NAMES or name not in _DEFINED) and name not in supported:
            if not _has_no_effect(name, raw):
                ignored.ignore(name)
        elif name in supported:
            given[name] = raw
        elif not _has_no_effect(name, raw):
            raise Unsupported(f"`{name[:64]}` is not supported by this model's servers.", param=name[:64])
    try:
        if "stop" in given:
            given["stop"] = Raw(_encode(ignored.stops(_stop(given["stop"]))))
        read = _options(_encode(given))
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"The request is not valid: {error}.") from None
    if read.max_tokens is None and isinstance(request, CompletionRequest):
        read.max_tokens = DEFAULT_TOKENS
    return read


def _has_no_effect(name: str, raw: Raw) -> bool:
    if name in ("tools", "functions") and bytes(raw) != b"[]":
        return False
    value = msgspec.json.format(bytes(raw), indent=-1)
    return value in NOTHING or value in _NEUTRAL.get(name, ())


def prompt(request: CompletionRequest) -> str:
    """Return the only text of a completion. Raises `CallerError`."""
    given = _prompt(request.fields["prompt"])
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str):
        given = given[0]
    if isinstance(given, str):
        return given
    raise Unsupported("`prompt` must be one text: this model's servers accept no tokens and no lists.", param="prompt")
