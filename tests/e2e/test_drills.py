"""Drills of a whole deployment under steady traffic. After each of them invoices, records and budgets are the same
sums, to the last unit, and no answered request is missing."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import closing

import aiohttp
import pytest
import pytest_asyncio
from sqlalchemy import insert

from config.schema.money import PICOS
from gateway.auth import schema
from gateway.auth.audit import Actor
from gateway.auth.keys import ApiKey, digest, id_of, new_key
from gateway.auth.store import KeyStore
from gateway.auth.terminal import open_store, settings_of
from tests.support.deployment import BUSY, HOSTS, TENANTS, WORKERS, Clients, Deployment
from tests.support.postgres import Postgres
from tests.support.processes import GatewayProcess
from tests.support.redis import redis_server
from tests.support.tls import make_certificate
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]
KEYS = 100_000
BY = Actor("drills", "operator")


class Drill:
    """The deployment, its clients, and its many keys."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.crowd: list[ApiKey] = []
        self.clients = Clients(deployment, {})

    def store(self) -> KeyStore:
        """The key store, past the gateways."""
        return open_store(settings_of(self.deployment.file))

    def fill(self) -> None:
        """Issue keys to the busy tenants, and many more."""
        with closing(self.store()) as store:
            for tenant in TENANTS:
                self.clients.keys[tenant] = store.create(tenant, "", by=BY, now=time.time()).plaintext
            self.crowd = [new_key() for _ in range(KEYS)]
            now = time.time()
            rows = [
                {"id": key.id, "tenant": "crowd", "label": "", "hash": digest(store.pepper, key.plaintext).hex(),
                 "created_at": now}
                for key in self.crowd
            ]  # fmt: skip
            with store._database.change(moves_epoch=True) as connection:
                connection.execute(insert(schema.keys), rows)

    def revoke(self, key: str) -> None:
        """Revoke a key."""
        with closing(self.store()) as store:
            store.revoke(str(id_of(key)), by=BY, now=time.time())

    async def settled(self) -> None:
        """The invariant, when nothing is in flight."""
        await self.deployment.agree(self.clients.answered)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Drill]:
    folder = tmp_path_factory.mktemp("drills")
    postgres = await asyncio.to_thread(Postgres)
    await asyncio.to_thread(postgres.start)
    try:
        async with upstream() as up, redis_server(folder, keep=True) as redis:
            made = Drill(Deployment(folder, postgres, redis, up))
            try:
                await asyncio.to_thread(made.fill)  # past the list of changes: before gateways follow it
                await made.deployment.start(*HOSTS)
                for host in HOSTS:
                    for tenant in BUSY:
                        await made.clients.until_status(host, made.clients.keys[tenant], 200)
                yield made
            finally:
                await made.deployment.stop(*made.deployment.hosts)
    finally:
        await asyncio.to_thread(postgres.remove)


@pytest_asyncio.fixture(loop_scope="module")
async def drill(running: Drill) -> AsyncIterator[Drill]:
    """Steady traffic before, during and after the drill; then the sums are compared."""
    clients = running.clients
    clients.statuses.clear()
    clients.codes.clear()
    clients.broken.clear()
    async with clients.traffic(BUSY):
        await clients.until_answered(50)
        yield running
        await clients.until_answered(50)
    await running.settled()


async def workers(g: GatewayProcess) -> list[int]:
    """The process ids of the workers, once all are ready."""
    return [worker["pid"] for worker in (await g.until_ready(WORKERS))["workers"]]


async def test_workers_are_killed(drill: Drill) -> None:
    async def kill(g: GatewayProcess) -> None:
        for _ in range(WORKERS):
            (first, *_) = before = await workers(g)
            os.kill(first, signal.SIGKILL)
            await g.until(f"{first} not in [w['pid'] for w in s['workers']]")
            assert set(await workers(g)) & set(before)
            await drill.clients.until_answered(50)

    await drill.deployment.each(kill)
    assert set(drill.clients.statuses) == {200}


async def test_a_gateway_is_killed(drill: Drill) -> None:
    for host in HOSTS:
        await drill.deployment.stop(host, number=signal.SIGKILL)
        await drill.clients.until_answered(50)
        await drill.deployment.start(host)
        await drill.clients.until_answered(50)
    assert set(drill.clients.statuses) == {200}


