"""Limits that are new in the file begin with the recorded usage of their running period, and count nothing twice."""

from collections import defaultdict
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select

from adapters.errors import LimitExceeded
from config.schema.money import PICOS
from gateway.auth.keys import Principal
from gateway.features.usage import schema
from gateway.features.usage.budgets import LONGEST_PAUSE
from gateway.limits.drawn import EARLIER
from gateway.limits.ledger import Reservation
from tests.support.budget_pods import DAY, Clock, Pod

HOSTS = 2
BUDGETS: list[dict[str, Any]] = [
    {"spend": "9000 usd/month"},
    {"spend": "9000 usd/day", "per": "key"},
    {"spend": "9000 usd/month", "per": "user"},
    {"spend": "9000 usd/month", "per": "model"},
    {"spend": "9000 usd/day", "models": ["big*"]},
    {"spend": "9000 usd/hour", "models": ["*"], "enforce": "shadow"},
]


class Ask(NamedTuple):
    """One request of a key."""

    key: str
    user: str | None
    model: str
    picos: int

    @property
    def principal(self) -> Principal:
        return Principal("acme", self.key)

    def subject(self, per: str) -> str:
        labels = {"key": self.key, "model": self.model, "user": self.user}
        return "tenant" if per == "tenant" else f"{per}:{labels[per]}"


hosts = st.integers(0, HOSTS - 1)
requests = st.builds(
    Ask,
    st.sampled_from(["k1", "k2"]),
    st.sampled_from(["ann", "zoë"]),
    st.sampled_from(["chat", "big"]),
    st.integers(1, 3 * PICOS),
)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), hosts, requests),
        st.tuples(st.just("ask"), hosts, requests),
        st.tuples(st.just("hold"), hosts, requests),
        st.tuples(st.sampled_from(["end", "import", "read", "kill"]), hosts, st.none()),
        st.tuples(st.just("reload"), st.just(0), st.lists(st.sampled_from(BUDGETS), unique_by=str)),
        st.tuples(st.just("pass"), st.just(0), st.sampled_from([1.0, 5.0, 90.0])),
    ),
    max_size=16,
)


class Rig:
    """Hosts, what they have in flight, and what has ended."""

    def __init__(self, folder: Path, database: str, limits: Any, *, shares: bool = False) -> None:
        self.clock = Clock()
        self.pods = [Pod(folder / f"host{i}", database, self.clock, limits, shares=shares) for i in range(HOSTS)]
        self.limits = limits
        self.held: list[list[tuple[Reservation, Ask]]] = [[] for _ in self.pods]
        self.ended: list[Ask] = []

    async def start(self) -> None:
        for pod in self.pods:
            await pod.start()

    async def act(self, name: str, host: int, argument: Any) -> None:
        pod = self.pods[host]
        match name:
            case "ask" | "hold":
                self.held[host].append((pod.reserve(argument.principal, argument.user, argument.model, 1), argument))
                if name == "ask":
                    self.end(host)
            case "end":
                self.end(host)
            case "import":
                await pod.writer.write()
            case "read":
                await pod.budgets.read()
            case "kill":  # what is in flight is in no record
                self.held[host] = []
                await pod.start()
            case "reload":
                self.limits = argument
                for each in self.pods:
                    await each.reload(argument)
            case "pass":
                self.clock.utc += argument

    def end(self, host: int) -> None:
        """End the last request in flight."""
        if self.held[host]:
            held, ask = self.held[host].pop()
            self.pods[host].settle(held, ask.principal, ask.user, ask.model, ask.picos)
            self.ended.append(ask)

    async def settled(self) -> None:
        """End everything, and let all hosts read it."""
        for host, held in enumerate(self.held):
            while held:
                self.end(host)
        for pod in self.pods:
            await pod.writer.write()
        self.clock.utc += 900.0
        for pod in self.pods * 2:
            await pod.budgets.read()

    async def aclose(self) -> None:
        for pod in self.pods:
            await pod.aclose()


