"""Bindings of a core over scripted upstreams to a real broker, in the process of the test."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.fake import FakeAdapter, Script
from gateway.features.bus.plane import BusPlane
from tests.support.brokers.broker import RealBroker, cloud_event
from tests.support.gateways import PEPPER, Rig, config

ANSWER = json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}).encode()
WHOLE = Script(chunks=(ANSWER,))


def chat_body(**fields: Any) -> bytes:
    """The body of a chat."""
    return json.dumps({"model": "chat", "messages": [{"role": "user", "content": "hello"}], **fields}).encode()


def binding(broker: RealBroker, **fields: Any) -> dict[str, Any]:
    """An entry of `listen.bus` whose times suit a test."""
    made = {
        "name": "work",
        "broker": broker.url,
        "topic": "requests",
        "tenant": "acme",
        "reply": "answers",
        "dead_letters": "dead",
        "backoff": "20ms",
        "takeover": "2s",
    }
    return {**made, **fields}


class BusRig:
    """A core with its bindings, and the broker."""

    def __init__(self, broker: RealBroker, rig: Rig, plane: BusPlane) -> None:
        self.broker = broker
        self.rig = rig
        self.plane = plane
        self.consumer = plane.consumers[0]
        self.fake = rig.adapters["main"][0]

    async def send(self, *ids: str, body: bytes | None = None, key: bytes = b"", **attributes: Any) -> None:
        """Publish a chat for each id."""
        for id_ in ids:
            await self.broker.send("requests", body or chat_body(user=id_), cloud_event(id_, **attributes), key)

    async def answers(self, count: int) -> dict[str, Any]:
        """The headers of the answers by the id of the request, when there are `count`."""
        return {each.headers["ce_correlationid"]: each for each in await self.broker.read("answers", count)}

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(300):
            while not condition():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def bus_rig(
    broker: RealBroker, folder: Path, *scripts: Script, bindings: Sequence[dict[str, Any]] = (), **changes: Any
) -> AsyncIterator[BusRig]:
    """Running bindings. At the end nothing is held."""
    bus = list(bindings) or [binding(broker)]
    state = {"database": f"sqlite:///{folder}/state.db"}
    configuration = config(listen={"bus": bus}, **{"state": state, **changes})
    rig = Rig(configuration, {"main": [FakeAdapter(*(scripts or (WHOLE,)))]})
    plane = BusPlane(configuration, rig.core, None, lambda: PEPPER)
    running = asyncio.create_task(plane.run())
    try:
        yield BusRig(broker, rig, plane)
        await plane.drain(300)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await plane.aclose()
    rig.assert_idle()
