"""Request fields that a model has no use for: left out and listed in a header, or refused on a strict route.

A translation between two protocols keeps the fields that both have. `sift` decides about every other field. Those in
`CHANGED` are refused, because the answer would be another one without them. All others only steer the servers of their
own protocol.
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from adapters.errors import CallerError

# The request fields of each operation: a route's rewrite adds a field only where the operation has it.
#
# Sources: OpenAI's API specification 2.3, vLLM's and llama.cpp's extensions, Cohere's and Jina's rerank. A field that
# no table names belongs to a server's own extension. Any operation may have such a field.

NOTHING = frozenset({b"null", b"false", b"0", b"[]", b"{}", b'""'})
"""Values that request nothing, without white space."""

_COMMON = frozenset({"model", "user"})
_SAMPLING = frozenset({
    "bad_words", "cache_salt", "dry_multiplier", "frequency_penalty", "grammar", "guided_choice",
    "guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex", "ignore_eos",
    "include_stop_str_in_output", "length_penalty", "logit_bias", "logprobs", "max_tokens", "min_p", "min_tokens",
    "mirostat", "n", "n_predict", "presence_penalty", "priority", "prompt_cache_key", "prompt_logprobs",
    "repeat_penalty", "repetition_penalty", "response_format", "return_token_ids", "seed", "skip_special_tokens",
    "spaces_between_special_tokens", "stop", "stop_token_ids", "stream", "stream_options", "structured_outputs",
    "temperature", "top_k", "top_p", "typical_p", "use_beam_search",
})  # fmt: skip
"""Fields of every operation that generates text."""
_PROMPT = frozenset({
    "add_generation_prompt", "add_special_tokens", "chat_template", "chat_template_kwargs", "continue_final_message",
    "messages", "mm_processor_kwargs", "tools",
})  # fmt: skip
"""Fields that form a chat's prompt."""

CHAT = _COMMON | _SAMPLING | _PROMPT | {
    "audio", "enable_thinking", "function_call", "functions", "include_reasoning", "max_completion_tokens",
    "max_thinking_tokens", "metadata", "modalities", "parallel_tool_calls", "prediction", "prompt_cache_options",
    "prompt_cache_retention", "reasoning", "reasoning_effort", "safety_identifier", "service_tier", "store", "thinking",
    "thinking_budget", "thinking_token_budget", "tool_choice", "top_logprobs", "verbosity", "web_search_options",
}  # fmt: skip
COMPLETION = _COMMON | _SAMPLING | {"add_special_tokens", "best_of", "echo", "prompt", "suffix"}
RESPONSE = _COMMON | {
    "background", "cache_salt", "context_management", "conversation", "include", "input", "instructions",
    "max_output_tokens", "max_tool_calls", "metadata", "moderation", "parallel_tool_calls", "previous_response_id",
    "priority", "prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning",
    "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice",
    "tools", "top_logprobs", "top_p", "truncation",
}  # fmt: skip
EMBEDDING = _COMMON | {
    "add_special_tokens", "dimensions", "encoding_format", "input", "input_type", "mm_processor_kwargs", "priority",
    "truncate_prompt_tokens",
}  # fmt: skip
COUNT = frozenset({
    "cache_control", "chat_template", "chat_template_kwargs", "context_management", "mcp_servers", "messages", "model",
    "output_config", "reasoning_effort", "speed", "system", "thinking", "tool_choice", "tools",
})  # fmt: skip
"""Anthropic's count of a message's tokens."""

