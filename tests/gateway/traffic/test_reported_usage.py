"""The usage that each server reports, and what the gateway charges for it: the server's own invoice."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.types import Usage
from adapters.wire import reported_usage
from adapters.wire.anthropic.answers import message_usage, reported_by
from adapters.wire.openai import chat, model_field
from adapters.wire.responses import native
from adapters.wire.responses.answers import usage_of
from config.schema.money import PriceConfig
from policies.limits.price import Price
from tests.support.providers.openai_like import ROWS, Row
from tests.support.providers.script import Counts

Object = dict[str, Any]
RATES = {"prompt": 10, "cached": 1, "cache_write": 20, "completion": 100, "reasoning": 100}
PRICE = Price(PriceConfig.model_validate({name: f"{rate} usd/1M" for name, rate in RATES.items()}))
U = {"prompt_tokens": 1000, "completion_tokens": 50}
CACHED = Usage(1000, 50, exact=True, cached_tokens=900)
THOUGHT = Usage(1000, 150, exact=True, reasoning_tokens=100)
PLAIN = Usage(1000, 50, exact=True)

SERVERS: dict[str, tuple[Object, Usage]] = {
    "OpenAI": (
        {"usage": {**U, "prompt_tokens_details": {"cached_tokens": 900}, "completion_tokens_details": None}},
        CACHED,
    ),
    "OpenAI's reasoning": (
        {"usage": {"prompt_tokens": 1000, "completion_tokens": 150, "total_tokens": 1150,
                   "completion_tokens_details": {"reasoning_tokens": 100}}},
        THOUGHT,
    ),
    "xAI": (
        {"usage": {**U, "total_tokens": 1150, "completion_tokens_details": {"reasoning_tokens": 100}}},
        THOUGHT,
    ),
    "xAI, as much reasoning as in its cache": (
        {"usage": {**U, "total_tokens": 1150, "prompt_tokens_details": {"cached_tokens": 100},
                   "completion_tokens_details": {"reasoning_tokens": 100}}},
        Usage(1000, 150, exact=True, cached_tokens=100, reasoning_tokens=100),
    ),
    "xAI, more from its cache than the prompt": (
        {"usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 1150,
                   "prompt_tokens_details": {"cached_tokens": 900},
                   "completion_tokens_details": {"reasoning_tokens": 100}}},
        Usage(1000, 150, exact=True, cached_tokens=900, reasoning_tokens=100),
    ),
    "Perplexity": (
        {"usage": {**U, "total_tokens": 1050, "citation_tokens": 20, "num_search_queries": 3, "reasoning_tokens": 100}},
        THOUGHT,
    ),
    "Gemini": ({"usage": {**U, "total_tokens": 1150}}, THOUGHT),
    "Moonshot": ({"usage": {**U, "cached_tokens": 900}}, CACHED),
    "Moonshot's stream": ({"usage": None, "choices": [{"index": 0, "usage": {**U, "cached_tokens": 900}}]}, CACHED),
    "DeepSeek": ({"usage": {**U, "prompt_cache_hit_tokens": 900, "prompt_cache_miss_tokens": 100}}, CACHED),
    "Mistral": ({"usage": {**U, "num_cached_tokens": 900, "prompt_token_details": {"cached_tokens": 900}}}, CACHED),
    "Groq": ({"choices": [], "x_groq": {"id": "r", "usage": {**U, "prompt_time": 0.1, "total_tokens": 1050}}}, PLAIN),
    "Anthropic's chats": ({"usage": {**U, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 0}}, CACHED),
    "Bedrock's chats": ({"usage": {**U, "cacheReadInputTokens": 900}}, CACHED),
    "a cache beside the prompt": (
        {"usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 1050, "cached_tokens": 900}},
        CACHED,
    ),
    "OpenRouter": (
        {"usage": {"prompt_tokens": 1000.4, "completion_tokens": 50.0, "cost": 0.1,
                   "prompt_tokens_details": {"cached_tokens": 850, "cache_write_tokens": 50}}},
        Usage(1000, 50, exact=True, cached_tokens=850, cache_write_tokens=50),
    ),
    "texts": ({"usage": {"prompt_tokens": "1000", "completion_tokens": "50"}}, PLAIN),
    "a list of details": ({"usage": {**U, "prompt_tokens_details": [{"modality": "TEXT", "tokenCount": 10}]}}, PLAIN),
    "a negative prompt beside a total": (
        {"usage": {"prompt_tokens": -1, "completion_tokens": 50, "total_tokens": 1050}}, PLAIN,
    ),
    "more from the cache than the prompt": (
        {"usage": {**U, "cached_tokens": 5000}}, Usage(1000, 50, exact=True, cached_tokens=1000),
    ),
    "embeddings": ({"usage": {"prompt_tokens": 1000, "total_tokens": 1000}}, Usage(1000, 0, exact=True)),
    "a rerank": ({"usage": {"total_tokens": 1000}}, Usage(1000, 0, exact=True)),
}  # fmt: skip


def cost(usage: Usage) -> Any:
    written, thought = usage.cache_write_tokens, usage.reasoning_tokens
    return PRICE.cost(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, thought, written)


@pytest.mark.parametrize("name", SERVERS)
def test_each_servers_report_is_its_invoice(name: str) -> None:
    fields, expected = SERVERS[name]
    body = json.dumps({"choices": [{"index": 0}], **fields}).encode()
    streamed = chat.read_event(body).reported
    assert streamed is not None
    assert chat.usage_of_body(body) == streamed.usage == expected
    picos = 10 * (expected.prompt_tokens - expected.cached_tokens - expected.cache_write_tokens)
    picos += expected.cached_tokens + 20 * expected.cache_write_tokens + 100 * expected.completion_tokens
    assert cost(expected).picos == picos * 1_000_000


@given(st.sampled_from(ROWS), *[st.integers(0, 10**6)] * 4)
def test_each_provider_s_tokens_are_billed_once(row: Row, fresh: int, cached: int, shown: int, hidden: int) -> None:
    """Prompt, completion and reasoning add up to the total, however a provider counts them."""
    counts = Counts(fresh + cached, cached, shown + hidden + 1, hidden)
    reported = reported_usage.read(row.usage(counts))
    assert reported is not None
    usage = reported.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (counts.prompt, counts.completion)
    assert usage.cached_tokens == (0 if "cache" in row.lacks else counts.cached)
    assert usage.reasoning_tokens in (0, counts.reasoning)


UNREADABLE: list[Any] = [None, 5, [], {}, {"prompt_tokens": -1, "completion_tokens": 5}, {"prompt_tokens": None}, "10",
              {"prompt_tokens": 5, "completion_tokens": 10**30}, {"prompt_tokens": True, "completion_tokens": 1},
              {"prompt_tokens": [1], "completion_tokens": {}}, {"prompt_tokens": 0, "completion_tokens": 0},
]  # fmt: skip


@pytest.mark.parametrize("usage", UNREADABLE, ids=repr)
def test_an_unreadable_report_is_none(usage: Any) -> None:
    body = json.dumps({"choices": [], "output": [], "usage": usage}).encode()
    reported = chat.read_event(body).reported
    assert chat.usage_of_body(body) is native.usage_of_body(body) is model_field.usage_of(body) is None
    assert reported is None or reported.usage is None


counts = st.integers(0, 10**6)
usages = st.builds(
    lambda prompt, completion, cached, written, reasoning: Usage(
        prompt + cached + written, completion + reasoning + 1, exact=True,
        cached_tokens=cached, cache_write_tokens=written, reasoning_tokens=reasoning,
    ),
    *[counts] * 5,
)  # fmt: skip


@given(usages, st.integers(0, 5))
def test_every_door_reports_the_servers_usage(usage: Usage, pieces: int) -> None:
    """A usage survives each form, and a stream that reports it often, with zeros in between."""
    for fields in (reported_usage.chat_fields(usage), usage_of(usage)):
        reported = reported_usage.read(fields)
        assert reported is not None
        assert reported.usage == usage
        zeros = dict.fromkeys(fields, 0)
        for _ in range(pieces):
            reported = (reported_usage.read(zeros) or reported).over(reported)
        assert reported.usage == usage
    whole = message_usage(usage)
    halves = [{**whole, "output_tokens": 0}, {"output_tokens": usage.completion_tokens, "input_tokens": None}]
    first, last = (reported_by(half) for half in halves)
    assert first is not None
    assert last is not None
    assert last.over(first).usage == usage
