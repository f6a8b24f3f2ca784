"""Classifies the refusals of servers of OpenAI's family by type, code and text."""

import re

_TOO_LONG_TYPES = frozenset({"exceed_context_size_error"})
_CALLER_TYPES = frozenset({"invalid_request_error", "BadRequestError"})
_UNSPECIFIC = frozenset({None, "", "400", "422", "invalid_request", "invalid_request_error", "BadRequestError"})
_TOO_LONG = re.compile(
    r"maximum (model|context|sequence) length|context[ _](length|size|window|limit)|prompt is too long"
    r"|too large for model with|`inputs` (tokens|must have less than)|input token count .{0,40}exceeds"
    r"|should not exceed max_(num_tokens|seq_len)|(prompt|input) length.{0,40}exceeds|exceeds (the )?model max length"
    r"|exceeds max_(num_tokens|seq_len)|context overflow",
    re.IGNORECASE | re.DOTALL,
)
"""The texts of vLLM, SGLang, llama.cpp, TGI, TensorRT-LLM, LM Studio, OpenVINO and hosted APIs."""


_CALLERS_WORDS = re.compile(
    r"\b(must|should not|cannot be|invalid|exceeds?|unsupported|(not|only) supported|out of range)\b", re.IGNORECASE
)


def is_too_long(message: str | None, type_: str | None, code: str | int | None) -> bool:
    """Whether prompt and response exceed the model's context.

    A specific code decides; the text counts only without one.
    """
    if code == "context_length_exceeded" or type_ in _TOO_LONG_TYPES:
        return True
    return (isinstance(code, int) or code in _UNSPECIFIC) and _TOO_LONG.search(message or "") is not None


def blames_the_caller(type_: str | None, code: str | int | None) -> bool:
    """Whether an error blames the request itself."""
    return code in (400, 422) or type_ in _CALLER_TYPES


def sounds_like_the_callers(message: str) -> bool:
    """Whether a text blames the request, for servers with one status for refusals and failures."""
    return _CALLERS_WORDS.search(message) is not None
