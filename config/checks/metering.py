"""Finds limits and prices that conflict, or limit nothing."""

from collections.abc import Iterator
from dataclasses import replace

from config.document import Document, Node
from config.place import written
from config.problem import Problem
from config.schema.limits import AmountsConfig, LimitsConfig, exceeds
from config.schema.money import MoneyBudget, currency_of
from config.schema.text import may_overlap
from config.schema.units import RateLimit

DAY = 86400.0
UNITS = tuple(AmountsConfig.model_fields)
_SCOPE = LimitsConfig.model_fields.keys() - set(UNITS)


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every limit without effect, and amounts in different currencies."""
    yield from _currencies(doc, root)
    for tenant in root["tenants"]:
        for limit in limits_of(tenant):
            yield from _scope(doc, tenant, limit)
            yield from _priced(doc, root, tenant, limit)
        yield from _given_again(doc, list(limits_of(tenant)))
        for team in tenant["teams"]:
            yield from _team(doc, root, tenant, team)
    for model in root["models"]:
        for limit in limits_of(model):
            yield from _something(doc, limit)
            if "spend" in limit and "price" not in model:
                yield doc.problem(limit["spend"].place, "needs the model's price: without one its use costs nothing")
        yield from _given_again(doc, list(limits_of(model)))
    yield from _redis(doc, root)


def _team(doc: Document, root: Node, tenant: Node, team: Node) -> Iterator[Problem]:
    """Report limits of a team that conflict, limit nothing, or exceed those of the tenant."""
    for limit in limits_of(team):
        yield from _scope(doc, tenant, limit)
        yield from _priced(doc, root, tenant, limit)
        for outer in limits_of(tenant):
            if outer["per"].read(str) not in ("tenant", "team") or outer["models"].value not in (
                None,
                limit["models"].value,
            ):
                continue
            for unit in UNITS:
                own, most = amount(limit[unit]), amount(outer[unit])
                if limit["per"].read(str) == "team" and own and most and exceeds(own, most):
                    place = written(outer[unit].place)
                    yield doc.problem(limit[unit].place, f"has no effect: {place} refuses sooner")
    yield from _given_again(doc, list(limits_of(team)))


def limits_of(owner: Node) -> Iterator[Node]:
    """The limits of a tenant or model, in either form."""
    limits = owner["limits"]
    return iter(limits) if isinstance(limits.value, tuple) else iter([limits])


def _owners(root: Node) -> list[Node]:
    """The sections that have limits: models, tenants and teams."""
    return [*root["models"], *root["tenants"], *(team for tenant in root["tenants"] for team in tenant["teams"])]


def _currencies(doc: Document, root: Node) -> Iterator[Problem]:
    prices = [node for model in root["models"] for _, node in model["price"].fields()]
    costs = [route["when"]["cost"] for model in root["models"] for route in model["routes"]]
    budgets = [limit["spend"] for owner in _owners(root) for limit in limits_of(owner)]
    routes = [route for model in root["models"] for route in model["routes"]]
    copied = [copies for route in routes for copies in (route["shadow"], route["rollout"]["shadow_first"])]
    budgets += [soft["spend"] for tenant in root["tenants"] for soft in tenant["soft_budgets"]]
    budgets += [copies["at_most"]["spend"] for copies in copied]
    first: tuple[str, Node] | None = None
    for node in (*prices, *costs, *budgets):
        currency = currency_of((node.text or "").lstrip("<>= "))
        if currency is None:
            continue
        if first is None:
            first = (currency, node)
        elif currency != first[0]:
            place = written(first[1].place)
            yield doc.problem(node.place, f"is in {currency} and {place} in {first[0]}: a file has one currency")


def forgotten(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every limit of a day or a month that a restart, or a second gateway, forgets."""
    if "usage" not in root:
        message = "is forgotten by each restart, and each gateway counts for itself: add the section `usage: {}`"
    elif "database" not in root["state"]:
        message = (
            "is counted in a database of this host alone, and a new pod has an empty one: "
            "write `state: {database: ...}`, and postgresql:// for several gateways"
        )
    else:
        return
    for limit in (limit for owner in _owners(root) for limit in limits_of(owner)):
        if limit["count"].text in ("exact", "leased"):
            continue
        for unit in UNITS:
            if (amounts := amount(limit[unit])) and amounts[1] not in (None, "hour") and not _is_short(amounts[1]):
                yield replace(doc.problem(limit[unit].place, message), is_warning=True)


