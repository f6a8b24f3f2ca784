"""Every kind of request as one complete, linked trace."""

import asyncio
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import aiohttp
import psutil
import pytest
import pytest_asyncio

from adapters.http1.message import Response
from tests.support.collectors import Received, ReceivedSpan, http_collector
from tests.support.conventions import OPERATIONS, REQUIRED, TYPES, names
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Events, Upstream, stream, upstream, whole

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]
SERVER, CLIENT = 2, 3
CLIENT_SPAN = "00f067aa0ba902b7"


class Breaking(Events):
    """A stream whose connection breaks after its words."""

    async def __anext__(self) -> bytes:
        if len(self._pieces) == 2:
            raise ConnectionError("the engine was killed")
        return await super().__anext__()


class Script:
    """Two servers that together behave as the model of a request demands. Each trace starts the behaviour anew."""

    def __init__(self) -> None:
        self.times: dict[tuple[str, str], int] = {}
        self.hanging = asyncio.Event()

    async def __call__(self, up: Upstream, body: dict[str, Any]) -> Response:
        model, trace = body["model"], up.headers[-1]["traceparent"].split("-")[1]
        time = self.times[model, trace] = self.times.get((model, trace), 0) + 1
        if model in ("retry", "breaker") and time == 1:
            return Response(503, [], b"{}")
        if model == "hedge" and time == 1:
            await asyncio.sleep(3600)
        if model == "hanging":
            self.hanging.set()
            return stream("a b c d e", gap=3600) if time == 1 else stream("fine")
        if model == "resume" and time == 1:
            return Response(200, [("content-type", "text/event-stream")], Breaking(["one", "two"], 0.0))
        return stream("three four") if body.get("stream") else whole("fine")


class Setting(NamedTuple):
    """A gateway whose spans arrive at `received`."""

    gateway: GatewayProcess
    key: str
    received: Received
    script: Script
    ups: list[Upstream]

    async def send(self, path: str, body: dict[str, Any], trace: str) -> tuple[int, bytes]:
        headers = {
            "authorization": f"Bearer {self.key}",
            "traceparent": f"00-{trace}-{CLIENT_SPAN}-01",
            "tracestate": "vendor=1",
        }
        async with aiohttp.ClientSession(self.gateway.url, headers=headers) as http, http.post(path, json=body) as got:
            return got.status, await got.read()

    async def chat(self, model: str, **fields: Any) -> "Trace":
        """The trace of an answered chat."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}
        trace = secrets.token_hex(16)
        status, answer = await self.send("/v1/chat/completions", body, trace)
        assert status == 200, answer
        return await self.trace(trace)

    async def trace(self, trace: str) -> "Trace":
        """The spans of a trace, once that of its request has arrived: it is exported with all others."""
        await self.received.until(lambda spans: any(s.trace == trace and s.parent == CLIENT_SPAN for s in spans))
        return Trace([span for span in self.received.spans if span.trace == trace])


class Trace:
    """A checked trace: one request, no unknown parent, no span outside of its parent's begin."""

    def __init__(self, spans: list[ReceivedSpan]) -> None:
        [self.root] = [span for span in spans if span.parent == CLIENT_SPAN]
        by_id = {span.id: span for span in spans}
        assert len(by_id) == len(spans), "an id occurs twice"
        for span in spans:
            if span is not self.root:
                assert by_id[span.parent].start <= span.start <= span.end, span
        assert self.root.kind == SERVER
        assert all(span.end >= span.start > 0 for span in spans)
        self.spans = sorted(spans, key=lambda span: span.start)
        self.attempts = [span for span in self.spans if span.kind == CLIENT]

    def events(self) -> list[str]:
        return [name for name, _ in self.root.events]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def setting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setting]:
    folder = tmp_path_factory.mktemp("traces")
    script = Script()
    async with AsyncExitStack() as exits:
        received = await exits.enter_async_context(http_collector())
        ups = [await exits.enter_async_context(upstream()) for _ in range(2)]
        for up in ups:
            up.behaviour = lambda body, up=up: script(up, body)
        both = {"endpoints": [up.url for up in ups], "balance": {"by": "round_robin"}}
        pools: list[dict[str, Any]] = [{"name": name, **both} for name in ("main", "two")]
        pools.append({"name": "resumed", "resume": "text", **both})
        pools.append({"name": "fragile", "endpoints": [ups[0].url], "breaker": {"failures": 1, "open_for": "1ms"}})
        steps = [{"name": "one", "model": "chat"}, {"name": "two", "model": "retry", "in": {"prompt": "one.text"}}]
        models: list[dict[str, Any]] = [
            {"name": "chat", "routes": [{"to": "main"}]},
            {"name": "hanging", "routes": [{"to": "main"}]},
            {"name": "retry", "routes": [{"name": "again", "to": "two", "retry": {"attempts": 2, "budget": "100%"}}]},
            {"name": "hedge", "routes": [{"to": "two", "hedge": {"after": "5ms", "budget": "100%"}}]},
            {"name": "resume", "routes": [{"to": "resumed"}]},
            {"name": "breaker", "routes": [{"to": "fragile", "retry": {"attempts": 1}}]},
            {"name": "both", "pipeline": {"steps": steps}},
        ]
        config = {
            "workers": 2,
            "traces": {"to": received.url, "sample": "0%", "keep": []},
            "pools": pools,
            "models": models,
            "tenants": [{"name": "acme", "models": ["*"]}],
        }
        g = await exits.enter_async_context(gateway(folder, config))
        await g.printed("Ready.")
        yield Setting(g, await g.key(), received, script, ups)


