"""What servers of OpenAI's family mean when they refuse: each has words of its own."""

import re

_TOO_LONG_TYPES = frozenset({"exceed_context_size_error"})
_CALLER_TYPES = frozenset({"invalid_request_error", "BadRequestError"})
_SAYS_NOTHING = frozenset({None, "", "400", "422", "invalid_request", "invalid_request_error", "BadRequestError"})
_TOO_LONG = re.compile(
    r"maximum (model|context|sequence) length|context[ _](length|size|window|limit)|prompt is too long"
    r"|too large for model with|`inputs` (tokens|must have less than)|input token count .{0,40}exceeds"
    r"|should not exceed max_(num_tokens|seq_len)",
    re.IGNORECASE | re.DOTALL,
)
"""vLLM, SGLang, llama.cpp, TGI, TensorRT-LLM, and hosted APIs, most of which say it as OpenAI does."""


def is_too_long(message: str | None, type_: str | None, code: str | int | None) -> bool:
    """Whether prompt and answer do not fit the model's context.

    A code of its own says so, or that it is about something else; only where there is none, the text counts.
    """
    if code == "context_length_exceeded" or type_ in _TOO_LONG_TYPES:
        return True
    return (isinstance(code, int) or code in _SAYS_NOTHING) and _TOO_LONG.search(message or "") is not None


def blames_the_caller(type_: str | None, code: str | int | None) -> bool:
    """Whether the request itself is wrong."""
    return code in (400, 422) or type_ in _CALLER_TYPES
