"""A gateway's core with shadows, whose copies reach fakes of their own."""

import asyncio
from random import Random
from typing import Any, NamedTuple

import msgspec

from adapters.base import Adapter, Answer
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from config.schema.config import Config
from gateway.features.shadow.comparer import AnswerComparer
from gateway.features.shadow.copies import ShadowCopies
from gateway.features.shadow.targets import CopyModels, CopyPools
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.pool import Pool
from policies.shadowing.live import LiveShadow
from tests.support.gateways import Rig, config


def shadowing(
    *,
    route: dict[str, Any] | None = None,
    models: tuple[dict[str, Any], ...] = (),
    limited: bool = False,
    protocol: str = "openai",
    **shadow: Any,
) -> Config:
    """A model `chat` on the pool `main` whose requests are all copied to `next`."""
    at_most = {"concurrency": 8, "requests": "10000/s"}
    fields = {"name": "s", "to": "next", "share": "100%", "at_most": at_most, **shadow}
    model: dict[str, Any] = {"name": "chat", "routes": [{"to": "main", "shadow": fields, **(route or {})}]}
    tenant: dict[str, Any] = {"name": "acme", "models": ["*"]}
    if limited:
        model["price"] = {"prompt": "1 usd/1k", "completion": "2 usd/1k"}
        tenant["limits"] = {"requests": "600/min", "tokens": "100k/min", "spend": "5 usd/day"}
    return config(
        pools=[
            {"name": name, "protocol": protocol, "endpoints": ["http://127.0.0.1:9"], "probe": {}}
            for name in ("main", "next", "other")
        ],
        models=[model, *models],
        tenants=[tenant],
    )


def script(text: str = "hello", **fields: Any) -> Script:
    """A whole chat with a text."""
    message = {"role": "assistant", "content": text, **fields.pop("message", {})}
    return Script((msgspec.json.encode({"choices": [{"index": 0, "message": message}]}),), **fields)


class CopiedMember(NamedTuple):
    """A member of the fleet, of which copies need these parts."""

    endpoint: Endpoint
    fake: FakeAdapter

    def connect(self) -> Adapter:
        return self.fake


class CopiedFleet:
    """The fleet of a rig. `fakes` are the servers as copies reach them."""

    def __init__(self, rig: Rig, fakes: dict[str, FakeAdapter]) -> None:
        self.pools: dict[str, Pool] = rig.pools
        self._members = {
            name: [CopiedMember(endpoint, fakes[name]) for endpoint in endpoints]
            for name, endpoints in rig.endpoints.items()
            if name in fakes
        }

    def members_of(self, pool: str) -> list[Any]:
        return self._members[pool]


class ShadowRig(Rig):
    """`main` and `next` answer clients; `copies` has what the copies reach: `main` for the noise arm, `next`."""

    def __init__(self, configuration: Config, seed: int = 0, **scripts: Script) -> None:
        self.live_fakes = {name: FakeAdapter(scripts.get(name, script())) for name in ("main", "next", "other")}
        super().__init__(configuration, {name: [fake] for name, fake in self.live_fakes.items()}, seed)
        self.copied = {name: FakeAdapter(scripts.get(f"copied_{name}", script())) for name in ("main", "next", "other")}
        rng, clock = Random(seed), asyncio.get_running_loop().time
        self.copy_pools = CopyPools(CopiedFleet(self, self.copied), rng, clock)
        self.copy_pools.configure(configuration.pools, None)
        models = CopyModels(self.copy_pools, rng, clock, lambda: 0.0)
        models.configure(configuration, {})
        self.copies = ShadowCopies(self.copy_pools, models, AnswerComparer(), rng, clock)
        self.copies.prices.configure(configuration)
        self.watches.append(self.copies.watch)

    @property
    def shadow(self) -> LiveShadow:
        return self.shadows.by_name["s"]

    async def send(self, request: ModelRequest, **headers: str) -> bytes:
        """Send a request and read its answer to the end."""
        record = self.record()
        answer: Answer = await self.core.handle(self.principal, request, headers, record)
        if answer.body is not None:
            return answer.body
        return b"".join([piece async for piece in answer])

    async def compare(self, request: ModelRequest) -> bytes:
        """Send a request, and wait until no copy is under way."""
        answer = await self.send(request)
        await self.until_compared()
        return answer

    async def until_compared(self) -> None:
        """Wait until no copy is under way."""
        async with asyncio.timeout(300):
            while self.copies.running:
                await asyncio.sleep(0.001)

    def assert_idle(self) -> None:
        super().assert_idle()
        assert self.copies.running == self.copies.budget.held == 0
        assert all(shadow.running == 0 for shadow in self.shadows.by_name.values())
        assert all(fake.in_flight == 0 for fake in self.copied.values())
        assert all(self.copy_pools[name].in_flight == 0 for name in self.copied)
