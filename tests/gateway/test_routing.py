"""The effects of routes on a request on its way through the core."""

import json
from random import Random
from typing import Any

import pytest
from prometheus_client import generate_latest

from adapters.errors import CallerError, ContextTooLong, LimitExceeded, NotFound, Unavailable
from adapters.fake import FakeAdapter, Script
from adapters.wire.openai.request_codec import LENGTHS
from gateway.auth.keys import Principal
from tests.support.gateways import Rig, chat, config


def rig(routes: list[dict[str, Any]], *fakes: FakeAdapter, limits: dict[str, Any] | None = None, **model: Any) -> Rig:
    """Pools `main`, `spare` and `long` with a fake each, behind the model `chat`."""
    names = ["main", "spare", "long"]
    adapters = dict(zip(names, [[fake] for fake in (*fakes, *(FakeAdapter() for _ in names))], strict=False))
    return Rig(
        config(
            pools=[{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in names],
            models=[{"name": "chat", "routes": routes, **model}],
            tenants=[{"name": "acme", "models": ["chat"], "limits": limits or {}}],
        ),
        adapters,
    )


def sent(one: Rig, pool: str = "main") -> dict[str, Any]:
    """The fields of the last request that a pool got."""
    request = one.adapters[pool][0].calls[-1].request
    return {name: json.loads(bytes(raw)) for name, raw in request.codec.fields(request).items()}


async def send(one: Rig, model: str = "chat", **fields: Any) -> str:
    """The pool that answers."""
    answer = await one.core.handle(one.principal, chat(model, **fields), {}, record := one.record())
    assert record.model == "chat"
    one.assert_idle()
    return answer.pool


async def test_an_alias_is_the_model_itself_for_lists_limits_and_metrics() -> None:
    one = rig([{"to": "main"}], limits={"requests": "2/min", "models": ["chat"]}, aliases=["gpt-4o"], versions=["2"])
    await send(one, "gpt-4o")
    assert sent(one)["model"] == "chat"
    await send(one, "gpt-4o@2")
    with pytest.raises(LimitExceeded):
        await send(one, "chat")
    text = generate_latest(one.metrics.registry).decode()
    assert 'model="chat"' in text
    assert "gpt-4o" not in text


async def test_a_refusal_names_the_requested_model() -> None:
    one = rig([{"when": {"stream": True}, "to": "main"}], aliases=["gpt-4o"])
    with pytest.raises(NotFound, match="`gpt-4o`"):
        await send(one, "gpt-4o")
    with pytest.raises(NotFound, match="`chat@1`"):
        await send(one, "chat@1")


async def test_a_version_and_an_alias_choose_the_route() -> None:
    routes: list[dict[str, Any]] = [
        {"when": {"version": ["2"]}, "to": "spare"},
        {"when": {"model": ["gpt-4o"]}, "to": "long"},
        {"else": True, "to": "main"},
    ]
    one = rig(routes, versions=["1", "2"], aliases=["gpt-4o"])
    assert [await send(one, name) for name in ("chat@2", "gpt-4o@2", "gpt-4o", "chat@1", "chat")] == [
        "spare", "spare", "long", "main", "main",
    ]  # fmt: skip


async def test_every_fact_reaches_the_rules() -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    whens: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"role": ["operator"]}, {}),
        ({"label": {"team": "search"}}, {}),
        ({"key": ["jwt:*"]}, {}),
        ({"max_tokens": "<=9"}, {"max_tokens": 9}),
        ({"tools": True}, {"tools": [{"type": "function"}]}),
        ({"json_schema": True}, {"response_format": {"type": "json_schema"}}),
        ({"vision": True}, {"messages": image}),
        ({"front": ["chat"]}, {}),
        ({"cost": ">1 usd"}, {"max_tokens": 2000}),
        ({"time": {"between": "12:00-13:00"}}, {}),
    ]
    principal = Principal("acme", "jwt:login:ann", frozenset({"user", "operator"}), {"team": "search"})
    for when, fields in whens:
        one = rig(
            [{"when": when, "to": "spare"}, {"else": True, "to": "main"}],
            price={"completion": "1 usd/1k", "prompt": "0 usd/1k"},
        )
        plain, one.core.wall = one.principal, lambda: 0.0
        if not {"front", "time"} & when.keys():
            assert await send(one) == "main", when
        one.principal, one.core.wall = principal, lambda: 12.5 * 3600
        assert await send(one, **fields) == "spare", when
        one.principal = plain


