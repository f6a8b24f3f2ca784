"""Models that call other models, in the snapshot: compiled pipelines, and plans whose requests may call models."""

from collections.abc import Callable, Mapping, Sequence

from adapters.base import Upstream
from adapters.call import ModelCaller
from config.code import CODE_POOL, functions_of
from config.schema.config import ClientModelConfig, Config, RouteConfig
from config.schema.pipelines.parts import PipelineTensorConfig
from gateway.features.pipelines.build import Builder
from gateway.features.pipelines.calls import Budgets, ClientModelCalls, pipeline_of, worst_path
from gateway.request.client_exchange import ClientExchange
from gateway.request.route_plan import RoutePlan
from gateway.request.snapshot import ModelGraphs, Snapshot
from gateway.request.spine import Exchange, Observer
from policies.routing.decision import Decision
from policies.routing.rules import ResolvedModel, Rules


def function_models(config: Config) -> Mapping[str, ResolvedModel]:
    """The models by name. Each has one route, to the pool of the files."""
    names = [function.receiver for function in functions_of(config)]
    return {name: ResolvedModel(Rules(_model(name)), name, name) for name in names}


def _model(name: str) -> ClientModelConfig:
    route = RouteConfig.model_construct(to=CODE_POOL)
    return ClientModelConfig.model_construct(name=name, routes=(route,))


class Pipelines(ModelGraphs):
    """The pipelines of a configuration, and its arms that are models."""

    def functions(self, config: Config) -> Mapping[str, ResolvedModel]:
        return function_models(config)

    def pipelines(
        self,
        config: Config,
        takes_tensors: Callable[[str], bool],
        takes_json: Callable[[str], bool],
        outputs_of: Callable[[str], Sequence[PipelineTensorConfig]],
        clock: Callable[[], float],
    ) -> Mapping[str, Upstream]:
        return Builder(config, takes_tensors, takes_json, outputs_of, clock).pipelines()

    def plan(
        self,
        snapshot: Snapshot,
        decision: Decision,
        upstream: Upstream,
        observers: tuple[Observer, ...],
        of_clients: tuple[Observer, ...],
    ) -> RoutePlan:
        arm = None if decision.target.model is None else snapshot.catalogue.find(decision.target.model)
        return GraphPlan(upstream, observers, of_clients, decision.model if arm is None else arm.rules.model)


class GraphPlan(RoutePlan):
    """The plan of a decision whose answer comes from other models: those of a pipeline, or an arm that is a model."""

    __slots__ = ("_model",)

    def __init__(
        self, upstream: Upstream, observers: tuple[Observer, ...], of_clients: tuple[Observer, ...], model: str
    ) -> None:
        super().__init__(upstream, observers, of_clients)
        self._model = model
        """The pipeline, or the model of the arm."""

    def estimate(self, exchange: Exchange) -> None:
        """Of a pipeline, the amounts of its most expensive path are reserved."""
        assert isinstance(exchange, ClientExchange)
        snapshot, request = exchange.snapshot, exchange.request
        if (pipeline := pipeline_of(snapshot, self._model)) is not None:
            path = worst_path(pipeline, snapshot, request, exchange.price, exchange.time)
            exchange.amounts, exchange.cost = path
            return
        super().estimate(exchange)
        device_ms = exchange.services.device_time.expected(self._model, request.operation, request.rows)
        exchange.amounts = (*exchange.amounts[:-1], device_ms)

    def caller(self, exchange: Exchange) -> ModelCaller | None:
        assert isinstance(exchange, ClientExchange)
        snapshot, allowances = exchange.snapshot, exchange.record.allowances
        own = pipeline_of(snapshot, exchange.model)
        budgets = Budgets() if own is None else Budgets().within(own.name, own.budget)
        priced = exchange.model in snapshot.prices
        services, principal, record = exchange.services, exchange.principal, exchange.record
        return ClientModelCalls(services, snapshot, principal, allowances, budgets, record, priced=priced)


PIPELINES = Pipelines()
