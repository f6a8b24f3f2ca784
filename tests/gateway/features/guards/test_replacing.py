"""Guards that replace the answer, or let another model answer."""

import json
from typing import Any

import pytest

from adapters.answer import Answer
from adapters.fake import FakeAdapter, Script
from adapters.requests import GenerateRequest, ModelRequest
from gateway.request.spine import Exchange, Observer
from tests.support.cut_streams import PARTS, cuts_of, events_of, script, texts_of
from tests.support.gateways import Rig, config
from tests.support.guarding import BODIES, WORDS, guarded, received
from tests.support.judging import BY_CHAT, Judging, answer, judged, prompt_of

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "from elsewhere"}, "finish_reason": "stop"}
TEXT = "I do not talk about this."
REPLACE: dict[str, Any] = {**WORDS, "action": "replace", "text": TEXT}
STREAMED = [path for path in BODIES if "generateContent" not in path]
ZEBRA: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": prompt_of("a zebra"),
    "/v1/messages": {**prompt_of("a zebra"), "max_tokens": 99},
    "/v1/responses": {"input": "a zebra", "store": False},
    "/v1beta/models/chat:generateContent": {"contents": [{"role": "user", "parts": [{"text": "a zebra"}]}]},
}
ENDS = {
    "/v1/chat/completions": '"finish_reason":"content_filter"',
    "/v1/messages": '"stop_reason":"refusal"',
    "/v1/responses": '"content_filter"',
    "/v1beta/models/chat:generateContent": '"finishReason":"SAFETY"',
}


def plain(body: str) -> str:
    return body.replace(": ", ":")


@pytest.mark.parametrize("path", BODIES)
async def test_a_replaced_prompt_reaches_no_server(path: str) -> None:
    one = guarded(guards=[{**REPLACE, "on": ["prompt"]}])
    ((status, body, _),) = await received(one, path, **ZEBRA[path])
    assert status == 200
    assert TEXT in body
    assert ENDS[path] in plain(body)
    assert not one.adapters["main"][0].calls
    assert one.log.records[0].guards == {("words", "replace", "enforce", "prompt"): 1}
    one.assert_idle()


@pytest.mark.parametrize("path", STREAMED)
async def test_a_replaced_prompt_is_answered_by_a_stream(path: str) -> None:
    one = guarded(guards=[{**REPLACE, "on": ["prompt"]}])
    ((status, body, _),) = await received(one, path, stream=True, **ZEBRA[path])
    assert status == 200
    assert TEXT in "".join(text for each in events_of(body) for text in texts_of(each))
    assert ENDS[path] in plain(body)
    one.assert_idle()


@pytest.mark.parametrize("path", BODIES)
async def test_a_whole_answer_is_replaced_and_charged(path: str) -> None:
    model = answer("a zebra")
    one = judged(model, Judging(), {**REPLACE, "on": ["answer"]})
    ((status, body, _),) = await received(one, path)
    assert status == 200
    assert TEXT in body
    assert "zebra" not in body
    assert ENDS[path] in plain(body)
    usage = one.log.records[0].usage
    assert usage is not None
    assert usage.total_tokens == 5
    one.assert_idle()


@pytest.mark.parametrize("path", STREAMED)
async def test_the_rest_of_a_stream_is_replaced(path: str) -> None:
    scripts = [script(cut, PARTS["content"]) for cut in cuts_of("this may go, zebra, and this not", seed=4)]
    one = guarded(*scripts, guards=[{**REPLACE, "on": ["answer"]}])
    for status, body, _ in await received(one, path, len(scripts), stream=True):
        assert status == 200
        texts = "".join(
            text for each in events_of(body) if "done" not in str(each.get("type")) for text in texts_of(each)
        )
        assert texts.count(TEXT) >= 1
        assert "ebra" not in body
        assert "and this" not in body
        assert ENDS[path] in plain(body)
    one.assert_idle()


def usages(value: Any) -> list[tuple[int, int]]:
    """Each usage in an event of any API: the tokens of the prompt and of the answer."""
    if isinstance(value, list):
        return [usage for each in value for usage in usages(each)]
    if not isinstance(value, dict):
        return []
    inner = [usage for name, each in value.items() if name not in ("usage", "usageMetadata") for usage in usages(each)]
    usage = value.get("usage") or value.get("usageMetadata") or {}
    counts = [usage.get(name) for name in ("completion_tokens", "output_tokens", "candidatesTokenCount")]
    prompts = [usage.get(name) for name in ("prompt_tokens", "input_tokens", "promptTokenCount")]
    return inner + [(max(filter(None, prompts), default=0), count) for count in counts if count is not None]


@pytest.mark.parametrize("requested", [False, True])
@pytest.mark.parametrize("path", [*STREAMED, "/v1/completions", "/v1beta/models/chat:streamGenerateContent?alt=sse"])
async def test_a_replaced_stream_has_the_usage_that_is_charged(path: str, *, requested: bool) -> None:
    if path == "/v1/completions":
        chunks = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("go ", "zebra", " not")]
        made = Script(chunks=tuple(f"data: {json.dumps(each)}\n\n".encode() for each in chunks))
    else:
        made = script(["go ", "zebra", " not"], PARTS["content"])
    one = guarded(made, guards=[{**REPLACE, "on": ["answer"]}])
    fields: dict[str, Any] = {"prompt": "hi"} if path == "/v1/completions" else {}
    if "streamGenerateContent" in path:
        fields = dict(BODIES["/v1beta/models/chat:generateContent"])
    elif requested and "completions" in path:
        fields["stream_options"] = {"include_usage": True}
    ((status, body, _),) = await received(one, path, stream=True, **fields)
    assert (status, TEXT in body, "ebra" in body) == (200, True, False)
    charged = one.log.records[0].usage
    assert charged is not None
    assert charged.completion_tokens > 0
    reported = usages(events_of(body))
    if "completions" in path and not requested:
        assert reported == []
    else:
        assert reported[-1] == (charged.prompt_tokens, charged.completion_tokens)
        assert "completions" not in path or len(reported) == 1
    one.assert_idle()


