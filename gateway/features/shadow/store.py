"""Shadows in the state database: the sums of all processes' counts, and the verdicts.

Every method blocks: call it in a thread from async code. Methods raise `StoreUnavailable` and `StoreMismatch`.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from sqlalchemy import Column, Connection, Double, String, Text, delete, insert, select, update

from gateway.auth.audit import Act, append
from gateway.auth.state import StateDatabase, this_process
from gateway.state.schema import TableGroup
from policies.rollouts.decide import Judgement
from policies.sequential.event_ratio import e_value
from policies.shadowing.pairs import PairTally, ShadowSample, ShadowVerdict, verdict
from policies.shadowing.planned import ShadowPlan

SHADOWS = TableGroup("shadows")
# One row for each comparison: gateways with two files, as during a reload, count each for its own.
shadows = SHADOWS.table(
    "shadows",
    Column("name", String(256), primary_key=True),
    Column("identity", String(64), primary_key=True),
    Column("updated", Double, nullable=False),
    # A JSON object, read and written as a whole.
    Column("progress", Text, nullable=False),
)
samples = SHADOWS.table(
    "shadow_samples",
    Column("name", String(256), primary_key=True),
    Column("identity", String(64), primary_key=True),
    Column("at", Double, primary_key=True),
    Column("id", String(128), primary_key=True),
    # A JSON object with redacted texts.
    Column("sample", Text, nullable=False),
)
MOST_IDENTITIES = 4
"""Comparisons of one name that are stored; the latest ones."""
Key = tuple[str, str]
"""The name of a shadow, and the identity of what it compares."""


NO_SAMPLES: Mapping[Key, Sequence[ShadowSample]] = {}


class ShadowProgress(msgspec.Struct, omit_defaults=True):
    """One shadow as it is stored."""

    tally: PairTally = msgspec.field(default_factory=PairTally)
    judgement: Judgement = "undecided"
    judged: float = 0.0
    """Unix time of the judgement; 0 before the first one."""


_decoder = msgspec.json.Decoder(ShadowProgress)


class ShadowStore:
    """The shadows of one state database. Creates the missing table when it opens."""

    def __init__(self, url: str, pepper: bytes, wall: Callable[[], float] = time.time) -> None:
        """`url` is an SQLAlchemy URL. Raises `StateConfigError` for one that cannot be used."""
        self._pepper = pepper
        self._wall = wall
        self._database = StateDatabase(url, pepper, SHADOWS)

    def read(self) -> dict[Key, ShadowProgress]:
        """Every stored shadow."""
        with self._database.transaction() as connection:
            rows = connection.execute(select(shadows.c.name, shadows.c.identity, shadows.c.progress))
            return {(name, identity): _decoder.decode(text) for name, identity, text in rows}

    def samples(self, key: Key) -> list[ShadowSample]:
        """The samples of a shadow, latest first."""
        name, identity = key
        query = select(samples.c.sample).where(samples.c.name == name, samples.c.identity == identity)
        with self._database.transaction() as connection:
            texts = connection.execute(query.order_by(samples.c.at.desc())).scalars().all()
        return [msgspec.json.decode(text, type=ShadowSample) for text in texts]

    def add(
        self,
        plans: Sequence[ShadowPlan],
        counts: Mapping[Key, PairTally],
        taken: Mapping[Key, Sequence[ShadowSample]] = NO_SAMPLES,
    ) -> dict[Key, ShadowVerdict]:
        """Add the counts and the samples of a process. Returns the verdicts that are new, of which each has an entry in
        the audit log.

        Counts of a shadow that is not among `plans` are dropped.
        """
        new: dict[Key, ShadowVerdict] = {}
        with self._database.change(moves_epoch=False) as connection:
            for plan in plans:
                key = plan.name, plan.identity
                if (tally := counts.get(key)) is None:
                    continue
                progress = read_progress(connection, key)
                changed = ShadowProgress() if progress is None else progress
                changed.tally.add(tally)
                evidence = verdict(plan.config, changed.tally)
                if evidence.judgement != changed.judgement:
                    changed.judgement, changed.judged = evidence.judgement, self._wall()
                    new[key] = evidence
                    act = Act(this_process(), f"shadow.{evidence.judgement}", plan.name, detail=audited(evidence))
                    append(connection, self._pepper, act, self._wall())
                self._write(connection, key, changed, is_new=progress is None)
                _write_samples(connection, key, taken.get(key, ()), plan.config.samples)
        return new

    def close(self) -> None:
        """Close pooled connections."""
        self._database.close()

    def _write(self, connection: Connection, key: Key, progress: ShadowProgress, *, is_new: bool) -> None:
        text, now = msgspec.json.encode(progress).decode(), self._wall()
        name, identity = key
        if not is_new:
            own = shadows.c.name == name, shadows.c.identity == identity
            connection.execute(update(shadows).where(*own).values(progress=text, updated=now))
            return
        connection.execute(insert(shadows).values(name=name, identity=identity, progress=text, updated=now))
        latest = select(shadows.c.identity).where(shadows.c.name == name).order_by(shadows.c.updated.desc())
        for old in connection.execute(latest.offset(MOST_IDENTITIES)).scalars().all():
            for table in (shadows, samples):
                connection.execute(delete(table).where(table.c.name == name, table.c.identity == old))


def read_progress(connection: Connection, key: Key) -> ShadowProgress | None:
    """A shadow in a transaction; None if nothing is stored."""
    name, identity = key
    query = select(shadows.c.progress).where(shadows.c.name == name, shadows.c.identity == identity)
    text = connection.execute(query).scalar_one_or_none()
    return None if text is None else _decoder.decode(text)


def forget_shadow(connection: Connection, name: str) -> None:
    """Delete the counts of a name: its rollout starts anew."""
    for table in (shadows, samples):
        connection.execute(delete(table).where(table.c.name == name))


def _write_samples(connection: Connection, key: Key, taken: Sequence[ShadowSample], most: int) -> None:
    """Write samples, and delete the oldest beyond `most`."""
    name, identity = key
    own = samples.c.name == name, samples.c.identity == identity
    for sample in taken[:most]:
        row = {"name": name, "identity": identity, "at": sample.at, "id": sample.id[:128]}
        connection.execute(insert(samples).values(**row, sample=msgspec.json.encode(sample).decode()))
    if taken:
        oldest = select(samples.c.at).where(*own).order_by(samples.c.at.desc()).offset(most).limit(1)
        if (limit := connection.execute(oldest).scalar_one_or_none()) is not None:
            connection.execute(delete(samples).where(*own, samples.c.at <= limit))


def audited(evidence: ShadowVerdict) -> dict[str, object]:
    """The facts of a verdict, for the audit log."""
    return {
        "e": min(e_value(evidence.log_e), 1e300),
        "pairs": evidence.pairs,
        "shadow_only": evidence.shadow_only,
        "repeat_only": evidence.repeat_only,
        "excess": [round(end, 6) for end in evidence.excess],
    }
