"""Which guards a request meets: those of its tenant, its model and its route, in the order of the file."""

from collections.abc import Collection, Iterator

from config.schema.config import Config
from config.schema.guards import NamedGuardConfig


def guards_of(
    config: Config, tenant: str, model: str, route: int, roles: Collection[str] = (), key: str = ""
) -> tuple[NamedGuardConfig, ...]:
    """The guards of a request. `model` is the name as configured; `route` is ignored for a pipeline."""
    guards = applied_guards(config, tenant, model, route)
    return tuple(guard for guard in guards if exemption(guard, roles, key) is None)


def applied_guards(config: Config, tenant: str, model: str, route: int) -> tuple[NamedGuardConfig, ...]:
    """The guards of a request, also those from which its client may be exempt."""
    names = set(_names(config, tenant, model, route))
    return tuple(guard for guard in config.guards if guard.name in names)


def exemption(guard: NamedGuardConfig, roles: Collection[str], key: str) -> str | None:
    """Why a guard does not apply to a client: `key ID` or `role NAME`. None if it applies."""
    if key in guard.exempt.keys:
        return f"key {key}"
    return next((f"role {role}" for role in guard.exempt.roles if role in roles), None)


def guards_answers(config: Config, tenant: str, model: str) -> bool:
    """Whether a guard may change or refuse an answer of the model to the tenant, on any of its routes, or let another
    model answer."""
    routes = next((len(each.routes) for each in config.models if each.name == model), 0)
    guards = (guard for route in range(max(routes, 1)) for guard in guards_of(config, tenant, model, route))
    acting = ("replace", "route")  # also of a prompt: the answer is another one
    return any(guard.restores or (guard.acts and ("answer" in guard.on or guard.action in acting)) for guard in guards)


def _names(config: Config, tenant: str, model: str, route: int) -> Iterator[str]:
    for each in config.tenants:
        if each.name == tenant:
            yield from each.guards
    for served in config.models:
        if served.name == model:
            yield from served.guards
            if route < len(served.routes):
                yield from served.routes[route].guards