async def test_postgres_is_killed(drill: Drill) -> None:
    postgres = drill.deployment.postgres
    await asyncio.to_thread(postgres.crash)
    await drill.deployment.each(lambda g: g.until("s['key_database']['available'] is False"))
    await drill.clients.until_answered(50)
    await asyncio.to_thread(postgres.start)
    await drill.deployment.each(lambda g: g.until("s['key_database']['available']"))
    assert (set(drill.clients.statuses), drill.clients.broken) == ({200}, {})


async def test_redis_is_killed(drill: Drill) -> None:
    """Requests of exact budgets are refused until it is back; all others are answered."""
    drill.deployment.redis.kill()
    await drill.deployment.each(lambda g: g.until("not s['redis']['up']"))
    await drill.clients.until_answered(50)
    await drill.deployment.redis.start(keep=True)
    await drill.deployment.each(lambda g: g.until("s['redis']['up']"))
    assert set(drill.clients.codes) == {"limits_unavailable"}
    assert not drill.clients.broken


async def test_postgres_redis_and_a_worker_are_frozen(drill: Drill) -> None:
    deployment = drill.deployment
    await asyncio.to_thread(deployment.postgres.freeze)
    await drill.clients.until_answered(50)
    await asyncio.to_thread(deployment.postgres.thaw)
    deployment.redis.stop()
    await drill.clients.until_answered(50)
    deployment.redis.go_on()
    await deployment.each(lambda g: g.until("s['redis']['up']"))
    worker = (await workers(deployment.hosts["one"]))[0]
    os.kill(worker, signal.SIGSTOP)
    await drill.clients.until_answered(50)
    os.kill(worker, signal.SIGCONT)
    await deployment.each(lambda g: g.until_ready(WORKERS))
    assert set(drill.clients.codes) <= {"limits_unavailable"}


async def test_an_old_backup_is_restored(drill: Drill) -> None:
    deployment, backup = drill.deployment, drill.deployment.postgres.place("backup.dump")
    await asyncio.to_thread(
        deployment.postgres.run, "pg_dump", "--format=custom", f"--file={backup}", deployment.database
    )
    await drill.clients.until_answered(50)
    await deployment.stop(*HOSTS)
    await asyncio.to_thread(
        deployment.postgres.execute, deployment.database, "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
    )
    restore = ("pg_restore", "--clean", "--if-exists", "--no-owner", f"--dbname={deployment.database}", backup)
    await asyncio.to_thread(deployment.postgres.run, *restore)
    await deployment.start(*HOSTS)


async def test_a_failover_loses_transactions(drill: Drill) -> None:
    """Usage, records and budgets since then come again from the journals; changes of keys after it count."""
    deployment, clients = drill.deployment, drill.clients
    first, second = drill.crowd[0].plaintext, drill.crowd[1].plaintext
    await asyncio.to_thread(deployment.postgres.copy_standby)
    await clients.until_answered(50)
    await asyncio.to_thread(drill.revoke, first)
    for host in HOSTS:
        await clients.until_status(host, first, 401)
    imported = await deployment.invoices()
    await clients.until_answered(50)
    while await deployment.invoices() == imported:
        await asyncio.sleep(0.1)
    await asyncio.to_thread(deployment.postgres.fail_over)
    await asyncio.to_thread(drill.revoke, second)
    for host in HOSTS:
        await clients.until_status(host, second, 401)
        await clients.until_status(host, first, 200)  # its revocation is lost
    assert (set(clients.statuses), clients.broken) == ({200}, {})


async def test_certificates_are_swapped_in_the_wrong_order(drill: Drill) -> None:
    deployment = drill.deployment
    for host in HOSTS:
        g, place = deployment.hosts[host], deployment.folder / host
        new = make_certificate(place / f"new-{time.monotonic_ns()}")
        (place / "tls/cert.pem").write_bytes((new / "cert.pem").read_bytes())
        await g.printed("the key does not belong to the certificate")
        await drill.clients.until_answered(50)
        reloads = g.output.count("configuration reloaded")
        (place / "tls/key.pem").write_bytes((new / "key.pem").read_bytes())
        deployment.renew(new, host, beside=True)
        while g.output.count("configuration reloaded") == reloads:
            await asyncio.sleep(0.02)
        deployment.renew(new, host)
    assert (set(drill.clients.statuses), drill.clients.broken) == ({200}, {})


