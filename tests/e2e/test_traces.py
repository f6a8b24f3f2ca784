"""Traces from a real gateway to real collectors: complete, linked, and of the requests that the rules keep."""

import asyncio
import json
import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from adapters.http1.message import Response
from tests.support.collectors import Received, ReceivedSpan, grpc_collector, http_collector
from tests.support.processes import GatewayProcess, gateway
from tests.support.rotel import rotel
from tests.support.upstreams import Upstream, upstream

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
SERVER, CLIENT = 2, 3
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "a secret of mine"}]}


def configuration(up: Upstream, collector: Received, **traces: Any) -> dict[str, Any]:
    given = {"to": collector.url, "sample": "100%", **traces}
    pools = [{"name": "main", "endpoints": [up.url]}, {"name": "spare", "endpoints": [up.url]}]
    steps = [
        {"name": "first", "model": "chat"},
        {"name": "second", "model": "chat", "in": {"prompt": "first.text"}},
    ]
    return {
        "traces": {name: value for name, value in given.items() if value is not None},
        "pools": pools,
        "models": [
            {"name": "chat", "routes": [{"to": "main", "fallback": ["spare"]}]},
            {"name": "two", "pipeline": {"steps": steps}},
        ],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def post(g: GatewayProcess, key: str, body: dict[str, Any], **headers: str) -> tuple[int, str]:
    sent = {"authorization": f"Bearer {key}", **headers}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{g.url}/v1/chat/completions", json=body, headers=sent) as response,
    ):
        await response.read()
        return response.status, response.headers["x-request-id"]


def is_within(inner: ReceivedSpan, outer: ReceivedSpan) -> bool:
    return outer.start <= inner.start <= inner.end <= outer.end + 1_000_000


