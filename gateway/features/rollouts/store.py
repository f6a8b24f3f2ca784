"""Rollouts and experiments in the state database: counts, values, decisions and orders, each in one transaction with
its audit entry.

Every method blocks: call it in a thread from async code. Methods raise `StoreUnavailable` and `StoreMismatch`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from config.schema.experiment import ExperimentConfig
from config.schema.rollout import RolloutConfig
from gateway.auth.audit import Act, Actor, append
from gateway.auth.state import StateDatabase, this_process
from gateway.features.rollouts.planned import Planned, Progress, Verb, shown
from gateway.features.rollouts.points import SeriesPoints, forget_points, read_points
from gateway.features.rollouts.schema import DECIDER, ROLLOUTS, batches, experiments, rollouts, subjects
from gateway.features.rollouts.subjects import ASSIGNMENT, SubjectOwner, forget_subjects, new_subjects
from gateway.features.rollouts.values import (
    ValueRow,
    count_values,
    covariate_of,
    forget_values,
    sweep_values,
    write_values,
)
from gateway.features.shadow.store import SHADOWS, forget_shadow, read_progress
from gateway.state.lease import Leases
from policies.experiments.progress import ExperimentProgress
from policies.rollouts.decide import Judgement, OrderRefused
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.signed_ids import GENERATIONS
from policies.rollouts.tally import MEASURING, ArmTally, StratumTally
from policies.sequential.quantiles import merged
from policies.shadowing.pairs import verdict

_TABLES = {RolloutProgress: rollouts, ExperimentProgress: experiments}
_BATCH_SECONDS = 86400.0
_SWEEP_EVERY = 600.0
GENERATION_BITS = 22
"""The random bits of a generation, above those of `GENERATIONS`: the column has 31."""


class CountBatch(NamedTuple):
    """The counts of one gateway since its batch before, which may come twice."""

    number: int
    counts: Sequence[StratumTally]


class RolloutStore:
    """The rollouts and experiments of one state database. Creates missing tables when it opens."""

    def __init__(self, url: str, pepper: bytes, wall: Callable[[], float] = time.time) -> None:
        """`url` is an SQLAlchemy URL. Raises `StateConfigError` for one that cannot be used."""
        self._pepper = pepper
        self._wall = wall
        self._rng = Random()
        self._swept_at = 0.0
        self._points = SeriesPoints()
        self._database = StateDatabase(url, pepper, ROLLOUTS, SHADOWS)

    def read(self) -> dict[str, Progress]:
        """Every rollout and experiment that the database has, also those that are no longer in a file."""
        with self._database.transaction() as connection:
            return _read(connection)

    def tick(self, planned: Sequence[Planned], batch: CountBatch, lease: Leases, seconds: float) -> dict[str, Progress]:
        """Add counts, and decide if this gateway holds the lease. Returns the rollouts and experiments after it.

        `seconds` have passed since this gateway's last decision.
        """
        with self._database.change(moves_epoch=False) as connection:
            decides, before = lease.hold(connection, DECIDER), _read(connection)
            counts = batch.counts if self._is_new(connection, lease.holder, batch.number) else ()
            after: dict[str, Progress] = {}
            sweeps = decides and self._wall() - self._swept_at >= _SWEEP_EVERY
            if sweeps:
                self._swept_at = self._wall()
            for plan in planned:
                stored = before.get(plan.config.name)
                progress = _resumed(plan, stored, decides=decides)
                if progress is None:
                    continue
                if progress is not stored:
                    progress = self._distinct(progress, stored)
                own = [c for c in counts if c.comparison == progress.name and c.generation == progress.generation]
                progress = _counted(connection, _copied(progress), own, self._wall())
                if decides:
                    progress = self._decided(connection, plan, progress, seconds)
                if sweeps:
                    sweep_values(connection, plan, progress, self._wall())
                self._write(connection, plan, before.get(progress.name), progress, this_process())
                after[progress.name] = progress
        return after

    def order(self, plan: Planned, verb: Verb, by: Actor) -> Progress:
        """Follow an operator's order. Raises `OrderRefused`."""
        with self._database.change(moves_epoch=False) as connection:
            before = _read(connection).get(plan.config.name)
            if before is None or before.fingerprint != plan.fingerprint:
                raise OrderRefused(f"no gateway has begun this {plan.config.kind} yet: is one running with this file?")
            after = self._distinct(plan.ordered(before, verb), before)
            self._write(connection, plan, before, after, by, verb)
        return after

    def report(self, values: Iterable[ValueRow]) -> None:
        """Store values that clients report; of doubles, the first one."""
        with self._database.change(moves_epoch=False) as connection:
            write_values(connection, values)

    def assignment(self, comparison: str, generation: int, subject: int) -> tuple[int, int, float] | None:
        """The arm of a subject, its stratum and the time of its assignment; None if it has none."""
        query = select(subjects.c.arm, subjects.c.stratum, subjects.c.at).where(
            subjects.c.comparison == comparison,
            subjects.c.generation == generation,
            subjects.c.event == ASSIGNMENT,
            subjects.c.subject == subject,
        )
        with self._database.transaction() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else (row.arm, row.stratum, row.at)

    def series(self, name: str, generation: int) -> list[dict[str, Any]]:
        """The time series of a rollout or an experiment."""
        with self._database.transaction() as connection:
            return read_points(connection, name, generation)

    def release(self, lease: Leases) -> None:
        """Let another gateway decide at once."""
        with self._database.change(moves_epoch=False) as connection:
            lease.release(connection, DECIDER)

    def close(self) -> None:
        """Close pooled connections."""
        self._database.close()

    def _is_new(self, connection: Connection, holder: str, number: int) -> bool:
        """Whether a batch is not stored yet, recorded as stored. A commit that seemed to fail may have succeeded."""
        stored = connection.execute(select(batches.c.number).where(batches.c.holder == holder)).scalar()
        now = self._wall()
        if stored is None:
            connection.execute(delete(batches).where(batches.c.at < now - _BATCH_SECONDS))
            connection.execute(insert(batches).values(holder=holder, number=number, at=now))
        elif stored < number:
            connection.execute(update(batches).where(batches.c.holder == holder).values(number=number, at=now))
        return stored is None or stored < number

    def _distinct(self, progress: Progress, before: Progress | None) -> Progress:
        """A new generation with a random part. After a restore of the database the next begin would have the number of
        one that was lost, and gateways would not notice it."""
        if before is None or progress.generation != before.generation:
            random_part = self._rng.getrandbits(GENERATION_BITS) * GENERATIONS
            progress.generation = (random_part + progress.generation % GENERATIONS) or GENERATIONS
        return progress

    def _decided(self, connection: Connection, plan: Planned, progress: Progress, seconds: float) -> Progress:
        """The progress after its new values and a decision."""
        config, now = plan.config, self._wall()
        if isinstance(config, ExperimentConfig) and isinstance(progress, ExperimentProgress):
            past = progress.elapsed + seconds >= config.warmup + config.baseline
            if config.baseline and past and progress.covariate is None:
                progress.covariate = covariate_of(connection, progress, config.metric)
        count_values(connection, plan, progress)
        progress = plan.advanced(progress, seconds, self._rng, judgement_of(connection, plan))
        self._points.add(connection, plan, progress, now)
        return progress

    def _write(
        self,
        connection: Connection,
        plan: Planned,
        before: Progress | None,
        after: Progress,
        by: Actor,
        verb: str | None = None,
    ) -> None:
        """Write a rollout or an experiment that has changed, and an audit entry if its status or its shares have."""
        if before == after:
            return
        table, text = _TABLES[type(after)], msgspec.json.encode(after).decode()
        if before is None:
            connection.execute(insert(table).values(name=after.name, progress=text))
        else:
            connection.execute(update(table).where(table.c.name == after.name).values(progress=text))
        if before is not None and before.generation != after.generation:
            forget_subjects(connection, after.name)
            forget_values(connection, after.name)
            forget_shadow(connection, after.name)
            forget_points(connection, after.name)
        if verb is None and before is not None and shown(before) == shown(after):
            return
        kind = plan.config.kind
        anew = before is None or before.generation != after.generation
        action = f"{kind}.{verb or ('start' if anew else after.status)}"
        append(connection, self._pepper, Act(by, action, after.name, detail=plan.audited(after)), self._wall())


