"""The models of the Python files that pipelines call. No client can request them."""

from __future__ import annotations

from collections.abc import Mapping

from config.code import CODE_POOL, functions_of
from config.schema.config import ClientModelConfig, Config, RouteConfig
from policies.routing.rules import ResolvedModel, Rules


def function_models(config: Config) -> Mapping[str, ResolvedModel]:
    """The models by name. Each has one route, to the pool of the files."""
    names = [function.receiver for function in functions_of(config)]
    return {name: ResolvedModel(Rules(_model(name)), name, name) for name in names}


def _model(name: str) -> ClientModelConfig:
    route = RouteConfig.model_construct(to=CODE_POOL)
    return ClientModelConfig.model_construct(name=name, routes=(route,))
