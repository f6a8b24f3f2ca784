import json
from typing import Any

import pytest

from adapters.errors import CallerError, ContextTooLong, ServerFailed
from adapters.wire.openai import chat as wire

TOO_LONG: dict[str, Any] = {
    "OpenAI": {"error": {"message": "…", "type": "invalid_request_error", "code": "context_length_exceeded"}},
    "vLLM": {
        "error": {
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5010 tokens "
            "(5000 in the messages, 10 in the completion).",
            "type": "BadRequestError",
            "code": 400,
        }
    },
    "vLLM, decoder prompt": {
        "error": {
            "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        }
    },
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 5000,
            "n_ctx": 4096,
        }
    },
    "SGLang": {
        "error": {"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}
    },
    "TGI": {
        "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
        "error_type": "validation",
    },
    "SGLang, of the input": {"message": "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens)."},
    "LM Studio": {"error": "Trying to keep the first 5000 tokens when context overflows"},
    "OpenVINO": {"error": "Number of prompt tokens: 5000 exceeds model max length: 4096"},
    "TensorRT-LLM": {
        "object": "error",
        "type": "BadRequestError",
        "code": 400,
        "message": "The sum of prompt length (5000) and max_tokens (16) exceeds max_seq_len (4096)",
    },
    "Mistral": {"message": "Prompt contains 5000 tokens, too large for model with 4096 maximum context length"},
}
OTHERS: dict[str, Any] = {
    "a policy, whatever its words": {
        "error": {"message": "refused: it speaks of the context length", "code": "content_policy_violation"}
    },
    "another field": {"error": {"message": "`top_p` must be below 1", "type": "BadRequestError", "code": 400}},
    "nothing": {},
}


@pytest.mark.parametrize("body", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_every_server_s_words_for_a_prompt_that_is_too_long(body: Any) -> None:
    assert wire.is_too_long(wire.decode_error(json.dumps(body).encode()))


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS.keys())
def test_other_refusals_are_not_about_length(body: Any) -> None:
    assert not wire.is_too_long(wire.decode_error(json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TOO_LONG["SGLang"]["error"], ContextTooLong),
        ({"message": "m", "type": "BadRequestError", "code": 400}, CallerError),
        ({"message": "m", "type": "invalid_request_error"}, CallerError),
        ({"message": "m", "type": "InternalServerError", "code": 500}, ServerFailed),
        ("m", ServerFailed),
    ],
)
def test_a_refusal_in_a_stream_has_the_class_of_its_cause(error: Any, expected: type[Exception]) -> None:
    """A server may begin its stream with 200 before it looks: no breaker may open for a caller's mistake."""
    with pytest.raises(expected) as caught:
        wire.read_event(json.dumps({"error": error}).encode())
    assert type(caught.value) is expected
