"""The data that a request reads, built and swapped as a whole."""

import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from adapters.base import Upstream
from adapters.errors import CredentialError
from config.code import calls_of_files
from config.schema.config import ClientModelConfig, Config, PoolConfig, TenantConfig
from config.schema.pipelines.parts import PipelineTensorConfig
from config.schema.protocols.apps import KserveV1Protocol
from config.schema.text import is_glob
from gateway.auth.certificates import Certificates
from gateway.auth.credentials import Credentials
from gateway.auth.table import REFUSED, KeyTable
from gateway.auth.tokens import Tokens
from gateway.request.observers import observers_of
from gateway.request.route_plan import RoutePlan
from gateway.request.spine import Observer
from gateway.traffic.load import PoolStates
from gateway.traffic.plan import Composer
from gateway.traffic.plan_state import PlanState
from gateway.traffic.pool import Pool
from policies.limits.price import Price, PriceRow
from policies.routing.decision import Decision
from policies.routing.rules import (
    NO_ROLLOUTS,
    NO_SHADOWS,
    Catalogue,
    ModelList,
    ResolvedModel,
    Rollouts,
    Shadows,
)


class ModelGraphs:
    """Models that call other models: pipelines, and arms of splits that are models. Here there are none."""

    def functions(self, config: Config) -> Mapping[str, ResolvedModel]:
        """Models of the Python files that pipelines call."""
        return {}

    def pipelines(
        self,
        config: Config,
        takes_tensors: Callable[[str], bool],
        takes_json: Callable[[str], bool],
        outputs_of: Callable[[str], Sequence[PipelineTensorConfig]],
        clock: Callable[[], float],
    ) -> Mapping[str, Upstream]:
        """The pipelines of a configuration, by model."""
        return {}

    def plan(
        self,
        snapshot: "Snapshot",
        decision: Decision,
        upstream: Upstream,
        observers: tuple[Observer, ...],
        of_clients: tuple[Observer, ...],
    ) -> RoutePlan:
        """The plan of a decision for a model that calls others."""
        return RoutePlan(upstream, observers, of_clients)


NO_GRAPHS = ModelGraphs()


def never(tenant: str, model: str) -> bool:
    """No guard changes answers."""
    return False


def unchanged(tenant: str, id_: str, sealed: str, body: bytes) -> bytes:
    """No guard masks personal data."""
    return body


RestoreStored = Callable[[str, str, str, bytes], bytes]
"""Returns a stored body with personal data: of the tenant, the id of the response, what is sealed in it, the body."""

