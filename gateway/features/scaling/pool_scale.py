"""The replicas of one pool: measurements since the last decision, starts, the decision in force."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import aiohttp

from adapters.wire import signals
from config.schema.config import PoolConfig, RuntimeConfig
from config.schema.runtimes.bundled import LlmRuntime
from config.schema.runtimes.programs import VllmRuntime
from config.schema.runtimes.replicas import ReplicasConfig
from gateway.traffic.fleet.runtime import OwnRuntime
from gateway.traffic.fleet.signals import fetch
from gateway.traffic.standing import PoolDemand, PoolStanding
from policies.clock import Window
from policies.scaling.scaler import Scaler, ScalingDecision, ScalingFacts, ScalingRules, resized
from policies.scaling.starts import StartTimes

TIMEOUT = 2.0
log = logging.getLogger(__name__)


def server_of(config: RuntimeConfig) -> str | None:
    """The names of the metrics of a runtime; None if it has no KV cache."""
    if isinstance(config, LlmRuntime):
        return "headrace"
    return "vllm" if isinstance(config, VllmRuntime) else None


async def occupancy(addresses: Mapping[str, str]) -> float:
    """The mean use of the KV caches of replicas: kinds of metrics by address. Only replicas that report count."""
    shares = await asyncio.gather(*(_share(address, server) for address, server in addresses.items()))
    reported = [share for share in shares if share is not None]
    return sum(reported) / len(reported) if reported else 0.0


async def _share(address: str, server: str) -> float | None:
    path, connector = address.removeprefix("unix:"), None
    if path != address:
        connector, address = aiohttp.UnixConnector(path), "http://localhost"
    elif not address.startswith("http://"):
        return None
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(TIMEOUT)) as http:
            load = signals.read(await fetch(http, f"{address}/metrics"), server)
    except Exception:
        return None  # its health check reports the reason
    return None if load is None else min(load.cache, 1.0)


def rules_of(pool: PoolConfig) -> ScalingRules:
    """The rules of a pool whose number of endpoints is decided here."""
    replicas = pool.scaling
    assert replicas is not None
    occupancy = {} if pool.runtime is None else {"occupancy": pool.runtime.replicas.occupancy}
    return ScalingRules(
        places=pool.places,
        least=replicas.min,
        most=replicas.most,
        wait=replicas.wait,
        late=replicas.late,
        **occupancy,
        hold=replicas.hold,
        idle=replicas.idle,
    )


class Schedule:
    """The windows of time in which a pool needs more replicas."""

    def __init__(self, pool: PoolConfig) -> None:
        assert pool.scaling is not None
        self._windows = [(Window(each.during), each.min) for each in pool.scaling.schedule]

    def floor(self, utc: float) -> int:
        """The replicas that are required at a Unix time."""
        return max((least for window, least in self._windows if window.holds(utc)), default=0)


class PoolScale:
    """`sample` often, `decide` once a second. Times are of one monotonic clock."""

    def __init__(self, pool: PoolConfig) -> None:
        self.starts = StartTimes()
        self.ready: frozenset[int] = frozenset()
        self.expected = 0
        """Replicas that are needed by the pattern of the recorded usage."""
        self.occupancy = 0.0
        """The used share of the replicas' KV caches, by their last reports."""
        self._running: Mapping[int, OwnRuntime] = {}
        self._since: dict[int, float] = {}
        """Replicas that have not served yet, and the time of their start."""
        self._overdue: set[int] = set()
        self._samples: list[int] = []
        self._begun = self._late = self._missed = self._waiting = 0
        self._working = self._demanded = 0
        self._waiting_since: float | None = None
        self._loaded_at: float | None = None
        self._used_at = 0.0
        self._scaler = Scaler(rules_of(pool))
        self.configure(pool)
        self.decision = ScalingDecision(self._config.min, f"`replicas` is {self._config.min}")

    def configure(self, pool: PoolConfig) -> None:
        """Apply a configuration to the measurements so far."""
        assert pool.scaling is not None
        self._name, self._config = pool.name, pool.scaling
        self._start_timeout = inf if pool.runtime is None else pool.runtime.start_timeout
        self._scaler.change_rules(rules_of(pool))
        self._schedule = Schedule(pool)

    # ── measurements ──────────────────────────────────────────────────────────────────────────────────

    def sample(self, demands: Sequence[PoolDemand], running: Mapping[int, OwnRuntime], now: float) -> None:
        """Add the demand of all processes at one moment."""
        self._waiting = sum(demand.waiting for demand in demands)
        self._samples.append(self._waiting + sum(demand.in_flight for demand in demands))
        self._begun += sum(demand.begun for demand in demands)
        self._late += sum(demand.late for demand in demands)
        self._missed += sum(demand.missed for demand in demands)
        self.ready = frozenset(number for demand in demands for number in demand.ready if number in running)
        self._working = sum(demand.in_flight for demand in demands)
        self._follow_starts(running, now)
        self._follow_use(now)

    def _follow_starts(self, running: Mapping[int, OwnRuntime], now: float) -> None:
        for number in [number for number in self._since if running.get(number) is not self._running.get(number)]:
            del self._since[number]
        for number, runtime in running.items():
            if self._running.get(number) is not runtime:
                self._since[number] = now
                self._overdue.discard(number)
        self._running = dict(running)
        for number in self.ready & self._since.keys():
            self.starts.measure(now - self._since.pop(number))
            self._overdue.discard(number)
        for number, since in self._since.items():
            if now - since > self._start_timeout and number not in self._overdue:
                self._overdue.add(number)
                message = "runtime %s is not ready after %g s (`start_timeout`): it does not count as starting any more"
                log.error(message, running[number].label, self._start_timeout)

    def metrics_of_replicas(self) -> dict[str, str]:
        """The names of the metrics of each ready replica with a KV cache, by address, if the number can change."""
        if not self._config.scales:
            return {}
        ready = (self._running[number] for number in self.ready)
        return {runtime.address: server for runtime in ready if (server := server_of(runtime.config)) is not None}

    # ── the decision ──────────────────────────────────────────────────────────────────────────────────

    @property
    def is_active(self) -> bool:
        """Whether a replica is needed."""
        return self.decision.replicas > 0 or self.wakes

    def decide(self, now: float, utc: float) -> tuple[int, ...]:
        """The numbers of the replicas that should run."""
        facts = self._facts(utc)
        self._demanded = facts.waiting
        self._samples, self._begun, self._late, self._missed = [], 0, 0, 0
        if self._config.scales:
            self.decision = self._scaler.desired(facts, now)
        else:
            self.decision = ScalingDecision(self._config.min, f"`replicas` is {self._config.min}")
        return resized(self._running, self.ready, self.decision.replicas)

    @property
    def wakes(self) -> bool:
        """Whether requests wait and no replica runs."""
        return not self.count and self._waiting + self._missed > 0

    def _facts(self, utc: float) -> ScalingFacts:
        samples = self._samples
        return ScalingFacts(
            demand=sum(samples) / len(samples) if samples else 0.0,
            waiting=self._waiting + self._missed,
            ready=len(self.ready),
            starting=len(self._starting()),
            begun=self._begun + self._missed,
            late=self._late + self._missed,
            occupancy=self.occupancy,
            floor=max(self._schedule.floor(utc), self.expected),
        )

    def _starting(self) -> dict[int, float]:
        """The replicas that are expected to serve, and the time of their start."""
        return {
            number: since
            for number, since in self._since.items()
            if number not in self._overdue and not self._running[number].failing
        }

    # ── on a shared device ────────────────────────────────────────────────────────────────────────────

    @property
    def memory(self) -> int:
        """The memory of its device that the runtime needs."""
        return self._config.memory or 0 if isinstance(self._config, ReplicasConfig) else 0

    @property
    def is_pinned(self) -> bool:
        """Whether it stays loaded."""
        return isinstance(self._config, ReplicasConfig) and self._config.pinned

    @property
    def waiting(self) -> int:
        """The requests that waited at the last decision, or were refused since the one before."""
        return self._demanded

    @property
    def working(self) -> int:
        """The requests at replicas."""
        return self._working

    def waited(self, now: float) -> float:
        """Seconds since requests wait."""
        return 0.0 if self._waiting_since is None else now - self._waiting_since

    def unused(self, now: float) -> float:
        """Seconds since the last request."""
        return now - self._used_at

    def loaded(self, now: float) -> float:
        """Seconds since a replica serves; 0 if none does."""
        return 0.0 if self._loaded_at is None else now - self._loaded_at

    def _follow_use(self, now: float) -> None:
        if self._working or self._waiting or self._missed:
            self._used_at = now
        if not self._waiting + self._missed:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        if not self.ready:
            self._loaded_at = None
        elif self._loaded_at is None:
            self._loaded_at = now

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def count(self) -> int:
        """The replicas that run or start."""
        return len(self._running)

    def standing(self, now: float) -> PoolStanding:
        """The state of the pool for the processes that serve."""
        starting = self._starting()
        return PoolStanding(
            pool=self._name,
            running=self.count,
            start_seconds=self.starts.seconds,
            starting=now - min(starting.values()) if starting else None,
            failure="" if self.ready or starting else self.failure,
        )

    @property
    def failure(self) -> str:
        """The reason why a replica does not start; empty if none fails."""
        for number, runtime in sorted(self._running.items()):
            if runtime.failing:
                return f"replica {number} {runtime.failing}"
            if number in self._overdue:
                return f"replica {number} is not ready after {self._start_timeout:g} s"
        return ""

    def describe(self) -> dict[str, Any]:
        """The replicas and the reason for their number, for operators."""
        return {
            "pool": self._name,
            "replicas": self.count,
            "ready": len(self.ready),
            "starting": len(self._starting()),
            "desired": self.decision.replicas,
            "min": self._config.min,
            "max": self._config.most,
            "reason": self.decision.reason,
            "failure": self.failure,
            "start_seconds": self.starts.seconds,
        }
