"""Fallbacks, retries, timeouts and aliases: what LiteLLM's settings say of all models, in the route of each."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Final, get_args

from config.imports.draft import Blueprint
from config.imports.litellm.deployments import Deployment, seconds
from config.imports.litellm.models import DeploymentGroup, Target, pools_of
from config.imports.survey import ForeignValue, duration
from config.place import Place
from config.schema.config import ClientModelConfig, Failure, RouteConfig
from config.schema.target import ANOTHER_MAY_DO
from config.schema.text import is_glob

STRATEGIES: Final = {
    "simple-shuffle": "random",
    "least-busy": "least_request",
    "latency-based-routing": "peak_ewma",
    "usage-based-routing": "least_request",
    "usage-based-routing-v2": "least_request",
}
_LISTS: Final = (
    ("fallbacks", ANOTHER_MAY_DO),
    ("context_window_fallbacks", ("context_length",)),
    ("content_policy_fallbacks", ("filtered",)),
)
_DEFAULT_TOTAL: Final = 600


def strategy(settings: list[ForeignValue]) -> str | None:
    """The balancing of pools with several endpoints; None for the default."""
    for section in settings:
        part = section["routing_strategy"]
        if (written := part.text()) is None:
            continue
        if written in STRATEGIES:
            return STRATEGIES[written]
        part.leave("has no equivalent: choose by `pools[].balance`, or by routes with `when: {cost: …}`")
    return None


class Routing:
    """Writes the models of a draft. `settings` are the router's and LiteLLM's own; the router's come first."""

    def __init__(
        self,
        models: Mapping[str, DeploymentGroup],
        settings: list[ForeignValue],
        cache: Mapping[str, Any] | None,
        draft: Blueprint,
    ) -> None:
        self._models = models
        self._settings = settings
        self._draft = draft
        self._retries = self._first("num_retries", lambda part: part.whole(0))
        self._timeout = self._first("timeout", seconds) or self._first("request_timeout", seconds)
        self._first_byte = self._first("stream_timeout", seconds)
        self._strict = self._first("drop_params", lambda part: part.flag())
        self._backoff = self._pause()
        self._fallbacks: dict[str, list[tuple[str, tuple[str, ...], ForeignValue]]] = {}
        for name, on in _LISTS:
            for section in settings:
                self._read_fallbacks(section[name], on)
        self._defaults = [(text.text() or "", text) for section in settings for text in section["default_fallbacks"]]
        self._cache = cache
        self._applied: set[Place] = set()

    def _first(self, name: str, of: Any) -> Any:
        """The first value of a setting; later ones are used too, as LiteLLM ignores them."""
        values = [value for section in self._settings if (value := of(section[name])) is not None]
        return values[0] if values else None

    def _pause(self) -> str | None:
        part = next((section["retry_after"] for section in self._settings if section["retry_after"]), None)
        wait = None if part is None else part.number()
        if part is None or wait is None or wait <= 0:
            return None
        if wait > 2:
            part.leave("is more than 2 s, the longest wait before a retry: a server's `retry-after` applies anyway")
            return "2s"
        return duration(wait)

    def _read_fallbacks(self, part: ForeignValue, on: tuple[str, ...]) -> None:
        if not set(on) <= set(get_args(Failure)):
            part.leave("has no equivalent: refused content never falls back")
            return
        for entry in part:
            for row in entry:
                names = [(text, each) for each in (row if isinstance(row.value, tuple) else (row,))
                         if (text := each.text()) is not None]  # fmt: skip
                for text, each in names:
                    self._fallbacks.setdefault(row.name, []).append((text, on, each))

    def write(self) -> None:
        """Add every model to the draft."""
        for model in self._models.values():
            written: dict[str, Any] = {"name": model.name, "routes": [self._route(model)]}
            prices = [each.price for each in model.deployments if each.price is not None]
            if prices:
                written["price"] = prices[0]
                if any(price != prices[0] for price in prices):
                    self._draft.note("models", model.name, "Its deployments have different prices: this is the first.")
            days = [each.published for each in model.deployments if each.published]
            if days and written["price"] == prices[0]:
                self._draft.note("models", model.name, f"Its price is from the catalogue of {days[0]}: check it.")
            if limits := model.limits():
                written["limits"] = limits
            if (error := self._draft.error(ClientModelConfig, written)) is not None:
                for each in model.deployments:
                    each.part.leave(f"is not imported: {error}")
                continue
            self._draft.models[model.name] = written
        self._aliases()
        self._unreached()

    def _aliases(self) -> None:
        """Add the aliases of models."""
        for section in self._settings:
            for name in ("model_group_alias", "model_alias_map"):
                for row in section[name]:
                    self._alias(row)

    def _alias(self, row: ForeignValue) -> None:
        target = row["model"] if isinstance(row.value, dict) else row
        written = target.text()
        model = self._draft.models.get(written or "")
        if model is None or is_glob(model["name"]) or row.name in self._models:
            row.leave("is no alias here: it needs a model with one name, and a name that no model has")
            return
        changed = {**model, "aliases": [*model.get("aliases", ()), row.name]}
        if self._draft.error(ClientModelConfig, changed) is not None:
            row.leave("is no alias here: a name has letters, digits and . _ : / - @ + ( ) [ ]")
            return
        if isinstance(row.value, dict):
            row["hidden"].leave("has no equivalent: `/v1/models` lists a model by its own name and its aliases")
        rest = {name: value for name, value in changed.items() if name not in ("name", "aliases")}
        self._draft.models[model["name"]] = {"name": model["name"], "aliases": changed["aliases"], **rest}

    # ── one route ─────────────────────────────────────────────────────────────────────────────────────

    def _route(self, model: DeploymentGroup) -> dict[str, Any]:
        first, *later = model.tiers
        route: dict[str, Any] = {"to": first["pool"]} if "pool" in first else {"split": first["split"]}
        if fallback := self._fallback(model, later):
            route["fallback"] = fallback
        if rewrite := self._rewrite(model):
            route["rewrite"] = rewrite
        if retry := self._retry(model):
            route["retry"] = retry
        if timeout := self._bounds(model):
            route["timeout"] = timeout
        if self._cache is not None and "to" in route:
            route["cache"] = dict(self._cache)
        elif self._cache is not None:
            self._draft.note("models", model.name, "Its answers are not cached: a split has no cache.")
        strict = model.common("strict")
        if (self._strict is False and strict is None) or strict is True:
            route["strict"] = True
        if (error := self._draft.error(RouteConfig, route)) is not None:
            model.deployments[0].part["model_name"].leave(f"has neither fallbacks nor bounds here: {error}")
            return {name: route[name] for name in ("to", "split") if name in route}
        return route

    def _fallback(self, model: DeploymentGroup, later: list[Target]) -> list[Any]:
        """Later orders first, then the fallbacks of the settings. A pool occurs once."""
        entries: list[tuple[Target, list[str]]] = [(target, list(ANOTHER_MAY_DO)) for target in later]
        for text, on, part in self._of(model):
            if (other := self._target(text)) is None:
                part.leave("is no fallback here: no model of the result has this name")
                continue
            self._applied.add(part.place)
            if other is not model:
                entries += [(target, list(on)) for target in self._tiers(other, text)]
        merged: dict[str, tuple[Target, list[str]]] = {}
        for target, kinds in entries:
            key = "|".join(sorted(pools_of(target)))
            merged.setdefault(key, (target, []))[1].extend(kinds)
        always = pools_of(model.tiers[0]) if "pool" in model.tiers[0] else []
        return [_entry(target, on) for target, on in merged.values() if target.get("pool") not in always]

    def _of(self, model: DeploymentGroup) -> list[tuple[str, tuple[str, ...], ForeignValue]]:
        own = [*self._fallbacks.get(model.name, ()), *(self._fallbacks.get("*", ()) if model.name != "*" else ())]
        if any(on == ANOTHER_MAY_DO for _, on, _ in own):
            return own
        return [*own, *((text, ANOTHER_MAY_DO, part) for text, part in self._defaults if text)]

    def _unreached(self) -> None:
        """Report fallbacks of names that no model has."""
        for name, rows in self._fallbacks.items():
            if name != "*" and name not in self._models:
                for _, _, part in rows:
                    part.leave("is not imported: no model of the result has the name before it")

        for text, part in self._defaults:
            if part.place not in self._applied and text:
                part.leave("is not imported: no model is without fallbacks of its own")

    def _target(self, name: str) -> DeploymentGroup | None:
        if name in self._models:
            return self._models[name]
        return next(
            (model for model in self._models.values() if model.is_family and fnmatchcase(name, model.name)), None
        )

    def _tiers(self, model: DeploymentGroup, name: str) -> list[Target]:
        """The targets of a model. Pools of a family get the one model that the fallback names."""
        if not model.is_family or name == model.name:
            return model.tiers
        sent = name.removeprefix(model.family)
        return [{"pool": self._named(pool, sent)} for tier in model.tiers for pool in pools_of(tier)]

    def _named(self, pool: str, model: str) -> str:
        fields = {key: value for key, value in self._draft.pools[pool].items() if key != "name"}
        return pool if "model" in fields else self._draft.pool(f"{pool}-{model}", {**fields, "model": model})

    def _rewrite(self, model: DeploymentGroup) -> dict[str, Any]:
        rewrite = model.common("rewrite")
        if rewrite is None:
            for each in model.deployments:
                for part in each.part["litellm_params"]:
                    if part.name in each.rewrite.get("defaults", {}):
                        part.leave("is not imported: the deployments of this model have different presets")
            rewrite = {}
        return {**rewrite, "strip": model.family} if model.family else rewrite

    def _retry(self, model: DeploymentGroup) -> dict[str, Any]:
        own = _largest(model.deployments, "retries", "max_retries", "num_retries")
        retries = self._retries if own is None else own
        if retries is None:
            return {}
        attempts = min(retries + 1, 10)
        return {"attempts": attempts, **({"backoff": self._backoff} if self._backoff and attempts > 1 else {})}

    def _bounds(self, model: DeploymentGroup) -> dict[str, str]:
        """LiteLLM's timeout is of one attempt; the total of a route is of all."""
        timeout = _largest(model.deployments, "timeout", "timeout") or self._timeout
        first = _largest(model.deployments, "first_byte", "stream_timeout") or self._first_byte or timeout
        made: dict[str, str] = {}
        if first is not None:
            made["first_byte"] = duration(first)
        if timeout is not None:
            made["whole"] = duration(timeout)
        attempts = self._retry(model).get("attempts", 2)
        total = max([value for value in (timeout, first) if value is not None], default=Decimal(0)) * attempts
        if total > _DEFAULT_TOTAL:
            made["total"] = duration(total)
        return made


def _largest(deployments: Sequence[Deployment], field: str, *written: str) -> Any:
    """The largest value of the deployments. The others are reported."""
    values = [value for each in deployments if (value := getattr(each, field)) is not None]
    most = max(values, default=None)
    for each in deployments:
        if getattr(each, field) not in (None, most):
            for name in written:
                each.part["litellm_params"][name].leave("is not imported: a route has the largest of its deployments")
    return most


def _entry(target: Target, on: list[str]) -> Any:
    kinds = list(dict.fromkeys(on))
    if kinds == list(ANOTHER_MAY_DO):
        return target.get("pool", target)
    return {**target, "on": kinds}