@pytest.mark.parametrize("collector", [http_collector, grpc_collector])
async def test_a_chat_is_one_linked_trace(tmp_path: Path, collector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listening: AbstractAsyncContextManager[Received] = collector()
    monkeypatch.setenv("OTLP_KEY", "Basic c2VjcmV0")
    async with listening as received, upstream() as up:
        config = configuration(up, received, headers={"authorization": "${OTLP_KEY}"})
        async with gateway(tmp_path, config) as g:
            status, request_id = await post(g, await g.key(), CHAT, traceparent=PARENT + "00", tracestate="a=b")
            assert status == 200
            await received.until(lambda _: received.roots())
            [root], [attempt] = received.roots(), [span for span in received.spans if span.kind == CLIENT]
            assert root.trace == attempt.trace == PARENT[3:35]
            assert root.parent == PARENT[36:52]
            assert attempt.parent == root.id
            assert is_within(attempt, root)
            assert (root.name, attempt.name) == ("chat chat", "chat chat")
            expected = {
                "headrace.request_id": request_id,
                "headrace.tenant": "acme",
                "headrace.pool": "main",
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "chat",
                "gen_ai.usage.input_tokens": 5,
                "gen_ai.usage.output_tokens": 7,
                "http.response.status_code": 200,
            }
            assert root.attributes.items() >= expected.items()
            assert attempt.attributes["server.port"] == int(up.url.rpartition(":")[2])
            # The upstream continues the trace below the attempt.
            [sent] = up.headers
            assert re.fullmatch(rf"00-{root.trace}-{attempt.id}-01", sent["traceparent"])
            assert sent["tracestate"] == "a=b"
            assert [name for name, _ in root.events] == ["decision", "first_chunk"]
            assert received.headers["authorization"] == "Basic c2VjcmV0"
            assert received.resources[0]["service.name"] == "headrace"
            assert "secret" not in str(received.spans), "a trace has no content"


async def test_rules_keep_failures_and_a_reload_changes_them(tmp_path: Path) -> None:
    async with http_collector() as received, upstream() as up:
        config = configuration(up, received, sample="0%")
        async with gateway(tmp_path, config) as g:
            key = await g.key()
            for _ in range(20):
                assert (await post(g, key, CHAT))[0] == 200
            assert (await post(g, key, CHAT, traceparent=PARENT + "01"))[0] == 200  # the client has sampled it

            async def fail(_: dict[str, Any]) -> Response:
                return Response(500, [], b"{}")

            up.behaviour = fail
            assert (await post(g, key, CHAT))[0] >= 500
            up.behaviour = None
            await received.until(lambda _: len(received.roots()) >= 2)
            sampled, failed = sorted(received.roots(), key=lambda span: span.start)
            assert sampled.parent
            assert failed.error
            metrics = await g.metrics()
            assert 'headrace_traces_total{outcome="exported"} 2.0' in metrics
            changed = {"incoming": "ignore", "keep": [], "sample": "100%", "service": "edge"}
            g.rewrite(traces={"to": received.url, **changed})
            await g.printed("configuration reloaded")
            assert (await post(g, key, CHAT, traceparent=PARENT + "01"))[0] == 200
            await received.until(lambda _: len(received.roots()) == 3)
            last = max(received.roots(), key=lambda span: span.start)
            assert last.trace != PARENT[3:35]
            assert not last.parent
            assert received.resources[-1]["service.name"] == "edge"


async def test_a_dead_collector_delays_no_request_and_no_stop(tmp_path: Path) -> None:
    received = Received()
    received.url = "http://127.0.0.1:9"
    async with upstream() as up, gateway(tmp_path, configuration(up, received)) as g:
        key = await g.key()
        assert (await asyncio.gather(*[post(g, key, CHAT) for _ in range(50)]))[0][0] == 200
        assert await g.stop() == 0
        assert "Traceback" not in g.output


@pytest.mark.servers
@pytest.mark.parametrize("wire", ["http", "grpc"])
async def test_a_real_collector_receives_linked_spans(tmp_path: Path, wire: str) -> None:
    async with rotel(tmp_path) as collector, upstream() as up:
        config = configuration(up, Received(), to=getattr(collector, wire))
        async with gateway(tmp_path, config) as g:
            status, request_id = await post(g, await g.key(), {**CHAT, "model": "two"}, traceparent=PARENT + "01")
            assert status == 200
        text = await collector.until(lambda printed: request_id in printed and "step second" in printed)
    trace, parent = PARENT[3:35], PARENT[36:52]
    spans = [span for span in re.split(r"\nSpan #\d+", text) if trace in span.replace("-", "")]
    ids = {re.search(r"\n +ID +: (\w{16})", span)[1] for span in spans}  # type: ignore[index]
    parents = {re.search(r"\n +Parent ID +: (\w{16})", span)[1] for span in spans}  # type: ignore[index]
    assert len(spans) == len(ids) == 5, "the request, two steps, and their attempts"
    assert parents <= ids | {parent}
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    assert [line.get("trace_id") for line in lines if line["request_id"] == request_id] == [trace]


def documented(name: str) -> dict[str, Any]:
    """The example of the page for a collector."""
    examples = re.findall(r"```yaml\n(.*?)```", Path("docs/operations.md").read_text(), re.DOTALL)
    [config] = [yaml.safe_load(text) for text in examples if f"{name}.key" in text]
    return dict(config)


@pytest.mark.parametrize(
    ("name", "path", "headers"),
    [
        ("langfuse", "/api/public/otel/v1/traces", {"x-langfuse-ingestion-version": "4"}),
        ("phoenix", "/v1/traces", {}),
    ],
)
async def test_the_documented_configuration_reaches(
    tmp_path: Path, name: str, path: str, headers: dict[str, str]
) -> None:
    config = documented(name)
    (tmp_path / f"{name}.key").write_text("Basic cHVibGljOnNlY3JldA==\n")
    async with http_collector(path) as received, upstream() as up:
        config["traces"]["to"] = received.url + path
        config["traces"]["sample"] = "100%"
        config["pools"][0]["endpoints"] = [up.url]
        del config["version"]
        async with gateway(tmp_path, config) as g:
            assert (await post(g, await g.key(), CHAT))[0] == 200
            await received.until(lambda _: received.roots())
        assert received.headers["authorization"] == "Basic cHVibGljOnNlY3JldA=="
        assert received.headers["content-type"] == "application/x-protobuf"
        assert received.headers.items() >= headers.items()
        assert received.resources[-1].items() >= config["traces"].get("resource", {}).items()


async def test_requests_and_steps_have_the_redacted_content_of_routes_that_opt_in(tmp_path: Path) -> None:
    async with http_collector() as received, upstream("answer of c@d.example") as up:
        config = configuration(up, received)
        content = {"redact": ["email"], "max": "2KiB"}
        config["models"].append({"name": "open", "routes": [{"to": "main", "trace_content": content}]})
        steps = [
            {"name": "first", "model": "open"},
            {"name": "second", "model": "chat", "in": {"prompt": "first.text"}},
            {"name": "third", "model": "open", "in": {"prompt": "second.text"}},
        ]
        config["models"].append({"name": "mixed", "pipeline": {"steps": steps}})
        async with gateway(tmp_path, config) as g:
            body = {"model": "mixed", "stream": True, "messages": [{"role": "user", "content": "from a@b.example"}]}
            key = await g.key()
            for model, stream in (("mixed", True), ("open", False), ("open", True), ("chat", False)):
                assert (await post(g, key, {**body, "model": model, "stream": stream}))[0] == 200
            await received.until(lambda _: len(received.roots()) == 4)
    piped, whole, streamed, closed = sorted(received.roots(), key=lambda span: span.start)
    by_name = {span.name: span for span in received.trace(piped)}
    opened = [whole, streamed, by_name.pop("step first"), third := by_name.pop("step third")]
    for span in opened:
        [answer] = json.loads(span.attributes["gen_ai.output.messages"])
        assert answer["finish_reason"] == "stop"
        assert answer["parts"][0]["content"].strip() == "answer of [email]"
        if span is not third:
            [sent] = json.loads(span.attributes["gen_ai.input.messages"])
            assert sent == {"role": "user", "parts": [{"type": "text", "content": "from [email]"}]}
    others = [piped, closed, *by_name.values()]
    assert not [name for span in others for name in span.attributes if name.endswith(".messages")]
    assert ".example" not in str(received.spans)
