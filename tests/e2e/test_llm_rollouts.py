"""Rollouts between real language models: streams under load go to the new one by evidence, or back from a worse one."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)
CLIENTS = 6
LLM = {"kind": "llm", "model": "bundled:smollm2-135m-instruct", "max_model_len": 256, "threads": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "old": {},
    "new": {"weights": "int8", "max_num_batched_tokens": 128},
    "narrow": {"max_num_seqs": 1, "max_queue": 1},
}
"""`narrow` computes one stream, lets another wait, and refuses all others."""


def rollout(name: str, to: str, **fields: Any) -> dict[str, Any]:
    written = {"name": name, "from": "old", "to": to, "warmup": "0s", "requests": 5, "alpha": "10%", **fields}
    return {"name": name, "routes": [{"rollout": written, "fallback": ["old"], "retry": {"attempts": 1}}]}


CONFIGURATION: dict[str, Any] = {
    "pools": [{"name": name, "runtime": {**LLM, **settings}} for name, settings in SETTINGS.items()],
    "models": [
        rollout(
            "better", "new",
            steps=[{"weight": "30%", "for": "1s"}, {"weight": "60%", "for": "1s"}],
            on_if=[{"metric": "failures", "at_most": "50%"}],
        ),
        rollout("worse", "narrow", steps=[{"weight": "50%", "for": "1h"}], back_if=[{"metric": "failures"}]),
    ],
    "tenants": [{"name": "acme", "models": ["*"]}],
}  # fmt: skip


class Stream(NamedTuple):
    """One answer, as its client read it."""

    arm: str
    status: int
    began: float
    ended: float
    reason: str
    """The last finish reason; empty for a stream without an end."""


class Streams:
    """Clients that read one stream after the other until the rollout has a status."""

    def __init__(self, g: GatewayProcess, key: str, model: str) -> None:
        self._g = g
        self._model = model
        self._headers = {"authorization": f"Bearer {key}"}
        self.read: list[Stream] = []
        self.decided_at = 0.0
        self.statuses: set[tuple[str, float]] = set()
        """Each status and share that the rollout had."""

    async def until(self, status: str) -> dict[str, Any]:
        """Read until the rollout has a status, then the rest of every stream. Returns the rollout."""
        self.decided_at = 0.0
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(self._client(http, number))
            try:
                async with asyncio.timeout(600):
                    while (view := await self._shown(http))["status"] != status:
                        self.statuses.add((view["status"], view["weight"]))
                        await asyncio.sleep(0.02)
            finally:
                self.decided_at = asyncio.get_running_loop().time()
        return view

    async def arm(self) -> str:
        """The arm of one more request."""
        async with aiohttp.ClientSession() as http:
            return (await self._send(http, 0)).arm

    async def _client(self, http: aiohttp.ClientSession, number: int) -> None:
        while not self.decided_at:
            self.read.append(await self._send(http, number))

    async def _send(self, http: aiohttp.ClientSession, number: int) -> Stream:
        question = {"role": "user", "content": f"Tell me the story of river {number}."}
        body = {"model": self._model, "messages": [question], "stream": True, "max_tokens": 24, "temperature": 0}
        began, reason = asyncio.get_running_loop().time(), ""
        async with http.post(f"{self._g.url}/v1/chat/completions", json=body, headers=self._headers) as response:
            async for event in _events(response):
                for choice in event.get("choices", ()):
                    reason = choice["finish_reason"] or reason
            ended = asyncio.get_running_loop().time()
            return Stream(response.headers.get("x-headrace-arm", ""), response.status, began, ended, reason)

    async def _shown(self, http: aiohttp.ClientSession) -> dict[str, Any]:
        async with http.get(f"{self._g.admin}/admin/rollouts/{self._model}") as response:
            view: dict[str, Any] = await response.json()
            return view

    def assert_whole(self) -> None:
        """No client had an error, and no stream was cut, also of those that ran when the share changed."""
        assert {(stream.status, bool(stream.reason)) for stream in self.read} == {(200, True)}
        assert any(stream.began < self.decided_at < stream.ended for stream in self.read)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    done = False
    async for line in response.content:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])
        done = done or line.startswith(b"data: [DONE]")
    assert done or response.status != 200, "a stream without its end"


async def test_streams_move_to_a_healthy_model_and_back_from_a_worse_one(tmp_path: Path) -> None:
    async with gateway(tmp_path, CONFIGURATION) as g:
        await g.printed("Ready.", 900)
        key = await g.key()
        better = Streams(g, key, "better")
        view = await better.until("done")
        better.assert_whole()
        assert (view["weight"], await better.arm()) == (1.0, "new")
        assert {("running", 0.3), ("running", 0.6)} <= better.statuses
        assert sum(stream.arm == "new" for stream in better.read) >= 10  # five in each step

        worse = Streams(g, key, "worse")
        view = await worse.until("back")
        worse.assert_whole()
        assert (view["reason"], view["weight"], await worse.arm()) == ("failures", 0.0, "old")
        assert view["back_if"][0]["events"]["to"] > view["back_if"][0]["events"]["from"]
        assert {stream.arm for stream in worse.read} == {"old", "narrow"}
        await g.until_idle()
