"""Portkey's configs, as routes of one model.

A config is a tree of targets. Clients choose one of several by the header ``x-portkey-config``, which stays so here.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from config.document import Document
from config.imports.draft import Blueprint, as_name
from config.imports.hosting import NO_PROVIDER, UNSAFE, Access, Secrets, Unreachable, may_be_secret, pool_of
from config.imports.providers import OTHER_NAMES, PROVIDERS, provider_of
from config.imports.survey import ForeignValue, Survey, duration, plain
from config.problem import ConfigError, Problem
from config.schema.config import CacheConfig, ClientModelConfig, RewriteConfig, RouteConfig, TargetConfig
from config.schema.target import ANOTHER_MAY_DO
from config.schema.when import MatchConfig

_CHOICE: Final = "x-portkey-config"
_STATUSES: Final = {
    **dict.fromkeys((429, 503, 529), "capacity"),
    **dict.fromkeys((500, 502, 504, 520, 521, 522, 524), "backend"),
    408: "timeout",
}
_CONTENT: Final = "has no equivalent: use a pipeline with a step before or after the model"
_REASONS: Final = {
    "on_status_codes": "has no equivalent: `retry` is for failures that another attempt may mend",
    "use_retry_after_headers": "is not needed: a server's `retry-after` always applies",
    "strict_open_ai_compliance": "is not needed: answers have OpenAI's form",
    "forward_headers": "has no equivalent: headers of clients are not forwarded",
    "id": "is not needed",
    "name": "is not needed: a pool has a name of its own",
    "weight": "has no effect outside of a split",
}


def convert(doc: Document, model: str) -> tuple[Blueprint, list[Problem]]:
    """The draft, and each value without an equivalent. `model` is the name under which clients request the targets.

    Raises `ConfigError` for a file that has no config.
    """
    if doc.problems:
        raise ConfigError(doc.problems)
    survey = Survey(doc)
    draft = Blueprint(f"Portkey's {doc.file.rpartition('/')[2]}")
    configs = list(_configs(survey.root))
    if not configs:
        raise ConfigError([Problem(doc.file, None, "", "has no targets: this is no config of Portkey")])
    secrets = Secrets(draft)
    routes: list[dict[str, Any]] = []
    for part, slug in configs:
        when = {"header": {_CHOICE: slug}} if len(configs) > 1 else {}
        routes += _Config(part, draft, secrets).routes(when)
    written = {"name": model, "routes": routes}
    if routes and (error := draft.error(ClientModelConfig, written)) is not None:
        raise ConfigError([Problem(doc.file, None, "", f"cannot be the routes of a model: {error}")])
    if routes:
        draft.models[model] = written
        draft.tenants["default"] = {"name": "default", "models": ["*"]}
        draft.task("Clients send a key of Headrace in place of Portkey's: `headrace keys create --tenant default`.")
    return draft, survey.left()


def _configs(root: ForeignValue) -> Iterator[tuple[ForeignValue, str]]:
    """Each config, with the name by which clients choose it: of a file that has one, or of answers of Portkey's API."""
    for part in root["data"] if isinstance(root["data"].value, tuple) else (root["data"] or root,):
        config, slug = part["config"], part["slug"].text() or part["id"].text() or part["name"].text() or "default"
        for name in ("slug", "id", "name"):
            part[name].use() if config else None
        if isinstance(config.value, str):
            part.leave("has its config as JSON in a text: import that as a file of its own")
        elif config:
            yield config, slug
        elif isinstance(part.value, dict) and {"targets", "provider", "virtual_key", "virtualKey"} & set(part.value):
            yield part, slug


