"""Builds the request for the rest of a broken stream.

Two modes, by the engine:

``text``    vLLM's and SGLang's. Of a chat, the text so far is its last message, which `continue_final_message`
            continues; of a completion, it is appended to the prompt. The engine tokenizes that text again, so
            the rest continues the text, but may differ from the response that broke.
``tokens``  Headrace's own runtime's. Its streams report token ids (`return_token_ids`), and `continue_token_ids`
            restores the same state. Limits, stop strings and usage apply to the whole response.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw

from adapters.requests import ChatRequest, CompletionRequest, GenerateRequest
from adapters.wire.openai.operation_fields import NOTHING

Mode = Literal["text", "tokens"]
Fields = dict[str, Raw]

_encode = msgspec.json.Encoder().encode
_text = msgspec.json.Decoder(str).decode
_count = msgspec.json.Decoder(int).decode
_array = msgspec.json.Decoder(list[Raw]).decode

NULL, _TRUE, _FALSE = Raw(b"null"), Raw(b"true"), Raw(b"false")
# Fields whose effect depends on more than the text so far. A stream can be continued only with these values.
_STRUCTURED = ("guided_choice", "guided_grammar", "guided_json", "guided_regex", "structured_outputs")
_TOOLS = ("function_call", "functions", "tools")
_DETAILS = ("logprobs", "prompt_logprobs", "return_token_ids", "top_logprobs")
_SHAPES = ("audio", "continue_final_message", "continue_token_ids", "echo", "prediction", "suffix", "use_beam_search")
_ONLY_WITH = dict.fromkeys((*_STRUCTURED, *_TOOLS, *_DETAILS, *_SHAPES), NOTHING) | {
    "add_generation_prompt": frozenset({b"null", b"true"}),
    "best_of": frozenset({b"null", b"1"}),
    "modalities": frozenset({b"null", b'["text"]'}),
    "response_format": frozenset({b"null", b'{"type":"text"}'}),
}
_LIMITS = ("max_tokens", "max_completion_tokens", "min_tokens")


def can_continue(request: GenerateRequest, mode: Mode) -> bool:
    """Whether the rest of a response can be requested: a single stream of plain text."""
    if not request.stream or request.n != 1 or not isinstance(request, ChatRequest | CompletionRequest):
        return False
    for name, raw in request.fields.items():
        if name in _ONLY_WITH and msgspec.json.format(bytes(raw), indent=-1) not in _ONLY_WITH[name]:
            return False
    return not isinstance(request, CompletionRequest) or _one_prompt(request.fields, mode)


def _one_prompt(fields: Fields, mode: Mode) -> bool:
    """Whether the prompt can be continued. Text mode requires a text prompt and a length limit."""
    prompt = bytes(fields["prompt"]).lstrip()
    if mode == "text":
        return prompt.startswith(b'"') and bytes(fields.get("max_tokens", NULL)) != b"null"
    return prompt.startswith(b'"') or (prompt.startswith(b"[") and prompt[1:].lstrip()[:1].isdigit())


def initial_fields(request: GenerateRequest, mode: Mode) -> Fields:
    """The fields of the first request, which allow a continuation later."""
    return {**request.fields, "return_token_ids": _TRUE} if mode == "tokens" else request.fields


def after_tokens(request: GenerateRequest, emitted: Sequence[int]) -> Fields:
    """The fields that request the continuation of these tokens."""
    return {**initial_fields(request, "tokens"), "continue_token_ids": Raw(_encode(emitted))}


def after_text(request: GenerateRequest, emitted: str, tokens: int) -> Fields | None:
    """The fields that request the continuation of this text of so many tokens; None if the length limit is reached."""
    fields = dict(request.fields)
    for name in _LIMITS:
        if bytes(raw := fields.get(name, NULL)) != b"null":
            left = _count(raw) - tokens
            if left < 1 and name != "min_tokens":
                return None
            fields[name] = Raw(_encode(max(left, 0)))
    if isinstance(request, ChatRequest):
        messages = [*_array(fields["messages"]), Raw(_encode({"role": "assistant", "content": emitted}))]
        fields |= {"messages": Raw(_encode(messages)), "add_generation_prompt": _FALSE, "continue_final_message": _TRUE}
    else:
        fields["prompt"] = Raw(_encode(_text(fields["prompt"]) + emitted))
    return fields
