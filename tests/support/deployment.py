"""A deployment as in production: two gateways of two workers, one Postgres and one Redis, behind TLS, and its clients.

All money is compared to the last unit: invoices, records of requests and used budgets are the same sums.
"""

import asyncio
import json
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from redis.asyncio import Redis

from adapters.http1.message import Response
from config.schema.money import PICOS
from tests.support.postgres import Postgres
from tests.support.processes import GatewayProcess, gateway
from tests.support.redis import RedisServer
from tests.support.tls import client_side, make_certificate
from tests.support.upstreams import Upstream, stream, whole
from tests.support.usage import reported

HOSTS = ("one", "two")
WORKERS = 2
MANY = 5000
TENANTS = {
    "north": ("host", MANY), "west": ("host", MANY), "south": ("exact", MANY), "east": ("exact", MANY),
    "narrow": ("host", 10), "tight": ("exact", 10), "crowd": ("", 0),
}  # fmt: skip
"""Of each tenant: where its budget is counted, and how many dollars a month it has."""
BUSY = ("north", "west", "south", "east")
"""The tenants with steady traffic. No drill uses up their budgets."""


def limits_of(tenant: str) -> list[dict[str, Any]]:
    """The tenant's budget; on the host also one of each key."""
    counted, amount = TENANTS[tenant]
    if not counted:
        return []
    spend = {"spend": f"{amount} usd/month"}
    return [spend, {**spend, "per": "key"}] if counted == "host" else [{**spend, "count": "exact", **_REFUSING}]


def counted_by(counted: str) -> list[str]:
    """The tenants whose budgets are counted there."""
    return [tenant for tenant in TENANTS if TENANTS[tenant][0] == counted]


PAUSE, LONGER = 0.05, 0.25
"""Seconds between two requests of a client; after a failure."""
_REFUSING = {"on_redis_failure": "refuse"}