RouteWatch = Callable[[Decision], Observer | None]
"""Returns the observer of clients' requests that a feature adds to a route."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The running form of a configuration. A request uses the snapshot of its start to its end."""

    config: Config
    credentials: Credentials
    catalogue: Catalogue
    functions: Mapping[str, ResolvedModel]
    """Models of the Python files that pipelines call, which no client can request."""
    allowed: Mapping[str, ModelList]
    """The models that each tenant may use."""
    standings: Mapping[str, TenantConfig]
    """By tenant: the section with its share and priority."""
    salts: Mapping[str, str]
    """By tenant: the salt that separates its prompts from those of others in the prefix caches of servers."""
    explaining: frozenset[str]
    """Tenants whose clients may request explanations."""
    prices: Mapping[str, Price]
    """By model, as configured."""
    batch_prices: Mapping[str, Price]
    """The same for the lines of batches."""
    pools: Mapping[str, Pool]
    tensor_models: frozenset[str]
    """Models that take tensors, by name as configured."""
    responses_models: frozenset[str]
    """Models whose servers all support OpenAI's Responses."""
    shared_models: frozenset[str]
    """Models that several tenants may use."""
    explainers: Mapping[str, str]
    """The model that explains another model's answers, by that model."""
    pipelines: Mapping[str, Upstream]
    """By model, as configured."""
    composer: Composer
    graphs: ModelGraphs
    watches: Sequence[RouteWatch]
    rollouts: Rollouts
    """The rollouts and experiments, with their shares in force."""
    guards_answers: Callable[[str, str], bool]
    """Whether a guard may change an answer, by tenant and model as configured."""
    restored: RestoreStored
    """Gives personal data back to stored responses."""
    _plans: dict[int, RoutePlan] = field(default_factory=dict)

    def models_of(self, tenant: str) -> ModelList:
        """The models of a tenant. Raises `CredentialError` for a tenant that a reload removed after the
        authentication."""
        allowed = self.allowed.get(tenant)
        if allowed is None:
            raise CredentialError(REFUSED).because("tenant_removed", tenant=tenant)
        return allowed

    def of_batches(self) -> "Snapshot":
        """The same snapshot with the prices of batches."""
        return replace(self, prices=self.batch_prices)

    def price_of(self, model: str, utc: float) -> PriceRow | None:
        """The price of a request to a model that begins at a time; None without a price."""
        price = self.prices.get(model)
        return None if price is None else price.at(utc)

    def own_pools(self, model: str | None) -> frozenset[str] | None:
        """The pools of a model's routes; None for a pipeline, for arms that are models, and for an unknown model."""
        resolved = None if model is None else self.catalogue.find(model)
        if resolved is None or resolved.rules.model in self.pipelines:
            return None
        routes = next(m.routes for m in self.config.models if m.name == resolved.rules.model)
        if any(True for route in routes for _ in route.models()):
            return None
        return frozenset(pool for route in routes for pool in route.pools() if pool in self.pools)

    def pools_of(self, model: str | None) -> frozenset[str]:
        """The pools that requests to a model may use; all pools if the model does not determine them."""
        own = self.own_pools(model)
        return frozenset(self.pools) if own is None else own

    def called(self, model: str) -> ResolvedModel | None:
        """The model that a step calls."""
        return self.functions.get(model) or self.catalogue.find(model)

    def plan(self, decision: Decision) -> RoutePlan:
        """The plan of a decision. Decisions are compiled once and live as long as this snapshot, so each has one
        plan."""
        plan = self._plans.get(id(decision))
        if plan is None:
            plan = self._plans[id(decision)] = self._compiled(decision)
        return plan

    def _compiled(self, decision: Decision) -> RoutePlan:
        upstream = self.pipelines.get(decision.model) or self.composer.plan(decision)
        observers = observers_of(decision)
        of_clients = tuple(observer for watch in self.watches if (observer := watch(decision)) is not None)
        if decision.calls_models:
            return self.graphs.plan(self, decision, upstream, observers, of_clients)
        return RoutePlan(upstream, observers, of_clients)


