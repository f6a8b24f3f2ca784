"""Traces of the bundled runtimes, below the attempts of a real gateway of two workers."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from tests.servers.headrace import headrace
from tests.servers.repositories import for_headrace
from tests.support.collectors import Received, ReceivedSpan, http_collector
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Upstream, upstream

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]
SERVER, CLIENT = 2, 3
CHAT: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
INFER = {"inputs": [{"name": f"INPUT{i}", "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for i in (0, 1)]}


class Setting(NamedTuple):
    """A gateway, its collector, and another company's server."""

    gateway: GatewayProcess
    key: str
    received: Received
    other: Upstream

    async def send(self, path: str, body: dict[str, Any], *, sampled: bool = True) -> tuple[int, str]:
        """The status, and the id of the trace."""
        trace = secrets.token_hex(16)
        headers = {"authorization": f"Bearer {self.key}", "baggage": "team=red"}
        headers["traceparent"] = f"00-{trace}-00f067aa0ba902b7-{'01' if sampled else '00'}"
        async with aiohttp.ClientSession(self.gateway.url, headers=headers) as http, http.post(path, json=body) as got:
            await got.read()
            return got.status, trace

    async def trace(self, trace: str) -> list[ReceivedSpan]:
        """The spans of a trace, which arrive in one export."""
        spans = await self.received.until(lambda spans: any(span.trace == trace for span in spans))
        return [span for span in spans if span.trace == trace]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def setting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setting]:
    folder = tmp_path_factory.mktemp("traces")
    repository = for_headrace(folder / "models", ["add_sub"])
    llm = {"kind": "llm", "model": "bundled:smollm2-135m-instruct", "max_model_len": 512}
    with headrace(repository) as elsewhere:
        remote = {"name": "remote", "protocol": "oip-http", "model": "add_sub", "runtime_spans": True}
        remote["endpoints"] = [f"http://{elsewhere.http}"]
        async with http_collector() as received, upstream() as other:
            config = {
                "workers": 2,
                "traces": {"to": received.url, "sample": "0%", "keep": ["errors"]},
                "pools": [
                    {"name": "smollm2", "runtime": llm},
                    {"name": "tensors", "runtime": {"kind": "tensor", "repository": str(repository)}},
                    {"name": "other", "endpoints": [other.url]},
                    remote,
                ],
                "models": [
                    {"name": "chat", "routes": [{"to": "smollm2"}]},
                    {"name": "hasty", "routes": [{"to": "smollm2", "timeout": {"total": "1ms"}}]},
                    {"name": "other", "routes": [{"to": "other"}]},
                    {"name": "add_sub", "routes": [{"to": "tensors"}]},
                    {"name": "remote", "routes": [{"to": "remote"}]},
                ],
                "tenants": [{"name": "acme", "models": ["*"]}],
            }
            async with gateway(folder, config) as g:
                await g.printed("Ready.", 900)
                yield Setting(g, await g.key(), received, other)


def linked(spans: list[ReceivedSpan]) -> dict[str, ReceivedSpan]:
    """The spans by name, all below one another: the request, its attempt, the runtime's request and its phases."""
    [root] = [span for span in spans if span.parent == "00f067aa0ba902b7"]
    [attempt] = [span for span in spans if span.kind == CLIENT]
    [runtime] = [span for span in spans if span.kind == SERVER and span is not root]
    assert attempt.parent == root.id
    assert runtime.parent == attempt.id
    ids = {span.id for span in spans}
    assert len(ids) == len(spans)
    assert all(span.parent in ids for span in spans if span is not root)
    for span in spans:
        assert root.start <= span.start <= span.end, span
    return {span.name: span for span in spans if span not in (root, attempt)}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_has_the_phases_of_its_engine(setting: Setting, stream: bool) -> None:
    status, trace = await setting.send("/v1/chat/completions", CHAT | {"stream": stream})
    assert status == 200
    spans = linked(await setting.trace(trace))
    assert spans.keys() == {"POST /v1/chat/completions", "queue", "prefill", "decode"}
    runtime = spans["POST /v1/chat/completions"]
    assert runtime.service == "headrace/smollm2"
    assert runtime.attributes["baggage.team"] == "red"
    assert runtime.attributes["gen_ai.usage.output_tokens"] == spans["decode"].attributes["headrace.tokens"]


@pytest.mark.parametrize(("model", "pool"), [("add_sub", "tensors"), ("remote", "remote")])
async def test_a_tensor_request_has_its_batch(setting: Setting, model: str, pool: str) -> None:
    """Of a runtime that the gateway has started, and of one that runs elsewhere."""
    status, trace = await setting.send(f"/v2/models/{model}/infer", INFER)
    assert status == 200
    spans = linked(await setting.trace(trace))
    assert {span.service for span in spans.values()} == {f"headrace/{pool}"}
    assert spans["POST /v2/models/add_sub/infer"].attributes["baggage.team"] == "red"
    assert spans.keys() == {"POST /v2/models/add_sub/infer", "infer add_sub", "queue", "batch"}
    assert spans["batch"].parent == spans["queue"].parent == spans["infer add_sub"].id
    assert spans["batch"].attributes["headrace.batch.rows"] >= 1
    ours = [span for span in setting.received.spans if span.trace == trace]
    assert [span.attributes["headrace.rows"] for span in ours if span.parent == "00f067aa0ba902b7"] == [1]
    assert not [name for span in ours for name in span.attributes if name.startswith("gen_ai.")], "no convention"


async def test_a_trace_that_is_chosen_at_its_end_has_the_spans_of_its_runtime(setting: Setting) -> None:
    """Neither the client nor the share has sampled it: its failure selects it."""
    status, trace = await setting.send("/v1/chat/completions", CHAT | {"model": "hasty"}, sampled=False)
    assert status == 504
    spans = linked(await setting.trace(trace))
    assert spans["POST /v1/chat/completions"].error
    status, unsampled = await setting.send("/v1/chat/completions", CHAT, sampled=False)
    assert status == 200
    await setting.trace((await setting.send("/v1/chat/completions", CHAT))[1])
    assert not [span for span in setting.received.spans if span.trace == unsampled]


async def test_another_server_receives_the_trace_and_no_baggage(setting: Setting) -> None:
    status, trace = await setting.send("/v1/chat/completions", CHAT | {"model": "other"})
    assert status == 200
    [headers] = setting.other.headers
    assert headers["traceparent"].split("-")[1] == trace
    assert "baggage" not in headers
    assert len(await setting.trace(trace)) == 2


async def test_a_killed_runtime_costs_only_its_own_spans(setting: Setting) -> None:
    """The last test: it kills the engine in the middle of an answer."""
    state = await setting.gateway.state()
    [pid] = {e["pid"] for e in state["endpoints"] if e["pool"] == "smollm2" and e["pid"]}
    body = {**CHAT, "stream": True, "max_tokens": 400, "ignore_eos": True}
    sending = asyncio.create_task(setting.send("/v1/chat/completions", body))
    await setting.gateway.until("sum(e['in_flight'] for e in s['endpoints'])")
    os.kill(pid, signal.SIGKILL)
    _, trace = await sending
    spans = await setting.trace(trace)
    assert {span.kind for span in spans} == {SERVER, CLIENT}
    assert all(span.error == "transport" for span in spans)
