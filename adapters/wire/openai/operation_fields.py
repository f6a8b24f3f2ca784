"""The request fields of each operation: a route's rewrite adds a field only where the operation has it.

Sources: OpenAI's API specification 2.3, vLLM's and llama.cpp's extensions, Cohere's and Jina's rerank. A field that no
table names belongs to a server's own extension. Any operation may have such a field.
"""

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
    "documents", "max_chunks_per_doc", "max_tokens_per_doc", "priority", "query", "rank_fields", "return_documents",
    "top_k", "top_n", "truncate_prompt_tokens",
}  # fmt: skip
_SCORE = _COMMON | {
    "encoding_format", "mm_processor_kwargs", "priority", "queries", "documents", "text_1", "text_2",
    "truncate_prompt_tokens",
}  # fmt: skip
_TOKENIZE = _PROMPT | {"content", "model", "prompt", "return_token_strs", "with_pieces"}
_IMAGE = _COMMON | {
    "background", "moderation", "n", "output_compression", "output_format", "partial_images", "prompt", "quality",
    "response_format", "size", "stream", "style",
}  # fmt: skip
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
