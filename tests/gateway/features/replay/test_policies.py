"""The replay of policies: the same file changes nothing, whatever it is; another file changes what it should."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError, InferenceError, Overloaded, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.types import Usage
from config.schema.config import Config
from config.schema.money import PriceConfig
from gateway.auth.keys import Principal
from gateway.auth.scope import Scope
from gateway.features.recording.entries import RecordEntry, Usages
from gateway.features.replay.outcomes import cost_of
from gateway.features.replay.policies import replay_policies
from gateway.features.replay.report import Expectation, Report
from gateway.request.path_parts import charge
from policies.limits.price import Price
from tests.simulation import configurations
from tests.support.gateways import chat, config, infer
from tests.support.recorded import RecordingRig, recorder_of, recording, records

CHANGE = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
PRICE = Price(
    PriceConfig.model_validate(
        {
            "prompt": "3 usd/1M",
            "completion": "15 usd/1M",
            "cached": "0.3 usd/1M",
            "cache_write": "3.75 usd/1M",
            "reasoning": "20 usd/1M",
            "tiers": [{"above": 1000, "prompt": "6 usd/1M", "completion": "22 usd/1M"}],
            "changes": [
                {"since": "2027-01-01", "prompt": "2 usd/1M", "completion": "12 usd/1M", "cached": "0.2 usd/1M"}
            ],
        }
    )
)
tokens = st.integers(0, 3000)


@given(tokens, tokens, tokens, tokens, tokens, st.integers(-100, 100), st.booleans())
def test_a_recorded_request_costs_the_charge_of_the_gateway(
    prompt: int, completion: int, cached: int, reasoning: int, written: int, days: int, has_decision: bool
) -> None:
    begin = CHANGE + days * 86400
    moment: dict[str, Any] = {"decided": begin} if has_decision else {}
    entry = RecordEntry(1, "r", 0, round(begin * 1e9), "chat", **moment)
    parts: dict[str, Any] = {"cached_tokens": cached, "reasoning_tokens": reasoning, "cache_write_tokens": written}
    recorded, usage = Usages(prompt, completion, **parts), Usage(prompt, completion, **parts)
    assert cost_of(entry, recorded, PRICE) == charge(PRICE.at(begin), usage)


USERS = ("ann", "bob", "carl@example.com", None)
FAULTS: tuple[InferenceError | None, ...] = (
    None, None, None, BackendError("no"), TransportError("no"), Overloaded("no"),
)  # fmt: skip
SERVERS = [f"http://127.0.0.1:{9000 + i}" for i in range(6)]
EXTRA: tuple[dict[str, Any], ...] = (
    {"when": {"header": {"x-session": "o*"}}}, {"when": {"cost": ">0.002 usd"}}, {"when": {"tools": True}},
    {"when": {"max_tokens": "<100"}}, {"when": {"time": {"between": "00:00-12:00"}}}, {"when": {"role": ["team"]}},
    {"when": {"label": {"team": "a*"}}}, {"when": {"front": ["infer"]}},
    {"when": {"header": {"x-mail": "*@a.example"}}},
)  # fmt: skip


def file(dice: Random) -> dict[str, Any]:
    """A generated configuration, with further conditions, a nested split and a rollout."""
    written = configurations.first(dice, SERVERS)
    pools = [pool["name"] for pool in written["pools"]]
    for number, model in enumerate(written["models"]):
        for extra in dice.sample(EXTRA, dice.randint(0, 3)):
            model["routes"].insert(0, {**extra, "to": dice.choice(pools)})
        if len(pools) > 1 and dice.random() < 0.5:
            arms: list[dict[str, Any]] = [{"pool": pool, "weight": dice.randint(1, 9)} for pool in pools]
            sticky = dice.choice(("request", "user", "header:x-session"))
            inner = {"name": "inner", "weight": 5, "split": {"sticky": sticky, "arms": arms}}
            outer = {"sticky": dice.choice(("user", "key")), "arms": [{"pool": pools[0], "weight": 3}, inner]}
            model["routes"].append({"split": outer, "fallback": pools[:1]})
        if len(pools) > 1 and dice.random() < 0.5:
            sticky = dice.choice(("request", "user"))
            steps = [{"weight": "30%", "for": "10m"}]
            rollout = {"name": f"r{number}", "from": pools[0], "to": pools[1], "sticky": sticky, "steps": steps}
            model["routes"].insert(0, {"when": {"prompt_tokens": ">30"}, "rollout": rollout})
    return written


def plain(written: dict[str, Any]) -> dict[str, Any]:
    """The configuration without the rollouts and nested splits, which the generator of edits does not know."""

    def is_plain(route: dict[str, Any]) -> bool:
        return "to" in route or ("split" in route and all("pool" in arm for arm in route["split"]["arms"]))

    models = [{**model, "routes": list(filter(is_plain, model["routes"]))} for model in written["models"]]
    return {**written, "models": models}


def read(written: dict[str, Any], folder: Path, **settings: Any) -> Config:
    return Config.model_validate({**written, "record": recording(folder, **settings)})


def holders(dice: Random, written: dict[str, Any]) -> list[Principal]:
    """Clients with roles, labels and scopes."""
    scopes = (None, None, Scope(models=["m0"]), Scope(fronts=["chat"]), Scope(routes=["none"]))
    teams = ({"team": "ab"}, {"team": "b"})
    return [
        Principal(tenant["name"], f"k{n}", frozenset({"user", *roles}), dice.choice(teams), dice.choice(scopes))
        for tenant in written["tenants"]
        for n, roles in enumerate(([], ["team"]))
    ]  # fmt: skip


async def traffic(one: RecordingRig, dice: Random, written: dict[str, Any], count: int) -> None:
    models = [model["name"] for model in written["models"]]
    clients = holders(dice, written)
    for _ in range(count):
        model = dice.choice((*models, *models, "nothing"))
        client, user = dice.choice(clients), dice.choice(USERS)
        fields: dict[str, Any] = {} if user is None else {"user": user}
        if dice.random() < 0.5:
            fields["max_tokens"] = dice.choice((5, 100, 5000))
        if dice.random() < 0.2:
            fields["tools"] = [{"type": "function", "function": {"name": "f"}}]
        content = "word " * dice.choice((4, 40, 400))
        request = chat(model, stream=dice.random() < 0.5, messages=[{"role": "user", "content": content}], **fields)
        headers = dice.choice(({}, {"x-session": "one"}, {"x-session": "two"}, {"x-mail": "ann@a.example"}))
        if dice.random() < 0.15:
            request = infer(model, rows=3, size=50, sequence=dice.choice(("", "s1")))  # type: ignore[assignment]
        try:
            if client.scope is not None:
                client.scope.check_front(request.operation)
        except InferenceError:
            continue
        await one.send(request, client, dict(headers))


def adapters(dice: Random, written: dict[str, Any]) -> dict[str, list[FakeAdapter]]:
    def scripts() -> list[Script]:
        return [Script(fault=dice.choice(FAULTS), fault_after=dice.choice((0, 0, 1))) for _ in range(8)] + [Script()]

    return {pool["name"]: [FakeAdapter(*scripts()) for _ in pool["endpoints"]] for pool in written["pools"]}


async def recorded(folder: Path, seed: int, count: int = 40, **settings: Any) -> tuple[dict[str, Any], RecordingRig]:
    dice = Random(seed)
    written = file(dice)
    one = RecordingRig(read(written, folder, **settings), adapters(dice, written), seed)
    for rollout in one.rollouts.by_name.values():
        rollout.put_shares(dice.choice(((0.9, 0.1), (0.5, 0.5))))
    async with recorder_of(one):
        await traffic(one, dice, written, count)
    return written, one


@pytest.mark.parametrize("first", range(0, 40, 10))
async def test_the_same_file_changes_no_decision(first: int, tmp_path: Path) -> None:
    requests = undecided = limited = arms = failed = 0
    for seed in range(first, first + 10):
        folder = tmp_path / str(seed)
        written, one = await recorded(folder, seed, redact=["email"])
        entries = records(folder)
        report = replay_policies(entries, read(written, folder))
        assert report.counts == {}, (seed, report.as_json())
        assert report.before == report.after
        assert report.requests == len(entries) == one._sent
        requests += report.requests
        undecided += report.undecided
        limited += sum(request.entry.code == "rate_limit_exceeded" for request in entries)
        arms += sum(request.entry.arm is not None for request in entries)
        failed += sum(request.entry.error == "backend" for request in entries)
    assert requests > 300
    assert 0 < undecided < 0.2 * requests or first  # headers that redaction changes
    assert min(limited, arms, failed) > 0


async def test_other_files_are_replayed_whatever_they_are(tmp_path: Path) -> None:
    changed = 0
    for seed in range(12):
        folder, dice = tmp_path / str(seed), Random(seed)
        written, _ = await recorded(folder, seed)
        for _ in range(3):
            other = configurations.changed(dice, plain(written), SERVERS)
            report = replay_policies(records(folder), read(other, folder))
            assert report.requests == len(records(folder))
            counts = report.counts
            most = max(counts[kind] for kind in ("pool", "arm", "refused", "admitted", "failed", "cost"))
            assert most <= counts["changed"] <= report.requests
            changed += counts["changed"]
    assert changed > 100


# ── splits ────────────────────────────────────────────────────────────────────────────────────────────────


def split(weight: float, sticky: str, **model: Any) -> dict[str, Any]:
    arms = [{"pool": "main", "weight": 100 - weight}, {"pool": "next", "weight": weight}]
    return {
        "version": 1,
        "pools": [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "next", "other")],
        "models": [{"name": "chat", "routes": [{"split": {"sticky": sticky, "arms": arms}}], **model}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def of_split(folder: Path, written: dict[str, Any], count: int = 600) -> list[Any]:
    one = RecordingRig(read(written, folder), {name: [FakeAdapter()] for name in ("main", "next", "other")})
    async with recorder_of(one):
        for number in range(count):
            await one.send(chat(user=f"user-{number}"))
    return records(folder)


@pytest.mark.parametrize("sticky", ["request", "user"])
async def test_a_moved_split_moves_its_share(sticky: str, tmp_path: Path) -> None:
    entries = await of_split(tmp_path, split(10, sticky))
    report = replay_policies(entries, read(split(30, sticky), tmp_path))
    assert 0.14 < report.share("arm") < 0.26
    assert report.counts["pool"] == report.counts["arm"] == report.counts["changed"]
    # A request that had the growing arm has it still.
    assert {(old, new) for _, _, old, new in report.moves} == {("main", "next")}
    back = replay_policies(entries, read(split(0, sticky), tmp_path))
    assert 0.06 < back.share("arm") < 0.14


async def test_prices_and_rights(tmp_path: Path) -> None:
    price = {"prompt": "1 usd/1M", "completion": "2 usd/1M"}
    entries = await of_split(tmp_path, split(50, "user", price=price), 20)
    dear = split(50, "user", price={"prompt": "2 usd/1M", "completion": "4 usd/1M"})
    report = replay_policies(entries, read(dear, tmp_path))
    assert report.counts == {"changed": 20, "cost": 20}
    assert report.share("cost") == 1.0
    denied = split(50, "user", price=price)
    denied["tenants"][0]["models"] = ["other-*"]
    report = replay_policies(entries, read(denied, tmp_path))
    assert report.counts == {"changed": 20, "refused": 20}
    assert report.share("cost") == -1.0
    denied["tenants"] = [{"name": "another", "models": ["*"]}]
    assert replay_policies(entries, read(denied, tmp_path)).counts["refused"] == 20


async def test_a_failed_pool_fails_again_and_another_answers(tmp_path: Path) -> None:
    def file(*fallback: str) -> dict[str, Any]:
        written = split(0, "user")
        written["models"][0]["routes"] = [{"to": "main", "fallback": list(fallback)}]
        return written

    failing = FakeAdapter(Script(fault=BackendError("no")))
    one = RecordingRig(read(file("next"), tmp_path), {"main": [failing], "next": [FakeAdapter()], "other": []})
    async with recorder_of(one):
        for _ in range(5):
            await one.send(chat())
    entries = records(tmp_path)
    assert [request.entry.pool for request in entries] == ["next"] * 5
    assert replay_policies(entries, read(file("other", "next"), tmp_path)).counts == {"changed": 5, "pool": 5}
    none = replay_policies(entries, read(file(), tmp_path))
    assert none.counts == {"changed": 5, "pool": 5, "failed": 5}


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────


def limited(**limits: Any) -> dict[str, Any]:
    written = split(0, "user")
    written["models"][0] = {"name": "chat", "routes": [{"to": "main"}]}
    written["tenants"][0]["limits"] = limits
    return written


async def test_changed_limits_are_simulated(tmp_path: Path) -> None:
    entries = await of_split(tmp_path, limited(requests="1000/min"), 50)
    report = replay_policies(entries, read(limited(requests="20/h"), tmp_path))
    assert report.counts["refused"] == 30
    assert "simulated" in report.notes[0]
    assert replay_policies(entries, read(limited(requests="2000/min"), tmp_path)).counts == {}
    each = limited(requests="1/h", per="user")
    assert replay_policies(entries, read(each, tmp_path)).counts == {}  # fifty users
    assert replay_policies(entries, read(limited(tokens="300/h"), tmp_path)).counts["refused"] > 0
    assert replay_policies(entries, read(limited(requests="20/h", enforce="shadow"), tmp_path)).counts == {}


@pytest.mark.realtime
async def test_recorded_refusals_are_admitted_by_a_higher_limit(tmp_path: Path) -> None:
    entries = await of_split(tmp_path, limited(requests="20/h"), 50)
    assert sum(request.entry.code == "rate_limit_exceeded" for request in entries) == 30
    assert replay_policies(entries, read(limited(requests="20/h"), tmp_path)).counts == {}
    report = replay_policies(entries, read(limited(requests="40/h"), tmp_path))
    assert report.counts == {"admitted": 20, "changed": 20}
    assert replay_policies(entries, read(limited(), tmp_path)).counts["admitted"] == 30


async def test_a_sample_meets_its_share_of_a_limit(tmp_path: Path) -> None:
    one = RecordingRig(read(limited(), tmp_path, share="50%"), {"main": [FakeAdapter()], "next": [], "other": []})
    async with recorder_of(one):
        for _ in range(400):
            await one.send(chat())
    entries = records(tmp_path)
    report = replay_policies(entries, read(limited(requests="100/h"), tmp_path))
    assert report.counts["refused"] == len(entries) - 50
    tiny = replay_policies(entries, read(limited(requests="1/h"), tmp_path))
    assert tiny.counts == {}
    assert "Too small" in tiny.notes[1]


async def test_headers_that_are_not_recorded_are_reported(tmp_path: Path) -> None:
    entries = await of_split(tmp_path, limited(), 3)
    other = limited()
    other["models"][0]["routes"].insert(0, {"when": {"header": {"X-New": "a"}}, "to": "next"})
    assert "x-new" in replay_policies(entries, read(other, tmp_path)).notes[0]


# ── expectations ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "met"),
    [
        ("changed <= 10%", True), ("changed < 10%", False), ("changed == 2", True), ("refused == 0", False),
        ("refused<=1", True), ("arm==0", True), ("cost <= 50%", True), ("cost < 50%", False), ("pool != 0", True),
    ],
)  # fmt: skip
def test_expectations(written: str, met: bool) -> None:
    report = Report()
    report.requests = 20
    report.counts.update(changed=2, refused=1, pool=1)
    report.before["usd"], report.after["usd"] = 100, 150
    unmet = Expectation.parse(written).unmet(report)
    assert (unmet == "") is met, unmet


@pytest.mark.parametrize("written", ["changed", "other <= 1", "changed <= one", "cost <= 5", "changed <= 1% or so"])
def test_invalid_expectations_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"such as|percentage"):
        Expectation.parse(written)


def test_an_empty_report_has_no_shares() -> None:
    assert Report().share("changed") == Report().share("cost") == 0
    assert config().record is None
