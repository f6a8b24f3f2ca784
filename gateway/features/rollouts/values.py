"""Values that clients report, in the state database: written once each, counted once by the decider."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from sqlalchemy import Connection, delete, func, select

from config.schema.experiment import ExperimentConfig
from gateway.features.rollouts.planned import Planned, Progress
from gateway.features.rollouts.schema import feedback
from gateway.state.statements import in_parts, insert_into
from policies.experiments.progress import FIRST_COMPARED, ExperimentProgress
from policies.experiments.values import ReportedValue, bad_values, count_value, forget_rescaled
from policies.rollouts.signed_ids import GENERATIONS

MOST_AT_ONCE = 5_000
"""Values that one decision counts; further ones wait for the next."""
_LATE = 3600.0
"""Seconds by which the clocks of gateways may differ."""


class ValueRow(msgspec.Struct, frozen=True):
    """A value on its way into the database."""

    comparison: str
    generation: int
    metric: str
    unit: int
    period: int
    arm: int
    stratum: int
    value: float
    assigned_at: float

    @property
    def once(self) -> tuple[object, ...]:
        """Values that are equal in this are doubles."""
        return self.comparison, self.generation, self.metric, self.unit, self.period


def period_of(stratum: int, *, has_baseline: bool) -> int:
    """The period of a stratum: a half of a baseline, or the comparison."""
    return min(stratum, FIRST_COMPARED) if has_baseline else FIRST_COMPARED


def write_values(connection: Connection, rows: Iterable[ValueRow]) -> None:
    """Write values; of a double, the first one stays."""
    values = [msgspec.structs.asdict(row) for row in rows]
    if values:
        connection.execute(insert_into(connection, feedback).on_conflict_do_nothing(), values)


def count_values(connection: Connection, plan: Planned, progress: Progress) -> None:
    """Count the values since the last decision."""
    if isinstance(progress, ExperimentProgress):
        forget_rescaled(progress, plan.metrics)
    own = (
        feedback.c.comparison == progress.name,
        feedback.c.generation == progress.generation % GENERATIONS,
    )
    chosen = select(
        feedback.c.number, feedback.c.metric, feedback.c.unit, feedback.c.arm, feedback.c.stratum, feedback.c.value
    )
    query = chosen.where(*own, feedback.c.number > progress.read).order_by(feedback.c.number).limit(MOST_AT_ONCE)
    rows = connection.execute(query).all()
    if not rows:
        return
    values = [ReportedValue(row.metric, row.unit, row.arm, row.stratum, row.value) for row in rows]
    before = _before(connection, plan, progress, values)
    events = plan.config.events()
    for value in values:
        metric = plan.metrics.get(value.metric)
        if isinstance(progress, ExperimentProgress) and metric is not None:
            earlier = before.get(value.unit) if value.metric in before_metric(plan) else None
            count_value(progress, value, earlier, metric.scale)
        if value.stratum < len(progress.strata):
            stratum = progress.strata[value.stratum]
            for key in bad_values(events, plan.metrics, value):
                stratum.events.setdefault(key, [0] * len(stratum.assigned))[value.arm] += 1
    progress.read = rows[-1].number


def before_metric(plan: Planned) -> Sequence[str]:
    """The metric whose values in the baseline predict later ones."""
    return (plan.config.metric,) if isinstance(plan.config, ExperimentConfig) and plan.config.baseline else ()


def _before(
    connection: Connection, plan: Planned, progress: Progress, values: Sequence[ReportedValue]
) -> Mapping[int, float]:
    """The mean value of each subject in the baseline."""
    if not isinstance(progress, ExperimentProgress) or progress.covariate is None:
        return {}
    means, units = dict[int, float](), list({value.unit for value in values})
    for part in in_parts(units):
        query = select(feedback.c.unit, func.avg(feedback.c.value)).where(
            feedback.c.comparison == progress.name,
            feedback.c.generation == progress.generation % GENERATIONS,
            feedback.c.metric == before_metric(plan)[0],
            feedback.c.period < FIRST_COMPARED,
            feedback.c.unit.in_(part),
        )
        means |= {unit: float(mean) for unit, mean in connection.execute(query.group_by(feedback.c.unit))}
    return means


def covariate_of(connection: Connection, progress: ExperimentProgress, metric: str) -> tuple[float, float]:
    """Theta and the mean of a baseline: what the first half of the values says about the second half.

    cov(x, y) / var(x) over the subjects with a value in both halves (Deng, Xu, Kohavi and Walker, WSDM 2013).
    """
    first, second = feedback.alias("first"), feedback.alias("second")
    x, y = first.c.value, second.c.value
    both = (first.c.comparison == second.c.comparison) & (first.c.unit == second.c.unit)
    query = (
        select(func.count(), func.avg(x), func.avg(y), func.avg(x * y), func.avg(x * x))
        .select_from(first.join(second, both))
        .where(
            first.c.comparison == progress.name,
            first.c.generation == progress.generation % GENERATIONS,
            second.c.generation == first.c.generation,
            first.c.metric == metric,
            second.c.metric == metric,
            first.c.period == 0,
            second.c.period == 1,
        )
    )
    count, mean_x, mean_y, mean_xy, mean_xx = connection.execute(query).one()
    mean = connection.execute(
        select(func.avg(feedback.c.value)).where(
            feedback.c.comparison == progress.name,
            feedback.c.generation == progress.generation % GENERATIONS,
            feedback.c.metric == metric,
            feedback.c.period < FIRST_COMPARED,
        )
    ).scalar()
    if not count or mean is None:
        return 0.0, 0.0 if mean is None else float(mean)
    variance = float(mean_xx) - float(mean_x) ** 2
    covariance = float(mean_xy) - float(mean_x) * float(mean_y)
    return (covariance / variance if variance > 1e-12 else 0.0), float(mean)


def sweep_values(connection: Connection, plan: Planned, progress: Progress, now: float) -> None:
    """Delete counted values whose doubles would come too late. A subject's value stays while its experiment runs."""
    if plan.config.sticky != "request":
        return
    longest = max((metric.within for metric in plan.metrics.values()), default=0.0)
    connection.execute(
        delete(feedback).where(
            feedback.c.comparison == progress.name,
            feedback.c.number <= progress.read,
            feedback.c.assigned_at < now - longest - _LATE,
        )
    )


def forget_values(connection: Connection, comparison: str) -> None:
    """Delete the values of a comparison that starts anew."""
    connection.execute(delete(feedback).where(feedback.c.comparison == comparison))
