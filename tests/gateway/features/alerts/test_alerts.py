"""Soft budgets over a real database and real receivers: once for each threshold of each period, and signed."""

import asyncio
import base64
import json
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from config.schema.config import Config
from config.schema.money import PICOS, Money
from config.schema.tenant import WebhookConfig
from gateway.auth.store import KeyStore
from gateway.features.alerts import store as stores
from gateway.features.alerts import writer as writers
from gateway.features.alerts.sender import NotDelivered, send
from gateway.features.alerts.signature import body_of, headers_of
from gateway.features.alerts.store import AlertStore
from gateway.features.alerts.thresholds import BudgetAlert
from gateway.features.alerts.writer import AlertWriter
from gateway.features.journal.files import WaitingFiles
from gateway.features.usage.writer import UsageWriter
from tests.support.gateways import PEPPER, config
from tests.support.usage_hosts import NOVEMBER, counting, record
from tests.support.waiting import until

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
ALERT = BudgetAlert("budget_x", "acme", "", "1 usd/day", NOVEMBER, NOVEMBER + 86400, 0.8, PICOS, "usd", "hook")
Answer = Callable[[web.Request], Any]


def ignore(*_: object) -> None:
    """A write that never arrives."""


class Receiver:
    """A webhook's receiver, whose behavior a test sets."""

    def __init__(self) -> None:
        self.url = ""
        self.messages: list[tuple[dict[str, str], bytes]] = []
        self.answer: Answer = lambda _: web.Response()

    @property
    def seen(self) -> list[tuple[str, str, float]]:
        """Tenant, period and threshold of each message."""
        data = [json.loads(body)["data"] for _, body in self.messages]
        return [(each["tenant"], each["period"]["from"], each["threshold"]) for each in data]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.messages.append((dict(request.headers), await request.read()))
        answer = self.answer(request)
        response = await answer if asyncio.iscoroutine(answer) else answer
        assert isinstance(response, web.StreamResponse)
        return response


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver, app = Receiver(), web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver._handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


def configured(folder: Path, database: str, url: str, *budgets: dict[str, Any], **webhook: Any) -> Config:
    soft = [{"webhook": "hook", **budget} for budget in budgets]
    hook = {"name": "hook", "url": url, "secret": SECRET, "private": True, **webhook}
    tenants = [{"name": name, "models": ["*"], "soft_budgets": soft} for name in ("acme", "beta")]
    return config(state={"database": database}, usage={"folder": str(folder)}, tenants=tenants, webhooks=[hook])


