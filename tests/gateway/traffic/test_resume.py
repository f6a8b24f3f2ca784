import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from adapters.errors import BackendError, CallerError, DeadlineError, InferenceError, TransportError, UpstreamTimeout
from adapters.fake import FakeAdapter
from adapters.requests import GenerateRequest
from adapters.types import Usage
from adapters.wire.openai import chat as wire
from policies.retry import MOST_RESUMES
from tests.support.gateways import Rig, chat, config
from tests.support.talkers import PROMPT, StreamTranscript, Talker, talkers

TOKENS = ["Ri", "vers", " run", " “down", "”", " 😀", '"', "\n\n", " to", " the", " sea", "."]
TEXT = "".join(TOKENS)
MODES = pytest.mark.parametrize("mode", ["text", "tokens"])


def rig(mode: str | None, *fakes: FakeAdapter, **route: Any) -> Rig:
    pool = {
        "name": "main",
        "endpoints": [f"http://127.0.0.1:{9 + i}" for i in range(len(fakes))],
        "breaker": {"failures": 1000},
        "resume": mode,
    }
    route = {"to": "main", "retry": {"attempts": 2, "budget": "100%"}, **route}
    return Rig(config(pools=[pool], models=[{"name": "chat", "routes": [route]}]), {"main": list(fakes)})


def completion(**fields: Any) -> GenerateRequest:
    return wire.decode_completion(wire._encode({"model": "chat", "prompt": "Once", "stream": True, **fields}))


async def receive(one: Rig, request: GenerateRequest) -> tuple[StreamTranscript, Any, InferenceError | None]:
    """The stream to its end, whole or broken, and its record."""
    record, pieces = one.record(), list[bytes]()
    answer = await one.core.handle(one.principal, request, {}, record)
    while True:
        try:
            pieces.append(await answer.__anext__())
        except StopAsyncIteration:
            return StreamTranscript(b"".join(pieces)), record, None
        except InferenceError as error:
            return StreamTranscript(b"".join(pieces)), record, error


@MODES
@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_wherever_it_breaks_the_client_gets_the_same_stream(mode: str, kind: str) -> None:
    for cut in range(kind == "completion", len(TOKENS) + 1):
        one = rig(mode, *talkers(2, TOKENS, cut))
        options: dict[str, Any] = {"stream_options": {"include_usage": True}, "max_tokens": 50}
        request = chat(stream=True, **options) if kind == "chat" else completion(**options)
        transcript, record, error = await receive(one, request)
        assert (transcript.text, transcript.reasons, transcript.done, error) == (TEXT, ["stop"], True, None), cut
        assert transcript.usage[0]["prompt_tokens"] == PROMPT
        assert transcript.usage[0]["completion_tokens"] == len(TOKENS)
        assert record.usage == Usage(PROMPT, len(TOKENS), exact=True)
        assert record.trace.events == (("resume", "main"),)
        assert len(record.trace.attempts) == 2
        assert one.log.lines[0].resumed == 1
        assert 'headrace_resumes_total{pool="main"} 1.0' in generate_latest(one.metrics.registry).decode()
        one.assert_idle()


@settings(max_examples=40)
@given(
    tokens=st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=8),
    breaks=st.lists(st.none() | st.integers(0, 8), min_size=3, max_size=3),
    mode=st.sampled_from(["text", "tokens"]),
    limit=st.none() | st.integers(1, 9),
    leaves=st.none() | st.integers(0, 12),
)
async def test_any_breaks_any_limit_any_client(
    tokens: list[str], breaks: Sequence[int | None], mode: str, limit: int | None, leaves: int | None
) -> None:
    """The text is a prefix of the unbroken text, and all of it after a normal end; every reservation is released."""

    one = rig(mode, *talkers(3, tokens, *breaks, gap=1.0))
    unbroken = "".join(tokens[:limit])
    record = one.record()
    answer = await one.core.handle(one.principal, chat(stream=True, max_tokens=limit), {}, record)
    pieces: list[bytes] = []
    try:
        while leaves is None or len(pieces) < leaves:
            pieces.append(await answer.__anext__())
    except (StopAsyncIteration, InferenceError):
        pass
    await answer.aclose()
    transcript = StreamTranscript(b"".join(pieces))
    assert unbroken.startswith(transcript.text)
    assert not transcript.done or transcript.text == unbroken
    if record.error is None:
        assert record.usage == Usage(PROMPT, len(tokens[:limit]), exact=True)
    assert sum(event == "resume" for event, _ in record.trace.events) <= MOST_RESUMES
    assert len(one.log.records) == 1
    one.assert_idle()


