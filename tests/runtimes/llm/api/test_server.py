"""The API over real sockets with OpenAI's own client; the model is a Parrot."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest

from adapters.wire import signals
from tests.runtimes.llm.server_fixtures import (
    ANSWER_TOKENS,
    CONTEXT,
    HI,
    MODEL,
    PROMPT_TOKENS,
    TEXT,
    Running,
    get,
    post,
    serving,
    until_idle,
)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serving(TEXT) as running:
        yield running


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────


async def test_chat(running: Running) -> None:
    answer = await running.client.chat.completions.create(model=MODEL, messages=HI)
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model, answer.system_fingerprint) == ("chat.completion", MODEL, "fp_test")
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TEXT, "stop")
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (PROMPT_TOKENS, ANSWER_TOKENS)
    assert usage.total_tokens == PROMPT_TOKENS + ANSWER_TOKENS


async def test_chat_stream(running: Running) -> None:
    stream = await running.client.chat.completions.create(
        model=MODEL, messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    first, *texts, finish, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    deltas = [chunk.choices[0].delta.content for chunk in texts]
    assert all(deltas)
    assert "".join(filter(None, deltas)) == TEXT
    assert len(deltas) == len(TEXT)  # a byte a token, yet never half a character
    assert {chunk.choices[0].finish_reason for chunk in [first, *texts]} == {None}
    assert finish.choices[0].finish_reason == "stop"
    assert finish.choices[0].delta.content is None
    assert usage.choices == []
    assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (PROMPT_TOKENS, ANSWER_TOKENS)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1


async def test_raw_events_end_with_done(running: Running) -> None:
    body = {"model": MODEL, "messages": HI, "stream": True, "max_tokens": 1}
    headers = {"content-type": "application/json"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{running.url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = (await response.read()).split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-2]]
    assert all("usage" not in chunk for chunk in chunks)  # the request does not include it
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "H"},
        {},
    ]
    assert set(chunks[0]["choices"][0]) == {"index", "delta", "finish_reason", "logprobs"}


async def test_completion(running: Running) -> None:
    answer = await running.client.completions.create(model=MODEL, prompt="abc", max_tokens=5)
    assert answer.id.startswith("cmpl-")
    assert (answer.object, answer.choices[0].text, answer.choices[0].finish_reason) == (
        "text_completion", "Hello", "length",
    )  # fmt: skip
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 5)


async def test_completion_stream(running: Running) -> None:
    stream = await running.client.completions.create(model=MODEL, prompt="abc", max_tokens=40, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join([chunk.choices[0].text for chunk in chunks]) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * len(TEXT) + ["stop"]


@pytest.mark.parametrize(
    ("prompt", "tokens", "count"), [("ab", 2, 1), (["ab", "c"], 3, 2), ([65, 66], 2, 1), ([[65], [66, 67]], 3, 2)]
)
async def test_prompts_of_every_kind(running: Running, prompt: Any, tokens: int, count: int) -> None:
    answer = await running.client.completions.create(model=MODEL, prompt=prompt, max_tokens=2, n=2)
    assert [choice.index for choice in answer.choices] == list(range(2 * count))
    assert {choice.text for choice in answer.choices} == {"He"}
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (tokens, 2 * 2 * count)


async def test_several_choices_in_one_stream(running: Running) -> None:
    stream = await running.client.chat.completions.create(model=MODEL, messages=HI, n=3, stream=True)
    texts, roles, ends = ["", "", ""], [0, 0, 0], [0, 0, 0]
    async for chunk in stream:
        [choice] = chunk.choices
        assert not ends[choice.index]
        texts[choice.index] += choice.delta.content or ""
        roles[choice.index] += choice.delta.role is not None
        ends[choice.index] += choice.finish_reason is not None
    assert (texts, roles, ends) == ([TEXT] * 3, [1] * 3, [1] * 3)


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        ("wör", "Hello, ", 11),
        (["xx", "ld", "!"], "Hello, wör", 13),
        ("H", "", 1),
        ("absent", TEXT, ANSWER_TOKENS),
        ([*(f"no {i}" for i in range(1022)), "ld", "!"], "Hello, wör", 13),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_stop_strings(running: Running, stop: Any, text: str, tokens: int, stream: bool) -> None:
    options: dict[str, Any] = {"model": MODEL, "messages": HI, "stop": stop}
    if stream:
        chunks = await running.client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
        seen = [chunk async for chunk in chunks]
        content = "".join([chunk.choices[0].delta.content or "" for chunk in seen[:-1]])
        reason, usage = seen[-2].choices[0].finish_reason, seen[-1].usage
    else:
        answer = await running.client.chat.completions.create(**options)
        content, reason, usage = answer.choices[0].message.content, answer.choices[0].finish_reason, answer.usage
    assert (content, reason) == (text, "stop")
    assert usage.completion_tokens == tokens
    await until_idle(running.engine)


async def test_ignore_eos_goes_on_to_the_limit(running: Running) -> None:
    answer = await running.client.chat.completions.create(
        model=MODEL, messages=HI, max_tokens=30, extra_body={"ignore_eos": True}
    )
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (TEXT, "length")
    assert answer.usage.completion_tokens == 30


async def test_no_tokens_at_all(running: Running) -> None:
    answer = await running.client.completions.create(model=MODEL, prompt="abc", max_tokens=0)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("", "length")
    assert answer.usage.completion_tokens == 0


async def test_a_chat_may_fill_the_context_and_a_completion_stops_at_16() -> None:
    async with serving("x" * 1000) as running:
        chat = await running.client.chat.completions.create(model=MODEL, messages=HI)
        assert (chat.usage.total_tokens, chat.choices[0].finish_reason) == (CONTEXT, "length")
        short = await running.client.completions.create(model=MODEL, prompt="abc")
        assert short.choices[0].text == "x" * 16
        squeezed = await running.client.completions.create(model=MODEL, prompt="a" * (CONTEXT - 3))
        assert squeezed.choices[0].text == "xxx"


async def test_messages_cannot_write_control_tokens_but_prompts_can(running: Running) -> None:
    spelled = "<|im_end|>"
    plain = await running.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": spelled}], max_tokens=1
    )
    assert plain.usage.prompt_tokens == PROMPT_TOKENS - len("hi") + len(spelled)
    raw = await running.client.completions.create(model=MODEL, prompt=spelled, max_tokens=1)
    assert raw.usage.prompt_tokens == 1


async def test_content_in_parts_and_an_answer_sent_back(running: Running) -> None:
    first = await running.client.chat.completions.create(model=MODEL, messages=HI)
    messages: list[Any] = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        first.choices[0].message.model_dump(),
        {"role": "user", "name": "Ann", "content": "more"},
    ]
    answer = await running.client.chat.completions.create(model=MODEL, messages=messages)
    assert answer.choices[0].message.content == TEXT


async def test_harmless_parameters_are_accepted(running: Running) -> None:
    answer = await running.client.chat.completions.create(
        model=MODEL, messages=HI, max_completion_tokens=3, max_tokens=9, user="u", metadata={"a": "b"}, store=False,
        service_tier="auto", logprobs=False, presence_penalty=0, frequency_penalty=0.0, logit_bias={}, tools=[],
        tool_choice="none", response_format={"type": "text"}, parallel_tool_calls=True, temperature=0.5, top_p=0.9,
        seed=7, extra_body={"top_k": -1},
    )  # fmt: skip
    assert answer.choices[0].message.content == "Hel"


# ── about the server ──────────────────────────────────────────────────────────────────────────────────


async def test_models_and_health(running: Running) -> None:
    [card] = (await running.client.models.list()).data
    assert (card.id, card.created, card.owned_by) == (MODEL, 1_700_000_000, "headrace")
    assert card.to_dict()["max_model_len"] == CONTEXT
    assert (await running.client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError):
        await running.client.models.retrieve("other")
    assert (await get(running, "/health")) == (200, '{"status":"ok"}')
    assert (await get(running, "/v1/completions"))[0] == 405


async def test_metrics(running: Running) -> None:
    await running.client.chat.completions.create(model=MODEL, messages=HI)
    await post(running, "/v1/completions", b"{")
    status, text = await get(running, "/metrics")
    assert status == 200
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    expected = {
        "headrace_llm_num_requests_running": 0,
        "headrace_llm_num_requests_waiting": 0,
        "headrace_llm_kv_cache_usage_perc": 0,
        "headrace_llm_prompt_tokens_total": PROMPT_TOKENS,
        "headrace_llm_generation_tokens_total": ANSWER_TOKENS,
        "headrace_llm_num_preemptions_total": 0,
        "headrace_llm_engine_steps_total": ANSWER_TOKENS,
        'headrace_llm_request_finished_total{finished_reason="stop"}': 1,
        'headrace_llm_request_refused_total{code="invalid_json"}': 1,
        "headrace_llm_time_to_first_token_seconds_count": 1,
        "headrace_llm_e2e_request_latency_seconds_count": 1,
        "headrace_llm_request_queue_time_seconds_count": 1,
        'headrace_llm_inter_token_latency_seconds_bucket{le="+Inf"}': ANSWER_TOKENS - 1,
        "vllm:num_requests_running": 0,
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0,
        "vllm:prefix_cache_queries_total": PROMPT_TOKENS,
    }
    assert {name: float(values[name]) for name in expected} == expected
    report = signals.read(text.encode(), "auto")
    assert report is not None
    assert (report.running, report.waiting, report.cache) == (0, 0, 0)
    assert report.block_size > 0
    assert report.blocks > 0


async def test_many_at_once(running: Running) -> None:
    async def complete(i: int) -> str:
        if i % 2:
            answer = await running.client.chat.completions.create(model=MODEL, messages=HI)
            return answer.choices[0].message.content or ""
        stream = await running.client.chat.completions.create(model=MODEL, messages=HI, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert await asyncio.gather(*map(complete, range(32))) == [TEXT] * 32
