"""OpenAI's client, unchanged, sends every sampling parameter through the gateway to a default engine."""

import asyncio
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
PROMPT = "The capital of France is"


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


async def tokens_of(sdk: openai.AsyncOpenAI, text: str) -> list[int]:
    """The tokens of `text` by the engine's tokenizer: vLLM's call at the root of the server."""
    url = str(sdk.base_url).removesuffix("/v1/") + "/tokenize"
    response: Any = await sdk.post(url, cast_to=object, body={"model": "smollm2", "prompt": text})
    return list(response["tokens"])


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


async def test_a_forbidden_token_is_not_generated(sdk: openai.AsyncOpenAI) -> None:
    request: Any = {"model": "smollm2", "prompt": PROMPT, "temperature": 0, "max_tokens": 1}
    first = (await sdk.completions.create(**request)).choices[0].text
    (token,) = await tokens_of(sdk, first)
    other = (await sdk.completions.create(**request, logit_bias={str(token): -100})).choices[0].text
    assert other != first
    (forced, *_) = await tokens_of(sdk, " zebra")
    biased = await sdk.completions.create(**request, logit_bias={str(forced): 100})
    assert biased.choices[0].text
    assert " zebra".startswith(biased.choices[0].text)


async def test_prompts_as_tokens_echoed_and_the_best_of_several(sdk: openai.AsyncOpenAI) -> None:
    tokens = await tokens_of(sdk, PROMPT)
    echoed = await sdk.completions.create(model="smollm2", prompt=tokens, echo=True, logprobs=1, max_tokens=0)
    assert echoed.choices[0].text == PROMPT
    logprobs = echoed.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert len(logprobs.token_logprobs) == len(tokens)
    assert logprobs.token_logprobs[:1] == [None]
    assert all(logprob <= 0 for logprob in logprobs.token_logprobs[1:])
    assert "".join(logprobs.tokens or ()) == PROMPT

    several = await sdk.completions.create(
        model="smollm2", prompt=[PROMPT, "Water is"], best_of=3, n=2, max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.usage is not None
    assert several.usage.completion_tokens == 2 * 3 * 5  # candidates that were not the best are paid for


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"min_p": 1.0}])
async def test_a_draw_from_one_token_is_greedy(sdk: openai.AsyncOpenAI, narrow: dict[str, object]) -> None:
    request: Any = {"model": "smollm2", "messages": QUESTION, "max_tokens": 40}
    greedy = await sdk.chat.completions.create(**request, temperature=0)
    drawn = await sdk.chat.completions.create(**request, temperature=1.5, extra_body=narrow)
    assert drawn.choices[0].message.content == greedy.choices[0].message.content


async def test_an_answer_ends_before_the_first_of_four_stops_and_not_by_itself(sdk: openai.AsyncOpenAI) -> None:
    request: Any = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 200}
    whole = await sdk.chat.completions.create(**request, extra_body={"ignore_eos": True})
    assert (whole.choices[0].finish_reason, whole.usage and whole.usage.completion_tokens) == ("length", 200)
    text = whole.choices[0].message.content or ""
    stop = " ".join(text.split(" ")[3:5])  # across a border between two tokens at least
    cut = await sdk.chat.completions.create(**request, stop=["zebra", "quagga", stop, "giraffe"])
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == text.partition(stop)[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("stop", [f"stop {i}" for i in range(1025)]),
        ("temperature", -1),
        ("top_logprobs", 99),
        ("logit_bias", {"99999999": 1}),
        ("min_p", 2),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strnig"}}}),
    ],
)
async def test_contradictory_fields_are_refused_alone(sdk: openai.AsyncOpenAI, field: str, value: object) -> None:
    request: Any = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 8}
    neighbour = asyncio.create_task(sdk.chat.completions.create(**request))
    with pytest.raises(openai.BadRequestError) as refused:
        await sdk.chat.completions.create(**(request | {"logprobs": True, "extra_body": {field: value}}))
    assert refused.value.type == "invalid_request_error"
    assert field in f"{refused.value.param} {refused.value.message}"
    assert (await neighbour).choices[0].message.content


async def test_free_text_of_a_model_that_may_call_a_tool_holds_any_bytes(sdk: openai.AsyncOpenAI) -> None:
    """Token 187 is one byte of a character of several."""
    request: Any = {
        "model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 8, "logit_bias": {"187": 100},
    }  # fmt: skip
    plain = await sdk.chat.completions.create(**request)
    with_tools = await sdk.chat.completions.create(**request, tools=[{"type": "function", "function": {"name": "now"}}])
    assert "\ufffd" in (plain.choices[0].message.content or "")
    assert "\ufffd" in (with_tools.choices[0].message.content or "")