_RERANK = _COMMON | {
    "documents", "instruction", "max_chunks_per_doc", "max_tokens_per_doc", "priority", "query", "rank_fields",
    "return_documents", "top_k", "top_n", "truncate_prompt_tokens",
}  # fmt: skip
_SCORE = _COMMON | {
    "data_1", "data_2", "encoding_format", "instruction", "mm_processor_kwargs", "priority", "queries", "documents",
    "text_1", "text_2",
    "truncate_prompt_tokens",
}  # fmt: skip
_TOKENIZE = _PROMPT | {"content", "model", "prompt", "return_token_strs", "with_pieces"}
_IMAGE = _COMMON | {
    "background", "moderation", "n", "output_compression", "output_format", "partial_images", "prompt", "quality",
    "response_format", "size", "stream", "style",
}  # fmt: skip
_CLASSIFY = _COMMON | {"add_special_tokens", "input", "messages", "priority", "truncate_prompt_tokens"}
_TRANSCRIPTION = frozenset({
    "chunking_strategy", "file", "hotwords", "include", "known_speaker_names", "known_speaker_references", "language",
    "model", "prompt", "response_format", "seed", "stream", "temperature", "timestamp_granularities",
})  # fmt: skip

_TABLE: dict[str, frozenset[str]] = {
    "/chat/completions": CHAT,
    "/completions": COMPLETION,
    "/responses": RESPONSE,
    "/embeddings": EMBEDDING,
    "/v1/rerank": _RERANK,
    "/rerank": _RERANK,
    "/v2/rerank": _RERANK,
    "/v1/score": _SCORE,
    "/score": _SCORE,
    "/tokenize": _TOKENIZE,
    "/detokenize": frozenset({"model", "tokens"}),
    "/v1/audio/transcriptions": _TRANSCRIPTION,
    "/v1/audio/translations": _TRANSCRIPTION,
    "/v1/audio/speech": frozenset({
        "input", "instructions", "model", "response_format", "speed", "stream_format", "voice",
    }),
    "/v1/images/generations": _IMAGE,
    "/v1/images/edits": _IMAGE | {"image", "input_fidelity", "mask"},
    "/v1/images/variations": frozenset({"image", "model", "n", "response_format", "size", "user"}),
    "/v1/moderations": frozenset({"input", "model"}),
    "/v1/chat/moderations": frozenset({"input", "model"}),
    "/v1/classify": _CLASSIFY,
    "/classify": _CLASSIFY,
    "/v1/classifications": frozenset({"input", "model"}),
    "/v1/ocr": frozenset({
        "bbox_annotation_format", "document", "document_annotation_format", "extract_footer", "extract_header", "id",
        "image_limit", "image_min_size", "include_image_base64", "model", "pages", "table_format",
    }),
}  # fmt: skip
"""The operation of each path: the API's paths for text, and the gateway's for passed operations."""
FIELDS = frozenset().union(COUNT, *_TABLE.values())
"""The fields of all operations."""


def is_misspelled(name: str) -> bool:
    """Whether a name equals a field's name except for case. Some servers read `Stream` as `stream`, others do not: the
    gateway must authorise, count and decode the same fields that the server reads."""
    return not (name.isascii() and name.islower()) and name.casefold() in FIELDS and name not in FIELDS


def fields_of(path: str) -> frozenset[str]:
    """The fields of one operation; KeyError for a path without a table."""
    return _TABLE[path]


def accepts(fields: frozenset[str], name: str) -> bool:
    """Whether an operation with these fields accepts a field of this name."""
    return name in fields or name not in FIELDS