@MODES
async def test_a_stream_is_carried_on_twice_at_most(mode: str) -> None:
    fakes = talkers(4, TOKENS, 2, 2, 2)
    one = rig(mode, *fakes)
    transcript, record, error = await receive(one, chat(stream=True))
    assert isinstance(error, TransportError)
    assert (transcript.text, transcript.done) == ("".join(TOKENS[:6]), False)
    assert record.trace.events == (("resume", "main"),) * MOST_RESUMES
    assert record.usage is not None
    assert record.usage.completion_tokens >= 6
    assert max(len(fake.calls) for fake in fakes) == 1  # each attempt at another endpoint
    one.assert_idle()


@MODES
@pytest.mark.parametrize(
    ("fault", "carried_on"),
    [
        (TransportError("x"), True),
        (UpstreamTimeout("x"), True),
        (BackendError("x"), True),
        (DeadlineError("x"), False),
        (CallerError("x"), False),
    ],
)
async def test_only_breaks_of_the_upstream_are_resumed(mode: str, fault: InferenceError, carried_on: bool) -> None:
    one = rig(mode, *talkers(2, TOKENS, 3, fault=fault))
    transcript, _, error = await receive(one, chat(stream=True))
    assert transcript.done is carried_on
    assert error is (None if carried_on else fault)
    one.assert_idle()


@MODES
@pytest.mark.parametrize(
    ("fields", "cut"),
    [
        ({"n": 2}, 3),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 3),
        ({"logprobs": True}, 3),
        ({"response_format": {"type": "json_object"}}, 3),
        ({"add_generation_prompt": False}, 3),
        ({"continue_final_message": True}, 3),
        ({"return_token_ids": True}, 3),
        ({}, len(TOKENS) + 1),  # nothing is added to an answer that has ended
    ],
    ids=str,
)
async def test_a_stream_that_cannot_be_resumed_ends_with_its_break(mode: str, fields: dict[str, Any], cut: int) -> None:
    one = rig(mode, *talkers(2, TOKENS, cut))
    record = one.record()
    answer = await one.core.handle(one.principal, chat(stream=True, **fields), {}, record)
    with pytest.raises(TransportError):
        [piece async for piece in answer]
    assert record.trace.events == ()
    one.assert_idle()


@MODES
@pytest.mark.parametrize(
    "fields", [{"tools": [], "n": 1, "logprobs": False}, {"response_format": {"type": "text"}, "tools": None}], ids=str
)
async def test_a_plain_request_is_resumed(mode: str, fields: dict[str, Any]) -> None:
    one = rig(mode, *talkers(2, TOKENS, 3))
    transcript, _, _ = await receive(one, chat(stream=True, **fields))
    assert transcript.text == TEXT
    one.assert_idle()


@MODES
async def test_without_a_resuming_endpoint_the_first_break_is_reported(mode: str) -> None:
    one = rig(mode, *talkers(2, TOKENS, 3, gap=1.0), retry={"attempts": 1})
    task = asyncio.create_task(receive(one, chat(stream=True)))
    await asyncio.sleep(2)
    for endpoint in one.endpoints["main"]:
        endpoint.probed("down", healthy_after=1, unhealthy_after=1)
    transcript, record, error = await task
    assert isinstance(error, TransportError)
    assert transcript.text == "".join(TOKENS[:3])
    assert record.trace.events == (("resume_failure", "main"),)
    assert record.usage is not None
    assert record.usage.completion_tokens >= 3
    one.assert_idle()