class Deployment:
    """`hosts` are the gateways that run, by name."""

    def __init__(self, folder: Path, postgres: Postgres, redis: RedisServer, up: Upstream) -> None:
        self.folder, self.postgres, self.redis, self.up = folder, postgres, redis, up
        self.database = postgres.database()
        (folder / "pepper").write_text("pepper-of-the-drills-" * 2)
        self.hosts: dict[str, GatewayProcess] = {}
        self.tls: dict[str, ssl.SSLContext] = {}
        self._ends: dict[str, AsyncExitStack] = {}
        self._chance = random.Random(7)
        self.holding: asyncio.Event | None = None
        """Streams wait for it after their first word."""
        up.behaviour = self._answer
        for name in HOSTS:
            (folder / name).mkdir()
            self.renew(make_certificate(folder / name / "tls"), name)
        self.file = folder / "headrace.yaml"
        """For commands."""
        self.file.write_text(yaml.safe_dump({"version": 1, **self.settings(HOSTS[0])}))

    def settings(self, name: str) -> dict[str, Any]:
        """The file of a host."""
        place = self.folder / name
        tls = {"cert": str(place / "tls/cert.pem"), "key": str(place / "tls/key.pem")}
        price = {"prompt": "0.137 usd/1k", "completion": "0.731 usd/1k"}
        routes = [{"to": "up"}]
        return {
            "workers": WORKERS,
            "drain": "5m",
            "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "tls": tls},
            "state": {"database": self.database, "folder": str(place), "redis": self.redis.url, "redis_timeout": "30s"},
            "auth": {"pepper": f"file:{self.folder}/pepper"},
            "usage": {"flush": "100ms", "folder": str(place / "usage")},
            "requests": {"flush": "100ms", "folder": str(place / "requests")},
            "pools": [{"name": "up", "endpoints": [self.up.url], "probe": {"interval": "1s", "timeout": "60s"}}],
            "models": [
                {"name": "chat", "price": price, "routes": routes},
                {"name": "flat", "price": {"request": "1 usd"}, "routes": routes},
            ],
            "tenants": [{"name": name, "models": ["*"], "limits": limits_of(name)} for name in TENANTS],
        }  # fmt: skip

    async def _answer(self, body: dict[str, Any]) -> Response:
        """Each answer has another price."""
        if body.get("stream"):
            words = stream(" ".join(["w"] * 5))
            if self.holding is not None:
                words.body = _Held(words.body, self.holding)
            return words
        response = whole("hi")
        answer = json.loads(bytes(response.body))  # type: ignore[arg-type]
        used = {"prompt_tokens": self._chance.randint(1, 30), "completion_tokens": self._chance.randint(1, 200)}
        answer["usage"] = {**used, "total_tokens": sum(used.values())}
        return Response(200, response.headers, json.dumps(answer).encode())

    def renew(self, folder: Path, name: str, *, beside: bool = False) -> None:
        """Clients of a host trust this certificate from now on; or `beside` those before."""
        if beside:
            self.tls[name].load_verify_locations(folder / "cert.pem")
        else:
            self.tls[name] = client_side(folder)

    async def start(self, *names: str) -> None:
        """Start hosts, and wait until all of their workers serve."""
        await asyncio.gather(*map(self._start, names))

    async def _start(self, name: str) -> None:
        ends = self._ends[name] = AsyncExitStack()
        g = await ends.enter_async_context(gateway(self.folder / name, self.settings(name)))
        await g.until_ready(WORKERS)
        self.hosts[name] = g

    async def stop(self, *names: str, number: int | None = None) -> None:
        """Stop hosts, by a signal if it is given."""
        gone = [(self.hosts.pop(name), self._ends.pop(name)) for name in names]

        async def end(g: GatewayProcess, ends: AsyncExitStack) -> None:
            if number is not None:
                await g.stop(number)
            await ends.aclose()

        await asyncio.gather(*[end(*each) for each in gone])

    async def each(self, act: Callable[[GatewayProcess], Awaitable[object]]) -> None:
        """Do it with each host, all at once."""
        await asyncio.gather(*map(act, self.hosts.values()))

    # ── money ─────────────────────────────────────────────────────────────────────────────────────────

    async def invoices(self) -> dict[str, int]:
        """Of each tenant: the picos of its invoice."""
        g, month = next(iter(self.hosts.values())), f"{datetime.now(UTC):%Y-%m}"
        amounts = {}
        for tenant in TENANTS:
            status, body = await g.administer("GET", f"/admin/tenants/{tenant}/invoices/{month}")
            assert status == 200, body
            amounts[tenant] = sum(_picos(total["amount"]) for total in body["totals"])
        return amounts

    async def usage(self) -> dict[str, int]:
        """Of each tenant: the picos of its reported usage."""
        _, body = await reported(next(iter(self.hosts.values())), by="tenant")
        return Counter({row["tenant"]: row["picos"] for row in body["usage"] if row["currency"]})

    async def records(self) -> dict[str, int]:
        """Of each tenant: the picos of the records of its requests."""
        g, amounts = next(iter(self.hosts.values())), {}
        for tenant in TENANTS:
            status, body = await g.administer("GET", f"/admin/requests?totals=true&limit=1&tenant={tenant}")
            assert status == 200, body
            sums = body["totals"]["sums"]
            amounts[tenant] = sum(_picos(each["cost"]) for each in sums if each.get("currency"))
        return amounts

    async def budgets(self) -> list[dict[str, int]]:
        """Of each tenant: the picos that are used of its budget, as each host counts it, or Redis."""
        views = []
        for g in self.hosts.values():
            state = await g.state()
            views.append(
                {
                    each["tenant"]: round(
                        (TENANTS[each["tenant"]][1] - each["limits"][0]["remaining"]["spend"]) * PICOS
                    )
                    for each in state["tenants"]
                    if TENANTS[each["tenant"]][0] == "host"
                }
            )
        return views

    async def counted_by_redis(self) -> list[int]:
        """The used picos of each exact budget, in order."""
        client = Redis.from_url(self.redis.url, decode_responses=True)
        try:
            rows = [key async for key in client.scan_iter("{headrace}:row:*")]
            amounts = [await client.hget(row, "umonth") for row in rows]
        finally:
            await client.aclose()
        return sorted(int(float(amount)) for amount in amounts if amount is not None)

    def recorded_ids(self) -> set[str]:
        """The ids of the recorded requests that were answered. Fails for an id with two records."""
        with self.postgres.connect(self.database.partition("@/")[2].partition("?")[0]) as connection:
            rows = connection.execute(
                "SELECT r.id FROM request_rows r JOIN request_series s ON s.id = r.series WHERE s.status = 200"
            ).fetchall()
        ids = [row[0] for row in rows]
        twice = [id_ for id_, times in Counter(ids).items() if times > 1]
        assert not twice, f"recorded twice: {twice[:5]}"
        return set(ids)

    async def agree(self, answered: set[str]) -> None:
        """Wait until invoices, usage, records and budgets are the same sums, and have every answered request."""
        shown: dict[str, Any] = {}
        try:
            async with asyncio.timeout(120):
                while not await self._agree(answered, shown):
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"the sums do not agree: {shown}") from None

    async def _agree(self, answered: set[str], shown: dict[str, Any]) -> bool:
        for g in self.hosts.values():
            await g.until_idle()
        bills = await self.invoices()
        shown |= {
            "invoices": bills,
            "usage": dict(await self.usage()),
            "records": await self.records(),
            "budgets": await self.budgets(),
            "redis": await self.counted_by_redis(),
            "lost": sorted(answered - await asyncio.to_thread(self.recorded_ids))[:5],
        }
        by_host = {tenant: bills[tenant] for tenant in counted_by("host")}
        by_redis = sorted(bills[tenant] for tenant in counted_by("exact") if bills[tenant])
        return (
            {tenant: shown["usage"].get(tenant, 0) for tenant in bills} == bills
            and shown["records"] == bills
            and all(view == by_host for view in shown["budgets"])
            and [each for each in shown["redis"] if each] == by_redis
            and not shown["lost"]
        )


