"""Processes and gateways with a rollout, and what they count."""

from collections.abc import Sequence
from typing import Any

import msgspec

from config.schema.config import Config
from gateway.auth.audit import Actor
from gateway.auth.store import KeyStore
from gateway.features.rollouts.decider import Decider
from gateway.features.rollouts.live import LiveComparisons
from gateway.features.rollouts.planned import Planned
from gateway.features.rollouts.schema import decider_lease
from gateway.features.rollouts.store import CountBatch, RolloutStore
from gateway.features.rollouts.values import ValueRow
from policies.facts import Facts
from policies.rollouts.counting import ArmOutcome
from policies.rollouts.decide import OperatorVerb
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.tally import ArmTally, ShareOrder, StratumTally
from tests.support.gateways import PEPPER, config
from tests.support.planned_rollouts import plan

OPERATOR = Actor("ann", "operator", "127.0.0.1")
FACTS = Facts("acme", "k", "chat", {}, False, 1, None, "r")


def written(database: str, **rollout: Any) -> Config:
    steps = [{"weight": "20%", "for": "10s"}, {"weight": "50%", "for": "10s"}]
    fields = {"name": "r", "from": "v1", "to": "v2", "steps": steps, "warmup": "0s", "requests": 10, **rollout}
    return config(
        state={"database": database},
        pools=[{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("v1", "v2", "v3")],
        models=[{"name": "chat", "routes": [{"rollout": fields}]}],
    )


class Process:
    """A process with some workers, and a clock that a test moves."""

    def __init__(self, configuration: Config, workers: int = 2) -> None:
        self.config = configuration
        self.now = 0.0
        self.workers = [LiveComparisons() for _ in range(workers)]
        self.reload(configuration)
        self.decider = Decider(lambda: self.config, self._exchange, lambda: PEPPER, lambda: self.now)

    def reload(self, configuration: Config) -> None:
        self.config = configuration
        for worker in self.workers:
            worker.configure(configuration)

    async def _exchange(self, orders: Sequence[ShareOrder]) -> list[StratumTally]:
        counts = [each for worker in self.workers for each in worker.take()]
        for worker in self.workers:
            worker.apply(orders)
        return counts

    async def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        await self.decider.tick()

    def requests(self, source: int, to: int, failures: tuple[int, int] = (0, 0)) -> None:
        for arm, (count, failed) in enumerate(((source, failures[0]), (to, failures[1]))):
            for i in range(count):
                live = self.workers[i % len(self.workers)].by_name["r"]
                assignment = live.assign(arm, FACTS)
                assert assignment is not None
                assignment.end(ArmOutcome("backend" if i < failed else "", 0.1, 0.2))

    @property
    def shares(self) -> set[float]:
        return {worker.by_name["r"].shares[1] for worker in self.workers}


def progress_of(process: "Process") -> RolloutProgress:
    progress = process.decider.progress["r"]
    assert isinstance(progress, RolloutProgress)
    return progress


class Gateway:
    """One gateway's store, lease and clock."""

    def __init__(self, database: str) -> None:
        self.now = 0.0
        self.store = RolloutStore(database, PEPPER)
        self.lease = decider_lease(lambda: self.now)
        self.url = database
        self.number = 0

    def tick(self, planned: Planned, *counts: StratumTally, seconds: float = 1.0) -> RolloutProgress | None:
        self.now += seconds
        self.number += 1
        return self.again(planned, *counts, seconds=seconds)

    def again(self, planned: Planned, *counts: StratumTally, seconds: float = 1.0) -> RolloutProgress | None:
        """The same batch once more, as after a commit that seemed to fail."""
        progress = self.store.tick([planned], CountBatch(self.number, counts), self.lease, seconds).get("r")
        assert progress is None or isinstance(progress, RolloutProgress)
        return progress

    def order(self, planned: Planned, verb: OperatorVerb) -> RolloutProgress:
        progress = self.store.order(planned, verb, OPERATOR)
        assert isinstance(progress, RolloutProgress)
        return progress

    def audit(self) -> list[tuple[str, dict[str, Any]]]:
        keys = KeyStore(self.url, PEPPER)
        try:
            assert not keys.verify_audit().problem
            entries = keys.read_audit(100)[::-1]
            return [(e.action, msgspec.json.decode(e.detail)) for e in entries if e.action.startswith("rollout")]
        finally:
            keys.close()


def planned(fingerprint: str = "f", **changes: Any) -> Planned:
    return Planned(plan(warmup="0s", **changes), fingerprint)


def counts(
    source: int, to: int, failures: tuple[int, int] = (0, 0), stratum: int = 0, generation: int = 1
) -> StratumTally:
    pair = [source, to]
    return StratumTally("r", generation, stratum, ArmTally(pair, list(pair), {"failures": list(failures)}))


def row(unit: int, arm: int, value: float, stratum: int = 2, **changes: Any) -> ValueRow:
    period = min(stratum, 2)
    fields = {"comparison": "e", "generation": 1, "metric": "solved", "assigned_at": 1000.0, **changes}
    return ValueRow(unit=unit, arm=arm, value=value, stratum=stratum, period=period, **fields)
