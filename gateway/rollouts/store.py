"""Rollouts in the state database: counts, decisions and orders, each in one transaction with its audit entry.

Every method blocks: call it in a thread from async code. Methods raise `StoreUnavailable` and `StoreMismatch`.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from config.schema.rollout import MOST_SUBJECTS, RolloutConfig
from gateway.auth.audit import Act, Actor, append
from gateway.auth.state import StateDatabase, this_process
from gateway.rollouts.lease import DeciderLease
from gateway.rollouts.schema import create_tables, rollouts, subjects
from policies.rollouts.decide import OperatorVerb, OrderRefused, advance, ordered
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.report import audited
from policies.rollouts.tally import ArmTally, StratumTally

_BATCH = 500
_decoder = msgspec.json.Decoder(RolloutProgress)


class Planned(msgspec.Struct, frozen=True):
    """A rollout of the file, and the identity of its arms."""

    config: RolloutConfig
    fingerprint: str


class RolloutStore:
    """The rollouts of one state database. Creates missing tables when it opens."""

    def __init__(self, url: str, pepper: bytes, wall: Callable[[], float] = time.time) -> None:
        """`url` is an SQLAlchemy URL. Raises `KeyConfigError` for one that cannot be used."""
        self._pepper = pepper
        self._wall = wall
        self._database = StateDatabase(url, pepper)
        with self._database.transaction() as connection:
            create_tables(connection)

    def read(self) -> dict[str, RolloutProgress]:
        """Every rollout that the database has, also those that are no longer in a file."""
        with self._database.transaction() as connection:
            return _read(connection)

    def tick(
        self, planned: Sequence[Planned], counts: Iterable[StratumTally], lease: DeciderLease, seconds: float
    ) -> dict[str, RolloutProgress]:
        """Add counts, and decide if this gateway holds the lease. Returns the rollouts after it.

        `seconds` have passed since this gateway's last decision.
        """
        with self._database.change(moves_epoch=False) as connection:
            decides, before = lease.renew(connection), _read(connection)
            after = {}
            for plan in planned:
                progress = _resumed(plan, before.get(plan.config.name), decides=decides)
                if progress is None:
                    continue
                own = [c for c in counts if c.comparison == progress.name and c.generation == progress.generation]
                progress = _counted(connection, progress, own)
                if decides:
                    progress = advance(plan.config, progress, seconds)
                self._write(connection, plan, before.get(progress.name), progress, this_process())
                after[progress.name] = progress
        return after

    def order(self, plan: Planned, verb: OperatorVerb, by: Actor) -> RolloutProgress:
        """Follow an operator's order. Raises `OrderRefused`."""
        with self._database.change(moves_epoch=False) as connection:
            before = _read(connection).get(plan.config.name)
            if before is None or before.fingerprint != plan.fingerprint:
                raise OrderRefused("no gateway has begun this rollout yet: is one running with this file?")
            after = ordered(plan.config, before, verb)
            self._write(connection, plan, before, after, by, verb)
        return after

    def release(self, lease: DeciderLease) -> None:
        """Let another gateway decide at once."""
        with self._database.change(moves_epoch=False) as connection:
            lease.release(connection)

    def close(self) -> None:
        """Close pooled connections."""
        self._database.close()

    def _write(
        self,
        connection: Connection,
        plan: Planned,
        before: RolloutProgress | None,
        after: RolloutProgress,
        by: Actor,
        verb: str | None = None,
    ) -> None:
        """Write a rollout that has changed, and an audit entry if its status, step or share has."""
        if before == after:
            return
        text = msgspec.json.encode(after).decode()
        if before is None:
            connection.execute(insert(rollouts).values(name=after.name, progress=text))
        else:
            connection.execute(update(rollouts).where(rollouts.c.name == after.name).values(progress=text))
        if before is not None and before.generation != after.generation:
            connection.execute(delete(subjects).where(subjects.c.rollout == after.name))
        if verb is None and before is not None and _shown(before) == _shown(after):
            return
        action = f"rollout.{verb or ('start' if before is None or _anew(before, after) else after.status)}"
        append(connection, self._pepper, Act(by, action, after.name, detail=audited(plan.config, after)), self._wall())


def _shown(progress: RolloutProgress) -> tuple[object, ...]:
    return progress.generation, progress.status, progress.reason, progress.step, progress.share


def _anew(before: RolloutProgress, after: RolloutProgress) -> bool:
    return before.generation != after.generation


def _read(connection: Connection) -> dict[str, RolloutProgress]:
    rows = connection.execute(select(rollouts.c.name, rollouts.c.progress).order_by(rollouts.c.name))
    return {name: _decoder.decode(text) for name, text in rows}


def _resumed(plan: Planned, stored: RolloutProgress | None, *, decides: bool) -> RolloutProgress | None:
    """The stored rollout, or a new one for new arms, which only the decider may begin."""
    if stored is not None and stored.fingerprint == plan.fingerprint:
        return stored
    if not decides:
        return None
    return (
        RolloutProgress(plan.config.name, plan.fingerprint) if stored is None else stored.started_anew(plan.fingerprint)
    )


def _counted(connection: Connection, progress: RolloutProgress, counts: Sequence[StratumTally]) -> RolloutProgress:
    """A rollout with more counts. Counts of strata that it does not have are dropped."""
    if not counts:
        return progress
    progress = _decoder.decode(msgspec.json.encode(progress))  # the caller compares it with the state before
    for each in counts:
        if each.stratum < len(progress.strata):
            stratum, tally = progress.strata[each.stratum], each.tally
            total = ArmTally(stratum.assigned, stratum.ended, stratum.events, {}, stratum.first_byte)
            total.add(msgspec.structs.replace(tally, subjects={}))
            for key, arms in tally.subjects.items():
                fresh = _new_subjects(connection, progress, key, arms)
                pair = stratum.assigned if key == "" else stratum.events.setdefault(key, [0, 0])
                for subject in fresh:
                    pair[arms[subject]] += 1
                progress.subjects[key] = progress.subjects.get(key, 0) + len(fresh)
    return progress


def _new_subjects(connection: Connection, progress: RolloutProgress, key: str, arms: Mapping[int, int]) -> list[int]:
    """The subjects that no process has counted yet for an event, recorded as counted."""
    room, offered, fresh = MOST_SUBJECTS - progress.subjects.get(key, 0), list(arms), list[int]()
    own = (
        subjects.c.rollout == progress.name, subjects.c.generation == progress.generation, subjects.c.event == key
    )  # fmt: skip
    for start in range(0, len(offered), _BATCH):
        batch = offered[start : start + _BATCH]
        counted = set(
            connection.execute(select(subjects.c.subject).where(*own, subjects.c.subject.in_(batch))).scalars()
        )
        fresh += [subject for subject in batch if subject not in counted][: max(room - len(fresh), 0)]
    if fresh:
        row = {"rollout": progress.name, "generation": progress.generation, "event": key}
        connection.execute(insert(subjects), [{**row, "subject": subject} for subject in fresh])
    return fresh
