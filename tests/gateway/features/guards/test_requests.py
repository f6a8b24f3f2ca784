"""Prompts and whole answers behind guards, on every API of texts."""

import json
from typing import Any

import pytest
from prometheus_client import generate_latest

from adapters.fake import Script
from adapters.requests import GenerateRequest
from tests.support.gateways import Rig
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
