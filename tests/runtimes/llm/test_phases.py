"""The phases of traced requests, as the gateway fetches them."""

import asyncio
import itertools
from typing import Any

import aiohttp
import pytest

from adapters.wire import spans as wire
from adapters.wire.spans import PATH, ReportedSpan
from tests.runtimes.llm.server_fixtures import MODEL, Running, serving, until_idle
from tests.support.conditions import until

CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "ab"}
ATTEMPT = "00f067aa0ba902b7"
TRACED = {"traceparent": f"00-4bf92f3577b34da6a3ce929d0e0e4736-{ATTEMPT}-00", "baggage": "team=red"}


async def send(running: Running, path: str, body: dict[str, Any], headers: dict[str, str] = TRACED) -> int:
    async with aiohttp.ClientSession() as http, http.post(f"{running.url}{path}", json=body, headers=headers) as answer:
        await answer.read()
        return answer.status


async def fetch(running: Running, enough: int = 1) -> list[ReportedSpan]:
    """The spans below the attempt: a server ends a request after its last byte."""
    spans: list[ReportedSpan] = []
    async with aiohttp.ClientSession() as http, asyncio.timeout(300):
        while len(spans) < enough:
            async with http.post(f"{running.url}{PATH}", data=bytes.fromhex(ATTEMPT)) as answer:
                assert answer.status == 200
                spans += wire.decode(await answer.read())
            await asyncio.sleep(0)
    return spans


def check(spans: list[ReportedSpan]) -> tuple[ReportedSpan, dict[str, list[ReportedSpan]]]:
    """The request's span and its phases by name. Every phase is within the request."""
    [root] = [span for span in spans if span.kind == "server"]
    assert root.parent.hex() == ATTEMPT
    phases: dict[str, list[ReportedSpan]] = {}
    for span in spans:
        if span is not root:
            assert span.parent == root.id
            assert root.start <= span.start <= span.end <= root.end
            phases.setdefault(span.name, []).append(span)
    return root, phases


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)])
async def test_an_answer_has_a_wait_a_prefill_and_a_decode(path: str, body: dict[str, Any], stream: bool) -> None:
    async with serving("Hello") as running:
        assert await send(running, path, body | {"stream": stream, "max_tokens": 9}) == 200
        root, phases = check(await fetch(running))
        assert phases.keys() == {"queue", "prefill", "decode"}
        times = [phases[name][0] for name in ("queue", "prefill", "decode")]
        assert all(one.end == two.start for one, two in itertools.pairwise(times))
        assert root.error == ""
        assert root.attributes["url.path"] == path
        assert root.attributes["baggage.team"] == "red"
        assert root.attributes["gen_ai.usage.output_tokens"] == 6
        assert root.attributes["gen_ai.response.finish_reasons"] == ["stop"]
        assert phases["decode"][0].attributes["headrace.tokens"] == 6


async def test_each_choice_has_its_phases() -> None:
    async with serving("Hello") as running:
        assert await send(running, "/v1/completions", COMPLETION | {"n": 3}) == 200
        root, phases = check(await fetch(running))
        assert {name: len(spans) for name, spans in phases.items()} == {"queue": 3, "prefill": 3, "decode": 3}
        assert sorted(span.attributes["headrace.choice"] for span in phases["decode"]) == [0, 1, 2]
        assert root.attributes["gen_ai.response.finish_reasons"] == ["stop"] * 3


async def test_a_client_that_leaves_ends_the_phase_that_lasts() -> None:
    async with serving(max_num_seqs=1) as running:
        running.parrot.gate.clear()
        calls = [asyncio.create_task(send(running, "/v1/completions", COMPLETION)) for _ in range(2)]
        await until(lambda: running.engine.stats().waiting == 1)
        for call in calls:
            call.cancel()
        await until(lambda: not (running.engine.stats().waiting or running.engine.stats().running))
        running.parrot.gate.set()
        spans = await fetch(running, enough=5)
        roots = [span for span in spans if span.kind == "server"]
        assert [root.error for root in roots] == ["cancelled"] * 2
        phases = [sorted(s.name for s in spans if s.parent == root.id) for root in roots]
        assert sorted(phases) == [["prefill", "queue"], ["queue"]]
        await until_idle(running.engine)


@pytest.mark.parametrize(
    ("body", "status"), [({"model": "other", "prompt": "a"}, 404), ({"model": MODEL, "prompt": "a" * 9999}, 400)]
)
async def test_a_refused_request_has_a_span_without_phases(body: dict[str, Any], status: int) -> None:
    async with serving() as running:
        assert await send(running, "/v1/completions", body) == status
        root, phases = check(await fetch(running))
        assert (root.error, phases) == (str(status), {})


async def test_a_stream_that_breaks_has_a_failed_span() -> None:
    async with serving(fails_after=3) as running:
        assert await send(running, "/v1/completions", COMPLETION | {"stream": True}) == 200
        root, phases = check(await fetch(running))
        assert root.error == "backend"
        assert phases.keys() == {"queue", "prefill", "decode"}


async def test_untraced_requests_have_no_spans() -> None:
    async with serving("Hello") as running:
        assert await send(running, "/v1/completions", COMPLETION, {}) == 200
        assert await send(running, "/v1/completions", COMPLETION) == 200
        assert len(await fetch(running)) == 4