class _Config:
    """One config. Its targets become pools, with the retries, bounds and cache of the route."""

    def __init__(self, part: ForeignValue, draft: Blueprint, secrets: Secrets) -> None:
        self._part, self._draft, self._secrets = part, draft, secrets
        self._forced: list[dict[str, Any]] = []

    def routes(self, when: dict[str, Any]) -> list[dict[str, Any]]:
        """Its routes; several if it is conditional."""
        mode = _of(_of(self._part, "strategy"), "mode").value
        rows = self._conditional(when) if mode == "conditional" else [(when, self._part)]
        made: list[dict[str, Any]] = []
        for condition, part in rows:
            self._forced = []
            above = _of(self._part, "override_params") if part is not self._part else ()
            target = self._target(part, {value.name: value for value in above})
            if target is None:
                continue
            route: dict[str, Any] = {"when": condition} if condition else {}
            route |= {"to" if name == "pool" else name: value for name, value in target.items()}
            made.append(self._whole(route))
        _explain(self._part)
        return made

    def _whole(self, route: dict[str, Any]) -> dict[str, Any]:
        """The route with its rewrite, retries, bounds and cache."""
        route |= self._rewrite()
        attempts = _of(_of(self._part, "retry"), "attempts").whole(0)
        if attempts is not None:
            route["retry"] = {"attempts": min(attempts + 1, 10)}
        if (milliseconds := _of(self._part, "request_timeout").number()) is not None and milliseconds >= 1:
            bound = duration(milliseconds / 1000)
            route["timeout"] = {"first_byte": bound, "whole": bound}
            if milliseconds > 600_000:
                route["timeout"]["total"] = bound
        route |= self._cache(route)
        if (error := self._draft.error(RouteConfig, route)) is not None:
            self._part.leave(f"has neither retries nor bounds here: {error}")
            return {name: route[name] for name in ("when", "to", "split", "fallback") if name in route}
        return route

    def _cache(self, route: dict[str, Any]) -> dict[str, Any]:
        part = _of(self._part, "cache")
        if part.flag() is True:
            made: dict[str, Any] = {"only": "all"}
        elif _of(part, "mode").value == "simple":
            _of(part, "mode").use()
            age = _of(part, "max_age").number()
            made = {"only": "all", **({"ttl": duration(age)} if age is not None and age >= 0 else {})}
        else:
            part.leave("has no equivalent: a route caches answers to identical requests")
            return {}
        if "to" not in route or self._draft.error(CacheConfig, made) is not None:
            part.leave("has no equivalent: a split has no cache")
            return {}
        return {"cache": made}

    def _rewrite(self) -> dict[str, Any]:
        """What all targets override alike."""
        first = self._forced[0] if self._forced else {}
        if not first or any(forced != first for forced in self._forced):
            for part in _every(self._part, "override_params"):
                for value in part:
                    if value.name != "model":
                        value.leave("is not imported: a route overrides the same fields for all its targets")
            return {}
        return {"rewrite": {"force": first}}

    # ── targets ───────────────────────────────────────────────────────────────────────────────────────

    def _target(self, part: ForeignValue, inherited: dict[str, Any]) -> dict[str, Any] | None:
        """A target with its nested ones; None if none of them can be imported."""
        strategy = _of(part, "strategy")
        mode = _of(strategy, "mode").text() or ("fallback" if _of(part, "targets") else "single")
        overrides = _of(part, "override_params")
        inherited = {**inherited, **{value.name: value for value in overrides}}
        targets = list(_of(part, "targets"))
        if not targets:
            return self._pool(part, inherited)
        if mode == "loadbalance":
            return self._split(targets, inherited)
        if mode not in ("fallback", "single"):
            part.leave(f"is not imported: the strategy `{mode}` has no equivalent here")
            return None
        made = [target for each in targets if (target := self._target(each, inherited)) is not None]
        for unused in targets[1:] if mode == "single" else ():
            unused.leave("is never used: the strategy is `single`")
        return self._chain(made[:1] if mode == "single" else made, _of(strategy, "on_status_codes")) if made else None

    def _split(self, targets: list[ForeignValue], inherited: dict[str, Any]) -> dict[str, Any] | None:
        shares: dict[str, dict[str, Any]] = {}
        for part in targets:
            target = self._target(part, inherited)
            weight = part["weight"].number()
            share = Decimal(1) if weight is None or weight < 0 else weight
            if target is None:
                continue
            arm = dict(target)
            if "split" in target:
                arm = {"name": as_name(part["name"].text() or f"arm-{len(shares) + 1}"), **target}
            key = json.dumps(arm, sort_keys=True)
            shares.setdefault(key, {**arm, "weight": 0.0})["weight"] += float(share)
        arms = list(shares.values())
        if len(arms) < 2 or not any(arm["weight"] for arm in arms):
            return {name: value for name, value in arms[0].items() if name not in ("weight", "name")} if arms else None
        split = {"split": {"sticky": "request", "arms": arms}}
        return split if self._draft.error(TargetConfig, split) is None else dict(arms[0])

    def _chain(self, targets: list[dict[str, Any]], statuses: ForeignValue) -> dict[str, Any]:
        """The first target with the others as its fallbacks. A pool occurs once."""
        on = list(dict.fromkeys(_STATUSES[code] for part in statuses if (code := part.value) in _STATUSES))
        for part in statuses:
            if part.value in _STATUSES:
                part.use()
            else:
                part.leave("has no equivalent: errors of the client and of the key never fall back")
        first, *rest = targets
        later = [*first.get("fallback", ())]
        for target in rest:
            kinds = on or list(ANOTHER_MAY_DO)
            inner = [{"pool": each} if isinstance(each, str) else each for each in target.get("fallback", ())]
            plain = {name: value for name, value in target.items() if name != "fallback"}
            later += [self._entry(each, kinds) for each in (plain, *inner)]
        seen = {first["pool"]} if "pool" in first else set()
        entries: list[Any] = []
        for entry in later:
            pool = entry if isinstance(entry, str) else entry.get("pool")
            if pool is None or pool not in seen:
                entries.append(entry)
            seen |= {pool} if pool else set()
        return {**{name: first[name] for name in ("pool", "split") if name in first},
                **({"fallback": entries} if entries else {})}  # fmt: skip

    def _entry(self, target: dict[str, Any], on: list[str]) -> Any:
        if on == list(ANOTHER_MAY_DO):
            return target.get("pool", target)
        return {**target, "on": target.get("on", on)}

    def _pool(self, part: ForeignValue, inherited: dict[str, Any]) -> dict[str, Any] | None:
        try:
            access, model = self._access(part), inherited.pop("model", None)
            access.model = access.model or (model.text() or "" if model is not None else "")
            if access.model.startswith("@"):
                access.model = access.model.partition("/")[2]
            name = self._draft.pool(f"{access.provider}-{access.model or 'models'}", pool_of(access, self._draft))
        except Unreachable as error:
            slug = _of(part, "provider").value
            part.leave(
                f"is not imported: the provider `{slug}` has no equivalent" if str(error) == NO_PROVIDER else str(error)
            )
            return None
        for value in [each for each in inherited.values() if may_be_secret(each.name, each.value)]:
            inherited.pop(value.name).leave(UNSAFE)
        forced = {value.name: plain(value.value) for value in inherited.values()}
        if self._draft.error(RewriteConfig, {"force": forced}) is None:
            for value in inherited.values():
                value.use()
            self._forced.append(forced)
        else:
            self._forced.append({})
        return {"pool": name}

    def _access(self, part: ForeignValue) -> Access:
        provider, virtual = _of(part, "provider"), _of(part, "virtual_key")
        slug = str(provider.value or "")
        named = slug.removeprefix("@") if slug.startswith("@") else str(virtual.value or "")
        if named:
            kind = slug if slug and not slug.startswith("@") else _guess(named)
            if not kind:
                raise Unreachable("is of a virtual key whose provider this file does not name: write `provider` too")
            variable = re.sub(r"\W", "_", named).upper()
            self._draft.task(
                f"Set {variable} in the environment to the provider's key that Portkey has as `{named}`.", variable
            )
            provider.use()
            virtual.use()
            access = Access(OTHER_NAMES.get(kind, kind), key=self._draft.variable(variable))
        else:
            provider.use()
            access = Access(OTHER_NAMES.get(slug, slug))
            listed = provider_of(access.provider)
            variable = (
                listed.key
                if listed is not None and listed.key
                else f"{as_name(slug).upper().replace('-', '_')}_API_KEY"
            )
            access.key = self._secrets.reference(_of(part, "api_key"), variable)
        self._places(part, access)
        return access

    def _places(self, part: ForeignValue, access: Access) -> None:
        """The address, the version and the region of the provider."""
        access.url = self._secrets.text(_of(part, "custom_host"))
        resource = self._secrets.text(_of(part, "azure_resource_name")) or self._secrets.text(
            _of(part, "resource_name")
        )
        if resource:
            access.url = f"https://{resource}.openai.azure.com"
        deployment = _of(part, "azure_deployment_id").text() or _of(part, "deployment_id").text()
        access.model = deployment or ""
        access.version = self._secrets.text(_of(part, "azure_api_version")) or self._secrets.text(
            _of(part, "api_version")
        )
        access.region = self._secrets.text(_of(part, "aws_region"), "us-east-1")
        pair = {
            "key_id": self._secrets.reference(_of(part, "aws_access_key_id"), "AWS_ACCESS_KEY_ID"),
            "secret": self._secrets.reference(_of(part, "aws_secret_access_key"), "AWS_SECRET_ACCESS_KEY"),
        }
        if all(pair.values()):
            access.credentials = {"aws": pair}
        access.project = self._secrets.text(_of(part, "vertex_project_id"), "project")
        access.location = self._secrets.text(_of(part, "vertex_region"), "us-central1")
        if organization := self._secrets.text(_of(part, "openai_organization")):
            access.headers.append({"name": "OpenAI-Organization", "value": organization})

    # ── conditions ────────────────────────────────────────────────────────────────────────────────────

    def _conditional(self, when: dict[str, Any]) -> list[tuple[dict[str, Any], ForeignValue]]:
        """Each condition with its target, and the default."""
        strategy = _of(self._part, "strategy")
        strategy["mode"].use()
        targets = {str(part["name"].value): part for part in _of(self._part, "targets")}
        rows: list[tuple[dict[str, Any], ForeignValue]] = []
        for condition in strategy["conditions"]:
            then = targets.get(str(condition["then"].value))
            matches = list(_matches(condition["query"]))
            valid = [each for each in matches if self._draft.error(MatchConfig, {**when, **each}) is None]
            if then is None or not matches or len(valid) < len(matches):
                condition.leave("has no equivalent: write a route with `when` for it")
                continue
            condition.use()
            then["name"].use()
            rows += [({**when, **each}, then) for each in valid]
        if any("label" in match for match, _ in rows):
            self._draft.task(
                "Portkey's conditions on metadata are conditions on the labels of keys here: issue keys with"
                " `--label NAME=VALUE`, or write conditions on a header."
            )
        default = targets.get(str(strategy["default"].value))
        if default is not None:
            strategy["default"].use()
            default["name"].use()
            rows.append((when, default))
        return rows