async def test_keys_are_rotated_and_refill_nothing(drill: Drill) -> None:
    clients = drill.clients
    before = dict(clients.keys)
    with closing(drill.store()) as store:
        for tenant in BUSY:
            new = await asyncio.to_thread(store.rotate, str(id_of(before[tenant])), 3600, by=BY, now=time.time())
            for host in HOSTS:
                await clients.until_status(host, new.plaintext, 200)
            clients.keys[tenant] = new.plaintext
    await clients.until_answered(50)
    for tenant in BUSY:
        await asyncio.to_thread(drill.revoke, before[tenant])
    for host in HOSTS:
        for tenant in BUSY:
            await clients.until_status(host, before[tenant], 401)
    for g in drill.deployment.hosts.values():
        for tenant in (each for each in (await g.state())["tenants"] if TENANTS[each["tenant"]][0] == "host"):
            assert tenant["limits"][1]["subjects"] <= 1  # both keys are one
    assert (set(clients.statuses), clients.broken) == ({200}, {})


async def test_budgets_are_exhausted(drill: Drill) -> None:
    """The exact one by both hosts at once."""
    clients, deployment = drill.clients, drill.deployment

    async def spend(tenant: str, host: str) -> list[int]:
        async with aiohttp.ClientSession() as http:
            key = clients.keys[tenant]
            return list(await asyncio.gather(*[clients.ask(http, host, key, model="flat") for _ in range(15)]))

    one, two = await asyncio.gather(*[spend("tight", host) for host in HOSTS])
    assert (one + two).count(200) == TENANTS["tight"][1]
    assert (one + two).count(429) == 20
    assert (await spend("narrow", "one")).count(200) == TENANTS["narrow"][1]
    await deployment.hosts["two"].until(
        "[t['limits'][0]['remaining']['spend'] for t in s['tenants'] if t['tenant'] == 'narrow'] == [0]"
    )
    assert (await spend("narrow", "two")).count(429) == 15
    assert (await deployment.usage())["tight"] <= TENANTS["tight"][1] * PICOS


async def test_a_gateway_drains_with_open_streams(drill: Drill) -> None:
    deployment, clients = drill.deployment, drill.clients
    deployment.holding = asyncio.Event()
    begun = [asyncio.Event() for _ in BUSY]
    streams = [asyncio.create_task(clients.stream("one", clients.keys[t], e)) for t, e in zip(BUSY, begun, strict=True)]
    for event in begun:
        await event.wait()
    g = deployment.hosts["one"]
    stopping = asyncio.create_task(deployment.stop("one"))
    await g.printed("draining")
    await clients.until_answered(50)
    deployment.holding.set()
    for text in await asyncio.gather(*streams):
        assert text.endswith("data: [DONE]\n\n")
        assert text.replace(" ", "").count('"content":"w') == 5
    await stopping
    deployment.holding = None
    await deployment.start("one")
    assert set(clients.statuses) == {200}


async def test_keys_among_100_000_change(drill: Drill) -> None:
    clients, crowd = drill.clients, drill.crowd
    active, revoked = (key.plaintext for key in crowd[-2:])
    with closing(drill.store()) as store:
        for host in HOSTS:
            for key in (active, revoked):
                await clients.until_status(host, key, 200, 10)
        await asyncio.to_thread(drill.revoke, revoked)
        new = await asyncio.to_thread(store.create, "crowd", "", by=BY, now=time.time())
        for host in HOSTS:
            await clients.until_status(host, revoked, 401)
            await clients.until_status(host, new.plaintext, 200)
    async with aiohttp.ClientSession() as http:
        for host in HOSTS:
            for key in (active, new.plaintext):
                assert await clients.ask(http, host, key) == 200
            for each in crowd[100 : KEYS : KEYS // 20]:
                assert await clients.ask(http, host, each.plaintext) == 200
    assert (set(clients.statuses), clients.broken) == ({200}, {})