@pytest.mark.parametrize("length", LENGTHS)
async def test_the_rewritten_request_is_sent_and_reserved(length: str) -> None:
    route = {"to": "main", "rewrite": {"caps": {"max_tokens": 100}, "force": {"seed": 7}, "model": "llama"}}
    one = rig([route], FakeAdapter(Script(gap=1.0)), limits={"tokens": "300/min"})
    fields: dict[str, Any] = {length: 10**6, "seed": 1}
    request = chat(**fields, stream=True)
    answer = await one.core.handle(one.principal, request, {}, record := one.record())
    assert one.ledger.accounts["acme"].reserved_tokens == request.prompt_tokens + 100
    assert (record.model, sent(one)["model"], sent(one)["seed"], sent(one)[length]) == ("chat", "llama", 7, 100)
    await answer.aclose()
    one.assert_idle()


async def test_choices_that_are_forced_are_not_reserved_for() -> None:
    one = rig([{"to": "main", "rewrite": {"force": {"n": 1}}}], FakeAdapter(Script(gap=1.0)))
    answer = await one.core.handle(one.principal, chat(max_tokens=100, n=50, stream=True), {}, one.record())
    assert one.ledger.accounts["acme"].reserved_tokens < 200
    await answer.aclose()


async def test_a_capped_field_that_is_no_number_is_refused_by_name() -> None:
    one = rig([{"to": "main", "rewrite": {"caps": {"temperature": 1}}}])
    with pytest.raises(CallerError) as caught:
        await send(one, temperature="9")
    assert (caught.value.param, caught.value.code) == ("temperature", "invalid_request")
    one.assert_idle()


async def test_a_prompt_too_long_falls_back_to_the_pool_for_long_ones_without_blame() -> None:
    routes = [{"to": "main", "fallback": ["spare", {"pool": "long", "on": ["context_length"]}]}]
    one = rig(routes, FakeAdapter(Script(fault=ContextTooLong("too long"))))
    assert await send(one) == "long"
    assert not one.adapters["spare"][0].calls
    assert one.endpoints["main"][0].breaker.state(one.core.clock()) == "closed"


async def test_refused_content_is_not_retried() -> None:
    classes = ["capacity", "backend", "transport", "context_length"]
    refusal = CallerError("refused", code="content_policy_violation")
    one = rig([{"to": "main", "fallback": [{"pool": "spare", "on": classes}]}], FakeAdapter(Script(fault=refusal)))
    with pytest.raises(CallerError, match="refused"):
        await send(one)
    assert not one.adapters["spare"][0].calls
    one.assert_idle()


async def test_arms_and_fallbacks_nest() -> None:
    inner = {"sticky": "user", "arms": [{"pool": "main", "weight": 1}, {"pool": "spare", "weight": 1}]}
    arms = [{"pool": "long", "weight": 0}, {"name": "new", "weight": 1, "split": inner, "fallback": ["long"]}]
    down = [FakeAdapter(Script(fault=Unavailable("x"))) for _ in range(2)]
    one = rig([{"split": {"sticky": "user", "arms": arms}}], *down)
    for user in map(str, range(20)):
        assert await send(one, user=user) == "long"
    assert {record.arm for record in one.log.records} == {"new>main", "new>spare"}
    assert all(fake.calls for fake in down)
    text = generate_latest(one.metrics.registry).decode()
    assert 'headrace_fallbacks_total{pool="long"} 20.0' in text
    assert all(f'headrace_requests_total{{arm="{arm}",' in text for arm in ("new>main", "new>spare"))


async def test_a_fallback_inside_a_fallback_is_recorded_once() -> None:
    down = [FakeAdapter(Script(fault=Unavailable("x"))) for _ in range(2)]
    one = rig([{"to": "main", "fallback": [{"pool": "spare", "fallback": ["long"]}]}], *down)
    assert await send(one) == "long"
    assert one.log.records[0].trace.events == (("fallback", "long"),)


async def test_a_split_in_a_fallback_spreads_the_remaining_requests() -> None:
    split = {"sticky": "user", "arms": [{"pool": "spare", "weight": 1}, {"pool": "long", "weight": 1}]}
    one = rig([{"to": "main", "fallback": [{"split": split}]}], FakeAdapter(Script(fault=Unavailable("x"))))
    dice = Random(1)
    users = [str(dice.random()) for _ in range(40)]
    first = [await send(one, user=user) for user in users]
    assert {"spare", "long"} == set(first)
    assert [await send(one, user=user) for user in users] == first