STRICT = "x-headrace-strict"
"""The gateway's header to the LLM runtime: refuse such fields."""
IGNORED = "x-headrace-ignored"
"""The header of an answer that lists the fields which were left out."""
NAMES = frozenset({"metadata", "prediction", "reasoning_effort", "verbosity"})
"""Optional fields of a chat. `stop` with an empty text is another one."""
MAX_LISTED = 16
LONGEST_NEUTRAL = 64
"""Bytes, with white space."""
OTHER = "other"
"""The name of a field whose own name no header or label may have."""
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
SCOPE = "cache_control.scope"
"""The scope of cache marks, which clouds of Anthropic's models refuse."""
_SAFE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_LABELS = FIELDS | {
    SCOPE, "betas", "client_metadata", "citations", "compaction", "container", "diagnostics", "inference_geo",
    "reasoning.summary", "reasoning_details", "server_tool_use", "stop_sequences", "thread", "tool_search",
    "user_profile_id", "web_search", "web_search_call",
}  # fmt: skip
_ONE_CHOICE = "its servers return one answer for each request"
_NO_PENALTY = "its servers have no such control of the sampling"
_NO_LOGPROBS = "its servers report no log probabilities"
_NO_GRAMMAR = "its servers follow no grammar: use `response_format` with a JSON schema"
_NO_SOUND = "its servers return text only"
_OLD_TOOLS = "it is the old form of tools: use `tools`"
NOT_STORED = "no files and no responses are stored here, so send it in full"
CHANGED: Mapping[str, tuple[str, frozenset[bytes]]] = {
    "audio": (_NO_SOUND, frozenset()),
    "background": (NOT_STORED, frozenset()),
    "best_of": (_ONE_CHOICE, frozenset((b"1",))),
    "conversation": (NOT_STORED, frozenset()),
    "frequency_penalty": (_NO_PENALTY, frozenset((b"0.0",))),
    "function_call": (_OLD_TOOLS, frozenset((b'"none"',))),
    "functions": (_OLD_TOOLS, frozenset()),
    "grammar": (_NO_GRAMMAR, frozenset()),
    "guided_choice": (_NO_GRAMMAR, frozenset()),
    "guided_grammar": (_NO_GRAMMAR, frozenset()),
    "guided_json": (_NO_GRAMMAR, frozenset()),
    "guided_regex": (_NO_GRAMMAR, frozenset()),
    "inference_geo": ("it demands a region of Anthropic's own servers", frozenset()),
    "logit_bias": (_NO_PENALTY, frozenset()),
    "logprobs": (_NO_LOGPROBS, frozenset()),
    "mcp_servers": ("its servers call no tools by themselves: give the tools as functions", frozenset()),
    "modalities": (_NO_SOUND, frozenset((b'["text"]',))),
    "moderation": ("its servers moderate no inputs and answers", frozenset()),
    "n": (_ONE_CHOICE, frozenset((b"1",))),
    "presence_penalty": (_NO_PENALTY, frozenset((b"0.0",))),
    "previous_response_id": (NOT_STORED, frozenset()),
    "prompt": (NOT_STORED, frozenset()),
    "repetition_penalty": (_NO_PENALTY, frozenset((b"1", b"1.0"))),
    "structured_outputs": (_NO_GRAMMAR, frozenset()),
    "top_logprobs": (_NO_LOGPROBS, frozenset()),
}
"""Fields that change the answer and that another protocol may lack: the reason of a refusal, and the values beside
`NOTHING` that change nothing."""
_DEFAULTS = {
    "include_reasoning": frozenset((b"true",)),
    "service_tier": frozenset((b'"auto"', b'"default"')),
    "speed": frozenset((b'"standard"',)),
    "thinking": frozenset((b'{"type":"disabled"}',)),
    "truncation": frozenset((b'"disabled"',)),
    "verbosity": frozenset((b'"medium"',)),
}
"""Values of other fields that request nothing."""
_CODES = {"thread": "thread_unsupported_request"}
"""Codes by which client libraries recover; other fields have the common code."""


class HeaderLookup(Protocol):
    """The headers of a message."""

    def get(self, name: str, /) -> str | None: ...