def _is_short(period: object) -> bool:
    """Whether a rate refills soon."""
    return isinstance(period, float) and period < DAY


def _redis(doc: Document, root: Node) -> Iterator[Problem]:
    """Report limits that need Redis without a Redis, and a Redis without such limits."""
    state = root["state"]
    limits = [limit for owner in _owners(root) for limit in limits_of(owner)]
    counted = [limit for limit in limits if limit["count"].text in ("exact", "leased")]
    away = doc.value(state["redis"].place) is None
    for limit in counted if away else ():
        yield doc.problem(limit["count"].place, "needs state.redis: only the workers of a host count without it")
    for limit in limits:
        if "on_redis_failure" in limit and limit not in counted:
            message = "has no effect: Redis counts only `count: exact` and `leased`"
            yield doc.problem_with_key(limit["on_redis_failure"].place, message)
    if not away and not counted and not list(root["listen"]["bus"]):
        message = "has no effect: no limit is `count: exact` or `leased`, and there is no `listen.bus`"
        yield doc.problem_with_key(state["redis"].place, message)
    if away and "redis_timeout" in state:
        yield doc.problem_with_key(state["redis_timeout"].place, "has no effect without state.redis")


def _scope(doc: Document, tenant: Node, limit: Node) -> Iterator[Problem]:
    yield from _something(doc, limit)
    if limit["models"].value == ():
        yield doc.problem(limit["models"].place, "is empty and matches nothing: add an entry, or remove it")
    allowed = tenant["models"].texts()
    for glob in limit["models"]:
        if glob.text is not None and allowed and not any(may_overlap(glob.text, other) for other in allowed):
            yield doc.problem(glob.place, "has no effect: this tenant may use no such model")


def _something(doc: Document, limit: Node) -> Iterator[Problem]:
    names = {name for name, node in limit.fields() if node.value is not None}
    written_out = isinstance(limit.place[-1], int) or bool(names)  # `limits: {}` is explicit
    if isinstance(limit.value, dict) and written_out and names <= _SCOPE:
        yield doc.problem(limit.place, f"limits nothing: give one of {', '.join(UNITS)}")


def _priced(doc: Document, root: Node, tenant: Node, limit: Node) -> Iterator[Problem]:
    """Report a budget for models without a price, as it would not limit them."""
    if "spend" not in limit:
        return
    allowed = tenant["models"].texts()
    for model in root["models"]:
        name = model["name"].text
        if name is None or "price" in model or "pipeline" in model:  # a pipeline costs the sum of its models
            continue
        if any(may_overlap(glob, name) for glob in allowed) and any(
            may_overlap(glob, name) for glob in globs_of(limit)
        ):
            message = f'the model "{name}" has no price, so its use would cost nothing: give it one'
            yield doc.problem(limit["spend"].place, message)


def _given_again(doc: Document, limits: list[Node]) -> Iterator[Problem]:
    """Report two limits of one scope, unit and period: only the lower has an effect. A shadow must be the lower."""
    seen: dict[tuple[object, ...], tuple[Node, float]] = {}
    for limit in sorted(limits, key=is_shadow):  # the enforced ones first
        for unit in (*UNITS, "storage"):
            if (limited := amount(limit[unit])) is None:
                continue
            granted, period = limited
            scope = (limit["per"].read(str), limit["models"].value, limit["count"].read(str), unit, period)
            enforced = seen.get((*scope, False))
            same = seen.setdefault((*scope, is_shadow(limit)), (limit[unit], granted))
            if same[0].place != limit[unit].place:
                yield doc.problem(limit[unit].place, f"is limited already, by {written(same[0].place)}: keep one")
            elif is_shadow(limit) and enforced is not None and granted >= enforced[1]:
                place = written(enforced[0].place)
                yield doc.problem(limit[unit].place, f"shows nothing: {place} refuses the same or sooner")


def is_shadow(limit: Node) -> bool:
    """Whether a limit reports refusals and refuses nothing."""
    return limit["enforce"].read(str) == "shadow"


def globs_of(limit: Node) -> list[str]:
    """The globs of the models that a limit covers."""
    return limit["models"].texts() or ["*"]


def amount(node: Node) -> tuple[float, object] | None:
    """The amount of a limit and its period: seconds for a rate, a name for a budget, None for concurrency."""
    match node.read(object):
        case RateLimit(rate, seconds):
            return rate, seconds
        case MoneyBudget(picos=picos, period=period):
            return picos, period
        case int(concurrency):
            return concurrency, None
    return None
