"""Prompts and whole answers behind guards, on every API of texts."""

import json
from typing import Any

import pytest
from prometheus_client import generate_latest

from adapters.errors import CallerError, ContentFiltered
from adapters.fake import FakeAdapter, Script
from adapters.requests import AppRequest, GenerateRequest
from adapters.types import ANTHROPIC, APP
from adapters.wire.native_chat import NativeChat
from adapters.wire.openai.chat import decode_chat
from tests.support.gateways import Rig, config
from tests.support.guarding import BODIES, WORDS, guarded, received

FINE = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}}], "usage": {}})
MASKING = {**WORDS, "action": "mask"}
GEMINI = "/v1beta/models/chat:generateContent"
PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": [{"type": "text", "text": "the ZEBRA"}]}]},
    "/v1/completions": {"prompt": "the ZEBRA"},
    "/v1/embeddings": {"input": ["fine", "the ZEBRA"]},
    "/v1/messages": {"max_tokens": 9, "system": "the ZEBRA", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": [{"role": "user", "content": "the ZEBRA"}], "store": False},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "the ZEBRA"}]},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": "the ZEBRA"}]}]},
}


def answering(text: str = FINE, **fields: Any) -> Rig:
    return guarded(Script(chunks=(text.encode(),)), **fields)


def sent(one: Rig) -> str:
    """The body that the server has received, as fields of a chat."""
    (call,) = one.adapters["main"][0].calls
    request = getattr(call.request, "chat", call.request)
    assert isinstance(request, GenerateRequest)
    return json.dumps({name: json.loads(bytes(raw)) for name, raw in request.fields.items()}, ensure_ascii=False)


@pytest.mark.parametrize("path", PROMPTS)
async def test_a_blocked_prompt_reaches_no_server_and_reserves_nothing(path: str) -> None:
    one = answering(guards=[WORDS])
    ((status, body, _),) = await received(one, path, **PROMPTS[path])
    assert status == 400
    assert "A guard blocked the content" in body
    assert one.adapters["main"][0].calls == []
    assert one.log.lines[0].code == "content_filter"


@pytest.mark.parametrize("path", PROMPTS)
async def test_the_server_receives_the_masked_prompt(path: str) -> None:
    one = answering(guards=[MASKING])
    await received(one, path, **PROMPTS[path])
    assert "the […]" in sent(one)
    assert "ZEBRA" not in sent(one)


@pytest.mark.parametrize("path", PROMPTS)
async def test_a_monitored_prompt_is_sent_as_it_is(path: str) -> None:
    one = answering(guards=[{**MASKING, "mode": "monitor"}])
    await received(one, path, **PROMPTS[path])
    assert "the ZEBRA" in sent(one)
    (line,) = one.log.lines
    assert [(each.guard, each.mode, each.on, each.count) for each in line.guards or ()] == [
        ("words", "monitor", "prompt", 1)
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": "c", "content": "secret plan"},
        {"role": "user", "content": "a\\u0020s\\u0065cret plan"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"q":"zebra"}'}}],
        },
    ],
)
async def test_results_and_arguments_of_tools_are_prompts(message: dict[str, Any]) -> None:
    one = answering(guards=[WORDS])
    ((status, _, _),) = await received(one, "/v1/chat/completions", messages=[message])
    assert status == 400


@pytest.mark.parametrize(
    "message",
    [
        {"content": "the secret plan"},
        {"content": None, "reasoning_content": "the secret plan"},
        {"content": [{"type": "text", "text": "the secret plan"}]},
        {"content": None, "refusal": "the secret plan"},
        {
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x":"the secret plan"}'}}
            ],
        },
    ],
)
@pytest.mark.parametrize("path", BODIES)
async def test_whole_answers_are_masked_or_blocked(path: str, message: dict[str, Any]) -> None:
    whole = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    body = json.dumps({"id": "1", "choices": [whole], "usage": {}})
    one = answering(body, guards=[MASKING])
    ((status, text, _),) = await received(one, path)
    assert status == 200
    assert "secret plan" not in text
    blocking = answering(body, guards=[WORDS])
    ((status, text, _),) = await received(blocking, path)
    assert status == 400
    assert "secret" not in text
    (record,) = blocking.log.records
    assert record.usage is not None
    assert record.usage.completion_tokens == 2  # the answer that was not given is charged


async def test_harmless_answers_are_the_same() -> None:
    one = answering(guards=[WORDS])
    ((_, body, _),) = await received(one, "/v1/chat/completions")
    assert body == FINE


async def test_a_warning_is_a_header_and_a_verdict_is_a_metric() -> None:
    one = answering(guards=[{**WORDS, "action": "warn"}])
    ((status, _, headers),) = await received(one, "/v1/chat/completions", **PROMPTS["/v1/chat/completions"])
    assert (status, headers["x-headrace-guards"]) == (200, "words")
    metric = b'headrace_guard_verdicts_total{action="warn",guard="words",mode="enforce",on="prompt"} 1.0'
    assert metric in generate_latest(one.metrics.registry)