class Host:
    """A host that counts, compares and delivers, at a time of the test."""

    def __init__(self, settings: Config, now: Callable[[], float]) -> None:
        self.settings = settings
        self.usage = UsageWriter(lambda: settings, lambda: PEPPER, WaitingFiles(lambda: settings), now)
        self.alerts = AlertWriter(lambda: settings, lambda: PEPPER, self.usage, now)
        self.counter = counting(Path(settings.usage.folder)) if settings.usage and settings.usage.folder else None

    def spend(self, usd: float, at: float, tenant: str = "acme", team: str = "") -> None:
        assert self.counter is not None
        self.counter.put(record(tenant, at=at, cost=Money(round(usd * 1000) * PICOS // 1000, "usd"), team=team))

    async def aclose(self) -> None:
        assert self.counter is not None
        self.counter.close()
        await self.alerts.aclose()
        await self.usage.aclose()


@pytest.mark.processes
async def test_each_threshold_of_each_period_is_delivered_once_and_signed(tmp_path: Path, any_database: str) -> None:
    now = float(NOVEMBER)
    async with receiving() as receiver:
        settings = configured(tmp_path / "u", any_database, receiver.url, {"spend": "10 usd/day"})
        hosts = [Host(settings, lambda: now) for _ in range(2)]
        for usd, expected in ((7.9, []), (0.1, [0.8]), (1.0, [0.8]), (5.0, [0.8, 1.0])):
            hosts[0].spend(usd, now)
            for host in hosts:
                await host.alerts.compare()
                await host.alerts.deliver()
            assert [threshold for _, _, threshold in receiver.seen] == expected
        now += 86400
        hosts[1].spend(30, now)
        for host in hosts:
            await host.alerts.compare()
            await host.alerts.deliver()
        assert receiver.seen[2:] == [("acme", "2026-11-02T00:00:00Z", 0.8), ("acme", "2026-11-02T00:00:00Z", 1.0)]
        assert len({headers["webhook-id"] for headers, _ in receiver.messages}) == 4
        headers, body = receiver.messages[0]
        headers |= {"webhook-timestamp": headers["webhook-timestamp"]}
        assert json.loads(body)["data"] == {
            "tenant": "acme", "budget": "10 usd/day", "threshold": 0.8, "spent": "8", "currency": "usd",
            "period": {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"},
        }  # fmt: skip
        store = KeyStore(any_database, PEPPER)
        acts = [entry for entry in store.read_audit(10) if entry.action == "budget.alert"]
        assert [act.target for act in acts] == ["acme"] * 4
        assert not store.verify_audit().problem
        store.close()
        assert (hosts[0].alerts.outcomes + hosts[1].alerts.outcomes)["delivered"] == 4
        for host in hosts:
            await host.aclose()


async def test_teams_have_soft_budgets(tmp_path: Path, any_database: str) -> None:
    now = float(NOVEMBER)
    async with receiving() as receiver:
        budget = {"spend": "10 usd/month", "per": "team", "at": ["50%"]}
        host = Host(configured(tmp_path / "u", any_database, receiver.url, budget), lambda: now)
        for team, usd in (("search", 6), ("ads", 4), ("", 60)):
            host.spend(usd, now, team=team)
        await host.alerts.compare()
        await host.alerts.deliver()
        (message,) = [json.loads(body)["data"] for _, body in receiver.messages]
        assert (message["team"], message["spent"], message["period"]["to"]) == ("search", "6", "2026-12-01T00:00:00Z")
        await host.aclose()


def test_the_signature_is_that_of_standard_webhooks() -> None:
    body = body_of(ALERT, NOVEMBER)
    headers = headers_of(ALERT.id, body, SECRET, time.time())
    assert Webhook(SECRET).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body, {**headers, "webhook-id": "other"})
    plain = headers_of(ALERT.id, body, "a plain text", time.time())
    assert Webhook(base64.b64encode(b"a plain text").decode()).verify(body, plain)


async def test_a_failed_delivery_is_tried_again_with_longer_pauses_then_dropped(
    tmp_path: Path, any_database: str
) -> None:
    now = float(NOVEMBER)
    async with receiving() as receiver:
        receiver.answer = lambda _: web.Response(status=503)
        host = Host(configured(tmp_path / "u", any_database, receiver.url, {"spend": "1 usd/day", "at": ["80%"]}),
                    lambda: now)  # fmt: skip
        host.spend(5, now)
        await host.alerts.compare()
        times = []
        while not host.alerts.outcomes["dropped"]:
            sent = len(receiver.messages)
            await host.alerts.deliver()
            if len(receiver.messages) > sent:
                times.append(now)
            now += 60 if len(times) < 5 else 3600
            assert now < NOVEMBER + 5 * 86400
        assert times[-1] - times[0] >= writers.GIVE_UP
        assert len({headers["webhook-id"] for headers, _ in receiver.messages}) == 1
        await host.alerts.compare()
        await host.alerts.deliver()
        assert host.alerts.waiting == 0
        await host.aclose()


def redirect(status: int, to: str, _: web.Request) -> web.Response:
    return web.Response(status=status, headers={"location": to})


async def test_a_redirect_is_not_followed_and_no_body_is_read(tmp_path: Path) -> None:
    async with receiving() as receiver, receiving() as inside:
        hook = WebhookConfig.model_validate({"name": "h", "url": receiver.url, "secret": SECRET, "private": True})
        for status in (301, 302, 307, 308):
            receiver.answer = partial(redirect, status, inside.url)
            with pytest.raises(NotDelivered, match=f"status {status}"):
                await send(hook, b"{}", {})
        assert inside.messages == []

        async def endless(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65536)

        receiver.answer = endless
        async with asyncio.timeout(300):
            await send(hook, b"{}", {})


HOSTS = [
    "127.0.0.1", "localhost", "localhost.", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[::]",
    "[2002:7f00:1::1]", "2130706433", "0x7f.1", "0.0.0.0", "xn--127",
    "\uff11\uff12\uff17.0.0.1", "\u2460\u2461\u2466.0.0.1",
    "127\u30020\u30020\u30021", "127\uff610\uff610\uff611", "127\uff0e0\uff0e0\uff0e1", "\u0661\u0662\u0667.0.0.1",
]  # fmt: skip
"""Texts that some client or resolver takes for an address of this host."""


@pytest.mark.parametrize("host", HOSTS)
async def test_no_text_of_an_address_of_this_host_receives_anything(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a name whose resolution changes after the check: the socket of the connection is what counts."""
    loop = asyncio.get_running_loop()
    connected, connect = list[Any](), loop.sock_connect

    async def connects(sock: Any, address: Any) -> None:
        connected.append(address)
        await connect(sock, address)

    async def resolves(*_: Any, **__: Any) -> list[Any]:  # a name of the Internet that has moved here
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))]

    monkeypatch.setattr(loop, "sock_connect", connects)
    monkeypatch.setattr(loop, "getaddrinfo", resolves)
    async with receiving() as receiver:
        port = receiver.url.rpartition(":")[2]
        hook = WebhookConfig.model_validate({"name": "h", "url": f"http://{host}:{port}", "secret": SECRET})
        with pytest.raises(NotDelivered):
            await send(hook, b"{}", {})
        assert (receiver.messages, connected) == ([], [])


async def test_a_receiver_that_hangs_delays_its_own_alerts_alone(tmp_path: Path, any_database: str) -> None:
    now, released = float(NOVEMBER), asyncio.Event()
    async with receiving() as slow, receiving() as fast:

        async def hang(_: web.Request) -> web.Response:
            await released.wait()
            return web.Response()

        slow.answer = hang
        settings = configured(tmp_path / "u", any_database, slow.url, {"spend": "1 usd/day", "webhook": "hook"},
                              {"spend": "2 usd/day", "webhook": "fast"}, timeout="60s")  # fmt: skip
        hooks = [*settings.webhooks, settings.webhooks[0].model_copy(update={"name": "fast", "url": fast.url})]
        settings = settings.model_copy(update={"webhooks": tuple(hooks)})
        host = Host(settings, lambda: now)
        host.spend(5, now)
        await host.alerts.compare()
        delivering = asyncio.create_task(host.alerts.deliver())
        await until(lambda: len(fast.messages) == 2 and slow.messages)
        assert not delivering.done()
        released.set()
        await delivering
        assert len(slow.messages) == 2
        await host.aclose()


def test_waiting_alerts_are_bounded(tmp_path: Path, any_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_WAITING", 3)
    store = AlertStore(any_database, PEPPER)
    made = [ALERT._replace(id=f"budget_{n}") for n in range(5)]
    assert store.add(made, NOVEMBER) == (5, 2)
    assert store.add(made, NOVEMBER) == (0, 0)
    assert store.waiting() == 3
    taken = store.take("hook", NOVEMBER, 60.0)
    assert taken is not None
    assert store.take("other", NOVEMBER, 60.0) is None
    store.ended(taken.alert.id, "delivered")
    assert store.waiting() == 2
    assert [row["id"] for row in store.newest("acme", 2)] == ["budget_0", "budget_1"]
    store.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("spend"), st.sampled_from(["acme", "beta"]), st.integers(1, 6000)),
        st.tuples(st.just("compare"), st.integers(0, 1)),
        st.tuples(st.just("deliver"), st.integers(0, 1)),
        st.tuples(st.just("crash"), st.integers(0, 1)),
        st.tuples(st.just("lost"), st.integers(0, 1)),
        st.tuples(st.just("later"), st.integers(1, 30)),
    ),
    max_size=25,
)


@settings(max_examples=10, deadline=None)
@given(steps)
async def test_no_threshold_is_missed_over_any_schedule(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Hosts crash after a delivery that they cannot record: the message repeats under its id."""
    folder, now = tmp_path_factory.mktemp("alerts"), float(NOVEMBER)

    def wall() -> float:
        return now

    spent: Counter[tuple[str, int]] = Counter()
    async with receiving() as receiver:
        made = configured(folder / "u", f"sqlite:///{folder}/s.db", receiver.url, {"spend": "10 usd/day"})
        hosts = [Host(made, wall) for _ in range(2)]
        for step in steps:
            match step:
                case "spend", tenant, thousandths:
                    hosts[0].spend(thousandths / 1000, now, tenant)
                    spent[tenant, int(now) // 86400] += thousandths
                case "compare", at:
                    await hosts[at].alerts.compare()
                case "deliver", at:
                    await hosts[at].alerts.deliver()
                case "crash", at:
                    await hosts[at].aclose()
                    hosts[at] = Host(made, wall)
                case "lost", at:
                    store = await hosts[at].alerts.store()
                    store.ended = ignore
                    await hosts[at].alerts.deliver()
                    del store.ended
                case "later", hours:
                    now = min(now + hours * 3600, NOVEMBER + 3.5 * 86400)
        for _ in range(2):
            await hosts[0].alerts.compare()
            now += 200  # beyond a lease
            await hosts[0].alerts.deliver()
        due = {
            (tenant, day * 86400, threshold)
            for (tenant, day), thousandths in spent.items()
            for threshold in (0.8, 1.0)
            if thousandths >= threshold * 10_000
        }
        got = {(tenant, int(datetime.fromisoformat(begin).timestamp()), at) for tenant, begin, at in receiver.seen}
        assert got == due
        ids: dict[str, Any] = {}
        for (headers, _), seen in zip(receiver.messages, receiver.seen, strict=True):
            assert ids.setdefault(headers["webhook-id"], seen) == seen
        assert len(ids) == len(due)
        for host in hosts:
            await host.aclose()