def _matches(query: ForeignValue) -> Iterator[dict[str, Any]]:
    """The conditions of a query, one for each alternative; none if one of its parts has no equivalent."""
    value = query.value
    if not isinstance(value, dict) or len(value) != 1:
        return
    [part] = query
    if part.name == "$or":
        alternatives = [list(_matches(each)) for each in part]
        if all(alternatives):
            yield from (match for matches in alternatives for match in matches)
        return
    if part.name == "$and":
        joined: dict[str, Any] = {}
        for each in part:
            each_of = list(_matches(each))
            if len(each_of) != 1 or set(each_of[0]) & set(joined) - {"label"}:
                return
            joined = {**joined, **each_of[0], "label": {**joined.get("label", {}), **each_of[0].get("label", {})}}
        yield {name: value for name, value in joined.items() if value}
        return
    yield from _match(part)


def _match(part: ForeignValue) -> Iterator[dict[str, Any]]:
    section, _, name = part.name.partition(".")
    tests = dict(part.value) if isinstance(part.value, dict) else {"$eq": part.value}
    sign, value = next(iter(tests.items())) if len(tests) == 1 else ("", None)
    values = [str(each) for each in (value if isinstance(value, tuple) else (value,))]
    if sign not in ("$eq", "$in"):
        if (
            (section, name) == ("params", "max_tokens")
            and sign in ("$lt", "$lte", "$gt", "$gte")
            and type(value) is int
        ):
            yield {"max_tokens": {"$lt": "<", "$lte": "<=", "$gt": ">", "$gte": ">="}[sign] + str(value)}
    elif section == "metadata":
        yield from ({"label": {name: each}} for each in values)
    elif (section, name) == ("params", "model"):
        yield {"model": values}
    elif (section, name) == ("params", "stream") and type(value) is bool:
        yield {"stream": value}


def _guess(named: str) -> str:
    """The provider in the name of a virtual key: ``openai-prod``; empty without one."""
    names = (*PROVIDERS, *OTHER_NAMES, "azure-openai", "azure", "bedrock", "vertex-ai")
    return max(
        (name for name in names if named == name or named.startswith((f"{name}-", f"{name}_"))), key=len, default=""
    )


def _of(part: ForeignValue, name: str) -> ForeignValue:
    """A field by its name, in either of the forms that Portkey reads: ``max_age`` and ``maxAge``."""
    camel = re.sub(r"_(\w)", lambda match: match[1].upper(), name)
    return part[name] or part[camel]


def _every(part: ForeignValue, name: str) -> Iterator[ForeignValue]:
    if own := _of(part, name):
        yield own
    for target in _of(part, "targets"):
        yield from _every(target, name)


def _explain(part: ForeignValue) -> None:
    for inner in part:
        if inner.name in _REASONS:
            part.survey.reasons.setdefault(inner.place, _REASONS[inner.name])
        elif re.search(r"guardrail|hook", inner.name):
            part.survey.reasons.setdefault(inner.place, _CONTENT)
        elif inner.name not in ("conditions", "override_params"):
            _explain(inner)
