"""Features: parts of a gateway that exist only while the file has their section.

A reload that adds a section starts its parts, and one that removes it ends them. The modules of a feature are imported
when it is first made.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.registry import Collector, CollectorRegistry

from config.schema.config import Config
from gateway.background import Background
from policies.routing.rules import comparisons_of

Work = tuple[str, Callable[[], Awaitable[None]]]
"""A background task: its name, and what it runs."""


@dataclass(frozen=True, slots=True)
class FeatureParts:
    """The parts of one feature that run beside requests."""

    works: Sequence[Work] = ()
    metrics: Sequence[Collector] = ()
    last: Callable[[], Coroutine[object, object, None]] | None = None
    """What is left to do after a reload has removed the section."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: whether a file has it, and what makes its parts."""

    is_configured: Callable[[Config], bool]
    make: Callable[[], FeatureParts]
    module: str = ""
    """The module that `make` imports, with the modules that it needs in turn: a reload imports it before the new
    configuration is in force, in a thread."""


class Features:
    """`configure` with each configuration in force, `close` at the end."""

    def __init__(self, features: Mapping[str, Feature], background: Background, registry: CollectorRegistry) -> None:
        self._features = features
        self._background = background
        self._registry = registry
        self._running: dict[str, tuple[FeatureParts, list[asyncio.Task[None]]]] = {}
        self._last: set[asyncio.Task[None]] = set()

    def load(self, config: Config) -> None:
        """Import the modules of a configuration's features. Blocks."""
        for feature in self._features.values():
            if feature.module and feature.is_configured(config):
                importlib.import_module(feature.module)

    def configure(self, config: Config) -> None:
        """Start the parts of each feature that a configuration has, and end those of all others."""
        for name, feature in self._features.items():
            if not feature.is_configured(config):
                self._remove(name)
            elif name not in self._running:
                self._running[name] = self._started(feature.make())

    def _started(self, parts: FeatureParts) -> tuple[FeatureParts, list[asyncio.Task[None]]]:
        for collector in parts.metrics:
            self._registry.register(collector)
        return parts, [self._background.run(work, name) for name, work in parts.works]

    def _remove(self, name: str) -> None:
        if (running := self._running.pop(name, None)) is None:
            return
        parts, tasks = running
        for task in tasks:
            task.cancel()
        for collector in parts.metrics:
            self._registry.unregister(collector)
        if parts.last is not None:
            task = self._background.once(parts.last(), f"end of {name}")
            self._last.add(task)
            task.add_done_callback(self._last.discard)

    def close(self) -> None:
        """End all background tasks. The metrics stay."""
        for task in (*self._last, *(task for _, tasks in self._running.values() for task in tasks)):
            task.cancel()


# ── which features a file has ─────────────────────────────────────────────────────────────────────────


def has_comparisons(config: Config) -> bool:
    """Whether the file has a rollout or an experiment."""
    return any(True for _ in comparisons_of(config.models))


def has_feedback(config: Config) -> bool:
    """Whether clients may report values: of a rollout, an experiment, or a metric of the file."""
    return bool(config.feedback) or has_comparisons(config)


def has_journal(config: Config) -> bool:
    """Whether ended requests are stored: as usage, for the search of requests, or for both."""
    return config.usage is not None or config.requests is not None


def has_live(config: Config) -> bool:
    """Whether figures of the last minutes are stored: as a history, or for the console of another replica."""
    shared = not config.state.database.startswith("sqlite")
    return config.console.enabled and (shared or has_journal(config))


def has_shadows(config: Config) -> bool:
    """Whether a route has a shadow, or copies before its rollout."""
    routes = [route for model in config.models for route in model.routes]
    return any(route.shadow is not None or (route.rollout and route.rollout.shadow_first) for route in routes)


def calls_models(config: Config) -> bool:
    """Whether a model calls other models: a pipeline, or a split whose arms are models."""
    models = config.models
    return any(model.pipeline is not None or any(True for r in model.routes for _ in r.models()) for model in models)


def has_payload_events(config: Config) -> bool:
    """Whether the requests of a model are sent as events."""
    return any(model.payload_events is not None for model in config.models)


def has_broker_pools(config: Config) -> bool:
    """Whether the workers of a pool are behind a message broker."""
    return any(pool.protocol.name == "bus" for pool in config.pools)


def has_scaling(config: Config) -> bool:
    """Whether the number of a pool's endpoints is decided here, or KEDA asks for it."""
    return config.listen.keda is not None or any(pool.scaling is not None for pool in config.pools)


def has_soft_budgets(config: Config) -> bool:
    """Whether alerts can arise or wait: a tenant has a soft budget, or there is a webhook."""
    return bool(config.webhooks) or any(tenant.soft_budgets for tenant in config.tenants)
