"""The metrics of the configuration in force."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.admin.lifecycle import Lifecycle


class ConfigInfo(Collector):
    """The revision of the configuration in force, and whether a later file was refused."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "headrace_config_info",
            "1 for the revision of the configuration in force, with the version of its source.",
            labels=("revision", "version"),
        )
        info.add_metric((self._lifecycle.revision, self._lifecycle.version), 1)
        yield info
        refused = GaugeMetricFamily("headrace_config_refused", "1 while the last change of the file is refused.")
        refused.add_metric((), bool(self._lifecycle.last_error))
        yield refused
