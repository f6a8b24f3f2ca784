"""Sampling and log probabilities through the API with OpenAI's own client; the model is a table of logits."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from openai.types.chat.chat_completion_token_logprob import ChatCompletionTokenLogprob

from runtimes.llm.engine.model_runner import ModelRunner
from tests.runtimes.llm.server_fixtures import HI, MODEL, PROMPT_TOKENS, TEXT, Running, post, serving, until_idle
from tests.support.byte_tokenizer import byte_tokenizer
from tests.support.speaker import PROMPT, SPEAKER, Speaker


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serving(runner=ModelRunner(Speaker(TEXT, after=len(PROMPT)))) as running:
        yield running


@pytest.fixture
async def chatting() -> AsyncIterator[Running]:
    async with serving(runner=ModelRunner(Speaker(TEXT, after=PROMPT_TOKENS))) as running:
        yield running


def ids_of(text: bytes) -> list[int]:
    return byte_tokenizer().encode(text.decode())


# ── log-probabilities ─────────────────────────────────────────────────────────────────────────────────


async def chat_tokens(running: Running, stream: bool, **fields: Any) -> tuple[str, list[ChatCompletionTokenLogprob]]:
    request: dict[str, Any] = {"model": MODEL, "messages": HI, "temperature": 0, "logprobs": True, **fields}
    if not stream:
        [choice] = (await running.client.chat.completions.create(**request)).choices
        return choice.message.content or "", choice.logprobs.content or []
    text = ""
    tokens: list[ChatCompletionTokenLogprob] = []
    async for chunk in await running.client.chat.completions.create(**request, stream=True):
        [part] = chunk.choices
        text += part.delta.content or ""
        tokens += (part.logprobs and part.logprobs.content) or []
    return text, tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_has_logprobs_of_each_token(chatting: Running, stream: bool) -> None:
    speaker = Speaker(TEXT, after=PROMPT_TOKENS)
    text, tokens = await chat_tokens(chatting, stream, top_logprobs=3)
    assert text == TEXT
    assert bytes([byte for token in tokens for byte in token.bytes or ()]) == TEXT.encode()
    ids = ids_of(TEXT.encode())
    for place, (token, token_id) in enumerate(zip(tokens, ids, strict=True), PROMPT_TOKENS):
        assert token.logprob == pytest.approx(speaker.logprob(place, token_id), abs=1e-5)
        best = speaker.likeliest(place, 3)
        assert [other.logprob for other in token.top_logprobs] == pytest.approx(
            [speaker.logprob(place, other) for other in best], abs=1e-5
        )
        assert token.top_logprobs[0].token == token.token
    named = {token.token for token in tokens}
    assert {"H", "\\xc3", "\\xb6", "\\xf0", "\\x9f", "\\x98", "\\x80"} <= named  # what is no text alone


@pytest.mark.parametrize("stream", [False, True])
async def test_text_after_a_stop_string_has_no_logprobs(chatting: Running, stream: bool) -> None:
    text, tokens = await chat_tokens(chatting, stream, stop=["wörld"])
    assert (text, "".join(token.token for token in tokens)) == ("Hello, ", "Hello, ")
    assert [token.top_logprobs for token in tokens] == [[]] * 7
    fields = {"stop": ["wörld"], "extra_body": {"include_stop_str_in_output": True}}
    text, tokens = await chat_tokens(chatting, stream, **fields)
    assert text == "Hello, wörld"
    assert len(tokens) == len(text.encode())
    text, tokens = await chat_tokens(chatting, stream, stop=["Z"], max_tokens=9)  # ends within a character
    assert (text, len(tokens)) == ("Hello, w\ufffd", 9)


async def test_logprobs_are_absent_unless_requested(chatting: Running) -> None:
    answer = await chatting.client.chat.completions.create(model=MODEL, messages=HI, temperature=0)
    assert answer.choices[0].logprobs is None
    completion = await chatting.client.completions.create(model=MODEL, prompt="abc", temperature=0)
    assert completion.choices[0].logprobs is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("count", [0, 2, 20])
async def test_a_completion_has_logprobs_of_each_token(running: Running, stream: bool, count: int) -> None:
    request: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 40, "logprobs": count}
    if stream:
        chunks = [chunk async for chunk in await running.client.completions.create(**request, stream=True)]
        parts = [chunk.choices[0] for chunk in chunks]
    else:
        parts = (await running.client.completions.create(**request)).choices
    parts_with_logprobs = [part.logprobs for part in parts if part.logprobs is not None]
    assert "".join(part.text for part in parts) == TEXT
    tokens = [token for one in parts_with_logprobs for token in one.tokens or ()]
    offsets = [offset for one in parts_with_logprobs for offset in one.text_offset or ()]
    logprobs = [logprob for one in parts_with_logprobs for logprob in one.token_logprobs or ()]
    tops = [top for one in parts_with_logprobs for top in one.top_logprobs or ()]
    ids = ids_of(TEXT.encode())
    assert len(tokens) == len(ids)
    assert tokens[8:10] == ["bytes:\\xc3", "bytes:\\xb6"]
    assert offsets == [len(TEXT.encode()[:place].decode(errors="ignore")) for place in range(len(ids))]
    for place, token_id in enumerate(ids):
        assert logprobs[place] == pytest.approx(SPEAKER.logprob(place + 3, token_id), abs=1e-5)
        assert tops[place][tokens[place]] == logprobs[place]
        assert len(tops[place]) == max(count, 1)  # the best token is the generated one


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", [PROMPT, [97, 98, 99]])
async def test_an_echo_has_logprobs_of_the_prompt_too(running: Running, prompt: Any, stream: bool) -> None:
    """Only the prompt has logprobs if no token is generated."""
    prompt = ids_of(PROMPT.encode()) if isinstance(prompt, list) else prompt
    ids = ids_of((PROMPT + TEXT).encode())
    for max_tokens, text in ((0, PROMPT), (2, PROMPT + "He")):
        request: dict[str, Any] = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": max_tokens}
        request |= {"logprobs": 2, "echo": True}
        if stream:
            parts = [
                chunk.choices[0] async for chunk in await running.client.completions.create(**request, stream=True)
            ]
        else:
            answer = await running.client.completions.create(**request)
            parts = answer.choices
            assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, max_tokens)
        assert "".join(part.text for part in parts) == text
        assert parts[-1].finish_reason == "length"
        parts_with_logprobs = [part.logprobs for part in parts if part.logprobs is not None]
        assert [token for one in parts_with_logprobs for token in one.tokens or ()] == list(text)
        assert [offset for one in parts_with_logprobs for offset in one.text_offset or ()] == list(range(len(text)))
        logprobs = [logprob for one in parts_with_logprobs for logprob in one.token_logprobs or ()]
        assert logprobs[0] is None
        expected = [SPEAKER.logprob(place, ids[place]) for place in range(1, len(text))]
        assert logprobs[1:] == pytest.approx(expected, abs=1e-5)
        tops = [top for one in parts_with_logprobs for top in one.top_logprobs or ()]
        assert tops[0] is None
        assert all(2 <= len(top) <= 3 for top in tops[1:])
    await until_idle(running.engine)


async def test_an_echo_alone(running: Running) -> None:
    for prompt in ("abc", "<|im_start|>ö"):
        answer = await running.client.completions.create(model=MODEL, prompt=prompt, max_tokens=0, echo=True)
        assert (answer.choices[0].text, answer.choices[0].logprobs) == (prompt, None)
    answer = await running.client.completions.create(model=MODEL, prompt=[256, 65], max_tokens=0, echo=True)
    assert answer.choices[0].text == "<|im_start|>" + byte_tokenizer().decode([65])
    answer = await running.client.completions.create(
        model=MODEL, prompt="abc", max_tokens=40, echo=True, temperature=0, stop=["b", "w"]
    )
    assert answer.choices[0].text == "abcHello, "  # stop strings do not apply to the prompt


async def test_the_prompts_logprobs_are_equal_in_chunks_and_from_cached_pages() -> None:
    """The prompt is longer than a step, and another request has left it in the prefix cache."""
    prompt = list(range(65, 91)) * 6
    async with serving(runner=ModelRunner(SPEAKER), prefix_cache=True, max_batched=48) as running:
        request: dict[str, Any] = {"model": MODEL, "prompt": prompt, "max_tokens": 0}
        await running.client.completions.create(**(request | {"max_tokens": 2}))
        answer = await running.client.completions.create(**request, echo=True, logprobs=0)
    logprobs = answer.choices[0].logprobs
    expected = [SPEAKER.logprob(place, token) for place, token in enumerate(prompt)]
    assert logprobs.token_logprobs[1:] == pytest.approx(expected[1:], abs=1e-5)


async def test_the_best_of_several_is_returned(running: Running) -> None:
    request: dict[str, Any] = {"model": MODEL, "prompt": ["abc", "xyz"], "max_tokens": 6, "seed": 5, "logprobs": 0}
    every = await running.client.completions.create(**request, n=4)
    best = await running.client.completions.create(**request, n=2, best_of=4)

    def mean(choice: Any) -> float:
        return float(sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs))

    ranked = [sorted(every.choices[at : at + 4], key=mean, reverse=True)[:2] for at in (0, 4)]
    assert [choice.text for choice in best.choices] == [choice.text for pair in ranked for choice in pair]
    assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in every.choices[:4]}) > 1
    assert best.usage.completion_tokens == 2 * 4 * 6
    one = await running.client.completions.create(model=MODEL, prompt="abc", max_tokens=6, seed=5, best_of=4)
    assert one.choices[0].text == best.choices[0].text
    assert one.choices[0].logprobs is None


# ── chosen tokens ─────────────────────────────────────────────────────────────────────────────────────


async def completed(running: Running, **fields: Any) -> tuple[str, str]:
    request: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 30} | fields
    status, _, answer = await post(running, "/v1/completions", request)
    assert status == 200, answer
    return answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]


async def test_bias_penalties_and_stops_change_the_text(running: Running) -> None:
    [ell, zed] = byte_tokenizer().encode("lz")
    assert await completed(running) == (TEXT, "stop")
    assert await completed(running, logit_bias={str(zed): 100}, max_tokens=4) == ("zzzz", "length")
    without, _ = await completed(running, logit_bias={str(ell): -100})
    assert "l" not in without
    assert await completed(running, stop_token_ids=[ell]) == ("He", "stop")
    assert await completed(running, stop_token_ids=[ell], include_stop_str_in_output=True) == ("Hel", "stop")
    longer, reason = await completed(running, min_tokens=28)
    assert longer.startswith(TEXT)
    assert longer != TEXT
    assert reason in ("stop", "length")
    assert await completed(running, stop=["l"], min_tokens=4) == ("Hello, wör", "stop")


async def test_penalties_count_the_answer_and_a_repetition_penalty_the_prompt_too(running: Running) -> None:
    [zed] = byte_tokenizer().encode("z")
    bias = {str(zed): 12}
    assert (await completed(running, logit_bias=bias, max_tokens=4))[0] == "zzzz"
    once, _ = await completed(
        running, logit_bias={str(zed): 6.5}, presence_penalty=2, frequency_penalty=2, max_tokens=30
    )
    often, _ = await completed(running, logit_bias={str(zed): 6.5}, max_tokens=30)
    assert once.count("z") < often.count("z")
    prompt = byte_tokenizer().encode("zbc")
    fields = {"logit_bias": bias, "repetition_penalty": 100.0, "max_tokens": 3}
    assert "z" in (await completed(running, **fields))[0]  # until it has come
    assert "z" not in (await completed(running, **fields, prompt=prompt))[0]


async def test_a_row_that_fails_ends_alone(running: Running) -> None:
    """Its logits are NaN; its neighbours in the batch do not notice."""
    fields = {"model": MODEL, "max_tokens": 30, "temperature": 1.0, "seed": 3, "top_p": 0.9}
    alone, _ = await completed(running, **fields)
    pending = [post(running, "/v1/completions", fields | {"prompt": prompt}) for prompt in ("abc", "!bc", "abc")]
    first, broken, last = await asyncio.gather(*pending)
    assert broken[0] == 500
    assert "nan" in broken[2]["error"]["message"]
    assert [answer["choices"][0]["text"] for _, _, answer in (first, last)] == [alone, alone]
    status, _, _ = await post(running, "/v1/completions", fields | {"prompt": "!bc", "stream": True})
    assert status == 500
    await until_idle(running.engine)
    assert await completed(running) == (TEXT, "stop")


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 1.5, "seed": 8, "presence_penalty": 1.5, "frequency_penalty": 0.7},
        {"temperature": 0, "repetition_penalty": 1.8},
        {"temperature": 1.2, "seed": 9, "min_p": 0.01, "top_k": 40, "min_tokens": 20, "stop": ["l", "z"]},
    ],
    ids=str,
)
async def test_a_continued_answer_counts_its_earlier_tokens(running: Running, how: Any) -> None:
    """An answer that is continued from any token equals the unbroken one."""
    request = {"model": MODEL, "prompt": PROMPT, "max_tokens": 24, "stream": True} | how
    whole = await streamed_pieces(running, **request, return_token_ids=True)
    for cut in range(1, len(whole)):
        ids = [token_id for _, token_ids in whole[:cut] for token_id in token_ids]
        rest = await streamed_pieces(running, **request, continue_token_ids=ids)
        assert "".join(text for text, _ in whole[:cut] + rest) == "".join(text for text, _ in whole)


async def streamed_pieces(running: Running, **request: Any) -> list[tuple[str, list[int]]]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{running.url}/v1/completions", json=request) as response,
    ):
        events = (await response.read()).split(b"\n\n")
    choices = [json.loads(event.removeprefix(b"data: "))["choices"][0] for event in events if b"{" in event]
    return [(choice["text"], choice.get("token_ids", [])) for choice in choices]
