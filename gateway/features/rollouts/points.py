"""The time series of rollouts and experiments in the state database."""

from typing import Any

import msgspec
from sqlalchemy import Connection, delete, func, insert, select

from config.schema.experiment import ExperimentConfig
from config.schema.rollout import RolloutConfig
from gateway.features.rollouts.planned import Planned, Progress
from gateway.features.rollouts.schema import points
from policies.experiments.progress import ExperimentProgress
from policies.experiments.report import is_due, point
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.report import PointTimes, rollout_point


class SeriesPoints:
    """Adds the points that are due, in the transaction of a decision."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, int], PointTimes] = {}

    def add(self, connection: Connection, plan: Planned, progress: Progress, now: float) -> None:
        """Add a point if one is due."""
        config = plan.config
        if isinstance(config, ExperimentConfig) and isinstance(progress, ExperimentProgress) and is_due(progress):
            progress.pointed_at = progress.elapsed
            _insert(connection, progress, now, point(config, plan.metrics[config.metric], progress))
        if isinstance(config, RolloutConfig) and isinstance(progress, RolloutProgress):
            self._add_of_rollout(connection, config, progress, now)

    def _add_of_rollout(
        self, connection: Connection, config: RolloutConfig, progress: RolloutProgress, now: float
    ) -> None:
        key, weight = (progress.name, progress.generation), progress.share
        times = self._times.get(key) or _times(connection, progress, now)
        if times.is_due(now, weight):
            _insert(connection, progress, now, rollout_point(config, progress))
            times = PointTimes(times.first, now, weight)
        self._times = {other: each for other, each in self._times.items() if other[0] != progress.name} | {key: times}


def read_points(connection: Connection, name: str, generation: int) -> list[dict[str, Any]]:
    """The points of one generation, in the order of their times."""
    query = select(points.c.at, points.c.point).where(points.c.name == name, points.c.generation == generation)
    rows = connection.execute(query.order_by(points.c.at)).all()
    return [{"at": row.at, **msgspec.json.decode(row.point)} for row in rows]


def forget_points(connection: Connection, name: str) -> None:
    """Delete all points of a rollout or an experiment."""
    connection.execute(delete(points).where(points.c.name == name))


def _times(connection: Connection, progress: RolloutProgress, now: float) -> PointTimes:
    """The times of the stored points, for the first decision of a process."""
    own = points.c.name == progress.name, points.c.generation == progress.generation
    first, last = connection.execute(select(func.min(points.c.at), func.max(points.c.at)).where(*own)).one()
    return PointTimes(now if first is None else first, 0.0 if last is None else last, progress.share)


def _insert(connection: Connection, progress: Progress, now: float, values: dict[str, Any]) -> None:
    text = msgspec.json.encode(values).decode()
    row = {"name": progress.name, "generation": progress.generation, "at": now, "point": text}
    connection.execute(insert(points).values(row))