class _Held:
    """The pieces of a stream; those after the first wait for an event."""

    def __init__(self, pieces: Any, event: asyncio.Event) -> None:
        self._pieces, self._event, self._begun = pieces, event, False

    def __aiter__(self) -> "_Held":
        return self

    async def __anext__(self) -> bytes:
        if self._begun:
            await self._event.wait()
        self._begun = True
        return bytes(await self._pieces.__anext__())

    async def aclose(self) -> None:
        await self._pieces.aclose()


def _picos(amount: str) -> int:
    exact = Decimal(amount) * PICOS
    assert exact == int(exact)
    return int(exact)


class Clients:
    """Steady clients of all hosts. Each request has an id of its own, and is sent once."""

    def __init__(self, deployment: Deployment, keys: dict[str, str]) -> None:
        self.deployment = deployment
        self.keys = keys
        """By tenant."""
        self.answered: set[str] = set()
        """The ids of the requests that were answered."""
        self.statuses: Counter[int] = Counter()
        self.codes: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        """By the error: requests without an answer."""
        self._ids = count()
        self._stopping = asyncio.Event()

    async def ask(self, http: aiohttp.ClientSession, host: str, key: str, **fields: Any) -> int:
        """Send one chat to a host. Returns the status; 0 for none."""
        g = self.deployment.hosts.get(host)
        if g is None:
            return 0
        id_ = f"drill-{next(self._ids)}"
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], **fields}
        headers = {"authorization": f"Bearer {key}", "x-request-id": id_}
        url = f"{g.url}/v1/chat/completions"
        try:
            async with http.post(url, json=body, headers=headers, ssl=self.deployment.tls[host]) as response:
                answer = await response.json()
        except (aiohttp.ClientError, OSError) as error:
            self.broken[type(error).__name__] += 1
            return 0
        self.statuses[response.status] += 1
        if response.status == 200:
            self.answered.add(id_)
        else:
            self.codes[answer["error"]["code"]] += 1
        return response.status

    async def stream(self, host: str, key: str, begun: asyncio.Event) -> str:
        """One streamed chat; its events."""
        id_ = f"drill-{next(self._ids)}"
        url = f"{self.deployment.hosts[host].url}/v1/chat/completions"
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        headers = {"authorization": f"Bearer {key}", "x-request-id": id_}
        text = b""
        async with (
            aiohttp.ClientSession() as http,
            http.post(url, json=body, headers=headers, ssl=self.deployment.tls[host]) as response,
        ):
            assert response.status == 200
            async for piece in response.content.iter_any():
                text += piece
                begun.set()
        self.answered.add(id_)
        return text.decode()

    async def _client(self, host: str, tenant: str) -> None:
        while not self._stopping.is_set():
            async with aiohttp.ClientSession() as http:
                for _ in range(20):
                    is_answered = await self.ask(http, host, self.keys[tenant]) == 200
                    await asyncio.sleep(PAUSE if is_answered else LONGER)
                    if self._stopping.is_set() or not is_answered:
                        break

    @asynccontextmanager
    async def traffic(self, tenants: Iterable[str]) -> AsyncIterator[None]:
        """One client of each of these tenants at each host, until the end of the block."""
        self._stopping.clear()
        tasks = [asyncio.create_task(self._client(host, tenant)) for tenant in tenants for host in HOSTS]
        try:
            yield
        finally:
            self._stopping.set()
            async with asyncio.timeout(300):
                await asyncio.gather(*tasks)

    async def until_answered(self, more: int) -> None:
        """Wait until so many further requests are answered."""
        goal = len(self.answered) + more
        async with asyncio.timeout(300):
            while len(self.answered) < goal:
                await asyncio.sleep(0.02)

    async def until_status(self, host: str, key: str, status: int, in_a_row: int = 20) -> None:
        """Wait until a host answers a key with this status, on new connections, and so by chance in each worker."""
        seen = 0
        async with asyncio.timeout(300):
            while seen < in_a_row:
                async with aiohttp.ClientSession() as http:
                    url = f"{self.deployment.hosts[host].url}/v1/models"
                    headers = {"authorization": f"Bearer {key}"}
                    with suppress(aiohttp.ClientError):
                        async with http.get(url, headers=headers, ssl=self.deployment.tls[host]) as response:
                            seen = seen + 1 if response.status == status else 0
