"""Any answer of a source is one failed look: the last endpoints stay, and the next good answer counts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import DiscoverConfig
from gateway.traffic.discovery import list_watch
from gateway.traffic.discovery.cluster_api import ClusterApi
from gateway.traffic.metrics.discovery import _sources
from tests.gateway.traffic.discovery.following import following, urls
from tests.support.bad_answers import bad_json
from tests.support.inference_pools import pod, pool
from tests.support.kubernetes import endpoint, slice_of

HOUR = 3600.0
ONE, TWO = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
ITEMS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "endpointslices": lambda address: slice_of("a", endpoint(address, zone="z")),
    "inferencepools": lambda _: pool(),
    "pods": lambda address: pod("a", address, zone="z"),
}
SOURCES = {
    "endpointslices": {"kubernetes": {"service": "vllm"}},
    "inferencepools": {"inference_pool": {"name": "vllm"}},
    "pods": {"inference_pool": {"name": "vllm"}},
}


def listed(item: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "5", "continue": ""}, "items": [item]}


class Answers:
    """An API server: what it answers to lists and to watches of each resource."""

    def __init__(self, address: str) -> None:
        self.requests = 0
        self.lists = {name: msgspec.json.encode(listed(item(address))) for name, item in ITEMS.items()}
        self.watches = dict.fromkeys(ITEMS, b"")
        self.status = 200

    @asynccontextmanager
    async def get(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Any]:
        self.requests += 1
        resource = path.rpartition("/")[2]

        async def chunks() -> AsyncIterator[bytes]:
            yield self.watches[resource] if "watch" in params else self.lists[resource]
            if "watch" in params:
                await asyncio.sleep(HOUR)

        gone = "watch" in params and not self.watches[resource] and self.status == 410
        status = 410 if gone else 200 if self.status == 410 else self.status
        yield SimpleNamespace(status=status, headers={}, content=SimpleNamespace(iter_any=chunks))


def config(resource: str) -> DiscoverConfig:
    ((name, section),) = SOURCES[resource].items()
    where = {"namespace": "models", "server": "http://127.0.0.1:9", "resync": "60s"}
    return DiscoverConfig.model_validate({name: {**section, **where}})


@asynccontextmanager
async def at_one(resource: str) -> AsyncIterator[tuple[Answers, Any]]:
    """A source that has reported `ONE`."""
    answers = Answers("10.0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterApi, "get", lambda self, http, path, params: answers.get(path, params))
        async with following(config(resource)) as discoverer:
            await asyncio.sleep(1)
            assert urls(discoverer) == [ONE]
            yield answers, discoverer


async def recovers(answers: Answers, discoverer: Any) -> None:
    """Let the server answer well again, and wait for its other endpoint."""
    good = Answers("10.0.0.2")
    answers.lists, answers.watches, answers.status = good.lists, good.watches, 200
    await asyncio.sleep(100)
    assert (urls(discoverer), discoverer.error) == ([TWO], "")


@pytest.mark.parametrize("where", ["list", "watch"])
@pytest.mark.parametrize("resource", ITEMS)
@given(data=st.data())
async def test_any_answer_is_one_failed_look(resource: str, where: str, data: st.DataObject) -> None:
    async with at_one(resource) as (answers, discoverer):
        if where == "list":
            answers.lists[resource] = data.draw(bad_json(listed(ITEMS[resource]("10.0.0.1"))))
        else:
            event = data.draw(bad_json({"type": "ADDED", "object": ITEMS[resource]("10.0.0.1")}))
            answers.watches[resource] = event.replace(b"\n", b" ") + b"\n"
        before = answers.requests
        await asyncio.sleep(100)
        assert answers.requests - before < 50
        assert all(url.startswith("http://10.") for url in urls(discoverer) or [ONE])
        await recovers(answers, discoverer)


@pytest.mark.parametrize("resource", ITEMS)
async def test_a_list_without_an_end_and_versions_that_are_gone_are_failures(resource: str) -> None:
    async with at_one(resource) as (answers, discoverer):
        document = listed(ITEMS[resource]("10.0.0.1"))
        document["metadata"]["continue"] = "same"
        answers.lists[resource] = msgspec.json.encode(document)
        await asyncio.sleep(300)
        assert "does not end" in discoverer.error
        assert answers.requests < 100
        await recovers(answers, discoverer)
        answers.status, before = 410, answers.requests
        async with asyncio.timeout(300):
            while "410 Gone" not in discoverer.error:
                await asyncio.sleep(0.1)
        await asyncio.sleep(300)
        assert answers.requests - before < 30 * 3 * list_watch.MOST_GONE
        failures = {sample.value for family in _sources({"p": discoverer}) for sample in family.samples}
        assert float(discoverer.failures) in failures
        await recovers(answers, discoverer)


ADDRESSES = [
    "", "10.0.0.9:80/x?y=#", "10.0.0.9/x", "10.0.0.9\r\nX: y", "u:p@10.0.0.9", "\u0661.0.0.9", "[::1]", "x" * 300,
]  # fmt: skip


async def test_endpoints_without_a_valid_address_are_left_out_and_reported() -> None:
    async with at_one("endpointslices") as (answers, discoverer):
        for address in ADDRESSES:
            slices = slice_of("a", endpoint("10.0.0.1"), endpoint(address))
            answers.lists["endpointslices"] = msgspec.json.encode(listed(slices))
            await asyncio.sleep(70)
            assert urls(discoverer) == [ONE]
            assert "no valid address" in discoverer.error, address
        for port in (-5, 70000, 10**15, -(10**15), 65536, 10**18):  # longer than `grace`
            slices = slice_of("a", endpoint("10.0.0.1"), port=port)
            answers.lists["endpointslices"] = msgspec.json.encode(listed(slices))
            await asyncio.sleep(70)
            assert urls(discoverer) == [ONE]
            assert "1 of 1 endpoints" in discoverer.error, port
        await recovers(answers, discoverer)


async def test_an_error_that_no_source_expects_is_a_failed_look() -> None:
    async with at_one("endpointslices") as (answers, discoverer):
        raised = RuntimeError("odd")

        def fails(*_: object) -> Any:
            raise raised

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ClusterApi, "session", fails)
            answers.lists["endpointslices"] = b"{"
            await asyncio.sleep(300)
            assert discoverer.error.endswith("RuntimeError: odd")
        await recovers(answers, discoverer)
