"""A feature exists while the file has its section: its tasks and its metrics, also after reloads."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.schema.config import Config
from gateway.process.app import Gateway
from tests.support.gateways import config

pytestmark = pytest.mark.realtime  # the state database has threads

STEPS = [{"weight": "20%", "for": "1h"}]
SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "usage": {"usage": {}},
    "requests": {"requests": {}},
    "alerts": {"webhooks": [{"name": "w", "url": "https://example.com/x", "secret": "whsec_c2VjcmV0c2VjcmV0"}]},
    "feedback": {"feedback": [{"name": "liked", "type": "boolean"}]},
    "rollout": {"rollout": {"name": "r", "from": "main", "to": "next", "steps": STEPS}},
    "shadow": {"shadow": {"name": "s", "to": "next", "share": "1%", "at_most": {"concurrency": 1, "requests": "1/s"}}},
    "pipeline": {"pipeline": {"steps": [{"name": "a", "model": "chat"}]}},
    "replicas": {"scale": {}},
}
PASSING = ("configuration history", "version of the configuration", "end of ")
"""The beginnings of the names of tasks that end by themselves."""


def written(folder: Path, sections: frozenset[str]) -> Config:
    """Two pools, two models, one tenant, and these sections."""
    parts = {key: value for name in sections for key, value in SECTIONS[name].items()}
    pool: dict[str, Any] = {"endpoints": ["http://127.0.0.1:9"], "probe": None}
    pools = [{"name": name, **pool} for name in ("main", "next")]
    chat = {"name": "chat", "routes": [{"rollout": parts.pop("rollout")} if "rollout" in parts else {"to": "main"}]}
    copied = {"to": "main", "shadow": parts.pop("shadow", None)}
    models = [chat, {"name": "other", "routes": [copied]}]
    if "pipeline" in parts:
        models.append({"name": "both", "pipeline": parts.pop("pipeline")})
    if "scale" in parts:
        pools[1]["scale"] = parts.pop("scale")
    return config(
        listen={"http": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        state={"database": f"sqlite:///{folder}/state.db"},
        access_log={"to": "/dev/null"},
        pools=pools,
        models=models,
        **parts,
    )


@asynccontextmanager
async def started(folder: Path, sections: frozenset[str]) -> AsyncIterator[Gateway]:
    gateway = Gateway(folder / "headrace.yaml", written(folder, sections))
    try:
        await gateway.start()
        yield gateway
    finally:
        await gateway.aclose()


async def parts_of(gateway: Gateway) -> tuple[Counter[str], set[str]]:
    """The tasks of a gateway that last, and the families of its metrics."""
    own = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    while passing := [task for task in own if task.get_name().startswith(PASSING) and not task.done()]:
        await asyncio.wait(passing)
    await asyncio.sleep(0)
    tasks = Counter(task.get_name() for task in own if not task.done() and not task.get_name().startswith("Task-"))
    return tasks, {family.name for family in gateway.plane.metrics.registry.collect()}


async def test_a_minimal_file_has_few_tasks(tmp_path: Path) -> None:
    async with started(tmp_path, frozenset()) as gateway:
        tasks, families = await parts_of(gateway)
        assert tasks == Counter(["audit", "keys"])
        named = ("rollout", "experiment", "shadow", "usage", "requests_stored", "alerts", "bus", "replicas")
        assert not [name for name in families if name.startswith(tuple(f"headrace_{each}" for each in named))]


files = st.frozensets(st.sampled_from(sorted(SECTIONS)))


@settings(max_examples=12, deadline=None)
@given(files, st.lists(files, min_size=1, max_size=3))
async def test_reloads_leave_the_parts_of_a_start(
    tmp_path_factory: pytest.TempPathFactory, first: frozenset[str], later: list[frozenset[str]]
) -> None:
    folder, fresh = tmp_path_factory.mktemp("reloaded"), tmp_path_factory.mktemp("fresh")
    async with started(folder, first) as gateway:
        for sections in later:
            await gateway.reload(written(folder, sections))
            assert gateway.lifecycle.last_error == ""
        reloaded = await parts_of(gateway)
    async with started(fresh, later[-1]) as gateway:
        assert reloaded == await parts_of(gateway)
