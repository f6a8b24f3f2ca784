"""Metrics of rollouts and experiments, read at each scrape from the last decision."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.schema.experiment import ExperimentConfig
from config.schema.rollout import RolloutConfig
from gateway.features.rollouts.decider import Decider
from policies.experiments.progress import ExperimentProgress
from policies.experiments.samples import samples as samples_of_experiment
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.samples import samples as samples_of_rollout


class ComparisonMetrics(Collector):
    """The rollouts and experiments of a gateway. Labels come from the configuration."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def collect(self) -> Iterator[Metric]:
        rollouts, experiments = _of_rollouts(), _of_experiments()
        for plan in self._decider.planned:
            config, progress = plan.config, self._decider.progress.get(plan.config.name)
            if isinstance(config, RolloutConfig) and isinstance(progress, RolloutProgress):
                families, samples = rollouts, samples_of_rollout(config, progress)
            elif isinstance(config, ExperimentConfig) and isinstance(progress, ExperimentProgress):
                families, samples = experiments, samples_of_experiment(config, progress, plan.metrics)
            else:
                continue
            for family, labels, value in samples:
                families[family].add_metric((config.name, *labels), value)
        available = GaugeMetricFamily("headrace_rollout_database_available", "1 while decisions can be stored.")
        available.add_metric((), self._decider.available)
        yield from (*rollouts.values(), available, *experiments.values())


def _of_rollouts() -> dict[str, GaugeMetricFamily]:
    return {
        "weight": GaugeMetricFamily("headrace_rollout_weight", "Share of the new arm.", labels=("rollout",)),
        "status": GaugeMetricFamily("headrace_rollout_status", "1 for the status.", labels=("rollout", "status")),
        "e_value": GaugeMetricFamily(
            "headrace_rollout_e_value",
            "Evidence that the new arm is worse (back_if), better (on_if), or has a wrong share (sample_ratio).",
            labels=("rollout", "test", "metric"),
        ),
        "events": GaugeMetricFamily("headrace_rollout_events", "Counted events.", labels=("rollout", "metric", "arm")),
    }


def _of_experiments() -> dict[str, GaugeMetricFamily]:
    return {
        "share": GaugeMetricFamily("headrace_experiment_share", "Share of an arm.", labels=("experiment", "arm")),
        "status": GaugeMetricFamily("headrace_experiment_status", "1 for the status.", labels=("experiment", "status")),
        "values": GaugeMetricFamily(
            "headrace_experiment_values", "Counted values of clients.", labels=("experiment", "metric", "arm")
        ),
        "e_value": GaugeMetricFamily(
            "headrace_experiment_e_value",
            "Evidence that an arm is better than the control (better), has an event more often (guard), or that arms "
            "have wrong shares of the requests or of the values (sample_ratio, feedback_ratio).",
            labels=("experiment", "test", "metric", "arm"),
        ),
    }
