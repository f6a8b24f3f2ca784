"""Guards on the streams of every API of texts: no cut lets a letter of a forbidden text leave."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.fake import Script
from tests.support.cut_streams import PARTS, cuts_of, event, events_of, script
from tests.support.guarding import BODIES, WORDS, guarded, received

BEFORE, AFTER = "this may go, ", ", and so may this"
STREAMED = [path for path in BODIES if "generateContent" not in path]
FORMS = {
    "plain": "secret plan",
    "upper": "SeCReT PLan",
    "full width": "ｓｅｃｒｅｔ ｐｌａｎ",
    "zero width": "se\u200bcr\u2060et\u00ad pl\ufeffan",
    "escaped": "s\\u0065cret pl\\u0061n",
    "nested escapes": "s\\\\\\u0065cret pl\\\\u0061n",
}


GROWING = {
    "content", "text", "delta", "thinking", "partial_json", "arguments", "refusal", "input", "reasoning_content",
}  # fmt: skip


def texts(value: Any) -> Iterator[str]:
    """All texts that grow in an event of any API."""
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str):
                if name in GROWING:
                    yield each
            else:
                yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def grown(body: str) -> str:
    """The texts of the deltas of a stream, joined."""
    deltas = [
        each for each in events_of(body) if "type" not in each or "delta" in each["type"] or "start" in each["type"]
    ]
    return "".join(text for each in deltas for text in texts(each))


async def streams(path: str, scripts: list[Script], guard: dict[str, Any], **fields: Any) -> list[str]:
    one = guarded(*scripts, guards=[guard])
    return [body for _, body, _ in await received(one, path, len(scripts), stream=True, **fields)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", STREAMED)
async def test_masks_stand_in_the_place_of_every_form(path: str, form: str) -> None:
    text = BEFORE + FORMS[form] + AFTER
    scripts = [script(cut, PARTS["content"]) for cut in cuts_of(text, seed=len(form))]
    for body in await streams(path, scripts, {**WORDS, "action": "mask"}):
        assert grown(body) == f"{BEFORE}[…]{AFTER}"


@pytest.mark.parametrize(
    ("path", "part"),
    # Responses have neither part.
    [(a, b) for a in STREAMED for b in PARTS if a != "/v1/responses" or b not in ("custom", "function_call")],
)
async def test_no_letter_of_a_masked_text_leaves(path: str, part: str) -> None:
    text = BEFORE + "Zebra" + AFTER
    written = json.dumps({"q": text}) if part in ("arguments", "function_call") else text
    scripts = [script(cut, PARTS[part]) for cut in cuts_of(written, seed=len(part))]
    for body in await streams(path, scripts, {**WORDS, "action": "mask"}):
        assert "ebra" not in body
        assert "content_filter" not in body


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("path", STREAMED)
async def test_a_block_ends_the_stream_before_the_text(path: str, part: str) -> None:
    text = BEFORE + "secret plan" + AFTER
    written = json.dumps({"q": text}) if part == "arguments" else text
    scripts = [script(cut, PARTS[part]) for cut in cuts_of(written, seed=len(part))]
    for body in await streams(path, scripts, WORDS):
        assert "content_filter" in body or "blocked" in body
        assert not [each for each in ("secret", "ecret", "plan", "so may this") if each in body]


@pytest.mark.parametrize("path", STREAMED)
async def test_arguments_of_tools_are_masked_and_stay_json(path: str) -> None:
    inner = json.dumps({"note": "the z\u00e9bra and the ZEBRA"}).replace("ZEBRA", "\\u005a\\u0045BRA")
    written = json.dumps({"q": inner, "n": 4111})
    number = {"name": "number", "kind": "pattern", "patterns": [r"\b4[0-9]{3}\b"], "action": "mask"}
    scripts = [script(cut, PARTS["arguments"]) for cut in cuts_of(written, seed=3)]
    for body in await streams(path, scripts, {**WORDS, "action": "mask"}):
        arguments = json.loads(grown(body).removeprefix("f"))
        assert json.loads(arguments["q"]) == {"note": "the zébra and the […]"}
        assert arguments["n"] == 4111
    for body in await streams(path, scripts[:3], number):
        assert json.loads(grown(body).removeprefix("f")) == "[…]"


@pytest.mark.parametrize("part", ["content", "reasoning_content", "arguments"])
@pytest.mark.parametrize("path", STREAMED)
async def test_harmless_texts_are_the_same(path: str, part: str) -> None:
    text = 'a \\u0041 zebras\\n "se\u200bcret plans" 한글 e\u0301 \U0001f600' + AFTER
    written = json.dumps({"q": text}) if part == "arguments" else text
    scripts = [script(cut, PARTS[part]) for cut in cuts_of(written, seed=5)]
    for body in await streams(path, scripts, {**WORDS, "action": "mask"}):
        assert grown(body) == written


@pytest.mark.parametrize("guard", [{"mode": "monitor"}, {"action": "warn"}, {"on": ["prompt"]}])
@pytest.mark.parametrize("path", STREAMED)
async def test_guards_that_change_nothing_change_no_byte(path: str, guard: dict[str, Any]) -> None:
    made = script([BEFORE, "sec", "ret pl", "an", AFTER], PARTS["content"])
    one = guarded(made, guards=[{**WORDS, **guard}])
    ((_, body, _),) = await received(one, path, stream=True)
    assert grown(body) == BEFORE + "secret plan" + AFTER
    if path == "/v1/chat/completions":
        assert body.encode() == b"".join(made.chunks)
    key = ("words", guard.get("action", "block"), guard.get("mode", "enforce"), "answer")
    assert one.log.records[0].guards == (None if "on" in guard else {key: 1})


async def test_completions_are_guarded() -> None:
    for cut in cuts_of(BEFORE + "secret plan" + AFTER, seed=9):
        pieces = [json.dumps({"choices": [{"index": 0, "text": piece, "finish_reason": None}]}) for piece in cut]
        end = json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        made = Script(chunks=tuple(f"data: {each}\n\n".encode() for each in (*pieces, end, "[DONE]")))
        (body,) = await streams("/v1/completions", [made], {**WORDS, "action": "mask"}, prompt="x")
        assert "".join(each["choices"][0]["text"] for each in events_of(body)) == f"{BEFORE}[…]{AFTER}"


async def test_streams_of_gemini_are_guarded() -> None:
    path = "/v1beta/models/chat:streamGenerateContent?alt=sse"
    fields = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    scripts = [script(cut, PARTS["content"]) for cut in cuts_of(BEFORE + "secret plan" + AFTER, seed=2)]
    one = guarded(*scripts, guards=[{**WORDS, "action": "mask"}])
    for status, body, _ in await received(one, path, len(scripts), **fields):
        assert status == 200
        assert "".join(text for each in events_of(body) for text in texts(each)) == f"{BEFORE}[…]{AFTER}"


@pytest.mark.parametrize("part", ["content", "arguments"])
async def test_a_stream_that_goes_on_after_its_end_is_broken(part: str) -> None:
    chunks = (event(PARTS[part]("ze"), finish="stop"), event(PARTS[part]("bra"), finish="stop"), b"data: [DONE]\n\n")
    (body,) = await streams("/v1/chat/completions", [Script(chunks=chunks)], {**WORDS, "action": "mask"})
    assert "goes on after its end" in body
    assert "bra" not in body
