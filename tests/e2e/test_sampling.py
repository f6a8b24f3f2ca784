"""OpenAI's client, unchanged, sends every sampling parameter through the gateway to a default engine."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

CONFIGURATION: dict[str, Any] = {
    "pools": [{"name": "llm", "runtime": {"kind": "llm", "model": "bundled:smollm2-135m-instruct"}}],
    "models": [{"name": "smollm2", "routes": [{"to": "llm"}]}],
    "tenants": [{"name": "acme", "models": ["*"], "limits": {"concurrency": 64}}],
}
QUESTION: Any = [{"role": "user", "content": "What is a river?"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    async with gateway(tmp_path_factory.mktemp("sampling"), CONFIGURATION) as made:
        await made.printed("Ready.")
        yield made
        await made.until_idle()


@pytest_asyncio.fixture(loop_scope="module")
async def sdk(running: GatewayProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    key = await running.key()
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0, timeout=300) as made:
        yield made


async def test_two_seeded_choices_with_log_probabilities_whole_and_streamed(sdk: openai.AsyncOpenAI) -> None:
    request: Any = {
        "model": "smollm2", "messages": QUESTION, "n": 2, "seed": 7, "temperature": 0.9, "top_p": 0.95,
        "presence_penalty": 0.5, "frequency_penalty": 0.25, "logprobs": True, "top_logprobs": 3,
        "max_completion_tokens": 12,
    }  # fmt: skip
    whole = await sdk.chat.completions.create(**request)
    assert [choice.index for choice in whole.choices] == [0, 1]
    texts = [choice.message.content or "" for choice in whole.choices]
    assert texts[0] != texts[1]
    choices_logprobs = [choice.logprobs.content or [] for choice in whole.choices if choice.logprobs is not None]
    assert ["".join(token.token for token in tokens) for tokens in choices_logprobs] == texts
    assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for tokens in choices_logprobs for token in tokens)
    assert whole.usage is not None
    assert whole.usage.completion_tokens >= sum(map(len, choices_logprobs))

    chunks = await sdk.chat.completions.create(**request, stream=True, stream_options={"include_usage": True})
    streamed, logprobs, usage = ["", ""], [[], []], None  # type: tuple[list[str], list[list[float]], Any]
    async for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
            if choice.logprobs is not None:
                logprobs[choice.index] += [token.logprob for token in choice.logprobs.content or ()]
    assert streamed == texts
    assert logprobs == [[token.logprob for token in tokens] for tokens in choices_logprobs]
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"min_p": 1.0}])
async def test_fields_beside_openai_s_reach_the_engine(sdk: openai.AsyncOpenAI, narrow: dict[str, object]) -> None:
    """A draw from one token is greedy, and an ignored end lets the answer reach its length."""
    request: Any = {"model": "smollm2", "messages": QUESTION, "max_tokens": 40}
    greedy = await sdk.chat.completions.create(**request, temperature=0, extra_body={"ignore_eos": True})
    drawn = await sdk.chat.completions.create(**request, temperature=1.5, extra_body={**narrow, "ignore_eos": True})
    assert drawn.choices[0].message.content == greedy.choices[0].message.content
    assert drawn.usage is not None
    assert drawn.usage.completion_tokens == 40


async def test_free_text_of_a_model_that_may_call_a_tool_holds_any_bytes(sdk: openai.AsyncOpenAI) -> None:
    """Token 187 is one byte of a character of several."""
    request: Any = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 8}
    tools: Any = [{"type": "function", "function": {"name": "now"}}]
    for more in ({}, {"tools": tools}):
        answer = await sdk.chat.completions.create(**request, **more, logit_bias={"187": 100})
        assert "\ufffd" in (answer.choices[0].message.content or "")
