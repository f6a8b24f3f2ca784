"""Metrics of rollouts over real processes: refusals, guards, thumbs down and slower quantiles each take an arm back."""

import asyncio
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.http1.message import Response
from tests.e2e.test_rollouts import STEPS, Traffic, configuration, shown
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import stream, upstream, whole

LONG = [{"weight": "50%", "for": "1h"}]
REFUSAL = "I'm sorry, but I can't help with that."


def sometimes(text: str, other: str, each: int) -> Any:
    """A server whose every so many answers are another text, whole or streamed as requested."""
    count = 0

    async def behave(body: dict[str, Any]) -> Response:
        nonlocal count
        count += 1
        chosen = other if count % each == 0 else text
        return stream(chosen) if body.get("stream") else whole(chosen)

    return behave


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_arm_that_refuses_more_often_is_taken_back(tmp_path: Path, streamed: bool) -> None:
    condition = {"metric": "refusals", "above": "1.2x"}
    async with (
        upstream() as v1,
        upstream() as v2,
        gateway(tmp_path, configuration(v1, v2, steps=LONG, back_if=[condition])) as g,
    ):
        v1.behaviour, v2.behaviour = sometimes("Hello.", REFUSAL, 50), sometimes("Hello.", REFUSAL, 4)
        view = await Traffic(g, await g.key(), stream=streamed).until(g, "back")
        assert view["reason"] == "refusals"
        assert view["back_if"][0]["ratio"][0] > 1.2


async def test_an_arm_with_a_blocking_guard_is_taken_back(tmp_path: Path) -> None:
    async with upstream() as v1, upstream() as v2, upstream() as judge:
        judge.behaviour = sometimes("safe", "unsafe", 5)
        condition = {"metric": "blocked", "above": "1.2x"}
        file = configuration(v1, v2, steps=LONG, to={"model": "guarded"}, back_if=[condition])
        guard = {"model": "judge", "block_if": 'text == "unsafe"', "on": "answer"}
        steps = [{"name": "draft", "model": "plain"}, {"name": "guard", "guard": guard}]
        file["pools"].append({"name": "judge", "endpoints": [judge.url]})
        file["models"] += [
            {"name": "plain", "routes": [{"to": "v2"}]},
            {"name": "judge", "routes": [{"to": "judge"}]},
            {"name": "guarded", "pipeline": {"steps": steps}},
        ]
        async with gateway(tmp_path, file) as g:
            view = await Traffic(g, await g.key()).until(g, "back")
            assert view["reason"] == "blocked"
            assert view["back_if"][0]["events"]["from"] == 0


async def test_an_arm_that_is_slower_than_the_other_s_p95_is_taken_back(tmp_path: Path) -> None:
    condition = {"metric": "first_byte", "slower_than": "p95", "above": "2x"}
    async with (
        upstream() as v1,
        upstream() as v2,
        gateway(tmp_path, configuration(v1, v2, steps=LONG, back_if=[condition])) as g,
    ):

        async def slow(_: dict[str, Any]) -> Response:
            await asyncio.sleep(1.0)
            return whole("new")

        v2.behaviour = slow
        view = await Traffic(g, await g.key(), users=64).until(g, "back")  # most of them wait for v2
        assert view["reason"] == "first_byte>p95"
        assert 0 < view["back_if"][0]["slower_than"] < 1.0


async def test_an_equal_arm_passes_a_quantile_and_gets_all_requests(tmp_path: Path) -> None:
    condition = {"metric": "first_byte", "slower_than": "p99", "above": "5x"}
    async with (
        upstream() as v1,
        upstream() as v2,
        gateway(tmp_path, configuration(v1, v2, steps=STEPS, back_if=[condition])) as g,
    ):
        assert (await Traffic(g, await g.key()).until(g, "done"))["weight"] == 1.0


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_arm_with_thumbs_down_is_taken_back(tmp_path: Path, workers: int) -> None:
    condition = {"metric": "feedback", "of": "thumb", "above": "1.2x"}
    async with upstream() as v1, upstream() as v2:
        file = configuration(v1, v2, workers, steps=LONG, back_if=[condition])
        file["feedback"] = [{"name": "thumb", "type": "thumbs"}]
        async with gateway(tmp_path, file) as g:
            key = await g.key()
            async with aiohttp.ClientSession() as http, asyncio.timeout(100):
                rng = random.Random(3)
                while (await shown(g))["status"] != "back":
                    await asyncio.gather(*(rated(g, http, key, rng) for _ in range(20)))
            view = await shown(g)
            assert view["reason"] == "feedback:thumb"
            assert view["back_if"][0]["events"]["to"] > view["back_if"][0]["events"]["from"]


async def rated(g: GatewayProcess, http: aiohttp.ClientSession, key: str, rng: random.Random) -> None:
    """One user, who dislikes 5 % of the old answers and half of the new ones."""
    headers = {"authorization": f"Bearer {key}"}
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    async with http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
        await response.read()
        id, arm = response.headers["x-request-id"], response.headers["x-headrace-arm"]
    value = "down" if rng.random() < (0.5 if arm == "v2" else 0.05) else "up"
    report = {"id": id, "metric": "thumb", "value": value}
    async with http.post(f"{g.url}/v1/feedback", json=report, headers=headers) as response:
        assert response.status in (200, 404), await response.text()