async def test_the_resumed_request_has_the_remaining_length() -> None:
    text = talkers(2, TOKENS, 3)
    one = rig("text", *text)
    transcript, _, _ = await receive(one, chat(stream=True, max_tokens=5, min_tokens=4, temperature=0))
    assert (transcript.text, transcript.reasons) == ("".join(TOKENS[:5]), ["length"])
    rest = next(fields for fake in text for fields in fake.received if fields.get("continue_final_message"))
    assert (rest["max_tokens"], rest["min_tokens"], rest["temperature"]) == (2, 1, 0)
    assert rest["messages"][-1] == {"role": "assistant", "content": "".join(TOKENS[:3])}
    tokens = talkers(2, TOKENS, 3)
    two = rig("tokens", *tokens)
    transcript, _, _ = await receive(two, chat(stream=True, max_tokens=5))
    assert (transcript.text, transcript.reasons) == ("".join(TOKENS[:5]), ["length"])
    rest = next(fields for fake in tokens for fields in fake.received if fields.get("continue_token_ids"))
    assert (rest["max_tokens"], rest["continue_token_ids"]) == (5, [0, 1, 2])


async def test_an_answer_that_reached_its_limit_is_not_resumed() -> None:
    """All allowed tokens arrived and only the end is missing: no engine reported the finish reason."""
    one = rig("text", *talkers(2, TOKENS, 5))
    transcript, _, error = await receive(one, chat(stream=True, max_tokens=5))
    assert isinstance(error, TransportError)
    assert (transcript.text, transcript.done) == ("".join(TOKENS[:5]), False)
    two = rig("tokens", *talkers(2, TOKENS, 5))
    transcript, _, error = await receive(two, chat(stream=True, max_tokens=5))
    assert (transcript.reasons, error) == (["length"], None)


async def test_without_resume_nothing_is_buffered_and_a_break_is_reported() -> None:
    one = rig(None, *talkers(2, TOKENS, 3))
    transcript, record, error = await receive(one, chat(stream=True))
    assert (transcript.text, record.trace.events) == ("".join(TOKENS[:3]), ())
    assert isinstance(error, TransportError)


@MODES
async def test_a_client_that_leaves_while_the_rest_is_awaited_cancels_it(mode: str) -> None:
    slow = talkers(2, TOKENS, 2, gap=1.0)
    one = rig(mode, *slow)
    record = one.record()
    answer = await one.core.handle(one.principal, chat(stream=True), {}, record)
    for fake in slow:
        fake.latency = 50.0

    async def read() -> None:
        async for _ in answer:
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert record.status == 499
    assert record.usage is not None
    assert record.usage.completion_tokens >= 2
    one.assert_idle()


@MODES
async def test_an_endpoint_with_many_streams_dies_and_all_are_carried_on(mode: str) -> None:
    """However long ago they began: the budget counts streams that are open."""
    many = 60
    first, second = Talker(TOKENS, *[5] * many, name="e0", gap=20.0), Talker(TOKENS, name="e1", gap=20.0)
    one = rig(mode, first, second)
    ends = await asyncio.gather(*(receive(one, chat(stream=True)) for _ in range(many)))
    assert [transcript.text for transcript, _, _ in ends] == [TEXT] * many
    broken = sum(bool(record.trace.events) for _, record, _ in ends)
    assert broken == len(first.calls) > 10
    one.assert_idle()


@MODES
async def test_endpoints_that_keep_dying_are_not_stormed(mode: str) -> None:
    """Each stream breaks wherever it goes: together they come back as often as there are streams, and three."""
    many = 40
    fakes = [Talker(TOKENS, *[1] * 500, name=f"e{i}") for i in range(3)]
    one = rig(mode, *fakes)
    await asyncio.gather(*(receive(one, chat(stream=True)) for _ in range(many)))
    assert many < sum(len(fake.calls) for fake in fakes) <= many + many + 3
    one.assert_idle()


async def test_the_pool_behind_is_another_model_and_does_not_carry_on() -> None:
    pools = [
        {"name": "main", "endpoints": ["http://127.0.0.1:9", "http://127.0.0.1:10"], "resume": "text"},
        {"name": "spare", "endpoints": ["http://127.0.0.1:9"]},
    ]
    spare = Talker(TOKENS)
    models = [{"name": "chat", "routes": [{"to": "main", "fallback": ["spare"]}]}]
    main: list[FakeAdapter] = [*talkers(2, TOKENS, 3, 3, 3)]
    one = Rig(config(pools=pools, models=models), {"main": main, "spare": [spare]})
    _, _, error = await receive(one, chat(stream=True))
    assert isinstance(error, TransportError)
    assert spare.calls == []
    one.assert_idle()
