"""Rollouts whose first step is shadow traffic, over real processes."""

from pathlib import Path
from typing import Any

import pytest

from adapters.http1.message import Response
from tests.e2e.test_rollouts import Traffic, configuration, shown
from tests.e2e.test_shadows import shown as shadow_shown
from tests.support.processes import gateway
from tests.support.upstreams import upstream, whole

COPIES = {"share": "50%", "answers": 60, "agree": "90%", "at_most": {"concurrency": 16, "requests": "10000/s"}}


@pytest.mark.parametrize("workers", [1, 2])
async def test_equal_answers_begin_the_rollout(tmp_path: Path, workers: int) -> None:
    async with (
        upstream() as v1,
        upstream() as v2,
        gateway(tmp_path, configuration(v1, v2, workers, shadow_first=COPIES)) as g,
    ):
        traffic = Traffic(g, await g.key())
        assert (await shown(g))["weight"] == 0.0
        view = await traffic.until(g, "done")
        assert view["weight"] == 1.0
        assert traffic.statuses.keys() == {200}
        shadow = await shadow_shown(g, "r")
        assert (shadow["verdict"], shadow["differing"]) == ("agrees", 0)


async def test_wrong_answers_reach_no_client(tmp_path: Path) -> None:
    """One answer of three is wrong. The rollout goes back before its first step."""
    count = 0

    async def sometimes_wrong(_: dict[str, Any]) -> Response:
        nonlocal count
        count += 1
        return whole("wrong" if count % 3 == 0 else "hello there")

    async with (
        upstream() as v1,
        upstream() as v2,
        gateway(tmp_path, configuration(v1, v2, shadow_first=COPIES)) as g,
    ):
        v2.behaviour = sometimes_wrong
        traffic = Traffic(g, await g.key())
        view = await traffic.until(g, "back")
        assert (view["reason"], view["weight"], view["assigned"]["to"]) == ("shadow", 0.0, 0)
        assert traffic.statuses.keys() == {200}
        assert traffic.arms.keys() == {"v1"}
        assert (await shadow_shown(g, "r"))["verdict"] == "differs"
