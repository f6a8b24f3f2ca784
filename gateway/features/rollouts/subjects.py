"""Subjects in the state database: each counts once for each event, over all processes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from gateway.features.rollouts.schema import subjects
from gateway.state.statements import in_parts

ASSIGNMENT = ""
"""The key under which subjects count when they get an arm."""


class SubjectOwner(NamedTuple):
    """The comparison whose subjects count, and its generation."""

    comparison: str
    generation: int


def new_subjects(
    connection: Connection, owner: SubjectOwner, key: str, stratum: int, arms: Mapping[int, int], now: float
) -> Sequence[int]:
    """The subjects that no process has counted yet for an event, recorded as counted."""
    offered, fresh = list(arms), list[int]()
    own = (
        subjects.c.comparison == owner.comparison, subjects.c.generation == owner.generation, subjects.c.event == key
    )  # fmt: skip
    for batch in in_parts(offered):
        counted = set(
            connection.execute(select(subjects.c.subject).where(*own, subjects.c.subject.in_(batch))).scalars()
        )
        fresh += [subject for subject in batch if subject not in counted]
    if fresh:
        row = {
            "comparison": owner.comparison,
            "generation": owner.generation,
            "event": key,
            "stratum": stratum,
            "at": now,
        }
        rows = [{**row, "subject": subject, "arm": arms[subject]} for subject in fresh]
        connection.execute(insert(subjects), rows)
    return fresh


def forget_subjects(connection: Connection, comparison: str) -> None:
    """Delete the subjects of a comparison that starts anew."""
    connection.execute(delete(subjects).where(subjects.c.comparison == comparison))
