"""Retains the versions of models that rollouts can go back to, in the bundled tensor runtimes.

The runtime leaves a retained version loaded although a newer version replaces it or other models need memory. A
retention ends by itself soon after this process, or the rollout's `keep`, has ended.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from adapters.errors import InferenceError
from adapters.types import Deadline
from adapters.upstreams.oip.http_client import OipHttpAdapter
from config.schema.config import Config
from gateway.features.rollouts.live import LiveComparisons
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.member import PoolMember
from policies.warm import WarmTarget, warm_pools, warm_targets

PERIOD = 5.0
RETENTION = 60.0
"""Seconds of one retention. It outlasts a reload and some lost requests."""
TIMEOUT = 5.0
log = logging.getLogger(__name__)


class WarmArms:
    """`run` until the end. `configure` before each new configuration is in force."""

    def __init__(self, config: Callable[[], Config], fleet: Fleet, rollouts: LiveComparisons) -> None:
        self._config = config
        self._fleet = fleet
        self._rollouts = rollouts
        self._removed: dict[WarmTarget, float] = {}
        """Targets of rollouts that the file no longer has, and the loop time of their end."""
        self._retained: dict[WarmTarget, bool] = {}
        """Whether the last retention of a target succeeded, as it is logged."""

    def configure(self, after: Config, warm: Mapping[str, float]) -> dict[str, float]:
        """Record what stays warm after a reload: of `warm`, the seconds by rollout, those that `after` no longer has.
        Returns the seconds of each pool."""
        now = asyncio.get_running_loop().time()
        lasting = {name for name, _ in warm_targets(after, warm)}
        for name, target in warm_targets(self._config(), warm):
            if name not in lasting:
                self._removed[target] = now + warm[name]
        return warm_pools(self._config(), warm)

    async def run(self) -> None:
        """Renew the retentions once a period until cancelled."""
        while True:
            await self.renew()
            await asyncio.sleep(PERIOD)

    async def outlast(self) -> None:
        """After the last rollout has left the file: renew what stays warm, until its time has passed."""
        while self._removed and not self._rollouts.by_name:
            await self.renew()
            await asyncio.sleep(PERIOD)

    async def renew(self) -> None:
        """Retain each target at each of its endpoints."""
        targets = self._targets()
        self._retained = {target: done for target, done in self._retained.items() if target in targets}
        async with asyncio.TaskGroup() as group:
            for target in targets:
                for member in self._members(target.pool):
                    group.create_task(self._retain(member, target))

    def _targets(self) -> dict[WarmTarget, None]:
        now = asyncio.get_running_loop().time()
        self._removed = {target: until for target, until in self._removed.items() if until > now}
        warm = {name: live for name, live in self._rollouts.by_name.items() if live.warm}
        own = (target for _, target in warm_targets(self._config(), warm)) if warm else ()
        return dict.fromkeys((*own, *self._removed))

    def _members(self, pool: str) -> list[PoolMember]:
        return [*self._fleet.members_of(pool), *self._fleet.leaving(pool)]

    async def _retain(self, member: PoolMember, target: WarmTarget) -> None:
        adapter, runtime = member.endpoint.adapter, member.runtime
        if runtime is None or runtime.config.kind != "tensor" or not isinstance(adapter, OipHttpAdapter):
            return
        if member.endpoint.health == "unhealthy" or (adapter.model is None and set("*?[") & set(target.model)):
            return
        deadline = Deadline(asyncio.get_running_loop().time() + TIMEOUT, TIMEOUT, TIMEOUT)
        try:
            await adapter.retain(target.model, target.version, RETENTION, deadline)
        except InferenceError as error:
            if self._retained.get(target) is not False:
                log.warning("rollouts: pool %s does not retain %s: %s", target.pool, target.label, error.message)
            self._retained[target] = False
        else:
            if not self._retained.get(target):
                log.info("rollouts: pool %s retains %s", target.pool, target.label)
            self._retained[target] = True