@pytest.mark.parametrize("fields", [{}, {"stream": True}], ids=["whole", "stream"])
async def test_a_chat(setting: Setting, fields: dict[str, Any]) -> None:
    trace = await setting.chat("chat", **fields)
    assert [span.parent for span in trace.attempts] == [trace.root.id]
    assert len(trace.spans) == 2
    assert trace.events() == ["decision", "first_chunk"]
    decision = trace.root.events[0][1]
    assert decision == {"headrace.route": "0", "headrace.pools": ["main"]}


async def test_a_pipeline_with_a_retry(setting: Setting) -> None:
    trace = await setting.chat("both")
    steps = {span.name: span for span in trace.spans if span.name.startswith("step")}
    assert steps.keys() == {"step one", "step two"}
    parents = [span.parent for span in trace.attempts]
    assert parents == [steps["step one"].id, steps["step two"].id, steps["step two"].id]
    assert [bool(span.error) for span in trace.attempts] == [False, True, False]


async def test_a_retry(setting: Setting) -> None:
    trace = await setting.chat("retry")
    first, second = trace.attempts
    assert (first.error, second.error, trace.root.error) == ("capacity", "", "")
    assert first.attributes["error.type"] == "capacity"
    assert first.attributes["headrace.endpoint"] != second.attributes["headrace.endpoint"]
    assert first.end <= second.start
    assert trace.events() == ["decision", "retry", "first_chunk"]
    assert trace.root.events[0][1]["headrace.route"] == "again"


async def test_a_hedge(setting: Setting) -> None:
    trace = await setting.chat("hedge")
    late, hedge = trace.attempts
    assert (late.error, hedge.error, trace.root.error) == ("cancelled", "", "")
    assert late.start < hedge.start < late.end, "they run at the same time"
    assert {"hedge", "hedge_win"} <= set(trace.events())


async def test_a_resumed_stream(setting: Setting) -> None:
    trace = await setting.chat("resume", stream=True)
    broken, rest = trace.attempts
    assert (broken.error, rest.error, trace.root.error) == ("transport", "", "")
    assert "resume" in trace.events()
    assert trace.root.attributes["headrace.attempts"] == 2


async def test_a_breaker_that_opens_and_closes(setting: Setting) -> None:
    """The workers have breakers of their own: one of the two has opened its own."""
    id_ = secrets.token_hex(16)
    body = {"model": "breaker", "messages": [{"role": "user", "content": "hi"}]}
    assert (await setting.send("/v1/chat/completions", body, id_))[0] in (429, 503)
    [failed] = (await setting.trace(id_)).attempts
    assert [name for name, _ in failed.events] == ["breaker_opened"]
    assert failed.events[0][1] == {"headrace.endpoint": failed.attributes["headrace.endpoint"]}
    setting.script.times = Always()
    async with asyncio.timeout(300):
        while True:
            [attempt] = (await setting.chat("breaker")).attempts
            if attempt.events:
                assert [name for name, _ in attempt.events] == ["breaker_trial", "breaker_closed"]
                break