def build(
    config: Config,
    keys: KeyTable,
    pools: Mapping[str, Pool],
    rng: Random,
    clock: Callable[[], float],
    tokens: Tokens | None = None,
    plan_state: PlanState | None = None,
    salt: bytes = b"",
    rollouts: Rollouts = NO_ROLLOUTS,
    shadows: Shadows = NO_SHADOWS,
    graphs: ModelGraphs = NO_GRAPHS,
    watches: Sequence[RouteWatch] = (),
    guards_answers: Callable[[str, str], bool] = never,
    restored: RestoreStored = unchanged,
) -> Snapshot:
    """Compile a configuration that has been checked. `salt` keys the names of tenants at servers; when empty, a salt of
    this process alone is used."""
    salt = salt or secrets.token_bytes(32)
    allowed = {tenant.name: ModelList(tenant.models) for tenant in config.tenants}
    plan_state = plan_state or PlanState()
    plan_state.retain(config)
    configs = {pool.name: pool for pool in config.pools}
    states = PoolStates(pools, clock)
    catalogue = Catalogue(config.models, rollouts, shadows, states)
    models = {model.name: model for model in config.models}
    tensor_models = frozenset(name for name in models if _takes_tensors(name, catalogue, models, configs))
    listed = {name for model in config.models if model.name in tensor_models for name in model.listed}
    tensor_models |= listed - models.keys()  # the names of a family

    def takes_tensors(name: str) -> bool:
        resolved = catalogue.find(name)
        return resolved is not None and resolved.rules.model in tensor_models

    def takes_json(name: str) -> bool:
        resolved = catalogue.find(name)
        return resolved is not None and _takes_json(models[resolved.rules.model], configs)

    def outputs_of(name: str) -> Sequence[PipelineTensorConfig]:
        resolved = catalogue.find(name)
        signature = None if resolved is None else models[resolved.rules.model].signature
        return () if signature is None else signature.outputs

    prices = {model.name: Price(model.price) for model in config.models if model.price is not None}
    return Snapshot(
        config=config,
        standings={tenant.name: tenant for tenant in config.tenants},
        salts={tenant.name: _salt(salt, tenant.name) for tenant in config.tenants},
        explaining=frozenset(tenant.name for tenant in config.tenants if tenant.explain),
        credentials=Credentials(keys, tokens or Tokens((), clock), Certificates(config.tenants), allowed),
        catalogue=catalogue,
        functions=graphs.functions(config),
        allowed=allowed,
        prices=prices,
        batch_prices={name: price.of_batch for name, price in prices.items()},
        pools=pools,
        tensor_models=tensor_models,
        responses_models=frozenset(model.name for model in config.models if _serves_responses(model, configs)),
        shared_models=frozenset(m.name for m in config.models if _users(m, allowed) > 1),
        explainers={model.name: model.explainer for model in config.models if model.explainer is not None},
        pipelines=graphs.pipelines(config, takes_tensors, takes_json, outputs_of, clock),
        composer=Composer(pools, configs, plan_state, rng, clock, states),
        graphs=graphs,
        watches=watches,
        rollouts=rollouts,
        guards_answers=guards_answers,
        restored=restored,
    )


def _users(model: ClientModelConfig, allowed: Mapping[str, ModelList]) -> int:
    """The number of tenants that may use a model; for a family all, since any tenant may use one of its names."""
    return len(allowed) if is_glob(model.name) else sum(models.allows(model.name) for models in allowed.values())


def _takes_tensors(
    name: str, catalogue: Catalogue, models: Mapping[str, ClientModelConfig], pools: Mapping[str, PoolConfig]
) -> bool:
    """Whether a model takes tensors. For a pipeline or an arm, the model of its answer determines this."""
    model = models[name]
    if model.pipeline is not None:
        resolved = [catalogue.find(each) for each in model.pipeline.deciding_models()]
        deciding = {each.rules.model for each in resolved if each is not None}
        has_tensors = bool(deciding) or any(calls_of_files(model.pipeline))
        return has_tensors and all(_takes_tensors(each, catalogue, models, pools) for each in deciding)
    if any(pools[name].takes_tensors for route in model.routes for name in route.pools()):
        return True
    called = (catalogue.find(name) for route in model.routes for name in route.models())
    return any(each is not None and _takes_tensors(each.rules.model, catalogue, models, pools) for each in called)


def _takes_json(model: ClientModelConfig, pools: Mapping[str, PoolConfig]) -> bool:
    """Whether all servers of a model are KServe v1's, and the file declares no tensors for them."""
    protocols = [pools[name].protocol for route in model.routes for name in route.pools()]
    called = any(True for route in model.routes for _ in route.models())
    undeclared = all(isinstance(each, KserveV1Protocol) and not each.inputs for each in protocols)
    return bool(protocols) and undeclared and not called


def _salt(secret: bytes, tenant: str) -> str:
    return hmac.digest(secret, tenant.encode(errors="surrogatepass"), "sha256").hex()[:32]


def _serves_responses(model: ClientModelConfig, pools: Mapping[str, PoolConfig]) -> bool:
    return (
        model.pipeline is None
        and not any(route.models() for route in model.routes)
        and all(getattr(pools[name].protocol, "responses", False) for route in model.routes for name in route.pools())
    )


def with_keys(snapshot: Snapshot, keys: KeyTable) -> Snapshot:
    """The same snapshot with other keys."""
    return replace(snapshot, credentials=replace(snapshot.credentials, keys=keys))