def judgement_of(connection: Connection, plan: Planned) -> Judgement:
    """The verdict about the answers of copies before a rollout's first step."""
    config = plan.config
    if isinstance(config, ExperimentConfig) or config.shadow_first is None:
        return "undecided"
    progress = read_progress(connection, (config.name, plan.shadow))
    return "undecided" if progress is None else verdict(config.shadow_first, progress.tally).judgement


def _copied(progress: Progress) -> Progress:
    """A copy: the caller compares it with the progress before."""
    if isinstance(progress, RolloutProgress):
        return msgspec.json.decode(msgspec.json.encode(progress), type=RolloutProgress)
    return msgspec.json.decode(msgspec.json.encode(progress), type=ExperimentProgress)


def _read(connection: Connection) -> dict[str, Progress]:
    progress: dict[str, Progress] = {}
    for kind, table in _TABLES.items():
        rows = connection.execute(select(table.c.name, table.c.progress).order_by(table.c.name))
        progress |= {name: msgspec.json.decode(text, type=kind) for name, text in rows}
    return progress


def _resumed(plan: Planned, stored: Progress | None, *, decides: bool) -> Progress | None:
    """The stored progress, or that before the begin for new arms, which only the decider may begin."""
    if stored is not None and stored.fingerprint == plan.fingerprint and _fits(plan, stored):
        return stored
    return plan.begun(stored) if decides else None


def _fits(plan: Planned, stored: Progress) -> bool:
    return isinstance(stored, RolloutProgress) == isinstance(plan.config, RolloutConfig)


def _counted(connection: Connection, progress: Progress, counts: Sequence[StratumTally], now: float) -> Progress:
    """Add counts. Counts of strata that the progress does not have are dropped."""
    owner = SubjectOwner(progress.name, progress.generation)
    for each in counts:
        if each.stratum == MEASURING:
            times = each.tally.first_byte[0] if each.tally.first_byte else {}
            progress.measured = dict(merged((progress.measured, times)))
        elif each.stratum < len(progress.strata):
            stratum, tally = progress.strata[each.stratum], each.tally
            total = ArmTally(stratum.assigned, stratum.ended, stratum.events, {}, stratum.first_byte)
            total.add(msgspec.structs.replace(tally, subjects={}))
            for key, arms in tally.subjects.items():
                fresh = new_subjects(connection, owner, key, each.stratum, arms, now)
                assigned = stratum.assigned
                counted = assigned if key == "" else stratum.events.setdefault(key, [0] * len(assigned))
                for subject in fresh:
                    counted[arms[subject]] += 1
                progress.subjects[key] = progress.subjects.get(key, 0) + len(fresh)
    return progress