async def test_attributes_are_those_of_the_conventions(setting: Setting) -> None:
    sampling = {"temperature": 0.5, "top_p": 1, "seed": 7, "max_tokens": 9, "stop": ["x"], "frequency_penalty": 0.1}
    for fields in (sampling, {**sampling, "stream": True}):
        trace = await setting.chat("chat", **fields)
        for span in (trace.root, *trace.attempts):
            assert span.attributes["gen_ai.request.temperature"] == 0.5
            assert span.attributes["gen_ai.request.stop_sequences"] == ["x"]
            assert span.attributes["gen_ai.response.finish_reasons"] == ["stop"]
            assert span.attributes["gen_ai.response.id"]
            assert span.attributes["gen_ai.response.model"]
    conventions = names()
    assert len(conventions) > 500
    for span in setting.received.spans:
        for name, value in span.attributes.items():
            if name.startswith("headrace."):
                continue
            assert conventions.get(name) is False, f"{name} is unknown or deprecated"
            if name.startswith("gen_ai."):
                assert type(value) is TYPES[name], (name, value)
        generates = [name for name in span.attributes if name.startswith("gen_ai.")]
        if span.kind == CLIENT and generates:
            assert span.attributes.keys() >= REQUIRED
            assert span.attributes["gen_ai.operation.name"] in OPERATIONS
            assert span.name == f"{span.attributes['gen_ai.operation.name']} {span.attributes['gen_ai.request.model']}"
        assert bool(span.error) == ("error.type" in span.attributes) or span.kind == SERVER


class Always(dict[tuple[str, str], int]):
    """Every time is a later one."""

    def get(self, key: tuple[str, str], default: Any = None) -> int:
        return 5


async def test_a_killed_worker_leaves_no_broken_trace(setting: Setting) -> None:
    """The worker that replaces it exports the request that ended with it, under the ids that the server has received.
    The client sends its request again, as a part of the same trace."""
    setting.script.times, id_ = {}, secrets.token_hex(16)
    body = {"model": "hanging", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    broken = asyncio.create_task(setting.send("/v1/chat/completions", body, id_))
    await asyncio.wait_for(setting.script.hanging.wait(), 300)
    headers = [each for up in setting.ups for each in up.headers[-1:]]
    [sent] = [each["traceparent"] for each in headers if id_ in each["traceparent"]]
    folder = setting.gateway.config.parent / "state.db.traces"
    async with asyncio.timeout(300):
        while not any(bytes.fromhex(id_) in file.read_bytes() for file in folder.glob("*.journal")):
            await asyncio.sleep(0.05)
    state = await setting.gateway.state()
    workers = [worker["pid"] for worker in state["workers"]]
    busy = [pid for pid in workers if has_client(pid, setting.gateway.url)]
    assert busy, "no worker has the connection"
    for pid in busy:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(aiohttp.ClientError):
        await broken
    await setting.gateway.until(f"[w['state'] for w in s['workers']] == ['ready'] * 2 and not set({busy}) & "
                                "{w['pid'] for w in s['workers']}")  # fmt: skip
    status, answer = await setting.send("/v1/chat/completions", body, id_)
    assert (status, json.loads(answer.split(b"\n")[0].removeprefix(b"data: "))["object"]) == (
        200,
        "chat.completion.chunk",
    )
    await setting.received.until(lambda spans: len([span for span in spans if span.trace == id_]) == 4)
    ours = [span for span in setting.received.spans if span.trace == id_]
    killed = [span for span in ours if span.error == "process_killed"]
    whole_trace = Trace([span for span in ours if span not in killed])
    assert not whole_trace.root.error
    [root] = [span for span in killed if span.kind == SERVER]
    [attempt] = [span for span in killed if span.kind == CLIENT]
    assert (root.parent, attempt.parent) == (CLIENT_SPAN, root.id)
    assert sent.split("-")[2] == attempt.id, "the server's own spans are below it"
    assert root.start <= attempt.start <= attempt.end <= root.end
    assert root.attributes["headrace.tenant"] == "acme"
    assert root.attributes["error.type"] == attempt.attributes["error.type"] == "process_killed"


def has_client(pid: int, url: str) -> bool:
    """Whether a worker has an accepted connection at the gateway's address."""
    port = int(url.rpartition(":")[2])
    connections = psutil.Process(pid).net_connections("tcp")
    return any(c.laddr.port == port and c.status == psutil.CONN_ESTABLISHED for c in connections)
