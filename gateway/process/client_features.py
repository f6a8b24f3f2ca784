"""The features of a process that serves clients. Each object is made when the file, or a first request, needs it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING

from prometheus_client.registry import CollectorRegistry

from config.schema.config import Config
from gateway.auth.identity import Identity
from gateway.background import Background
from gateway.limits.long_limits import LongLimits
from gateway.process.features import (
    Feature,
    FeatureParts,
    Features,
    calls_models,
    has_broker_pools,
    has_comparisons,
    has_feedback,
    has_journal,
    has_payload_events,
    has_shadows,
)
from gateway.request.core import Core, Watcher
from gateway.request.snapshot import NO_GRAPHS, ModelGraphs, RestoreStored, RouteWatch, never, unchanged
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.members import NOTHING
from gateway.traffic.plan_state import TokenEmbedder
from policies.routing.rules import NO_ROLLOUTS, NO_SHADOWS, Rollouts, Shadows

if TYPE_CHECKING:  # each is imported when it is made
    from gateway.features.batches.plane import BatchPlane
    from gateway.features.batches.service import BatchService
    from gateway.features.bus.plane import BusPlane
    from gateway.features.experiments.inbox import FeedbackInbox
    from gateway.features.guards.table import GuardTable
    from gateway.features.journal.live import LiveJournal
    from gateway.features.payloads.plane import PayloadPlane
    from gateway.features.recording.recorder import TrafficRecorder
    from gateway.features.rollouts.live import LiveComparisons
    from gateway.features.rollouts.warm import WarmArms
    from gateway.features.shadow.plane import ShadowPlane
    from gateway.features.stored.keeper import Keeper
    from gateway.features.usage.budgets import BudgetReader
    from gateway.telemetry.traces.live import LiveTraces


_ROOM = "gateway.features"


class ClientFeatures:
    """`load` and `configure` with each configuration; `drain`, `aclose_doors` and `aclose` at the end."""

    def __init__(
        self,
        config: Callable[[], Config],
        fleet: Fleet,
        identity: Identity,
        rng: Random,
        clock: Callable[[], float],
        background: Background,
        registry: CollectorRegistry,
    ) -> None:
        """`config` returns the configuration in force."""
        self.core: Core
        """Set before the first `configure`."""
        self._config = config
        self._fleet = fleet
        self._identity = identity
        self._rng = rng
        self._clock = clock
        self._background = background
        self._keeping: asyncio.Task[None] | None = None
        self._guards: GuardTable | None = None
        """The guards that were compiled last."""
        self._features = Features(self._table(), background, registry)

    def _table(self) -> Mapping[str, Feature]:
        return {
            "traces": Feature(lambda config: config.traces is not None, self._traces),
            "usage": Feature(lambda config: config.usage is not None, self._usage, f"{_ROOM}.usage.metrics"),
            "requests": Feature(
                lambda config: config.requests is not None, self._requests, f"{_ROOM}.requests.metrics"
            ),
            "record": Feature(lambda config: config.record is not None, self._record),
            "payload events": Feature(has_payload_events, self._payload_events, f"{_ROOM}.payloads.metrics"),
            "shadows": Feature(has_shadows, self._shadows, f"{_ROOM}.shadow.metrics"),
            "rollouts": Feature(has_comparisons, self._rollouts, f"{_ROOM}.rollouts.warm"),
            "feedback": Feature(has_feedback, self._feedback, f"{_ROOM}.experiments.inbox"),
            "broker pools": Feature(has_broker_pools, self._broker_pools, f"{_ROOM}.bus.metrics"),
            "batches": Feature(lambda config: config.batches is not None, self._batches),
            "bus": Feature(lambda config: bool(config.listen.bus), self._bus),
        }

    def _is_made(self, name: str) -> bool:
        return name in vars(self)

    # ── objects ───────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def traces(self) -> "LiveTraces":
        """The tracer in force."""
        from gateway.state.local_folder import local_folder
        from gateway.telemetry.traces.live import LiveTraces

        return LiveTraces(self._clock, self._rng, local_folder(self._config().state.database, "traces", None))

    @cached_property
    def journal(self) -> "LiveJournal":
        """The journal of ended requests in force."""
        from gateway.features.journal.live import LiveJournal

        return LiveJournal()

    @cached_property
    def budgets(self) -> "BudgetReader":
        """Lets limits of long periods follow the recorded usage."""
        from gateway.features.usage.budgets import BudgetReader

        return BudgetReader(self._config, lambda: self._identity.pepper, self.core.ledger, self._clock)

    @cached_property
    def recorder(self) -> "TrafficRecorder":
        """The recorder of traffic."""
        from gateway.features.recording.recorder import TrafficRecorder

        config = self._config()
        assert config.record is not None
        return TrafficRecorder(config.record)

    @cached_property
    def payloads(self) -> "PayloadPlane":
        """The events of requests and answers."""
        from gateway.features.payloads.plane import PayloadPlane

        return PayloadPlane(self._background)

    @cached_property
    def rollouts(self) -> "LiveComparisons":
        """Rollouts and experiments."""
        from gateway.features.rollouts.live import LiveComparisons

        return LiveComparisons(self._identity.secret("request ids"))

    @cached_property
    def warm_arms(self) -> "WarmArms":
        """The versions that rollouts can go back to."""
        from gateway.features.rollouts.warm import WarmArms

        return WarmArms(self._config, self._fleet, self.rollouts)

    @cached_property
    def shadows(self) -> "ShadowPlane":
        """Shadow traffic."""
        from gateway.features.shadow.plane import ShadowPlane

        return ShadowPlane(self._fleet, self._rng, self._clock)

    @cached_property
    def inbox(self) -> "FeedbackInbox":
        """The values that clients report."""
        from gateway.features.experiments.inbox import FeedbackInbox

        return FeedbackInbox(self._database, lambda: self._identity.pepper, self.rollouts)

    @cached_property
    def keeper(self) -> "Keeper | None":
        """The stored responses; None if the file stores none. Its tasks begin with the first use."""
        from gateway.features.stored.keeper import Keeper

        config = self._config()
        if config.stored_responses.store == "never":
            return None
        quota, most = self.core.storage_quota, config.http.max_body
        keeper = Keeper(config.state.database, config.stored_responses, most, quota=quota)
        self._keeping = self._background.run(keeper.run, "stored responses")
        return keeper

    @cached_property
    def batches(self) -> "BatchPlane | None":
        """Files and batches; None without `batches`."""
        if self._config().batches is None:
            return None
        from gateway.features.batches.plane import BatchPlane

        return BatchPlane(self._config, self.core, lambda: self._identity.pepper)

    @property
    def service(self) -> "BatchService | None":
        """Files and batches as their fronts use them."""
        return None if self.batches is None else self.batches.service

    def uploads(self) -> dict[bytes, int]:
        """The largest bodies that are read in pieces, by path."""
        if (service := self.service) is None:
            return {}
        from gateway.features.batches.fronts.anthropic import uploads_of

        return uploads_of(service.config)

    @cached_property
    def bus(self) -> "BusPlane":
        """The bindings of message brokers. Raises `StartError`."""
        from gateway.features.bus.plane import BusPlane

        return BusPlane(self._config(), self.core, self.keeper, lambda: self._identity.pepper)

    def _database(self) -> str:
        return self._config().state.database

    # ── parts that run beside requests ────────────────────────────────────────────────────────────────────

    def _traces(self) -> FeatureParts:
        from gateway.telemetry.traces.metrics import TraceMetrics

        return FeatureParts(metrics=[TraceMetrics(lambda: self.traces.exporter)])

    def _usage(self) -> FeatureParts:
        from gateway.features.usage.metrics import UsageLost

        return FeatureParts([("limits", self.budgets.run)], [UsageLost(self.journal)])

    def _requests(self) -> FeatureParts:
        from gateway.features.requests.metrics import RequestsLost

        return FeatureParts(metrics=[RequestsLost(self.journal)])

    def _record(self) -> FeatureParts:
        from gateway.features.recording.metrics import RecordMetrics

        self._background.run(self.recorder.run, "record")  # until it is closed: it writes what is left then
        return FeatureParts(metrics=[RecordMetrics(self.recorder)])

    def _payload_events(self) -> FeatureParts:
        from gateway.features.payloads.metrics import PayloadMetrics

        return FeatureParts(metrics=[PayloadMetrics(self.payloads)])

    def _shadows(self) -> FeatureParts:
        from gateway.features.shadow.metrics import ShadowMetrics

        shadows, writer = self.shadows, self.shadows.open(self._config, lambda: self._identity.pepper)
        metrics = ShadowMetrics(shadows.live, shadows.copies, writer)
        return FeatureParts([("shadows", writer.run)], [metrics], shadows.outlast)

    def _rollouts(self) -> FeatureParts:
        return FeatureParts([("warm arms", self.warm_arms.run)], last=self.warm_arms.outlast)

    def _feedback(self) -> FeatureParts:
        from gateway.features.experiments.inbox import FeedbackMetrics

        return FeatureParts([("feedback", self.inbox.run)], [FeedbackMetrics(self.inbox)])

    def _batches(self) -> FeatureParts:
        from gateway.features.batches.metrics import BatchMetrics

        plane, keeper = self.batches, self.keeper
        assert plane is not None
        metrics = BatchMetrics(plane.gate, lambda: plane.progress, plane.providers.unused)
        return FeatureParts([("batches", lambda: plane.run(keeper))], [metrics])

    def _bus(self) -> FeatureParts:
        from gateway.features.bus.metrics import BusMetrics

        return FeatureParts([("bus", self.bus.run)], [BusMetrics(self.bus)])

    def _broker_pools(self) -> FeatureParts:
        from gateway.features.bus.metrics import LateAnswers

        return FeatureParts(metrics=[LateAnswers(self._fleet.endpoints)])

    # ── a configuration ───────────────────────────────────────────────────────────────────────────────────

    async def load(self, config: Config) -> Mapping[str, TokenEmbedder]:
        """Load what the features of a configuration need, before it is in force. Returns its embedders. Raises
        `FleetError`."""
        await asyncio.to_thread(self._features.load, config)
        if has_payload_events(config):
            from gateway.features.payloads.plane import check_brokers

            await asyncio.to_thread(check_brokers, config)
        embedders: Mapping[str, TokenEmbedder] = {}
        if any(model.embeddings is not None for model in config.models):
            from gateway.features.embeddings import loading

            embedders = await asyncio.to_thread(loading.embedders, config)
        if any(model.pipeline is not None for model in config.models):
            from gateway.features.pipelines import resources

            await asyncio.to_thread(resources.prepare, config)
        self.graphs(config)
        if config.guards:
            self._guards = await asyncio.to_thread(self._guard_table, config)
        if config.traces is not None:
            from gateway.telemetry.traces.live import TracesUnavailable, check_installed

            try:
                check_installed(config.traces)
            except TracesUnavailable as error:
                raise FleetError(str(error)) from None
        return embedders

    def warm(self, config: Config, seconds: Mapping[str, float]) -> Mapping[str, float]:
        """The seconds for which each pool stays warm, for the rollouts of the configuration before this one."""
        if not self._is_made("warm_arms"):
            return NOTHING
        return self.warm_arms.configure(config, seconds)

    def graphs(self, config: Config) -> ModelGraphs:
        """The models that call other models."""
        if not calls_models(config):
            return NO_GRAPHS
        from gateway.features.pipelines.graphs import PIPELINES

        return PIPELINES

    def comparisons(self, config: Config) -> Rollouts:
        """The rollouts and experiments of a configuration."""
        if not has_feedback(config) and not self._is_made("rollouts"):
            return NO_ROLLOUTS
        self.rollouts.configure(config)
        return self.rollouts.by_name

    def copies(self, config: Config, embedders: Mapping[str, TokenEmbedder]) -> tuple[Shadows, Sequence[RouteWatch]]:
        """The shadows of a configuration, and what observes their routes."""
        if not has_shadows(config) and not self._is_made("shadows"):
            return NO_SHADOWS, ()
        self.shadows.configure(config, embedders)
        return self.shadows.live.by_name, (self.shadows.copies.watch,)

    def guards(self, config: Config) -> tuple[Sequence[RouteWatch], Callable[[str, str], bool]]:
        """What observes the routes with guards, and whether a guard may change an answer, by tenant and model."""
        if not config.guards:
            self._guards = None
            return (), never
        from gateway.features.guards.observer import Guards

        if self._guards is None or self._guards.config is not config:
            self._guards = self._guard_table(config)
        return (Guards(self._guards).watch,), self._guards.guards_answers

    @property
    def restored(self) -> RestoreStored:
        """Gives stored bodies their personal data again; the same body without guards."""
        return unchanged if self._guards is None else self._guards.restored

    def _guard_table(self, config: Config) -> "GuardTable":
        from gateway.features.guards.table import GuardTable

        return GuardTable(config, lambda: self._identity.pepper)

    async def catch_up(self, config: Config) -> None:
        """Let limits of long periods begin with the recorded usage. When the journals of this host are imported."""
        if config.usage is not None:
            await self.budgets.read()

    async def begin_limits(self, config: Config, limits: LongLimits) -> None:
        """Let the limits of a configuration that comes into force next begin with the recorded usage."""
        if config.usage is not None and (limits.limits or self._is_made("budgets")):
            await self.budgets.begin(limits)

    def configure(self, config: Config) -> None:
        """Put a configuration in force, when the core has its snapshot. Raises `StartError`, but only the first time:
        later configurations have the same brokers."""
        telemetry = self.core.telemetry
        if config.traces is not None or self._is_made("traces"):
            telemetry.tracer = self.traces.configure(config.traces)
        if has_journal(config) or self._is_made("journal"):
            telemetry.journal = self.journal.configure(config)
        if config.record is not None:
            telemetry.recorder = self.recorder
            self.recorder.configure(config)
        if has_payload_events(config) or self._is_made("payloads"):
            self.payloads.configure(config)
        self._features.configure(config)
        self.core.watchers = tuple(self._watchers(config))

    def _watchers(self, config: Config) -> list[Watcher]:
        """What follows each request: its explanation, its spans, and its traffic that is recorded."""
        from gateway.features.explain.header import explained
        from gateway.request.client_exchange import traced

        watchers: list[Watcher] = [explained]
        if self.core.telemetry.tracer is not None:
            watchers.append(traced)
        if config.record is not None and config.record.share:
            watchers.append(self.recorder.sample.watch)
        if has_payload_events(config):
            watchers.append(self.payloads.watch)
        return watchers

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────

    def drain(self, seconds: float) -> list[Awaitable[bool]]:
        """Begin no further line of a batch, receive no further message, and wait for the messages in work."""
        if self._is_made("batches") and self.batches is not None:
            self.batches.drain()
        return [self.bus.drain(seconds)] if self._is_made("bus") else []

    async def stop_copies(self) -> None:
        """Cancel the copies of requests."""
        if self._is_made("shadows"):
            await self.shadows.copies.stop()

    async def aclose_doors(self) -> None:
        """End what sends requests without a client's connection, and all background tasks."""
        self._features.close()
        if self._keeping is not None:
            self._keeping.cancel()
        if self._is_made("bus"):
            await self.bus.aclose()
        if self._is_made("batches") and self.batches is not None:
            await self.batches.aclose()

    async def aclose(self) -> None:
        """Store what is left, after the last request."""
        async with AsyncExitStack() as exits:
            if self._is_made("traces"):
                exits.push_async_callback(self.traces.aclose)
            if self._is_made("budgets"):
                exits.push_async_callback(self.budgets.aclose)
            if self._is_made("journal"):
                exits.callback(self.journal.close)
            if self._is_made("recorder"):
                exits.push_async_callback(self.recorder.aclose)
            if self._is_made("payloads"):
                exits.push_async_callback(self.payloads.aclose)
            if self._is_made("core"):
                exits.callback(self.core.telemetry.flush)  # the last requests
            if self._is_made("shadows"):
                exits.push_async_callback(self.shadows.aclose)
            if self._is_made("inbox"):
                exits.push_async_callback(self.inbox.aclose)
            if self._is_made("keeper") and self.keeper is not None:
                exits.push_async_callback(self.keeper.aclose)
