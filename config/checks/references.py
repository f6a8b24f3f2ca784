"""Checks names: each is unique, each reference exists, each model can be reached, each webhook has a use.

A pool without a route is valid: one edit must be enough to move a route away from a failing pool.
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from config.addresses import may_be_public
from config.document import Document, Node, names
from config.problem import Problem, closest
from config.schema.pool import ACCOUNT_FIELDS
from config.schema.route import DefaultModelsConfig
from config.schema.text import covers, is_glob, may_overlap


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report duplicate names, unknown names, and models that others cover."""
    yield from _given_twice(doc, root)
    yield from _unknown_pools(doc, root)
    yield from _tenants_models(doc, root)
    yield from _teams(doc, root)
    yield from _scopes_routes(doc, root)
    yield from _routes_tenants(doc, root)
    yield from _issuers_tenants(doc, root)
    yield from _shadowed_models(doc, root)
    yield from _explainers(doc, root)
    yield from _default_models(doc, root)
    yield from _excluded_from_record(doc, root)


def within(target: Node) -> Iterator[Node]:
    """A target (a route, an arm or an entry of a fallback) and all nested targets."""
    yield target
    for inner in (*target["split"]["arms"], *arms_of(target), *target["fallback"]):
        yield from within(inner)


def arms_of(route: Node) -> list[Node]:
    """The arms of a route's rollout or experiment, as far as they are given."""
    rollout = route["rollout"]
    return [*(rollout[name] for name in ("from", "to") if name in rollout), *route["experiment"]["arms"]]


def targets(route: Node) -> list[Node]:
    """The node of every pool name in a route."""
    return [pool_of(target) for target in within(route)]


def pool_of(target: Node) -> Node:
    """The node of a target's pool name."""
    return target if target.text is not None else target["to"] if "to" in target else target["pool"]


def _given_twice(doc: Document, root: Node) -> Iterator[Problem]:
    for section in ("pools", "tenants", "feedback", "webhooks", "guards"):
        yield from _unique(doc, (entry["name"] for entry in root[section]))
    yield from _unique(doc, (name for model in root["models"] for name in (model["name"], *model["aliases"])))
    for pool in root["pools"]:
        # One address with several keys or models is several accounts.
        plain = (endpoint for endpoint in pool["endpoints"] if not any(name in endpoint for name in ACCOUNT_FIELDS))
        yield from _unique(doc, (_url(endpoint) for endpoint in plain))
    for model in root["models"]:
        yield from _unique(doc, (route["name"] for route in model["routes"]))
        yield from _unique(doc, model["versions"])
    routes = [route for model in root["models"] for route in model["routes"]]
    compared = (route[kind] for route in routes for kind in ("rollout", "experiment"))
    yield from _unique(doc, (each["name"] for each in compared))
    for model in root["models"]:
        for target in (target for route in model["routes"] for target in within(route)):
            yield from _unique(doc, (arm["name"] if "name" in arm else arm["pool"] for arm in target["split"]["arms"]))
            yield from _unique(doc, map(pool_of, target["fallback"]))
            yield from _unique(doc, target["on"])
    for tenant in root["tenants"]:
        yield from _unique(doc, (team["name"] for team in tenant["teams"]))
    keys = [key for tenant in root["tenants"] for key in tenant["keys"]]
    yield from _unique(doc, (key["id"] for key in keys))
    yield from _unique(doc, (key["hash"] for key in keys))
    yield from _unique(doc, (issuer["name"] for issuer in root["auth"]["jwt"]))
    certificates = [entry for tenant in root["tenants"] for entry in tenant["certificates"]]
    for kind in ("subject_cn", "san_dns", "san_uri"):
        yield from _unique(doc, (entry[kind] for entry in certificates))


def _url(endpoint: Node) -> Node:
    return endpoint if endpoint.text is not None else endpoint["url"]


def _unique(doc: Document, nodes: Iterable[Node]) -> Iterator[Problem]:
    first: dict[str, Node] = {}
    for node in nodes:
        if node.text is None:
            continue
        if node.text in first:
            line = doc.line(first[node.text].place)
            yield doc.problem(node.place, f"is given twice, first on line {line}")
        first.setdefault(node.text, node)


def _unknown_pools(doc: Document, root: Node) -> Iterator[Problem]:
    pool_names = names(root["pools"])
    if len(pool_names) < len(list(root["pools"])) or not pool_names:
        return  # the name of a pool itself is invalid
    routes = (route for model in root["models"] for route in model["routes"])
    for pool in (pool for route in routes for pool in targets(route)):
        if pool.text is not None and pool.text not in pool_names:
            yield doc.problem(pool.place, f'no pool is named "{pool.text}"', closest(pool.text, pool_names))


def _tenants_models(doc: Document, root: Node) -> Iterator[Problem]:
    """Report unknown models of tenants and of scopes. The names are the models' own."""
    model_names = names(root["models"])
    aliases = {alias: model["name"].text for model in root["models"] for alias in model["aliases"].texts()}
    lists = [tenant["models"] for tenant in root["tenants"]] + [scopes["models"] for scopes in _all_scopes(root)]
    for glob in (glob for globs in lists for glob in globs):
        if glob.text in aliases:
            message = f'"{glob.text}" is an alias, and this list goes by models\' own names'
            yield doc.problem(glob.place, message, aliases[glob.text])
        elif glob.text is None or is_glob(glob.text) or not model_names:
            continue
        elif not any(may_overlap(glob.text, name) for name in model_names):
            yield doc.problem(glob.place, f'no model is named "{glob.text}"', closest(glob.text, model_names))


