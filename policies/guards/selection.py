"""Which guards a request meets: those of its tenant, its model and its route, in the order of the file."""

from collections.abc import Collection, Iterator

from config.schema.config import Config
from config.schema.guards import NamedGuardConfig


def guards_of(
    config: Config, tenant: str, model: str, route: int, roles: Collection[str] = (), key: str = ""
) -> tuple[NamedGuardConfig, ...]:
    """The guards of a request. `model` is the name as configured; `route` is ignored for a pipeline."""
    names = set(_names(config, tenant, model, route))
    return tuple(guard for guard in config.guards if guard.name in names and not is_exempt(guard, roles, key))


def is_exempt(guard: NamedGuardConfig, roles: Collection[str], key: str) -> bool:
    """Whether a guard does not apply to a client."""
    return key in guard.exempt.keys or any(role in roles for role in guard.exempt.roles)


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
