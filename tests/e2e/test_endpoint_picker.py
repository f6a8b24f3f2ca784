"""The endpoint picker of a real gateway, behind a proxy that speaks as Envoy does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.http1.message import Response
from adapters.wire.protos import HEALTH_METHODS, health
from adapters.wire.protos.envoy import PROCESS, ext_proc
from tests.support.processes import GatewayProcess, gateway
from tests.support.proxies import Proxy, proxy
from tests.support.upstreams import Upstream, upstream

BODY = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "hi"}]}).encode()


@asynccontextmanager
async def picking(folder: Path, servers: list[str], **changes: Any) -> AsyncIterator[GatewayProcess]:
    configuration: dict[str, Any] = {
        "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "endpoint_picker": "127.0.0.1:0"},
        "pools": [{"name": "main", "endpoints": servers, "probe": None}],
        "models": [{"name": "chat", "routes": [{"to": "main"}]}],
        "tenants": [{"name": "acme", "models": ["chat"]}],
    }
    async with gateway(folder, {**configuration, **changes}) as running:
        yield running


def headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", "content-type": "application/json", "x-client": "1"}


def host_of(server: Upstream) -> str:
    return server.url.removeprefix("http://")


@pytest.mark.parametrize("whole", [False, True])
async def test_a_request_goes_to_the_picked_endpoint(tmp_path: Path, whole: bool) -> None:
    async with (
        upstream() as server,
        picking(tmp_path, [server.url]) as running,
        proxy(running.picker, whole=whole) as p,
    ):
        key = await running.key()
        outcome = await p.send(BODY, headers(key))
        assert (outcome.status, outcome.json()["choices"][0]["message"]["content"]) == (200, server.text)
        assert outcome.destinations == [host_of(server)]
        assert outcome.metadata == host_of(server)
        assert json.loads(outcome.upstream_body)["model"] == "chat"
        assert outcome.headers["x-headrace-model"] == "chat"
        assert not {"authorization", "x-client"} & outcome.sent.keys()
        state = await running.until_idle()
        assert [endpoint["in_flight"] for endpoint in state["endpoints"]] == [0]


async def test_streams_pass_as_they_arrive(tmp_path: Path) -> None:
    async with (
        upstream("one two three") as server,
        picking(tmp_path, [server.url]) as running,
        proxy(running.picker) as p,
    ):
        body = json.dumps({**json.loads(BODY), "stream": True}).encode()
        outcome = await p.send(body, headers(await running.key()))
        assert outcome.headers["content-type"] == "text/event-stream"
        assert outcome.body.endswith(b"data: [DONE]\n\n")
        assert [word in outcome.body for word in (b"one", b"two", b"three")] == [True] * 3
        await running.until_idle()


@pytest.mark.parametrize("whole", [False, True])
async def test_refusals_have_the_shape_of_the_door(tmp_path: Path, whole: bool) -> None:
    tenants = [{"name": "acme", "models": ["chat"], "limits": {"requests": "1/min"}}]
    async with (
        upstream() as server,
        picking(tmp_path, [server.url], tenants=tenants) as running,
        proxy(running.picker, whole=whole) as p,
    ):
        key = await running.key()
        wrong = await p.send(BODY, headers("hr-wrong"))
        assert (wrong.immediate, wrong.status, wrong.json()["error"]["code"]) == (True, 401, "invalid_api_key")
        unknown = await p.send(BODY, headers(key), path="/v1/messages")
        assert (unknown.status, unknown.json()["type"]) == (400, "error")  # Anthropic's shape: no max_tokens
        nowhere = await p.send(b"", headers(key), method="GET", path="/nowhere")
        assert (nowhere.immediate, nowhere.status) == (True, 404)
        models = await p.send(b"", headers(key), method="GET", path="/v1/models")
        assert (models.immediate, [model["id"] for model in models.json()["data"]]) == (True, ["chat"])
        assert (await p.send(BODY, headers(key))).status == 200
        limited = await p.send(BODY, headers(key))
        assert (limited.immediate, limited.status, limited.json()["error"]["type"]) == (True, 429, "rate_limit_error")
        assert 0 < int(limited.headers["retry-after"]) <= 60
        assert "content-length" not in limited.headers  # Envoy computes it
        await running.until_idle()
    assert len(server.received) == 1


async def test_only_endpoints_of_the_subset_are_picked(tmp_path: Path) -> None:
    async with upstream("a") as a, upstream("b") as b, picking(tmp_path, [a.url, b.url]) as running:
        key = await running.key()
        async with proxy(running.picker) as p:
            for _ in range(8):
                outcome = await p.send(BODY, headers(key), subset=[host_of(b), "10.0.0.1:1"])
                assert outcome.destinations == [host_of(b)]
            for subset in ([], ["10.0.0.1:1"], ["not an address", ""]):
                outcome = await p.send(BODY, headers(key), subset=subset)
                assert (outcome.immediate, outcome.status) == (True, 503)
                assert outcome.json()["error"]["code"] == "no_permitted_endpoint"
                assert "retry-after" in outcome.headers
            await running.until_idle()
    assert (len(a.received), len(b.received)) == (0, 8)


async def test_an_alternative_that_answers_has_the_lease(tmp_path: Path) -> None:
    pool = {"name": "main", "endpoints": ["http://127.0.0.1:9"], "probe": None, "balance": {"by": "round_robin"}}
    async with upstream() as server:
        pool["endpoints"] = ["http://127.0.0.1:9", server.url]
        async with picking(tmp_path, [], pools=[pool]) as running, proxy(running.picker) as p:
            key = await running.key()
            p.refuses = {"127.0.0.1:9"}
            outcomes = [await p.send(BODY, headers(key)) for _ in range(20)]
            assert {outcome.status for outcome in outcomes} == {200}
            served = {outcome.headers["x-headrace-endpoint"] for outcome in outcomes}
            assert len(served) == 1  # the endpoint that answered, not the picked one
            assert sum(outcome.destinations[0] == "127.0.0.1:9" for outcome in outcomes) == 5
            state = await running.until_idle()
            dead = next(endpoint for endpoint in state["endpoints"] if endpoint["endpoint"] not in served)
            assert dead["breaker"] == "open"


async def test_endpoints_that_the_proxy_cannot_reach_are_a_truthful_error(tmp_path: Path) -> None:
    async with picking(tmp_path, ["http://127.0.0.1:9"]) as running, proxy(running.picker) as p:
        p.refuses = {"127.0.0.1:9"}
        outcome = await p.send(BODY, headers(await running.key()))
        assert (outcome.status, outcome.immediate) == (502, False)
        assert outcome.json()["error"]["message"] == "The endpoint could not be reached."
        assert outcome.headers["content-type"] == "application/json"
        await running.until_idle()


async def test_endpoints_with_names_and_sockets_are_not_picked(tmp_path: Path) -> None:
    async with picking(tmp_path, ["http://localhost:9"]) as running, proxy(running.picker) as p:
        outcome = await p.send(BODY, headers(await running.key()))
        assert (outcome.status, outcome.json()["error"]["code"]) == (503, "no_permitted_endpoint")


async def test_a_failure_of_the_endpoint_is_not_repeated_and_has_the_shape_of_the_door(tmp_path: Path) -> None:
    async def fails(body: dict[str, Any]) -> Response:
        return Response(500, [("content-type", "application/json")], b'{"error": {"message": "broken"}}')

    async with upstream() as server, upstream() as other, picking(tmp_path, [server.url, other.url]) as running:
        server.behaviour = other.behaviour = fails
        async with proxy(running.picker) as p:
            outcome = await p.send(BODY, headers(await running.key()))
            assert (outcome.status, outcome.json()["error"]["type"]) == (502, "server_error")
            assert len(server.received) + len(other.received) == 1
            await running.until_idle()


async def test_a_lost_call_releases_everything_at_every_point(tmp_path: Path) -> None:
    async def slow(body: dict[str, Any]) -> Response:
        return Response(200, [("content-type", "application/json")], b"{}")

    async with upstream() as server, picking(tmp_path, [server.url]) as running, proxy(running.picker) as p:
        server.behaviour, key = slow, await running.key()
        for point in range(4):
            call = p.call()
            await call.write(p.head("POST", "/v1/chat/completions", headers(key), last=False))
            if point > 0:
                await call.write(ext_proc.ProcessingRequest(request_body={"body": BODY, "end_of_stream": True}))
            if point > 1:
                assert (await call.read()).WhichOneof("response") == "request_headers"
                await running.until("sum(e['in_flight'] for e in s['endpoints']) == 1")
            if point > 2:
                head = ext_proc.ProcessingRequest()
                for name, value in ((":status", b"200"), ("content-type", b"application/json")):
                    head.response_headers.headers.headers.add(key=name, raw_value=value)
                await call.write(head)
                await call.write(ext_proc.ProcessingRequest(response_body={"body": b'{"id":', "end_of_stream": False}))
            call.cancel()
            await running.until_idle()


async def test_a_picker_reports_its_health(tmp_path: Path) -> None:
    method = HEALTH_METHODS["Check"]
    async with (
        upstream() as server,
        picking(tmp_path, [server.url]) as running,
        grpc.aio.insecure_channel(running.picker) as channel,
    ):
        check = channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        for service in ("", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"):
            answer = await check(health.HealthCheckRequest(service=service))
            assert answer.status == 1
        with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
            await check(health.HealthCheckRequest(service="other"))
        other = channel.unary_unary("/envoy.service.ext_proc.v3.ExternalProcessor/Other")
        with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
            await other(b"")


async def test_a_mode_without_whole_bodies_is_refused_with_the_field_to_change(tmp_path: Path) -> None:
    async with upstream() as server, picking(tmp_path, [server.url]) as running, proxy(running.picker) as p:
        p.mode = 1
        outcome = await p.send(BODY, headers(await running.key()))
        assert (outcome.status, outcome.immediate) == (500, True)
        assert b"FULL_DUPLEX_STREAMED" in outcome.body


async def test_bodies_of_every_size_arrive_whole(tmp_path: Path) -> None:
    http = {"max_body": "1MiB"}
    async with upstream() as server, picking(tmp_path, [server.url], http=http) as running:
        key = await running.key()
        for whole in (False, True):
            async with proxy(running.picker, whole=whole) as p:
                for size in (1, 999, 61_999, 62_001, 200_000, 900_000):
                    content = "x" * size
                    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": content}]}).encode()
                    outcome = await p.send(body, headers(key), trailers=size == 999 and not whole)
                    assert outcome.status == 200, outcome.body
                    assert server.received[-1]["messages"][0]["content"] == content
                    assert outcome.sent["content-length"] == str(len(outcome.upstream_body))
                if not whole:
                    outcome = await p.send(b"{" + b" " * 2_000_000 + b"}", headers(key))
                    assert (outcome.status, outcome.immediate) == (413, True)
                await running.until_idle()


async def test_usage_is_charged_as_over_http(tmp_path: Path) -> None:
    async with upstream() as server, picking(tmp_path, [server.url]) as running, proxy(running.picker) as p:
        assert (await p.send(BODY, headers(await running.key()))).status == 200
        await running.until_idle()
        assert await running.stop() == 0
        lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
        line = next(line for line in lines if line["status"] == 200 and line["endpoint"])
        assert (line["tenant"], line["model"], line["pool"], line["attempts"]) == ("acme", "chat", "main", 1)
        assert (line["prompt_tokens"], line["completion_tokens"]) == (5, 7)


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [":method", ":path", ":authority", ":status", "content-length", "x", "X y", "transfer-encoding"]
        ),
        st.binary(max_size=12) | st.sampled_from([b"POST", b"/v1/chat/completions", b"a\r\nb: c", b"200", b"chunked"]),
    ),
    max_size=6,
)
PARTS = (
    "request_headers",
    "response_headers",
    "request_body",
    "response_body",
    "request_trailers",
    "response_trailers",
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message of any kind with any content, or bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=40))
    message, part = ext_proc.ProcessingRequest(), draw(st.sampled_from(PARTS))
    target = getattr(message, part)
    target.SetInParent()
    if part.endswith("headers"):
        for name, value in draw(HEADERS):
            target.headers.headers.add(key=name, raw_value=value)
    if part.endswith("body"):
        target.body = draw(st.binary(max_size=64) | st.just(BODY))
    if not part.endswith("trailers"):
        target.end_of_stream = draw(st.booleans())
    message.protocol_config.request_body_mode = draw(st.sampled_from([2, 4, 4, 4, 0, 5]))
    message.protocol_config.response_body_mode = 4
    if draw(st.booleans()):
        message.metadata_context.filter_metadata["envoy.lb.subset_hint"].fields["x"].string_value = "y"
    return bytes(message.SerializeToString())


async def test_hostile_messages_end_only_their_call(tmp_path: Path) -> None:
    async with upstream() as server, picking(tmp_path, [server.url]) as running:
        key = await running.key()
        async with grpc.aio.insecure_channel(running.picker) as channel:
            process = channel.stream_stream(PROCESS.path)
            good = Proxy(channel).head("POST", "/v1/chat/completions", headers(key), last=False).SerializeToString()
            cases: list[list[bytes]] = []

            @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(st.lists(messages(), max_size=6), st.booleans())
            def collect(sent: list[bytes], begins: bool) -> None:
                cases.append([good, *sent] if begins else sent)

            collect()
            for case in cases:
                call = process()
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    for message in case:
                        await call.write(message)
                    await call.done_writing()
                    while await call.read() is not grpc.aio.EOF:
                        pass
        async with proxy(running.picker) as p:
            assert (await p.send(BODY, headers(key))).status == 200
        await running.until_idle()
        assert "unhandled" not in running.output
        assert "Traceback" not in running.output