@pytest.mark.parametrize("shares", [False, True], ids=["memory", "shared"])
@settings(
    max_examples=10,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(first=st.lists(st.sampled_from(BUDGETS), unique_by=str), done=acts)
async def test_a_budget_has_the_recorded_usage_whenever_it_begins(
    tmp_path_factory: pytest.TempPathFactory, shares: bool, first: Any, done: Any
) -> None:
    folder = tmp_path_factory.mktemp("state")
    rig = Rig(folder, f"sqlite:///{folder}/state.db", first, shares=shares)
    await rig.start()
    async with aclosing(rig):
        for name, host, argument in done:
            await rig.act(name, host, argument)
        await rig.settled()
        assert (await rig.pods[0].total()).get((), 0) == sum(ask.picos for ask in rig.ended)
        for pod in rig.pods:
            for ask in rig.ended:  # each subject exists with its first request
                pod.ledger.allowances(pod.facts(ask.principal, ask.user, ask.model), ask.model, 0.0)
            used = {name: picos for name, picos in pod.used().items() if picos}
            assert used == expected(rig)


def expected(rig: Rig) -> dict[tuple[str, ...], int]:
    """The sums of the ended requests by limit and subject."""
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for limit in rig.limits:
        per, models = limit.get("per", "tenant"), limit.get("models", [])
        for ask in rig.ended:
            if models != ["big*"] or ask.model == "big":
                sums[per, limit["spend"], ",".join(models), ask.subject(per)] += ask.picos
    return sums


ANN = Ask("k1", "ann", "chat", PICOS)


async def test_rates_begin_with_their_debts(any_database: str, tmp_path: Path) -> None:
    """Of each request five tokens count."""
    rig = Rig(tmp_path, any_database, [])
    await rig.start()
    async with aclosing(rig):
        one = rig.pods[0]
        for _ in range(4):
            await rig.act("ask", 0, ANN)
        await one.writer.write()
        limits = [{"tokens": "100/day"}, {"tokens": "8/day", "per": "key"}, {"requests": "5/day"}, {"rows": "5/day"}]
        await rig.act("reload", 0, limits)
        for pod in rig.pods:
            allowances = pod.ledger.allowances(pod.facts(ANN.principal, "ann", "chat"), "chat", 0.0)
            left = [allowance.remaining(0.0, rig.clock.utc) for allowance in allowances]
            assert [round(next(iter(each.values()))) for each in left] == [80, 0, 1, 5]
            with pytest.raises(LimitExceeded):
                pod.reserve(ANN.principal, "ann", "chat", 1)
            # At most its amount is owed: in a day the rate is full.
            tomorrow = [allowance.remaining(DAY, rig.clock.utc + DAY) for allowance in allowances]
            assert [next(iter(each.values())) for each in tomorrow] == [100, 8, 5, 5]


async def test_a_limit_that_comes_back_counts_the_time_without_it(any_database: str, tmp_path: Path) -> None:
    limits = [{"spend": "3 usd/month"}]
    rig = Rig(tmp_path, any_database, limits)
    await rig.start()
    async with aclosing(rig):
        for here in (limits, [], limits):
            await rig.act("reload", 0, here)
            await rig.act("ask", 0, ANN)
        await rig.settled()
        for pod in rig.pods:
            assert list(pod.used().values()) == [3 * PICOS]
            with pytest.raises(LimitExceeded):
                pod.reserve(ANN.principal, "ann", "chat", 1)


async def test_a_request_that_ends_late_counts_in_a_budget_that_began_meanwhile(tmp_path: Path) -> None:
    rig = Rig(tmp_path, f"sqlite:///{tmp_path}/state.db", [])
    await rig.start()
    async with aclosing(rig):
        one = rig.pods[0]
        await rig.act("hold", 0, ANN)
        await rig.act("reload", 0, [{"spend": "3 usd/month"}])
        for _ in range(17):
            await rig.act("pass", 0, 100.0)
            await rig.act("read", 0, None)
        await rig.act("end", 0, None)
        await one.writer.write()
        rig.clock.utc += LONGEST_PAUSE
        await rig.act("read", 0, None)
        assert list(one.used().values()) == [PICOS]


async def test_a_repeated_count_that_changes_nothing_waits_for_no_writer(any_database: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, any_database, [])
    await rig.start()
    async with aclosing(rig):
        one = rig.pods[0]
        await rig.act("ask", 0, ANN)
        await one.writer.write()
        await rig.act("reload", 0, [{"spend": "3 usd/month"}])
        await rig.act("ask", 0, ANN)
        await one.writer.write()
        writer, reader = await one.writer.store(), one.budgets._opened()
        with writer._database.change(moves_epoch=False):
            assert reader.begin(one.ledger.long)
        rig.clock.utc += 3600.0
        assert not reader.begin(one.ledger.long)


@pytest.mark.parametrize("shares", [False, True], ids=["memory", "shared"])
async def test_another_period_has_the_usage_of_its_own_window(tmp_path: Path, shares: bool) -> None:
    rig = Rig(tmp_path, f"sqlite:///{tmp_path}/state.db", [{"spend": "9 usd/month"}], shares=shares)
    await rig.start()
    async with aclosing(rig):
        one = rig.pods[0]
        for limits in ([{"spend": "9 usd/day"}], [{"spend": "9 usd/month"}, {"spend": "8 usd/day"}]):
            await rig.act("ask", 0, ANN)
            await one.writer.write()
            await rig.act("reload", 0, limits)
        await rig.settled()
        for pod in rig.pods:
            assert set(pod.used().values()) == {2 * PICOS}


async def test_limits_of_an_earlier_release_continue_as_they_are(any_database: str, tmp_path: Path) -> None:
    """A refused request is usage and no draw: only a limit that is new counts it."""
    limits = [{"requests": "9/day"}]
    rig = Rig(tmp_path, any_database, limits)
    await rig.start()
    async with aclosing(rig):
        one = rig.pods[0]
        await rig.act("ask", 0, ANN)
        refused = one.reserve(ANN.principal, "ann", "chat", 1)
        refused.undo(0.0)
        one.settle(refused, ANN.principal, "ann", "chat", 0)
        await one.writer.write()
        store = await one.writer.store()
        with store._database.change(moves_epoch=False) as connection:
            connection.execute(delete(schema.begun))
        await one.aclose()
        await one.start()
        store = await one.writer.store()
        with store._database.transaction() as connection:
            times = select(schema.begun.c.since).where(schema.begun.c.holder == "tenant acme")
            assert list(connection.execute(times).scalars()) == [0]
            earlier = select(func.count()).where(schema.draws.c.ledger == EARLIER)
            assert connection.execute(earlier).scalar_one() == 0
