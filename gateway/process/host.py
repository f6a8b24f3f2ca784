"""What one process does for all processes of a host: it decides rollouts and replicas, and writes what they counted."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prometheus_client.registry import CollectorRegistry

from config.schema.config import Config
from gateway.background import Background
from gateway.process.features import (
    Feature,
    FeatureParts,
    Features,
    has_comparisons,
    has_journal,
    has_live,
    has_scaling,
    has_soft_budgets,
)
from gateway.state.rounds import PATIENCE
from gateway.traffic.fleet.members import NOTHING

if TYPE_CHECKING:  # each is imported when it is made
    from gateway.features.alerts.writer import AlertWriter
    from gateway.features.journal.files import WaitingFiles
    from gateway.features.live.board import LiveBoard, LoadSource
    from gateway.features.quota.report import StorageReport
    from gateway.features.requests.writer import RequestWriter
    from gateway.features.rollouts.decider import Decider, Exchange
    from gateway.features.scaling.actuator import Actuator
    from gateway.features.scaling.autoscaler import Autoscaler
    from gateway.features.usage.writer import UsageWriter


class HostFeatures:
    """`prepare` before any process starts, then `open`, and `configure` with each configuration in force.

    `end` stops all of its tasks; `aclose` follows when all processes have ended. An object is made when the file, or a
    request of an operator, needs it.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        pepper: Callable[[], bytes],
        exchange: "Exchange",
        actuator: "Callable[[], Actuator]",
        source: "Callable[[], LoadSource]",
        background: Background,
        registry: CollectorRegistry,
    ) -> None:
        """`exchange` applies the shares of rollouts in all processes, `actuator` starts and stops replicas,
        `source` describes what all processes do."""
        self._config = config
        self._pepper = pepper
        self._exchange = exchange
        self._actuator = actuator
        self._source = source
        features = {
            "usage": Feature(lambda config: config.usage is not None, self._usage),
            "requests": Feature(lambda config: config.requests is not None, self._requests),
            "alerts": Feature(has_soft_budgets, self._alerts),
            "rollouts": Feature(has_comparisons, self._rollouts),
            "replicas": Feature(has_scaling, self._replicas),
            "live": Feature(has_live, self._live),
        }
        self._features = Features(features, background, registry)
        self._registry = registry

    # ── objects ───────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def waiting(self) -> "WaitingFiles":
        """The journals of this host, which both of the following writers read."""
        from gateway.features.journal.files import WaitingFiles

        return WaitingFiles(self._config)

    @cached_property
    def usage(self) -> "UsageWriter":
        """The writer of usage."""
        from gateway.features.usage.writer import UsageWriter

        return UsageWriter(self._config, self._pepper, self.waiting)

    @cached_property
    def requests(self) -> "RequestWriter":
        """The writer of the records of requests."""
        from gateway.features.requests.writer import RequestWriter

        return RequestWriter(self._config, self.waiting)

    @cached_property
    def alerts(self) -> "AlertWriter":
        """The writer of alerts."""
        from gateway.features.alerts.writer import AlertWriter

        return AlertWriter(self._config, self._pepper, self.usage)

    @cached_property
    def storage(self) -> "StorageReport":
        """The bytes that tenants store."""
        from gateway.features.quota.report import StorageReport

        return StorageReport(self._config, self._pepper)

    @cached_property
    def live(self) -> "LiveBoard":
        """The recent figures of all replicas."""
        from gateway.features.live.board import LiveBoard

        return LiveBoard(self._config, self._pepper, self._source())

    @cached_property
    def decider(self) -> "Decider":
        """The decider of rollouts and experiments."""
        from gateway.features.rollouts.decider import Decider

        return Decider(self._config, self._exchange, self._pepper)

    @cached_property
    def autoscaler(self) -> "Autoscaler":
        """Decides the number of replicas."""
        from gateway.features.scaling.autoscaler import Autoscaler
        from gateway.features.scaling.pattern import UsagePattern

        return Autoscaler(self._config, self._actuator(), pattern=UsagePattern(self._config, lambda: self.usage))

    def replicas(self) -> list[dict[str, Any]]:
        """The replicas of every runtime."""
        return self.autoscaler.describe() if has_scaling(self._config()) else []

    def annotate(self, pools: list[dict[str, Any]]) -> None:
        """Add the replicas to the descriptions of pools."""
        if has_scaling(self._config()):
            self.autoscaler.annotate(pools)

    def warm(self) -> Mapping[str, float]:
        """Seconds for which the old arm of each rollout must still be able to serve, if any."""
        return self.decider.warm() if has_comparisons(self._config()) else NOTHING

    # ── parts that run beside requests ────────────────────────────────────────────────────────────────────

    def _usage(self) -> FeatureParts:
        from gateway.features.usage.metrics import UsageMetrics

        return FeatureParts([("usage", self.usage.run)], [UsageMetrics(self.usage)], self.usage.write)

    def _requests(self) -> FeatureParts:
        from gateway.features.requests.metrics import RequestsMetrics

        return FeatureParts([("requests", self.requests.run)], [RequestsMetrics(self.requests)])

    def _alerts(self) -> FeatureParts:
        from gateway.features.alerts.metrics import AlertMetrics

        works = [("budgets", self.alerts.run_comparisons), ("webhooks", self.alerts.run_deliveries)]
        return FeatureParts(works, [AlertMetrics(self.alerts)])

    def _rollouts(self) -> FeatureParts:
        from gateway.features.rollouts.metrics import ComparisonMetrics

        metrics = [ComparisonMetrics(self.decider)]
        return FeatureParts([("rollouts", self.decider.run)], metrics, self.decider.tick)

    def _replicas(self) -> FeatureParts:
        from gateway.features.scaling.metrics import ReplicaMetrics

        return FeatureParts(
            [("replicas", self.autoscaler.run)], [ReplicaMetrics(lambda: self.autoscaler.pools.values())]
        )

    def _live(self) -> FeatureParts:
        return FeatureParts([("live figures", self.live.run)])

    # ── from the start to the end ─────────────────────────────────────────────────────────────────────────

    def prepare(self, config: Config) -> None:
        """Create the folders where data waits. Raises `StartError`."""
        if has_journal(config):
            from gateway.features.journal.folders import prepare_folders

            prepare_folders(config)

    async def open(self) -> None:
        """Before the first request: put the stored shares of rollouts in force, and import the journals of earlier
        processes, with which limits of long periods begin."""
        self._registry.register(self.storage)
        if has_comparisons(self._config()):
            await self.decider.open()
            await self._exchange(self.decider.orders)
        if self._config().usage is not None:
            await self.usage.write.within(PATIENCE)

    async def listen_to_keda(self, exits: AsyncExitStack) -> tuple[str, int] | None:
        """Listen until the exits close. Returns the address, if there is one. Raises `OSError` and `StartError`."""
        if self._config().listen.keda is None:
            return None
        from gateway.features.scaling.keda_listener import listen_to_keda

        return await listen_to_keda(self._config(), self.autoscaler, exits)

    def configure(self, config: Config) -> None:
        """Put a configuration in force."""
        self._features.configure(config)

    async def refresh(self) -> None:
        """Read what a scrape reports, if it is too old."""
        await self.storage.refresh()

    async def end(self) -> None:
        """Stop all tasks, and store the last decision of rollouts."""
        self._features.close()
        if "decider" in vars(self):
            await self.decider.aclose()

    async def aclose(self) -> None:
        """Write the rest, and close the databases."""
        made = vars(self)
        if "alerts" in made:
            await self.alerts.aclose()
        if "requests" in made:
            await self.requests.aclose()
        if "usage" in made:
            await self.usage.aclose()
        if "live" in made:
            await self.live.aclose()
        if "storage" in made:
            await self.storage.aclose()
