"""Models as targets of copies: with the routes and the pipelines of the file, without its limits, caches and rollouts.

Copies are on the operator's bill: their calls are reserved and settled in a ledger of their own, without limits and
prices, so that no account of a tenant changes.
"""

from collections.abc import Callable, Mapping
from random import Random

from config.schema.config import Config, LimitsConfig, QuotaConfig
from gateway.auth.keys import Principal
from gateway.auth.table import KeyTable
from gateway.features.pipelines.calls import Budgets, ClientModelCalls
from gateway.features.pipelines.graphs import PIPELINES
from gateway.features.shadow.pools import CopyPools
from gateway.limits.ledger import Ledger
from gateway.request.services import Services
from gateway.request.snapshot import Snapshot, build
from gateway.traffic.plan_state import PlanState, TokenEmbedder


class CopyModels:
    """The models of a configuration over the pools of copies."""

    def __init__(self, pools: CopyPools, rng: Random, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._pools = pools
        self._rng = rng
        self._clock = clock
        self._ledger = Ledger()
        self.services = Services(self._ledger, rng, clock, wall)
        self._plan_state = PlanState()
        self._config: Config | None = None
        self._snapshot: Snapshot | None = None

    def configure(self, config: Config, embedders: Mapping[str, TokenEmbedder]) -> None:
        """Apply a configuration. It is compiled when a copy first needs it."""
        self._config, self._snapshot, self._plan_state.embedders = config, None, embedders

    def caller(self, principal: Principal) -> ClientModelCalls:
        """Calls models with the facts of a client, and charges nobody."""
        if self._snapshot is None:
            assert self._config is not None
            config = _uncharged(self._config)
            self._ledger.configure(config.tenants, self._clock(), config.models)
            keys, state = KeyTable(b"", {}), self._plan_state
            self._snapshot = build(
                config, keys, self._pools, self._rng, self._clock, plan_state=state, graphs=PIPELINES
            )
        return ClientModelCalls(self.services, self._snapshot, principal, (), Budgets(), priced=True)


def _uncharged(config: Config) -> Config:
    """The configuration without limits, prices and caches."""
    models = [
        model.model_copy(
            update={
                "limits": QuotaConfig(),
                "price": None,
                "routes": tuple(route.model_copy(update={"cache": None}) for route in model.routes),
            }
        )
        for model in config.models
    ]
    tenants = [tenant.model_copy(update={"limits": LimitsConfig()}) for tenant in config.tenants]
    return config.model_copy(update={"models": tuple(models), "tenants": tuple(tenants)})