def tool(**function: Any) -> dict[str, Any]:
    return {**BODIES["/v1/chat/completions"], "tools": [{"type": "function", "function": {"name": "f", **function}}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "zebra", "content": "hi"}]},
        tool(zebra=1),
        tool(parameters={"type": "object", "format": "zebra"}),
        tool(parameters={"type": "object", "$defs": {"zebra": {"type": "string"}}}),
    ],
    ids=["role", "key", "format", "definition"],
)
async def test_all_that_templates_write_into_a_prompt_is_examined(fields: dict[str, Any]) -> None:
    one = answering(guards=[WORDS])
    ((status, _, _),) = await received(one, "/v1/chat/completions", **fields)
    assert status == 400
    assert one.adapters["main"][0].calls == []


async def test_a_guard_against_a_word_of_all_schemas_forbids_no_tool() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    one = answering(guards=[{**WORDS, "words": ["object", "string", "user"]}])
    fields = tool(parameters=schema)
    ((status, _, _),) = await received(one, "/v1/chat/completions", **fields)
    assert status == 200
    fields["messages"] = [{"role": "user", "content": "a string"}]
    ((status, _, _),) = await received(one, "/v1/chat/completions", **fields)
    assert status == 400


@pytest.mark.parametrize("wrapped", ["[%s]", '{"a":%s}'])
async def test_texts_in_many_levels_are_an_error_of_the_client_or_do_not_leave(wrapped: str) -> None:
    text = '"zebra"'
    for _ in range(900):
        text = wrapped % text
    request = decode_chat(f'{{"model":"chat","messages":[{{"role":"user","content":"hi","x":{text}}}]}}'.encode())
    one = answering(guards=[WORDS])
    with pytest.raises(CallerError):
        await one.core.handle(one.principal, request, {}, one.record())
    answer = answering(f'{{"choices":[],"x":{text}}}', guards=[WORDS])
    ((status, body, _),) = await received(answer, "/v1/chat/completions")
    assert (status, "zebra" in body) == (400, False)


@pytest.mark.parametrize(
    "body", ['{"role":"zebra"}', '{"detail":"zebra"}', '{"a":{"zebra":1}}', '{"data":"zebra","format":1}']
)
async def test_all_parts_of_the_bodies_of_apps_are_texts(body: str) -> None:
    request = AppRequest(model="chat", path="/x", content_type="application/json", body=body.encode(), size=len(body))
    one = guarded(Script(form=APP), guards=[WORDS])
    with pytest.raises(ContentFiltered):
        await one.core.handle(one.principal, request, {}, one.record())
    answer = guarded(Script(chunks=(body.encode(),), form=APP), guards=[MASKING])
    request = AppRequest(model="chat", path="/x", content_type="application/json", body=b"{}", size=2)
    given = await answer.core.handle(answer.principal, request, {}, answer.record())
    assert given.body is not None
    assert json.loads(given.body) == json.loads(body.replace("zebra", "[…]"))


async def test_exempt_clients_meet_no_guard() -> None:
    one = answering(guards=[{**WORDS, "exempt": {"roles": ["operator"]}}])
    one.hold(roles=frozenset({"operator"}))
    ((status, _, _),) = await received(one, "/v1/chat/completions", **PROMPTS["/v1/chat/completions"])
    assert status == 200
    ((status, _, _),) = await received(
        answering(guards=[WORDS]), "/v1/chat/completions", **PROMPTS["/v1/chat/completions"]
    )
    assert status == 400


async def test_operations_that_are_passed_on_are_guarded_too() -> None:
    one = answering(guards=[WORDS])
    ((status, _, _),) = await received(one, "/v1/rerank", query="the zebra", documents=["a"])
    assert status == 400
    ((status, _, _),) = await received(
        answering('{"x":"zebra"}', guards=[WORDS]), "/v1/rerank", query="a", documents=["b"]
    )
    assert status == 400


@pytest.mark.parametrize(
    "guard",
    [
        {"name": "s", "kind": "secrets", "action": "mask"},
        {"name": "u", "kind": "urls", "deny": ["evil.example"], "action": "mask"},
        {"name": "a", "kind": "urls", "allow": ["good.example"], "action": "mask"},
        {"name": "p", "kind": "pattern", "patterns": ["T-[0-9]{1,9}"], "action": "mask"},
    ],
    ids=lambda guard: guard["name"],
)
async def test_every_kind_masks(guard: dict[str, Any]) -> None:
    texts = {
        "s": "sk-" + "a1B2" * 8,
        "u": "http://user@sub.evil.example:80/path?q=1",
        "a": "https://evil.example/leak",
        "p": "T-12345",
    }
    one = answering(guards=[guard])
    content = f"see {texts[guard['name']]} and https://good.example/x"
    await received(one, "/v1/chat/completions", messages=[{"role": "user", "content": content}])
    assert "see […] and https://good.example/x" in sent(one)


