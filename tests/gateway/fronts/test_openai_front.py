"""The OpenAI door over a real socket, with scripted upstreams behind it."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any, get_args

import aiohttp
import openai
import pytest
from prometheus_client import generate_latest

from adapters.errors import BackendError, CapacityError, ContextTooLong, TransportError, UpstreamTimeout
from adapters.fake import FakeAdapter, Script
from adapters.types import Usage
from config.schema.identity import Operation
from gateway.auth.keys import KeyRecord, Principal, digest
from gateway.auth.scope import Scope
from gateway.auth.table import KeyTable
from gateway.process.client_fronts import client_fronts
from gateway.request.snapshot import with_keys
from tests.support.chats import HELLO, completion
from tests.support.doors import Door, door
from tests.support.gateways import PEPPER

CHAT = "/v1/chat/completions"
HI: Any = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": HI, **fields}


def opened(*fakes: FakeAdapter, **changes: Any) -> AbstractAsyncContextManager[Door]:
    return door(*(fakes or (FakeAdapter(Script(chunks=(completion(),))),)), **changes)


async def post(d: Door, body: Any = None, path: str = CHAT, **headers: str) -> aiohttp.ClientResponse:
    return await d.send("POST", path, chat() if body is None else body, **headers)


async def error_of(response: aiohttp.ClientResponse) -> dict[str, Any]:
    error = (await response.json())["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


async def test_the_official_client_gets_a_whole_answer() -> None:
    async with opened() as d:
        answer = await d.openai.chat.completions.create(model="chat", messages=HI)
        assert answer.choices[0].message.content == "Hello!"
        assert answer.usage is not None
        assert answer.usage.total_tokens == 13
    (record,) = d.rig.log.records
    assert (record.status, record.tenant, record.usage) == (200, "acme", Usage(3, 2, exact=True))


async def test_the_official_client_gets_embeddings() -> None:
    embeddings = {
        "object": "list",
        "model": "chat",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}],
    }
    body = json.dumps({**embeddings, "usage": {"prompt_tokens": 3, "total_tokens": 3}}).encode()
    async with opened(FakeAdapter(Script(chunks=(body,), usage=Usage(prompt_tokens=3, exact=True)))) as d:
        answer = await d.openai.embeddings.create(model="chat", input=["a", "b"], encoding_format="float")
        assert answer.data[0].embedding == [0.5, -1.0]
        response = await post(d, {"model": "chat", "input": []}, path="/v1/embeddings")
        assert (response.status, (await error_of(response))["param"]) == (400, "input")
    first = d.rig.log.records[0]
    assert (first.operation, first.usage) == ("embeddings", Usage(prompt_tokens=3, exact=True))


async def test_the_official_client_gets_a_stream() -> None:
    async with opened(FakeAdapter(Script(chunks=HELLO))) as d:
        stream = await d.openai.chat.completions.create(model="chat", messages=HI, stream=True)
        text = "".join([c.choices[0].delta.content or "" async for c in stream])
        assert text == "Hello!"


async def test_a_break_in_a_stream_is_reported_and_nothing_is_added() -> None:
    script = Script(chunks=HELLO, fault=TransportError("The upstream broke."), fault_after=2)
    async with opened(FakeAdapter(script)) as d:
        response = await post(d, chat(stream=True))
        assert response.status == 200
        events = (await response.text()).strip().split("\n\n")
        assert len(events) == 3
        assert json.loads(events[2].removeprefix("data: "))["error"]["code"] == "upstream_unreachable"
        assert "[DONE]" not in events[2]
        assert not any('"finish_reason": "' in event for event in events)
        stream = await d.openai.chat.completions.create(model="chat", messages=HI, stream=True)
        with pytest.raises(openai.APIError, match="broke"):
            [c async for c in stream]


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b'{"model": "chat", "mess', 400, "invalid_json", None),
        (b'{"model":"chat","messages":' + b"[" * 4000 + b"]" * 4000 + b"}", 400, "invalid_json", None),
        (chat(messages=[]), 400, "invalid_request", "messages"),
        (chat(model=7), 400, "invalid_request", "model"),
        (chat(model="nothing"), 404, "model_not_found", "model"),
        (chat(messages=[{"role": "user", "content": "x" * 20_000}]), 413, "request_too_large", None),
    ],
)
async def test_bad_bodies(body: Any, status: int, code: str, param: str | None) -> None:
    async with opened() as d:
        response = await post(d, body)
        error = await error_of(response)
        assert (response.status, error["code"], error["param"]) == (status, code, param)
        assert error["type"] == "invalid_request_error"
        assert response.headers["x-should-retry"] == "false"
        assert response.headers["x-request-id"]
        assert "Traceback" not in error["message"]
    assert [r.status for r in d.rig.log.records] == [status]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("POST", "/v1/chat/completions", {"authorization": ""}, 401, "missing_api_key"),
        ("POST", "/v1/chat/completions", {"authorization": "Bearer sk-wrong"}, 401, "invalid_api_key"),
        ("GET", "/v1/models", {"authorization": "Basic abc"}, 401, "missing_api_key"),
        ("GET", "/anything/else", {"authorization": ""}, 401, "missing_api_key"),
        ("GET", "/anything/else", {}, 404, "unknown_url"),
        ("GET", "/v1/chat/completions", {}, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", {}, 405, "method_not_allowed"),
        ("POST", "/v1/chat/completions", {"content_type": "text/plain"}, 415, "unsupported_media_type"),
        ("GET", "/v1/models?api_key=abc", {}, 400, "key_in_url"),
        ("GET", "/v1/models/nothing", {}, 404, "model_not_found"),
    ],
)
async def test_bad_requests(method: str, path: str, headers: dict[str, str], status: int, code: str) -> None:
    async with opened() as d:
        response = await d.send(method, path, chat(), **headers)
        assert (response.status, (await error_of(response))["code"]) == (status, code)
        if status == 401:
            assert response.headers["www-authenticate"] == "Bearer"
    assert all(record.key == "" for record in d.rig.log.records if record.status in (400, 401))


@pytest.mark.parametrize(
    ("fault", "status", "code", "retry"),
    [
        (ContextTooLong("too long"), 400, "context_length_exceeded", "false"),
        (BackendError("x"), 502, "upstream_error", "false"),
        (TransportError("x"), 502, "upstream_unreachable", "false"),
        (UpstreamTimeout("x"), 504, "upstream_timeout", "false"),
        (CapacityError("x", retry_after=7.2), 503, "overloaded", "true"),
    ],
)
async def test_failed_upstreams(fault: Any, status: int, code: str, retry: str) -> None:
    async with opened(FakeAdapter(Script(fault=fault))) as d:
        response = await post(d)
        assert (response.status, (await error_of(response))["code"]) == (status, code)
        assert response.headers["x-should-retry"] == retry
        if retry == "true":
            assert 0 < int(response.headers["retry-after"]) <= 8
            assert 0 < int(response.headers["retry-after-ms"]) <= 7200  # what is left of it


async def test_no_healthy_endpoint_is_a_503_with_retry_after() -> None:
    async with opened() as d:
        d.rig.endpoints["main"][0].probed("down", healthy_after=1, unhealthy_after=1)
        response = await post(d)
        assert (response.status, (await error_of(response))["code"]) == (503, "no_healthy_endpoint")
        assert int(response.headers["retry-after"]) >= 1


async def test_over_a_limit_is_a_429_with_the_seconds_to_wait() -> None:
    async with opened(tenant={"limits": {"requests": "2/min", "tokens": "100k/month"}}) as d:
        first = await post(d)
        assert first.headers["x-ratelimit-limit-requests"] == "2"
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert first.headers["x-ratelimit-remaining-tokens"] == "99995"
        assert first.headers["x-ratelimit-reset-requests"].endswith("s")
        await post(d)
        refused = await post(d)
        assert (refused.status, (await error_of(refused))["code"]) == (429, "rate_limit_exceeded")
        assert 25 <= int(refused.headers["retry-after"]) <= 31
        assert refused.headers["x-should-retry"] == "true"
        with pytest.raises(openai.RateLimitError, match="requests"):
            await d.openai.chat.completions.create(model="chat", messages=HI)


async def test_the_response_names_the_endpoint() -> None:
    async with opened() as d:
        response = await post(d, x_request_id="mine-1")
        assert response.headers["x-request-id"] == "mine-1"
        assert response.headers["x-headrace-model"] == "chat"
        assert response.headers["x-headrace-endpoint"] == "main/0"
        assert float(response.headers["x-headrace-overhead-ms"]) >= 0
        hostile = await post(d, x_request_id="a b" * 40)
        assert hostile.headers["x-request-id"].startswith("req_")


async def test_models_are_those_the_tenant_may_use() -> None:
    route = {"routes": [{"to": "main"}]}
    models = [{"name": n, **route} for n in ("chat", "secret", "vision-*")]
    async with opened(models=models, tenant={"models": ["chat", "vision-*"]}) as d:
        assert [m.id async for m in d.openai.models.list()] == ["chat"]
        assert (await d.openai.models.retrieve("vision-large")).id == "vision-large"
        with pytest.raises(openai.NotFoundError):
            await d.openai.models.retrieve("secret")
        refused = await post(d, chat(model="secret"))
        assert refused.status == 404


async def test_a_model_is_listed_under_each_of_its_names() -> None:
    route = {"routes": [{"to": "main"}]}
    models = [{"name": "chat", "aliases": ["gpt-4o"], "versions": ["2"], **route}]
    async with opened(models=models, tenant={"models": ["chat"]}) as d:
        names = ["chat", "chat@2", "gpt-4o", "gpt-4o@2"]
        assert [m.id async for m in d.openai.models.list()] == names
        for name in names:
            assert (await d.openai.models.retrieve(name)).id == name
        answer = await post(d, chat(model="gpt-4o@2"))
        assert (answer.status, answer.headers["x-headrace-model"]) == (200, "chat")
        with pytest.raises(openai.NotFoundError):
            await d.openai.models.retrieve("chat@3")


ROUTES = [{"when": {"prompt_tokens": ">4000"}, "to": "main"}, {"to": "main", "rewrite": {"caps": {"max_tokens": 9}}}]
EXPLAIN = {"x_headrace_explain": "1"}


async def test_an_authorised_tenant_gets_an_explanation_on_request() -> None:
    async with opened(models=[{"name": "chat", "routes": ROUTES}], tenant={"explain": True}) as d:
        response = await post(d, chat(max_tokens=50), **EXPLAIN)
        assert json.loads(response.headers["x-headrace-explain"]) == {
            "model": "chat",
            "route": 1,
            "pools": ["main"],
            "sent": {"max_tokens": 9},
            "not": [{"route": 0, "requires": "prompt_tokens >4000", "has": "9"}],
        }
        assert "x-headrace-explain" not in (await post(d)).headers
        refused = await post(d, chat(model="chta\r\nx-evil: 1 \u2028" + "x" * 5000), **EXPLAIN)
        assert refused.status == 404
        because = json.loads(refused.headers["x-headrace-explain"])["refused"]
        assert because.startswith('no model has the name "chta\r\nx-evil')
        assert "x-evil" not in refused.headers
        assert len(refused.headers["x-headrace-explain"]) < 1000


async def test_an_unauthorised_tenant_gets_no_explanation() -> None:
    async with opened() as d:
        for response in (await post(d, **EXPLAIN), await post(d, chat(model="chta"), **EXPLAIN)):
            assert "x-headrace-explain" not in response.headers


@pytest.mark.parametrize(("scope", "explained"), [(None, True), (Scope(models=["*"]), False)])
async def test_an_operator_gets_an_explanation_for_any_tenant(scope: Scope | None, explained: bool) -> None:
    async with opened() as d:
        operator = Principal("acme", d.rig.key.id, frozenset({"user", "operator"}), scope=scope)
        keys = KeyTable(PEPPER, {d.rig.key.id: KeyRecord(operator, digest(PEPPER, d.rig.key.plaintext))})
        d.rig.core.snapshot = with_keys(d.rig.core.snapshot, keys)
        assert ("x-headrace-explain" in (await post(d, **EXPLAIN)).headers) is explained


async def test_no_credential_and_no_text_is_remembered() -> None:
    async with opened() as d:
        await post(d, chat(messages=[{"role": "user", "content": "my secret plan"}], user="u-1"))
    line = repr(d.rig.log.lines)
    assert "secret plan" not in line
    assert d.rig.key.plaintext not in line
    assert d.rig.key.id in line


async def test_the_arm_is_reported_for_every_outcome() -> None:
    arms = [{"pool": "main", "weight": 1}, {"name": "off", "pool": "main", "weight": 0}]
    models = [{"name": "chat", "routes": [{"split": {"arms": arms}, "cache": {}, "retry": {"attempts": 1}}]}]
    fake = FakeAdapter(Script(chunks=(completion(),)), Script(fault=BackendError("x")))
    async with opened(fake, models=models) as d:
        answers = [await post(d, chat(seed=seed)) for seed in (1, 1, 2)]
        assert [answer.status for answer in answers] == [200, 200, 502]
        assert answers[1].headers["x-headrace-cache"] == "hit"
        assert [answer.headers["x-headrace-arm"] for answer in answers] == ["main"] * 3
        text = generate_latest(d.rig.metrics.registry).decode()
        assert 'headrace_requests_total{arm="main",error="backend",model="chat",pool="main",status="502"' in text


async def test_completions_and_metrics() -> None:
    async with opened() as d:
        answer = await d.openai.completions.create(model="chat", prompt=["a", "b"], max_tokens=4)
        assert answer.usage is not None
        await post(d, chat(model="made-up-by-a-client"))
        text = generate_latest(d.rig.metrics.registry).decode()
        assert (
            'headrace_requests_total{arm="",error="",model="chat",pool="main",status="200",tenant="acme"} 1.0' in text
        )
        assert 'headrace_tokens_total{model="chat",tenant="acme",type="completion"} 2.0' in text
        assert "made-up-by-a-client" not in text


async def test_a_bug_of_ours_is_a_500_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeAdapter):
        async def call(self, *_: Any) -> Any:
            raise ZeroDivisionError("a bug")

    async with opened(Broken()) as d:
        response = await post(d)
        assert (response.status, (await error_of(response))["code"]) == (500, "internal_error")
        assert "bug" not in await response.text()
    assert "a bug" in caplog.text
    assert [r.status for r in d.rig.log.records] == [500]


async def test_the_headers_hold_the_tightest_limit_of_each_unit() -> None:
    limits = [
        {"requests": "9/min", "spend": "50 usd/month"},
        {"requests": "2/h", "per": "user", "spend": "1 usd/day"},
        {"requests": "1/d", "enforce": "shadow"},
    ]
    price = {"request": "0.25 usd"}
    models = [{"name": "chat", "routes": [{"to": "main"}], "price": price}]
    async with opened(tenant={"limits": limits}, models=models) as d:
        first = await post(d, chat(user="ann"))
        assert first.headers["x-ratelimit-limit-requests"] == "2"
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert first.headers["x-ratelimit-limit-spend"] == "1 usd/day"
        assert first.headers["x-ratelimit-remaining-spend"] == "0.75 usd"
        await post(d, chat(user="ann"))
        refused = await post(d, chat(user="ann"))
        assert refused.status == 429
        assert "requests: 2/h for each user" in (await error_of(refused))["message"]
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert (await post(d, chat(user="bob"))).status == 200
        listed = await d.send("GET", "/v1/models")
        assert listed.headers["x-ratelimit-limit-requests"] == "9"


async def test_a_key_sees_and_uses_the_models_of_its_scopes() -> None:
    route = {"routes": [{"to": "main"}]}
    async with opened(models=[{"name": n, **route} for n in ("chat", "vision")]) as d:
        d.rig.hold(scope=Scope(models=["chat"], fronts=["chat", "models"]))
        assert [m.id async for m in d.openai.models.list()] == ["chat"]
        with pytest.raises(openai.NotFoundError):
            await d.openai.models.retrieve("vision")
        assert (await post(d)).status == 200
        hidden, unknown = await post(d, chat(model="vision")), await post(d, chat(model="nothing"))
        assert hidden.status == unknown.status == 404
        assert (await hidden.text()).replace("vision", "nothing") == await unknown.text()
        response = await post(d, {"model": "chat", "prompt": "hi"}, path="/v1/completions")
        assert (response.status, response.headers["x-should-retry"]) == (403, "false")
        error = await error_of(response)
        assert (error["type"], error["code"]) == ("permission_error", "not_in_scope")
        assert "text_completion" in error["message"]
    assert [record.status for record in d.rig.log.records][-1] == 403


async def test_a_header_that_claims_a_tenant_changes_nothing() -> None:
    names = (
        "x-tenant", "x-tenant-id", "x-headrace-tenant", "x-forwarded-user", "x-user", "x-role", "x-headrace-role",
        "x-headrace-share", "openai-organization",
    )  # fmt: skip
    async with opened() as d:
        response = await post(d, **dict.fromkeys(names, "beta"))
        assert response.status == 200
        assert (await post(d, chat(tenant="beta"))).status == 200
    fake = d.fake
    assert [played.call.tenant for played in fake.calls] == ["acme", "acme"]
    assert [played.call.share for played in fake.calls] == [1.0, 1.0]
    assert {record.tenant for record in d.rig.log.records} == {"acme"}
    assert {record.roles for record in d.rig.log.records} == {frozenset({"user"})}


async def test_every_operation_of_the_door_can_be_named_in_a_scope() -> None:
    async with opened() as d:
        served = {route.operation for route in client_fronts(d.rig.core).routes()}
    assert served == set(get_args(Operation)) - {"metrics"}  # the admin listener's


async def test_a_wait_is_reported_and_a_full_queue_sends_retry_after() -> None:
    pool = {"name": "main", "endpoints": ["http://127.0.0.1:9"], "queue": {"max_in_flight": 1, "max": 1}}
    async with opened(FakeAdapter(Script(chunks=(completion(),), latency=0.2)), pools=[pool]) as d:
        calls = [asyncio.create_task(post(d)) for _ in range(3)]
        answers = sorted(await asyncio.gather(*calls), key=lambda r: (r.status, "x-headrace-queue-ms" in r.headers))
        assert [answer.status for answer in answers] == [200, 200, 503]
        first, waited, refused = answers
        assert "x-headrace-queue-ms" not in first.headers
        assert 100 < float(waited.headers["x-headrace-queue-ms"]) < 60_000
        assert (await error_of(refused))["code"] == "overloaded"
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-should-retry"] == "true"
        d.rig.assert_idle()


@pytest.mark.parametrize("fields", [{}, {"stream": True}], ids=str)
async def test_a_cached_answer_is_marked(fields: dict[str, Any]) -> None:
    script = Script(chunks=HELLO) if fields else Script(chunks=(completion(),))
    models = [{"name": "chat", "routes": [{"to": "main", "cache": {}}]}]
    async with opened(FakeAdapter(script), models=models) as d:
        first, again = [await post(d, chat(temperature=0, **fields)) for _ in range(2)]
        assert (first.headers["x-headrace-cache"], "age" in first.headers) == ("miss", False)
        assert (again.headers["x-headrace-cache"], again.headers["age"]) == ("hit", "0")
        assert await again.read() == await first.read()
        fresh = await post(d, chat(temperature=0, **fields), cache_control="no-cache")
        assert fresh.headers["x-headrace-cache"] == "miss"
