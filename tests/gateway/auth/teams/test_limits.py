"""The limits of teams in the ledger: beside those of the tenant, on one process, on several, and in Redis."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import LimitExceeded
from config.schema.config import Config, TenantConfig
from config.schema.limits import exceeds
from gateway.auth.errors import WrongGrant
from gateway.auth.teams.limits import check_team_of_key, parse_team, with_teams
from gateway.auth.teams.store import StoredTeam
from gateway.limits.ledger import Ledger, Reservation
from gateway.limits.shared import SharedTable
from policies.facts import Facts
from tests.gateway.limits.remote.gateways import gateways
from tests.gateway.limits.timed_ledger import NOON, dollars, used
from tests.support.gateways import config
from tests.support.redis import redis_server

PRICED = [{"name": "chat", "routes": [{"to": "main"}], "price": {"request": "1 usd"}}]


def tenant(limits: Any = (), **teams: Any) -> TenantConfig:
    given = [{"name": name, "limits": limited} for name, limited in teams.items()]
    return TenantConfig.model_validate({"name": "acme", "models": ["*"], "limits": limits or {}, "teams": given})


class Host:
    """Ledgers of one host: of one process, or of several that share a table."""

    def __init__(self, processes: int, owner: TenantConfig) -> None:
        self.tables = []
        if processes > 1:
            parent = SharedTable.create(processes, few=64, many=256)
            self.tables = [parent, *(SharedTable.attach(parent.fd, worker=n) for n in range(processes))]
        shared: list[SharedTable | None] = [*self.tables[1:]] or [None]
        self.ledgers = [Ledger(lambda: NOON, table) for table in shared]
        self.configure(owner)

    def __del__(self) -> None:
        for table in self.tables:
            table.close()

    def configure(self, owner: TenantConfig) -> None:
        for ledger in self.ledgers:
            ledger.configure([owner], 0.0)

    def reserve(self, team: str, process: int = 0, *, key: str = "k1", usd: float = 0.0, early: bool = False) -> Any:
        ledger = self.ledgers[process % len(self.ledgers)]
        if early:
            return ledger.reserve_early("acme", key, team, 0.0)
        facts = Facts("acme", key, "chat", {}, False, 1, None, "r", team=team)
        return ledger.reserve(facts, ledger.allowances(facts, "chat", 0.0), used(1), dollars(usd), 0.0)


@pytest.fixture(params=[1, 2], ids=["one process", "two processes"])
def processes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_a_team_s_limit_and_its_tenant_s_apply_together(processes: int) -> None:
    host = Host(processes, tenant({"requests": "3/h"}, search={"requests": "2/h"}, ads={}))
    host.reserve("search", 0)
    host.reserve("search", 1)
    with pytest.raises(LimitExceeded, match="The team search of acme is over its limit of requests: 2/h for the whole"):
        host.reserve("search")
    host.reserve("ads")
    with pytest.raises(LimitExceeded, match=r"^acme is over its limit of requests: 3/h for the whole tenant"):
        host.reserve("ads", 1)


def test_a_refusal_takes_nothing_of_either(processes: int) -> None:
    host = Host(processes, tenant({"requests": "10/h"}, search={"concurrency": 1}))
    held: Reservation = host.reserve("search")
    for process in (0, 1, 0, 1):
        with pytest.raises(LimitExceeded, match="team search of acme is over its limit of requests at once"):
            host.reserve("search", process)
    (whole,) = host.ledgers[0].accounts["acme"].always
    assert whole.remaining(0.0, NOON)["requests"] == 9
    held.settle(used(1), None, 0.0)
    host.reserve("search")


def test_each_key_and_each_user_of_a_team_may_have_limits(processes: int) -> None:
    host = Host(processes, tenant({}, search=[{"requests": "1/h", "per": "key"}, {"requests": "3/h"}]))
    host.reserve("search", key="a")
    with pytest.raises(LimitExceeded, match=r"The team search of acme .* 1/h for each key"):
        host.reserve("search", 1, key="a")
    host.reserve("search", 1, key="b")
    host.reserve("", key="a")  # of no team


def test_a_tenant_limits_each_of_its_teams(processes: int) -> None:
    host = Host(processes, tenant({"requests": "1/h", "per": "team"}))
    for team in ("a", "b", ""):
        host.reserve(team)
        with pytest.raises(LimitExceeded, match="acme is over its limit of requests: 1/h for each team"):
            host.reserve(team, 1)


def test_a_request_is_refused_before_its_body(processes: int) -> None:
    host = Host(processes, tenant({}, search={"concurrency": 1}))
    host.reserve("", early=True).undo(0.0)
    early = host.reserve("search", early=True)
    with pytest.raises(LimitExceeded, match="team search"):
        host.reserve("search", 1, early=True)
    early.undo(0.0)
    host.reserve("search", 1)


def test_a_changed_limit_continues_with_its_usage(processes: int) -> None:
    host = Host(processes, tenant({}, search={"spend": "3 usd/month"}))
    host.reserve("search", usd=3).settle(used(1), dollars(3), 0.0)
    with pytest.raises(LimitExceeded, match="3 usd/month"):
        host.reserve("search", usd=1)
    host.configure(tenant({}, search={"spend": "5 usd/month"}))
    host.reserve("search", 1, usd=2)
    with pytest.raises(LimitExceeded, match="5 usd/month"):
        host.reserve("search", usd=1)


requests = st.lists(
    st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 1), st.integers(0, 300), st.integers(0, 300)), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(requests, st.integers(1, 2), st.integers(100, 500), st.integers(100, 500), st.integers(200, 900))
def test_no_schedule_spends_more_than_a_team_or_its_tenant_may(
    sent: list[tuple[str, int, int, int]], processes: int, of_a: int, of_b: int, of_all: int
) -> None:
    """Requests cost what was estimated, so that no budget is overdrawn."""
    limits = {name: {"spend": f"{usd} usd/day"} for name, usd in (("a", of_a), ("b", of_b))}
    host = Host(processes, tenant({"spend": f"{of_all} usd/day"}, **limits))
    spent: Counter[str] = Counter()
    most = {"a": of_a, "b": of_b, "": of_all}
    for team, process, usd, actual in sent:
        fits = min(usd, most[team]) <= most[team] - spent[team] and min(usd, of_all) <= of_all - sum(spent.values())
        try:
            held = host.reserve(team, process, usd=usd)
        except LimitExceeded:
            assert not fits
            continue
        assert fits
        cost = min(usd, actual, most[team], of_all)
        held.settle(used(1), dollars(cost), 0.0)
        spent[team] += cost
        assert spent["a"] <= of_a
        assert spent["b"] <= of_b
        assert sum(spent.values()) <= of_all


@pytest.mark.processes
async def test_gateways_share_a_team_s_limit_in_redis(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, gateways(2, server, {}) as (one, two):
        owner = tenant({}, search={"requests": "3/month", "count": "exact"})
        for gateway in (one, two):
            gateway.ledger.configure([owner], gateway.clock())
            assert gateway.ledger.awaited == {"acme"}
        admitted = 0
        for gateway in (one, two, one, two, one, two):
            facts = Facts("acme", "k1", "chat", {}, False, 1, None, "r", team="search")
            allowances = gateway.ledger.allowances(facts, "chat", gateway.clock())
            try:
                await gateway.ledger.reserve_exactly(facts, allowances, used(1), None, gateway.clock())
            except LimitExceeded:
                pass
            else:
                admitted += 1
        assert admitted == 3


def settled(limits: Any = (), **changes: Any) -> Config:
    return config(models=PRICED, tenants=[{"name": "acme", "models": ["*"], "limits": limits or {}}], **changes)


@pytest.mark.parametrize(
    ("outer", "inner", "field"),
    [
        ({"spend": "50 usd/month"}, {"spend": "51 usd/month"}, "limits.spend"),
        ({"spend": "50 usd/month"}, {"spend": "51 usd/day"}, "limits.spend"),
        ({"spend": "2 usd/day"}, {"spend": "63 usd/month"}, "limits.spend"),
        ({"requests": "60/min"}, [{"requests": "1/s"}, {"requests": "61/min", "models": ["chat"]}], "limits.requests"),
        ([{"tokens": "5k/h", "models": ["chat"]}], {"tokens": "6k/h", "models": ["chat"]}, "limits.tokens"),
        ({"concurrency": 4}, {"concurrency": 5}, "limits.concurrency"),
        ({}, {"spend": "1 eur/day"}, "limits.spend"),
        ({}, {"requests": "1/h", "count": "exact"}, "limits.count"),
        ({}, {"per": "key"}, "limits"),
        ({}, {"requests": "many"}, "limits.requests"),
        ({}, {"requets": "1/h"}, "limits.requets"),
        ({}, {"requests": "1/h", "per": "tenant"}, "limits.per"),
        ({}, [{"requests": "1/h"}] * 21, "limits"),
    ],
)
def test_a_limit_beyond_the_tenant_s_or_without_effect_is_refused(outer: Any, inner: Any, field: str) -> None:
    settings = settled(outer)
    with pytest.raises(WrongGrant) as refused:
        parse_team(settings, settings.tenants[0], "search", inner)
    assert refused.value.field == field
    if "beyond" in str(refused.value):
        assert "of the tenant acme" in str(refused.value)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ({"spend": "50 usd/month"}, {"spend": "50 usd/month"}),
        ({"spend": "2 usd/day"}, {"spend": "62 usd/month"}),
        ({"requests": "60/min"}, {"requests": "1/s"}),
        ({"requests": "60/min", "per": "key"}, {"requests": "100/min"}),
        ({"requests": "60/min", "models": ["x"]}, {"requests": "100/min"}),
        ({"requests": "60/min", "enforce": "shadow"}, {"requests": "100/min"}),
        ({}, {}),
    ],
)
def test_a_limit_within_the_tenant_s_is_accepted(outer: Any, inner: Any) -> None:
    settings = settled(outer)
    assert parse_team(settings, settings.tenants[0], "search", inner).name == "search"


amounts = st.tuples(st.integers(1, 1000), st.sampled_from([1.0, 60.0, 3600.0, 86400.0]))


@given(amounts, amounts)
def test_an_exceeding_limit_never_refuses_first(inner: tuple[int, float], outer: tuple[int, float]) -> None:
    """Requests as fast as the outer limit admits them never exhaust the inner one."""
    if exceeds(inner, outer):
        windows = max(1, -(-inner[1] // outer[1]))
        assert outer[0] * windows < inner[0]
    else:
        assert inner[0] <= outer[0] * max(1, -(-inner[1] // outer[1]))


def test_stored_teams_are_combined_with_those_of_the_file() -> None:
    settings = config(tenants=[{"name": "acme", "models": ["*"], "teams": [{"name": "search"}]}])
    limits = '{"requests": "1/h", "count": "exact"}'
    stored = [StoredTeam(tenant, name, limits, 0, 0) for tenant, name in
              (("acme", "search"), ("acme", "ads"), ("gone", "x"))]  # fmt: skip
    (owner,) = with_teams(settings, stored)
    assert [team.name for team in owner.teams] == ["search", "ads"]
    assert owner.teams[1].limit_list()[0].count == "host"  # the file has no Redis
    Ledger().configure([owner], 0.0)
    check_team_of_key(settings.tenants[0], "ads", stored)
    check_team_of_key(settings.tenants[0], None, ())
    with pytest.raises(WrongGrant, match="did you mean 'search'"):
        check_team_of_key(settings.tenants[0], "serch", ())
    with pytest.raises(WrongGrant, match="configuration file defines the team search"):
        parse_team(settings, settings.tenants[0], "search", {})
