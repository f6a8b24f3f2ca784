"""Limits of long periods over kills, restarts, rotated keys and several hosts: records, invoices and budgets agree."""

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adapters.errors import LimitExceeded
from config.schema.money import PICOS
from gateway.auth.audit import Actor
from gateway.auth.store import KeyStore
from policies.limits.budget import window
from tests.support.budget_pods import DAY, Clock, Pod
from tests.support.gateways import PEPPER

_OPERATOR = Actor("terminal")
LIMITS: list[dict[str, Any]] = [
    {"spend": "60 usd/month"},
    {"spend": "12 usd/day", "per": "key"},
    {"spend": "15 usd/month", "per": "user"},
    {"spend": "20 usd/day", "models": ["big*"]},
    {"spend": "9 usd/day", "enforce": "shadow"},
]


class Spent(NamedTuple):
    """One ended request of the model."""

    at: float
    host: int
    process: int
    lineage: str
    user: str | None
    model: str
    picos: int


class Model:
    """What each host may know: its own process's requests, and chance it has last read."""

    def __init__(self, hosts: int) -> None:
        self.ended: list[Spent] = []
        self.imported: set[int] = set()
        self.seen: list[set[int]] = [set() for _ in range(hosts)]
        self.process = [0] * hosts

    def import_of(self, host: int) -> None:
        self.imported |= {i for i, each in enumerate(self.ended) if each.host == host}

    def read(self, host: int) -> None:
        self.seen[host] |= self.imported

    def visible(self, host: int) -> Iterator[Spent]:
        for i, each in enumerate(self.ended):
            if i in self.seen[host] or (each.host, each.process) == (host, self.process[host]):
                yield each


def subjects(each: Spent, utc: float) -> Iterator[tuple[str, ...]]:
    """The limits that count a request in their window of now."""
    names = [
        ("tenant", "60 usd/month", "", "tenant"),
        ("key", "12 usd/day", "", f"key:{each.lineage}"),
        ("user", "15 usd/month", "", f"user:{each.user}" if each.user else f"key:{each.lineage}"),
        ("tenant", "9 usd/day", "", "tenant"),
    ]
    if each.model == "big":
        names.append(("tenant", "20 usd/day", "big*", "tenant"))
    for name in names:
        start, end = window("day" if name[1].endswith("day") else "month", utc)
        if start <= each.at < end:
            yield name


def expected(spent: Iterator[Spent], utc: float) -> dict[tuple[str, ...], int]:
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for each in spent:
        for name in subjects(each, utc):
            sums[name] += each.picos
    return sums


SIZES = {name: int(name.split()[0]) * PICOS for name in ("60 usd/month", "12 usd/day", "15 usd/month", "20 usd/day")}


class Trial:
    """Random acts on hosts, and what each must count then."""

    def __init__(self, folder: Path, seed: int, *, shares: bool) -> None:
        self.rng, self.clock = random.Random(seed), Clock()
        database = f"sqlite:///{folder}/state.db"
        self.keys = KeyStore(database, PEPPER)
        for _ in range(2):
            self.keys.create("acme", by=_OPERATOR, now=self.clock.utc)
        self.pods = [Pod(folder / f"host{i}", database, self.clock, LIMITS, shares=shares) for i in range(3)]
        self.model = Model(len(self.pods))

    async def act(self) -> None:
        host, chance = self.rng.randrange(len(self.pods)), self.rng.random()
        if chance < 0.62:
            self.request(host)
        elif chance < 0.72:
            await self.pods[host].writer.write()
            self.model.import_of(host)
        elif chance < 0.86:
            await self.pods[host].budgets.read()
            self.model.read(host)
        elif chance < 0.94:
            await self.kill(host)
        elif chance < 0.97:
            now = self.clock.utc
            live = [key for key in self.keys.read_all() if key.status(now) == "active"]
            self.keys.rotate(self.rng.choice(live).id, 2 * DAY, by=_OPERATOR, now=now)
        else:
            self.clock.utc += self.rng.choice([600.0, 0.4 * DAY, DAY])

    def request(self, host: int) -> None:
        """It is admitted exactly if each limit has room for its estimate, by what the host may know."""
        rng, pod, utc = self.rng, self.pods[host], self.clock.utc
        live = [record for record in self.keys.read_live(utc).records.values() if record.expires_at > utc]
        principal = rng.choice(live).principal
        user, model, usd = rng.choice([None, "ann"]), rng.choice(["chat", "big"]), rng.randint(1, 3)
        one = Spent(utc, host, self.model.process[host], principal.subject, user, model, rng.randint(1, usd * PICOS))
        before = expected(self.model.visible(host), utc)
        enforced = [each for each in subjects(one, utc) if each[1] in SIZES]
        admits = all(before[each] + usd * PICOS <= SIZES[each[1]] for each in enforced)
        try:
            held = pod.reserve(principal, user, model, usd)
        except LimitExceeded:
            assert not admits
            return
        assert admits
        if rng.random() < 0.1:
            held.undo(0.0)  # its client has left: nothing is recorded
            return
        pod.settle(held, principal, user, model, one.picos)
        self.model.ended.append(one)

    async def kill(self, host: int) -> None:
        """End a process, at times without an end of its journal, and start the next one."""
        if self.rng.random() < 0.5:
            self.pods[host].sink.close()
        self.model.process[host] += 1
        self.model.seen[host] = set()
        self.model.import_of(host)
        self.model.read(host)
        await self.pods[host].start()

    async def check_all(self) -> None:
        """When all hosts have imported and read everything, budgets, records and reports are the same sums."""
        for pod in self.pods:
            await pod.writer.write()
        ended, everything = self.model.ended, expected(iter(self.model.ended), self.clock.utc)
        for pod in self.pods:
            await pod.budgets.read()
            shown = {name: picos for name, picos in pod.used().items() if picos and name[1] in SIZES}
            assert shown.items() <= everything.items()
            assert shown["tenant", "60 usd/month", "", "tenant"] == sum(each.picos for each in ended)
        assert await self.pods[0].total() == {(): sum(each.picos for each in ended)}
        by_lineage: dict[tuple[str], int] = defaultdict(int)
        for each in ended:
            by_lineage[(each.lineage,)] += each.picos
        assert await self.pods[0].total(by=("key",)) == by_lineage


@pytest.mark.parametrize("shares", [False, True], ids=["memory", "shared"])
@pytest.mark.parametrize("seed", range(4))
async def test_budgets_count_each_recorded_request_once(tmp_path: Path, seed: int, shares: bool) -> None:
    trial = Trial(tmp_path, seed, shares=shares)
    for pod in trial.pods:
        await pod.start()
    for _ in range(90):
        await trial.act()
    await trial.check_all()
    for pod in trial.pods:
        await pod.budgets.aclose()
        await pod.writer.aclose()
    trial.keys.close()
