"""Streams behind guards that judge: nothing leaves before its window is judged, however the stream is cut."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.errors import ContentFiltered
from adapters.fake import FakeAdapter, Script
from gateway.features.guards.judged import JudgedText
from gateway.features.guards.judges.base import MOST_WHOLE
from gateway.features.guards.judges.panel import Panel
from tests.support.cut_streams import PARTS, cuts_of, event, events_of, script, texts_of
from tests.support.gateways import Rig, config
from tests.support.guarding import BODIES, received
from tests.support.judging import BY_CHAT, Judging, judged, prompt_of

STREAMED = [path for path in BODIES if "generateContent" not in path]
SMALL = {"window": 4, "overlap": 2}
"""Windows of 16 characters, so that a text has many."""
BEFORE, AFTER = "there are so many words before it, ", ", and so may this"


def grown(body: str) -> str:
    """The texts of the deltas of a stream, joined."""
    deltas = [each for each in events_of(body) if "type" not in each or "delta" in each["type"]]
    return "".join(text for each in deltas for text in texts_of(each))


@pytest.mark.parametrize("part", ["content", "reasoning_content", "arguments"])
@pytest.mark.parametrize("path", STREAMED)
async def test_no_letter_of_a_judged_window_leaves(path: str, part: str) -> None:
    text = BEFORE + "Zebra" + AFTER
    written = json.dumps({"q": text}) if part == "arguments" else text
    scripts = [script(cut, PARTS[part]) for cut in cuts_of(written, seed=len(part))]
    one = judged(FakeAdapter(*scripts), Judging(), {**BY_CHAT, **SMALL, "on": ["answer"]})
    for _, body, _ in await received(one, path, len(scripts), stream=True):
        assert "content_filter" in body or "blocked" in body
        assert "ebra" not in body
        assert "so may this" not in body
    one.assert_idle()


@pytest.mark.parametrize("path", STREAMED)
async def test_harmless_streams_are_the_same(path: str) -> None:
    text = BEFORE + "horse" + AFTER
    scripts = [script(cut, PARTS["content"]) for cut in cuts_of(text, seed=1)]
    one = judged(FakeAdapter(*scripts), Judging(), {**BY_CHAT, **SMALL})
    for _, body, _ in await received(one, path, len(scripts), stream=True):
        assert grown(body) == text
    one.assert_idle()


async def test_text_leaves_when_its_window_is_judged() -> None:
    """The first text leaves while the server still writes."""
    text = BEFORE + "horse" + AFTER
    made = script([text[at : at + 4] for at in range(0, len(text), 4)], PARTS["content"])
    judge = Judging()
    one = judged(FakeAdapter(made), judge, {**BY_CHAT, **SMALL, "on": ["answer"]})
    ((_, body, _),) = await received(one, "/v1/chat/completions", stream=True)
    deltas = [text for each in events_of(body) for text in texts_of(each) if text]
    assert len(deltas) > 5
    assert all(len(text) <= 16 for text in judge.texts)


@pytest.mark.parametrize("path", STREAMED)
@pytest.mark.parametrize(("text", "passes"), [('{"n": 31, "m": [2]}', True), ('{"n": "31", "m": []}', False)])
async def test_a_schema_holds_the_content_to_its_end(path: str, text: str, *, passes: bool) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    scripts = [script(cut, PARTS["content"]) for cut in cuts_of(text, seed=1) if len(cut) < 20]
    one = judged(FakeAdapter(*scripts), Judging(), {"name": "g", "kind": "schema", "json_schema": schema})
    for _, body, _ in await received(one, path, len(scripts), stream=True):
        assert grown(body) == (text if passes else "")
    one.assert_idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_judge_receives_the_arguments_of_a_tool_with_masks(*, stream: bool) -> None:
    hides = {"name": "m", "kind": "words", "words": ["bluebird"], "action": "mask"}
    judge = Judging()
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"q": "bluebird"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    made = script(['{"q": "blue', 'bird"}'], PARTS["arguments"])
    model = FakeAdapter(made if stream else Script(chunks=(json.dumps(whole).encode(),)))
    one = judged(model, judge, {**BY_CHAT, "on": ["answer"]}, hides)
    ((status, body, _),) = await received(one, "/v1/chat/completions", stream=stream)
    assert status == 200
    assert any("[…]" in text for text in judge.texts)
    assert not any("bluebird" in text for text in (*judge.texts, body))
    one.assert_idle()


async def test_a_call_of_a_tool_needs_no_schema() -> None:
    schema = {"type": "object", "required": ["n"]}
    made = script(['{"q": 1}'], PARTS["arguments"])
    one = judged(FakeAdapter(made), Judging(), {"name": "g", "kind": "schema", "json_schema": schema})
    ((_, body, _),) = await received(one, "/v1/chat/completions", stream=True)
    assert "content_filter" not in body


@pytest.mark.parametrize("change", [{"mode": "monitor"}, {"action": "warn"}])
@pytest.mark.parametrize("path", STREAMED)
async def test_guards_that_change_nothing_hold_nothing(path: str, change: dict[str, Any]) -> None:
    made = script([BEFORE, "zeb", "ra", AFTER], PARTS["content"])
    one = judged(FakeAdapter(made), Judging(), {**BY_CHAT, **SMALL, **change, "on": ["answer"]})
    ((_, body, _),) = await received(one, path, stream=True)
    assert grown(body) == BEFORE + "zebra" + AFTER
    if path == "/v1/chat/completions":
        assert body.encode() == b"".join(made.chunks)
    (count,) = (one.log.records[0].guards or {}).values()
    assert count == 1


async def test_a_model_that_fails_ends_the_stream() -> None:
    made = script([BEFORE, "horse", AFTER], PARTS["content"])
    one = judged(FakeAdapter(made), Judging(fails=True), {**BY_CHAT, **SMALL, "on": ["answer"]})
    ((status, body, _),) = await received(one, "/v1/chat/completions", stream=True)
    assert status == 502
    assert "there" not in body
    one.assert_idle()


async def test_a_client_that_leaves_leaves_nothing() -> None:
    chunks = (event(PARTS["content"](BEFORE)), event(PARTS["content"]("x" * 100)))
    judge = Judging(latency=30.0)
    one = judged(FakeAdapter(Script(chunks=chunks, gap=30.0)), judge, {**BY_CHAT, **SMALL, "on": ["answer"]})
    import asyncio

    import aiohttp

    from tests.support.gateways import listening

    async with listening(one) as url, aiohttp.ClientSession() as http:
        http.headers["authorization"] = f"Bearer {one.key.plaintext}"
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        request = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=body).__aenter__())
        async with asyncio.timeout(60):
            while not judge.in_flight:
                await asyncio.sleep(0.005)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await http.close()
        await one.until_idle()
        async with asyncio.timeout(60):
            while judge.in_flight:
                await asyncio.sleep(0.005)
    one.assert_idle()


class Plain:
    async def feed(self, text: str) -> str:
        return text

    async def end(self) -> str:
        return ""


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), text=st.text("abz ", max_size=120))
async def test_no_cut_lets_a_bad_text_leave(data: st.DataObject, text: str) -> None:
    """A text of at most the overlap and one character is whole in one window, so none of it leaves."""

    class Three(Panel):
        def __init__(self) -> None:
            self.judges, self.of_wholes, self.window, self.overlap = [], [], 8, 3
            self.acts, self.holds = True, False

        async def examine(self, texts: Any, *, whole: bool = False) -> None:
            if any("zzz" in each for each in texts):
                raise ContentFiltered("found")

    judged_text, out = JudgedText(Plain(), Three(), is_whole=False), ""
    at = 0
    try:
        while at < len(text):
            size = data.draw(st.integers(1, 20))
            out += await judged_text.feed(text[at : at + size])
            at += size
        out += await judged_text.end()
    except ContentFiltered:
        assert "zzz" in text
        assert len(out) <= text.index("zzz")
    else:
        assert out == text
        assert "zzz" not in text


class Whole(Panel):
    """Judges whole texts only."""

    def __init__(self, *, holds: bool) -> None:
        self.acts, self.holds = False, holds
        self.judges, self.of_wholes, self.window, self.overlap = [], [None], 0, 0  # type: ignore[list-item]
        self.texts: list[str] = []

    async def examine(self, texts: Any, *, whole: bool = False) -> None:
        self.texts += texts if whole else []


async def test_a_text_that_is_too_long_to_be_held_is_blocked() -> None:
    text = JudgedText(Plain(), Whole(holds=True), is_whole=True)
    assert await text.feed("x" * MOST_WHOLE) == ""
    with pytest.raises(ContentFiltered):
        await text.feed("x")
    panel = Whole(holds=False)
    seen = JudgedText(Plain(), panel, is_whole=True)
    assert len(await seen.feed("x" * MOST_WHOLE) + await seen.feed("x") + await seen.end()) == MOST_WHOLE + 1
    assert panel.texts == []


async def test_streams_of_gemini_are_judged() -> None:
    path = "/v1beta/models/chat:streamGenerateContent?alt=sse"
    fields = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    scripts = [script(cut, PARTS["content"]) for cut in cuts_of(BEFORE + "Zebra" + AFTER, seed=2)]
    one = judged(FakeAdapter(*scripts), Judging(), {**BY_CHAT, **SMALL, "on": ["answer"]})
    for _, body, _ in await received(one, path, len(scripts), **fields):
        assert "ebra" not in body
        assert "so may this" not in body
    one.assert_idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_pipelines_are_judged(*, stream: bool) -> None:
    made = script([BEFORE, "zeb", "ra", AFTER], PARTS["content"])
    choice = {"index": 0, "message": {"role": "assistant", "content": "a zebra"}, "finish_reason": "stop"}
    whole = Script(chunks=(json.dumps({"choices": [choice]}).encode(),))
    names = ("main", "judge")
    configuration = config(
        guards=[{**BY_CHAT, **SMALL}],
        pools=[{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in names],
        models=[
            *({"name": name, "routes": [{"to": name}]} for name in names),
            {"name": "chat", "guards": ["g"], "pipeline": {"steps": [{"name": "a", "model": "main"}]}},
        ],
    )
    one = Rig(configuration, {"main": [FakeAdapter(made if stream else whole)], "judge": [Judging()]})
    ((_, body, _),) = await received(one, "/v1/chat/completions", stream=stream)
    assert "content_filter" in body
    assert "ebra" not in body
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 400
    assert len(one.adapters["main"][0].calls) == 1
    one.assert_idle()


async def test_a_guard_that_warns_holds_nothing_beside_one_that_masks() -> None:
    mask = {"name": "mask", "kind": "words", "words": ["okapi"], "action": "mask", "on": ["answer"]}
    judge = Judging()
    made = script(["an okapi, ", "a zebra, "] + ["and more "] * 9, PARTS["content"])
    one = judged(FakeAdapter(made), judge, mask, {**BY_CHAT, "action": "warn", "on": ["answer"]})
    ((_, body, _),) = await received(one, "/v1/chat/completions", stream=True)
    assert grown(body) == "an […], a zebra, " + "and more " * 9
    assert len([text for each in events_of(body) for text in texts_of(each) if text]) > 5
    assert judge.texts == [grown(body)]
    assert one.log.records[0].guards == {
        ("mask", "mask", "enforce", "answer"): 1,
        ("g", "warn", "enforce", "answer"): 1,
    }