@pytest.mark.parametrize(
    "fields", [{"prompt": [1, 2, 3]}, {"prompt": [[1], [2]]}, {"prompt": "hi", "prompt_embeds": "AAAA"}]
)
async def test_prompts_of_tokens_are_refused(fields: dict[str, Any]) -> None:
    one = answering(guards=[WORDS])
    ((status, body, _),) = await received(one, "/v1/completions", **fields)
    assert (status, json.loads(body)["error"]["code"]) == (400, "unsupported_operation")
    assert one.adapters["main"][0].calls == []
    monitoring = answering(guards=[{**WORDS, "mode": "monitor"}])
    ((status, _, _),) = await received(monitoring, "/v1/completions", **fields)
    assert status == 200


async def test_whole_answers_in_the_form_of_another_server_are_examined_in_it() -> None:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "stop_reason": "end_turn"}
    content = [
        {"type": "thinking", "thinking": "a zebra", "signature": "zebra"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"zebra": "the zebra", "n": 1}},
    ]
    body = json.dumps({**message, "content": content, "usage": {"input_tokens": 1, "output_tokens": 2}})
    one = guarded(Script(chunks=(body.encode(),), form=ANTHROPIC), guards=[MASKING])
    ((_, text, _),) = await received(one, "/v1/messages")
    thinking, call = json.loads(text)["content"]
    assert thinking == {"type": "thinking", "thinking": "a […]", "signature": "zebra"}
    assert call["input"] == {"[…]": "the […]", "n": 1}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
async def test_streams_that_no_guard_reads_do_not_leave(path: str) -> None:
    event = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"zebra"}}\n\n'
    one = guarded(Script(chunks=(event,), form=ANTHROPIC), guards=[MASKING])
    ((status, text, _),) = await received(one, path, stream=True)
    assert status == 400
    assert "zebra" not in text
    monitoring = guarded(Script(chunks=(event,), form=ANTHROPIC), guards=[{**MASKING, "mode": "monitor"}])
    ((status, _, _),) = await received(monitoring, path, stream=True)
    assert status == 200


async def test_a_stream_of_messages_is_requested_as_a_chat_only_if_a_guard_may_change_it() -> None:
    for guard, reworded in ((MASKING, True), ({**MASKING, "on": ["prompt"]}, False)):
        one = guarded(Script(), guards=[guard])
        await received(one, "/v1/messages", stream=True)
        (call,) = one.adapters["main"][0].calls
        assert isinstance(call.request, NativeChat)
        assert call.request.payload.reworded == reworded


async def test_an_answer_that_is_not_json_does_not_leave() -> None:
    one = answering("the zebra", guards=[MASKING])
    ((status, text, _),) = await received(one, "/v1/rerank", query="a", documents=["b"])
    assert status == 400
    assert "zebra" not in text
    monitoring = answering("the zebra", guards=[{**MASKING, "mode": "monitor"}])
    ((status, text, _),) = await received(monitoring, "/v1/rerank", query="a", documents=["b"])
    assert (status, text) == (200, "the zebra")


async def test_guards_of_tenants_models_and_routes_apply_together() -> None:
    guards = [{"name": name, "kind": "words", "words": [name], "action": "mask"} for name in ("tt", "mm", "rr", "xx")]
    configuration = config(
        guards=guards,
        models=[{"name": "chat", "guards": ["mm"], "routes": [{"to": "main", "guards": ["rr"]}]}],
        tenants=[{"name": "acme", "models": ["*"], "guards": ["tt"]}],
    )
    one = Rig(configuration, {"main": [FakeAdapter(Script(chunks=(FINE.encode(),)))]})
    await received(one, "/v1/chat/completions", messages=[{"role": "user", "content": "tt mm rr xx"}])
    assert "[…] […] […] xx" in sent(one)


async def test_without_guards_a_route_has_no_observer() -> None:
    one = Rig(config(), {"main": [FakeAdapter(Script(chunks=(FINE.encode(),)))]})
    await received(one, "/v1/chat/completions")
    (plan,) = one.core.snapshot._plans.values()
    assert (plan.observers, plan.of_clients) == ((), ())


async def test_pictures_and_settings_are_not_examined() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,zebra"}}
    one = answering(guards=[MASKING])
    sound = f"{'AAECAwQF' * 40}zebra"  # encoded bytes, which are no text
    content = [picture, {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}]
    await received(one, "/v1/chat/completions", messages=[{"role": "user", "content": content}], user="zebra")
    assert sent(one).count("zebra") == 3


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/rerank"])
async def test_large_texts_are_examined_too(path: str) -> None:
    long = "harmless words " * 40_000
    fields = (
        {"messages": [{"role": "user", "content": f"{long} zebra"}]} if "chat" in path else {"query": long + "zebra"}
    )
    blocking = answering(guards=[WORDS])
    ((status, _, _),) = await received(blocking, path, **fields)
    assert status == 400
    whole = {"index": 0, "message": {"role": "assistant", "content": f"{long} zebra {long}"}}
    one = answering(json.dumps({"choices": [whole]}), guards=[MASKING])
    query: dict[str, Any] = {"query": "a"} if "rerank" in path else {}
    ((_, text, _),) = await received(one, path, **query)
    assert json.loads(text)["choices"][0]["message"]["content"] == f"{long} […] {long}"