def _teams(doc: Document, root: Node) -> Iterator[Problem]:
    """Report unknown teams of keys and certificates in the file."""
    for tenant in root["tenants"]:
        teams = names(tenant["teams"])
        for credential in (*tenant["keys"], *tenant["certificates"]):
            name = credential["team"].text
            if name is not None and name not in teams:
                message = f'no team of this tenant is named "{name}"'
                yield doc.problem(credential["team"].place, message, closest(name, teams))


def _scopes_routes(doc: Document, root: Node) -> Iterator[Problem]:
    route_names = [name for model in root["models"] for name in names(model["routes"])]
    for route in (route for scopes in _all_scopes(root) for route in scopes["routes"]):
        if route.text is not None and route.text not in route_names:
            yield doc.problem(route.place, f'no route is named "{route.text}"', closest(route.text, route_names))


def _all_scopes(root: Node) -> Iterator[Node]:
    for tenant in root["tenants"]:
        yield from (holder["scopes"] for holder in (*tenant["keys"], *tenant["certificates"]))


def _routes_tenants(doc: Document, root: Node) -> Iterator[Problem]:
    tenant_names = names(root["tenants"])
    for model in root["models"]:
        written = [glob for route in model["routes"] for glob in route["when"]["tenant"]]
        if written:
            allowed = _users(root, model)
            for glob in written:
                if glob.text is None or _any_matches(glob.text, allowed):
                    continue
                if _any_matches(glob.text, tenant_names):
                    yield doc.problem(glob.place, "no tenant of that name may use this model: see its `models`")
                elif tenant_names:
                    suggestion = closest(glob.text, tenant_names)
                    yield doc.problem(glob.place, f'no tenant is named "{glob.text}"', suggestion)


def _issuers_tenants(doc: Document, root: Node) -> Iterator[Problem]:
    tenant_names = names(root["tenants"])
    for issuer in root["auth"]["jwt"]:
        tenant = issuer["tenant"]
        if tenant.text is not None and tenant_names and tenant.text not in tenant_names:
            yield doc.problem(tenant.place, f'no tenant is named "{tenant.text}"', closest(tenant.text, tenant_names))


def _any_matches(glob: str, candidates: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in candidates)


def _users(root: Node, model: Node) -> set[str]:
    """The tenants that may use any of a model's names."""
    served = model["name"].text or "*"
    return {
        tenant["name"].text or ""
        for tenant in root["tenants"]
        if any(may_overlap(glob, served) for glob in tenant["models"].texts())
    }


def _shadowed_models(doc: Document, root: Node) -> Iterator[Problem]:
    seen: list[str] = []
    for model in root["models"]:
        name = model["name"].text or ""
        for earlier in seen if is_glob(name) else ():  # an exact name has precedence over any glob
            if name != earlier and is_glob(earlier) and covers(earlier, name):
                yield doc.problem(
                    model["name"].place, f'can never be reached: "{earlier}" above matches the same names'
                )
        seen.append(name)


def _explainers(doc: Document, root: Node) -> Iterator[Problem]:
    model_names = names(root["models"])
    for model in root["models"]:
        explainer = model["explainer"]
        if explainer.text is None or not model_names:
            continue
        if explainer.text == model["name"].text:
            yield doc.problem(explainer.place, "is this model: an explainer is another model")
        elif not any(may_overlap(explainer.text, name) for name in model_names):
            yield doc.problem(
                explainer.place, f'no model is named "{explainer.text}"', closest(explainer.text, model_names)
            )


def _default_models(doc: Document, root: Node) -> Iterator[Problem]:
    model_names = [name for model in root["models"] for name in (model["name"].text, *model["aliases"].texts()) if name]
    for operation in DefaultModelsConfig.model_fields:
        default = root["default_models"][operation]
        if (
            default.text is not None
            and model_names
            and not any(may_overlap(default.text, name) for name in model_names)
        ):
            yield doc.problem(default.place, f'no model is named "{default.text}"', closest(default.text, model_names))


def _excluded_from_record(doc: Document, root: Node) -> Iterator[Problem]:
    """Each entry excludes a model from the record, and contents are shown only if there is one."""
    models = names(root["models"])
    for entry in root["record"]["exclude"]:
        if entry.text is not None and not any(may_overlap(entry.text, name) for name in models):
            yield doc.problem(entry.place, "excludes no model", closest(entry.text, models))
    for tenant in root["tenants"]:
        if tenant["show_content"].text is not None and "record" not in root:
            yield doc.problem(tenant["show_content"].place, "has no effect without `record`: nothing is recorded")


def check_webhooks(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every soft budget and webhook without an effect."""
    budgets = [soft for tenant in root["tenants"] for soft in tenant["soft_budgets"]]
    declared = names(root["webhooks"])
    for soft in budgets:
        name = soft["webhook"].text
        if name is not None and name not in declared:
            yield doc.problem(soft["webhook"].place, f'no webhook is named "{name}"', closest(name, declared))
        if "usage" not in root:
            yield doc.problem(soft.place, "has no effect without `usage`: write `usage: {}`")
    used = {soft["webhook"].text for soft in budgets}
    for webhook in root["webhooks"]:
        if webhook["name"].text is not None and webhook["name"].text not in used:
            yield doc.problem(webhook.place, "has no effect: no soft budget names it")
        yield from _address(doc, webhook)


def _address(doc: Document, webhook: Node) -> Iterator[Problem]:
    url = webhook["url"].read(str)
    if url is None or webhook["private"].read(bool):
        return
    if url.startswith("http:"):
        yield doc.problem(webhook["url"].place, "is not encrypted: write https, or `private: true`")
    elif not may_be_public(urlsplit(url).hostname or ""):
        yield doc.problem(webhook["url"].place, "is a private address: write `private: true` for one")