@dataclass(slots=True)
class IgnoredFields:
    """The ignored fields of one request, under the names of a chat's fields."""

    strict: bool = False
    ignored: list[str] = field(default_factory=list)
    dropped: frozenset[str] = frozenset()
    """Fields that the route drops."""

    @classmethod
    def of(cls, headers: HeaderLookup) -> "IgnoredFields":
        """Read the gateway's header."""
        return cls(headers.get(STRICT) == "true")

    def ignore(self, name: str) -> None:
        """Leave a field out. A name that is not safe in a header becomes `OTHER`. Raises `CallerError` on a strict
        route."""
        name = name if _SAFE.fullmatch(name) else OTHER
        if self.strict:
            raise _refusal(name)
        if name not in self.ignored and len(self.ignored) < MAX_LISTED:
            self.ignored.append(name)

    def sift(self, fields: Mapping[str, Raw], translated: Container[str]) -> None:
        """Ignore or refuse the fields that a translation does not keep. Raises `CallerError`."""
        for name, raw in fields.items():
            if name in translated or requests_nothing(name, raw):
                continue
            if name in CHANGED:
                message = f"`{name}` is not possible with this model: {CHANGED[name][0]}."
                raise CallerError(message, param=name, code="unsupported_parameter")
            self.ignore(name)

    def add(self, names: Iterable[str]) -> None:
        """Add fields that the model's server ignored."""
        self.ignored += [name for name in names if name not in self.ignored][: MAX_LISTED - len(self.ignored)]

    def enforce(self, strict: bool, dropped: frozenset[str]) -> None:
        """Apply the route's strictness to the ignored fields. The route drops `dropped`. Raises `CallerError`."""
        self.strict, self.dropped = strict, dropped
        if self.ignored:
            self.ignored[:] = [name for name in self.ignored if name not in dropped]
        if strict and self.ignored:
            raise _refusal(self.ignored[0])

    def stops(self, stop: str | list[str] | None) -> list[str]:
        """The stop strings of a response. An empty string is ignored."""
        given = [stop] if isinstance(stop, str) else stop or []
        if "" in given:
            self.ignore("stop")
        return [text for text in given if text]


def requests_nothing(name: str, raw: Raw) -> bool:
    """Whether a field has a value that has no effect. Such values are short: a longer one is not read."""
    if len(memoryview(raw)) > LONGEST_NEUTRAL:
        return False
    value = msgspec.json.format(bytes(raw), indent=-1)
    neutral = CHANGED[name][1] if name in CHANGED else _DEFAULTS.get(name, ())
    return value in NOTHING or value in neutral


def label(name: str) -> str:
    """The name of an ignored field as a metric's label: one of a fixed set."""
    return name if name in _LABELS else OTHER


def _refusal(name: str) -> CallerError:
    message = f"`{name}` has no effect on this model, and its route is strict: leave the field out."
    return CallerError(message, param=name, code=_CODES.get(name, "unsupported_parameter"))


def allowed_tools(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace `tool_choice: {type: allowed_tools}` by the allowed tools and the mode.

    Other values are unchanged. Raises `CallerError` for an unknown tool.
    """
    match fields.get("tool_choice"):
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            names = {_name_of(tool) for tool in allowed}
        case _:
            return fields
    given = fields.get("tools")
    tools = [tool for tool in given if _name_of(tool) in names] if isinstance(given, list) else []
    if missing := names - {_name_of(tool) for tool in tools}:
        name = sorted(map(str, missing))[0]
        raise CallerError(f"`tool_choice` allows {name[:64]}, which `tools` does not have.", param="tool_choice")
    return {**fields, "tools": tools, "tool_choice": mode}


def with_allowed_tools(fields: dict[str, Raw]) -> dict[str, Raw]:
    """The encoded fields of a chat with `allowed_tools` applied, for a protocol without a list of them. Raises
    `CallerError`."""
    if b"allowed_tools" not in bytes(fields.get("tool_choice", b"")):
        return fields
    try:
        given: dict[str, Any] = {name: _any(fields[name]) for name in ("tools", "tool_choice") if name in fields}
    except msgspec.DecodeError as error:
        raise CallerError(f"`tool_choice` is not valid: {error}.", param="tool_choice") from None
    return fields | {name: Raw(_encode(value)) for name, value in allowed_tools(given).items()}


def _name_of(tool: Any) -> str | None:
    match tool:
        case {"function": {"name": str(name)}}:
            return name
    return None