async def test_requests_for_embeddings_are_blocked() -> None:
    one = guarded(guards=[{**REPLACE, "on": ["prompt"]}])
    ((status, body, _),) = await received(one, "/v1/embeddings", input="a zebra")
    assert (status, json.loads(body)["error"]["code"]) == (400, "content_filter")


@pytest.mark.parametrize("path", BODIES)
async def test_another_model_answers(path: str) -> None:
    other, model = answer("from elsewhere"), FakeAdapter(Script())
    guard = {**WORDS, "action": "route", "to": "other", "on": ["prompt"]}
    one = judged(model, Judging(), guard, others={"other": other})
    ((status, body, _),) = await received(one, path, **ZEBRA[path])
    assert status == 200
    assert "from elsewhere" in body
    assert not model.calls
    assert other.calls[0].request.model == "other"
    assert one.log.records[0].model == "other"
    one.assert_idle()


async def test_a_request_moves_once() -> None:
    guards = [
        {**WORDS, "action": "route", "to": "other", "on": ["prompt"]},
        {**WORDS, "name": "back", "action": "route", "to": "chat", "on": ["prompt"]},
    ]
    one = judged(answer("first"), Judging(), *guards, others={"other": answer("second")})
    other = next(model for model in one.core.snapshot.config.models if model.name == "other")
    assert other.name == "other"
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 200
    assert "second" in body


async def test_a_model_of_a_guard_may_choose_the_model() -> None:
    guard = {**BY_CHAT, "action": "route", "to": "other", "on": ["prompt"]}
    one = judged(answer("first"), Judging(), guard, others={"other": answer("second")})
    ((_, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert "second" in body
    ((_, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a horse"))
    assert "first" in body
    one.assert_idle()


async def test_a_block_comes_before_a_route() -> None:
    guards = [{**WORDS, "action": "route", "to": "other", "on": ["prompt"]}, {**BY_CHAT, "on": ["prompt"]}]
    one = judged(answer("first"), Judging(), *guards, others={"other": answer("second")})
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 400
    one.assert_idle()


async def test_a_request_that_moves_meets_the_guards_of_its_new_model() -> None:
    route = {**WORDS, "action": "route", "to": "other", "on": ["prompt"]}
    mask = {"name": "mask", "kind": "words", "words": ["elsewhere"], "action": "mask", "on": ["answer"]}
    other = FakeAdapter(Script(chunks=(json.dumps({"choices": [CHOICE]}).encode(),)))
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "other")]
    models = [
        {"name": "chat", "routes": [{"to": "main"}], "guards": ["words"]},
        {"name": "other", "routes": [{"to": "other"}], "guards": ["mask"]},
    ]
    tenants = [{"name": "acme", "models": ["chat"]}]
    made = config(guards=[route, mask], pools=pools, models=models, tenants=tenants)
    one = Rig(made, {"main": [FakeAdapter()], "other": [other]})
    ((_, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert json.loads(body)["choices"][0]["message"]["content"] == "from […]"
    ((status, body, _),) = await received(one, "/v1/chat/completions", model="other")
    assert status == 404
    one.assert_idle()


async def test_two_models_that_send_to_each_other_make_no_loop() -> None:
    there = {**WORDS, "name": "there", "action": "route", "to": "other", "on": ["prompt"]}
    back = {**WORDS, "name": "back", "action": "route", "to": "chat", "on": ["prompt"]}
    other = FakeAdapter(Script(chunks=(json.dumps({"choices": [CHOICE]}).encode(),)))
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "other")]
    models = [
        {"name": "chat", "routes": [{"to": "main"}], "guards": ["there"]},
        {"name": "other", "routes": [{"to": "other"}], "guards": ["back"]},
    ]
    one = Rig(config(guards=[there, back], pools=pools, models=models), {"main": [FakeAdapter()], "other": [other]})
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 200
    assert "elsewhere" in body
    assert one.log.records[0].guards == {
        ("there", "route", "enforce", "prompt"): 1,
        ("back", "route", "enforce", "prompt"): 1,
    }
    one.assert_idle()


@pytest.mark.parametrize("path", BODIES)
async def test_observers_of_a_replaced_request_see_no_prompt(path: str) -> None:
    seen: list[ModelRequest] = []

    class Seeing(Observer):
        def begun(self, exchange: Exchange, answer: Answer) -> Answer:
            seen.append(exchange.request)
            return answer

    one = guarded(guards=[{**REPLACE, "on": ["prompt"]}])
    one.watches.append(lambda decision: Seeing())
    ((status, _, _),) = await received(one, path, **ZEBRA[path])
    assert status == 200
    (request,) = seen
    assert isinstance(request, GenerateRequest)
    assert b"zebra" not in bytes(request.prompt)
    assert b"zebra" not in b"".join(bytes(value) for value in request.fields.values())
