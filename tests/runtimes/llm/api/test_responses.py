"""`/v1/responses` over a real socket, with OpenAI's own client; the model is a Parrot."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import aiohttp
import openai
import pytest
from pydantic import BaseModel, Field

from runtimes.llm.engine.model_runner import ModelRunner
from tests.runtimes.llm.babbler import Babbler
from tests.runtimes.llm.server_fixtures import (
    ANSWER_TOKENS,
    HI,
    MODEL,
    PROMPT_TOKENS,
    TEXT,
    Running,
    post,
    serving,
    until_idle,
)
from tests.support.cases import cases
from tests.support.speaker import Speaker

OF_A_TEXT = [
    "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    *["response.output_text.delta"] * len(TEXT),
    "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
]  # fmt: skip


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serving(TEXT) as running:
        yield running


async def test_a_whole_answer(running: Running) -> None:
    answer = await running.client.responses.create(model=MODEL, input="hi", metadata={"of": "a test"})
    assert (answer.object, answer.status, answer.model) == ("response", "completed", MODEL)
    assert answer.output_text == TEXT
    assert answer.metadata == {"of": "a test"}
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (PROMPT_TOKENS, ANSWER_TOKENS)
    assert answer.usage.total_tokens == PROMPT_TOKENS + ANSWER_TOKENS


async def test_a_conversation_is_the_chat_of_its_items(running: Running) -> None:
    """Its prompt is as long as the chat's."""
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "yes", "annotations": []}],
        },
        {"role": "user", "content": "more"},
    ]
    answer = await running.client.responses.create(model=MODEL, instructions="Be brief.", input=items)
    chat = await running.client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "more"},
        ],
    )
    assert answer.usage.input_tokens == chat.usage.prompt_tokens


async def test_a_stream_has_all_its_events_in_order(running: Running) -> None:
    async with running.client.responses.stream(model=MODEL, input="hi") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    # The client adds nothing to them, and takes them for what they are.
    assert [event.type for event in events] == OF_A_TEXT
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert final.output_text == TEXT
    assert (final.usage.input_tokens, final.usage.output_tokens) == (PROMPT_TOKENS, ANSWER_TOKENS)


async def test_log_probabilities_are_those_of_the_chat() -> None:
    async with serving(runner=ModelRunner(Speaker(TEXT, after=PROMPT_TOKENS))) as running:
        request: Any = {"model": MODEL, "input": "hi", "temperature": 0, "top_logprobs": 2}
        request["include"] = ["message.output_text.logprobs"]
        chat = await running.client.chat.completions.create(
            model=MODEL, messages=HI, temperature=0, logprobs=True, top_logprobs=2
        )
        expected = [(one.token, one.logprob) for one in chat.choices[0].logprobs.content or []]
        assert expected
        answer: Any = await running.client.responses.create(**request)
        logprobs = answer.output[0].content[0].logprobs
        assert [(one.token, one.logprob) for one in logprobs] == expected
        assert [len(one.top_logprobs) for one in logprobs] == [2] * len(logprobs)
        stream: Any = await running.client.responses.create(**request, stream=True)
        deltas = [event async for event in stream if event.type == "response.output_text.delta"]
        streamed = [(one.token, one.logprob) for event in deltas for one in event.logprobs]
        assert streamed == expected[: len(streamed)]
        assert len(streamed) >= len(TEXT)


async def test_an_answer_that_is_cut_is_incomplete(running: Running) -> None:
    answer = await running.client.responses.create(model=MODEL, input="hi", max_output_tokens=5)
    assert (answer.status, answer.output_text) == ("incomplete", TEXT[:5])
    assert answer.incomplete_details.reason == "max_output_tokens"
    stream = await running.client.responses.create(model=MODEL, input="hi", max_output_tokens=5, stream=True)
    assert [event.type async for event in stream][-1] == "response.incomplete"


async def test_a_break_ends_in_a_failure() -> None:
    async with serving(TEXT, fails_after=4) as running:
        stream = await running.client.responses.create(model=MODEL, input="hi", stream=True)
        events = [event async for event in stream]
        assert events[-1].type == "response.failed"
        assert events[-1].response.status == "failed"
        assert "engine" in events[-1].response.error.message
        assert 0 < sum([event.type == "response.output_text.delta" for event in events]) <= 4


async def test_a_failure_before_the_first_text_has_a_status() -> None:
    async with serving(TEXT, fails_after=0) as running:
        with pytest.raises(openai.InternalServerError):
            await running.client.responses.create(model=MODEL, input="hi", stream=True)


async def test_a_client_that_leaves_frees_the_engine(running: Running) -> None:
    async with aiohttp.ClientSession() as session:
        body = json.dumps({"model": MODEL, "input": "hi", "stream": True, "ignore_eos": True})
        headers = {"content-type": "application/json"}
        async with session.post(f"{running.url}/v1/responses", data=body, headers=headers) as response:
            await response.content.readuntil(b"output_text.delta")
    async with asyncio.timeout(300):
        await until_idle(running.engine)


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        *cases(__file__, "wrong fields"),
        ({"input": "x" * 50_000}, 400, "input"),
    ],
)
async def test_wrong_fields_are_refused_by_the_names_of_responses(
    running: Running, change: dict[str, Any], status: int, param: str
) -> None:
    got, _, refusal = await post(running, "/v1/responses", {"model": MODEL, "input": "hi"} | change)
    assert (got, refusal["error"]["param"]) == (status, param)
    assert refusal["error"].keys() == {"message", "type", "param", "code"}


async def test_fields_for_other_servers_are_ignored(running: Running) -> None:
    other = {"store": True, "tools": [{"type": "web_search"}], "odd": 1}
    status, headers, _ = await post(running, "/v1/responses", {"model": MODEL, "input": "hi", **other})
    assert (status, headers["x-headrace-ignored"]) == (200, "store, odd, web_search")


async def test_malformed_bodies_are_refused(running: Running) -> None:
    assert (await post(running, "/v1/responses", b"{"))[0] == 400
    assert (await post(running, "/v1/responses", b"{}", **{"content-type": "text/plain"}))[0] == 415


class Pet(BaseModel):
    name: Annotated[str, Field(max_length=8)]
    kind: Literal["cat", "dog"]


@pytest.mark.processes
async def test_an_answer_has_the_requested_form() -> None:
    """The model generates random text, so that some answers may be cut by their length."""
    async with serving(runner=Babbler(3)) as running:
        parsed = []
        for _ in range(4):
            answer = await running.client.responses.parse(model=MODEL, input="hi", text_format=Pet, temperature=0.5)
            assert answer.text.format.type == "json_schema"
            if answer.status == "completed":
                parsed.append(answer.output_parsed)
        assert parsed
        assert all(isinstance(one, Pet) for one in parsed)
        wrong = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "no such type"}}}
        body = {"model": MODEL, "input": "hi", "text": wrong}
        status, _, refusal = await post(running, "/v1/responses", body)
        assert (status, refusal["error"]["param"]) == (400, "text.format")
