"""`/admin/models`: the models of the file, their pools and arms, their prices, and the catalogue's facts about them."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from aiohttp import web

from config.schema.config import ClientModelConfig, Config, RouteConfig
from config.schema.money import PriceConfig
from config.schema.rollout import RolloutArmConfig
from config.schema.target import TargetConfig
from config.schema.text import is_glob
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import query_parameters
from gateway.admin.api.guard import AdminRefused, visit
from policies.globs import GlobSet

if TYPE_CHECKING:
    from config.catalogue.entries import ModelFacts

_OF_OPERATORS = ("routes", "steps", "warnings")
"""The fields that a tenant-admin does not see: they name pools, other models and lines of the file."""
_OF_PROVIDERS = ("provider", "model", "price")
"""The facts that a tenant-admin does not see: who serves a model, under which name, and for how much."""
Described = dict[str, dict[str, Any]]


class ModelsFront:
    """The handler. The catalogue is read for the first request after a change of the configuration."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self._read: tuple[Config, str, dict[str, Any], Described] | None = None

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/admin/models", self._list)]

    async def _list(self, request: web.Request) -> web.Response:
        """Every model; with `tenant`, those that it may use. A tenant-admin sees those of its own tenant."""
        config, within = self._backend.config, visit(request).within
        tenant = query_parameters(request, ("tenant",)).get("tenant", within)
        if within is not None and tenant != within:
            raise AdminRefused(403, "forbidden", "this credential may not do that", param="tenant")
        today = datetime.now(UTC).date().isoformat()  # prices change at midnight
        if self._read is None or self._read[0] is not config or self._read[1] != today:
            path = str(self._backend.lifecycle.path)
            self._read = config, today, *await asyncio.to_thread(_described, config, path, today)
        *_, book, models = self._read
        shown = list(models.values()) if tenant is None else list(_usable(config, tenant, models))
        if within is not None:
            return web.json_response({"catalogue": _pathless(book), "models": [_for_tenant(one) for one in shown]})
        return web.json_response(
            {"catalogue": book, "models": shown, "tenants": [each.name for each in config.tenants]}
        )


def _usable(config: Config, tenant: str, models: Described) -> Iterator[dict[str, Any]]:
    """The models that a tenant may use; of a family, the listed names that it may use. Raises `AdminRefused`."""
    patterns = next((each.models for each in config.tenants if each.name == tenant), None)
    if patterns is None:
        raise AdminRefused(404, "no_such_tenant", "no tenant has this name", param="tenant")
    allowed = GlobSet(patterns)
    for name, one in models.items():
        if not is_glob(name) and name in allowed:
            yield one
        elif is_glob(name):
            listed = [each for each in one["listed"] if each in allowed]
            if listed or name in allowed or any(fnmatchcase(each, name) for each in patterns):
                published = [facts for facts in one["published"] if facts["name"] in allowed]
                yield {**one, "listed": listed, "published": published}


def _for_tenant(one: dict[str, Any]) -> dict[str, Any]:
    """A model for a tenant-admin: of each name the first facts, as those of further pools would reveal hidden arms."""
    first: dict[str, dict[str, Any]] = {}
    for facts in one["published"]:
        first.setdefault(facts["name"], _without(facts, _OF_PROVIDERS))
    return {**_without(one, _OF_OPERATORS), "published": list(first.values())}


def _without(fields: dict[str, Any], hidden: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in hidden}


def _pathless(book: dict[str, Any]) -> dict[str, Any]:
    """The catalogue without the path and the error of its file."""
    return {"error": "An operator can see why the catalogue cannot be read."} if "error" in book else book


def _described(config: Config, file: str, today: str) -> tuple[dict[str, Any], Described]:
    """The catalogue, and the models by name. Blocks for the disk."""
    from config.catalogue.published import named_facts
    from config.catalogue.reading import SHIPPED, CatalogueError, catalogue
    from config.checks.hosted import advise_models

    models = {model.name: _of_file(model, today) for model in config.models}
    path = config.catalogue_file
    try:
        book = catalogue(path or SHIPPED)
    except (OSError, CatalogueError) as error:
        return {"error": f"{path}: {error.strerror if isinstance(error, OSError) else error}"}, models
    for model, name, facts in named_facts(config, book):
        published = models[model.name]["published"]
        if (one := _published(name, facts)) not in published:
            published.append(one)
    for model, warning in advise_models(config, file, book):
        described = {"line": warning.line, "path": warning.path, "message": warning.message}
        models[model.name]["warnings"].append(described)
    return {"date": book.date, "shipped": path is None}, models


def _of_file(model: ClientModelConfig, today: str) -> dict[str, Any]:
    return {
        "model": model.name,
        "aliases": list(model.aliases),
        "listed": list(model.listed),
        "versions": [str(version) for version in model.versions],
        "steps": [] if model.pipeline is None else list(dict.fromkeys(model.pipeline.models())),
        "routes": [_way(route) for route in model.routes],
        "price": None if model.price is None else _price(model.price, today),
        "published": [],
        "warnings": [],
    }


def _way(route: RouteConfig) -> dict[str, Any]:
    """A route with its arms, each with its pools or its model, and its pools after a failure."""
    kind: str
    name: str | None
    if (comparison := route.comparison) is not None:
        kind, name, arms = comparison.kind, comparison.name, [_side(side) for side in comparison.sides]
    elif route.split is not None:
        kind, name, arms = "split", route.name, [_arm(arm.label, _first(arm)) for arm in route.split.arms]
    else:
        kind, name, arms = "pool", route.name, [_arm(route.to or "", _first(route.target))]
    first = {pool for arm in arms for pool in arm["pools"]}
    return {"name": name, "kind": kind, "arms": arms, "fallback": [each for each in route.pools() if each not in first]}


def _side(side: RolloutArmConfig) -> dict[str, Any]:
    return _arm(side.label, [] if side.pool is None else [side.pool], side.model)


def _arm(name: str, pools: list[str], model: str | None = None) -> dict[str, Any]:
    return {"arm": name, "model": model, "pools": pools}


def _first(target: TargetConfig) -> list[str]:
    """The pools of a target before any fallback."""
    if target.pool is not None:
        return [target.pool]
    arms = () if target.split is None else target.split.arms
    return list(dict.fromkeys(pool for arm in arms for pool in arm.first_pools()))


def _price(price: PriceConfig, today: str) -> dict[str, Any]:
    """The price of a request that begins today, in the notation of the file."""
    past = [change for change in price.changes if change.since <= today]
    row = max(past, key=lambda change: change.since, default=price)
    return row.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={"changes"})


def _published(name: str, facts: "ModelFacts") -> dict[str, Any]:
    lacks = {"lacks": sorted(facts.lacks)} if facts.lacks else {}
    return {"name": name, "provider": facts.provider, "model": facts.name, **facts.as_fields(), **lacks}
