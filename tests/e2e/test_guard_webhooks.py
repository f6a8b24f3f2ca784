"""A real gateway whose guard asks a service: signed requests, failures that block or pass, silence, a breaker."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from standardwebhooks.webhooks import Webhook

from adapters.http1.message import Response
from gateway.features.guards.judges.base import FAILURES
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Upstream, upstream

pytestmark = pytest.mark.timeout(900)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Service:
    """A service of our contract, which fails or waits as a test decides."""

    def __init__(self, up: Upstream) -> None:
        self.up = up
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()
        up.behaviour = self

    async def __call__(self, body: dict[str, Any]) -> Response:
        headers = self.up.headers[-1]
        Webhook(SECRET).verify(json.dumps(body, separators=(",", ":"), ensure_ascii=False), headers)
        await self.gate.wait()
        if self.fails:
            return Response(500)
        verdict = "found" if "zebra" in body["text"] else "pass"
        answer = json.dumps({"version": 1, "verdict": verdict}).encode()
        return Response(200, [("content-type", "application/json")], answer)


def settings(folder: Path, model: Upstream, service: Upstream, **guard: Any) -> dict[str, Any]:
    secret = folder / "hook.secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    return {
        "pools": [
            {"name": "main", "endpoints": [f"{model.url}/v1"]},
            {"name": "judge", "protocol": "http", "endpoints": [service.url]},
        ],
        "guards": [{"name": "g", "kind": "webhook", "model": "judge", "secret": "file:hook.secret", **guard}],
        "models": [
            {"name": "chat", "guards": ["g"], "routes": [{"to": "main"}]},
            {"name": "judge", "routes": [{"to": "judge", "retry": {"attempts": 1}}]},
        ],
        "tenants": [{"name": "acme", "models": ["chat"]}],
    }


async def ask(g: GatewayProcess, text: str, **fields: Any) -> tuple[int, str]:
    body = {"model": "chat", "messages": [{"role": "user", "content": text}], **fields}
    headers = {"authorization": f"Bearer {await g.key()}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{g.url}/v1/chat/completions", json=body) as response,
    ):
        return response.status, await response.text()


async def test_a_service_judges_prompts_and_answers(tmp_path: Path) -> None:
    async with upstream("a horse") as model, upstream("") as up:
        service = Service(up)
        async with gateway(tmp_path, settings(tmp_path, model, up)) as g:
            assert (await ask(g, "a horse"))[0] == 200
            assert (await ask(g, "a zebra"))[0] == 400
            status, streamed = await ask(g, "a horse", stream=True)
            assert status == 200
            assert "horse" in streamed
            model.text = "a zebra"
            assert (await ask(g, "a horse"))[0] == 400
            status, streamed = await ask(g, "a horse", stream=True)
            assert "zebra" not in streamed
            assert "content_filter" in streamed
            assert {body["side"] for body in up.received} == {"prompt", "answer"}
        assert service.gate.is_set()


@pytest.mark.parametrize(("on_error", "expected"), [("block", 502), ("pass", 200)])
async def test_a_service_that_fails_rests(tmp_path: Path, on_error: str, expected: int) -> None:
    async with upstream("a zebra") as model, upstream("") as up:
        Service(up).fails = True
        async with gateway(tmp_path, settings(tmp_path, model, up, on=["prompt"], on_error=on_error)) as g:
            for _ in range(FAILURES + 3):
                assert (await ask(g, "a zebra"))[0] == expected
            assert len(up.received) <= FAILURES


@pytest.mark.parametrize(("on_error", "expected"), [("block", 502), ("pass", 200)])
async def test_a_service_that_is_silent_costs_the_timeout(tmp_path: Path, on_error: str, expected: int) -> None:
    async with upstream("a horse") as model, upstream("") as up:
        service = Service(up)
        service.gate.clear()
        async with gateway(
            tmp_path, settings(tmp_path, model, up, on=["prompt"], on_error=on_error, timeout="2s")
        ) as g:
            assert (await ask(g, "a horse"))[0] == expected
            service.gate.set()
            assert (await ask(g, "a horse"))[0] == 200
