"""The limits of teams: validated when they are set, and combined with the teams of the file."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from config.problem import closest
from config.schema.config import Config, TenantConfig
from config.schema.limits import ONE, SEVERAL, AmountsConfig, LimitsConfig, TeamLimitsConfig, exceeds
from config.schema.money import MoneyBudget
from config.schema.tenant import TeamConfig
from config.schema.text import may_overlap
from config.schema.units import RateLimit
from config.sentences import sentence
from gateway.auth.errors import WrongGrant
from gateway.auth.teams.store import StoredTeam

MOST_LIMITS = 20
"""Limits of one team."""
_UNITS = tuple(AmountsConfig.model_fields)


def parse_team(config: Config, tenant: TenantConfig, name: str, limits: Any) -> TeamConfig:
    """A team of a tenant, its limits as in the file. Raises `WrongGrant`."""
    if any(team.name == name for team in tenant.teams):
        raise WrongGrant("team", f"the configuration file defines the team {name}: change it there")
    try:
        team = TeamConfig.model_validate_json(json.dumps({"name": name, "limits": limits}), strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in details["loc"] if step not in (ONE, SEVERAL))
        unknown = details["type"] == "extra_forbidden"
        raise WrongGrant(field, "unknown field" if unknown else sentence(details)) from None
    if len(team.limit_list()) > MOST_LIMITS:
        raise WrongGrant("limits", f"at most {MOST_LIMITS} limits")
    for limit in team.limit_list():
        _check(config, tenant, limit)
    return team


def check_team_of_key(tenant: TenantConfig, name: str | None, stored: Sequence[StoredTeam]) -> None:
    """Raises `WrongGrant` for a team that the tenant does not have."""
    names = [*(team.name for team in tenant.teams), *(team.name for team in stored if team.tenant == tenant.name)]
    if name is not None and name not in names:
        near = closest(name, names)
        hint = f"; did you mean {near!r}?" if near else ""
        raise WrongGrant("team", f"no team of {tenant.name} is named {name!r}{hint}")


def with_teams(config: Config, stored: Iterable[StoredTeam]) -> list[TenantConfig]:
    """The tenants of the file, with the teams of the database too. A team of the file takes precedence."""
    by_tenant: dict[str, list[StoredTeam]] = {}
    for team in stored:
        by_tenant.setdefault(team.tenant, []).append(team)
    return [_with(config, tenant, by_tenant.get(tenant.name, ())) for tenant in config.tenants]


def _with(config: Config, tenant: TenantConfig, stored: Sequence[StoredTeam]) -> TenantConfig:
    if not stored:
        return tenant
    names = {team.name for team in tenant.teams}
    counted_here = config.state.redis is None
    added = [_parsed(team.name, team.limits, counted_here) for team in stored if team.name not in names]
    return tenant.model_copy(update={"teams": (*tenant.teams, *added)})


@lru_cache(maxsize=4096)
def _parsed(name: str, limits: str, counted_here: bool) -> TeamConfig:
    """A stored team. Without Redis, which a later file may lack, all of its limits are counted on this host."""
    team = TeamConfig.model_validate_json(f'{{"name": {json.dumps(name)}, "limits": {limits}}}', strict=True)
    if counted_here:
        here = tuple(limit.model_copy(update={"count": "host"}) for limit in team.limit_list())
        team = team.model_copy(update={"limits": here})
    return team


def _check(config: Config, tenant: TenantConfig, limit: TeamLimitsConfig) -> None:
    """Raises `WrongGrant` for a limit without an effect."""
    units = [unit for unit in _UNITS if getattr(limit, unit) is not None]
    if not units and limit != TeamLimitsConfig():
        raise WrongGrant("limits", f"limits nothing: give one of {', '.join(_UNITS)}")
    if limit.count != "host" and config.state.redis is None:
        raise WrongGrant("limits.count", "needs state.redis in the configuration: give `host`")
    if limit.spend is not None:
        _check_money(config, tenant, limit)
    if limit.per != "team":
        return
    for unit in units:
        for outer in _outer(tenant, limit):
            most = getattr(outer, unit)
            if most is not None and exceeds(_amount(getattr(limit, unit)), _amount(most)):
                reason = f"{getattr(limit, unit)} is beyond the {most} of the tenant {tenant.name}: give less"
                raise WrongGrant(f"limits.{unit}", reason)


def _outer(tenant: TenantConfig, limit: TeamLimitsConfig) -> Iterator[LimitsConfig]:
    """The enforced limits of the tenant that count every request that a limit of a team counts."""
    for outer in tenant.limit_list():
        covers = outer.models is None or outer.models == limit.models
        if outer.per in ("tenant", "team") and covers and outer.enforce == "always":
            yield outer


def _amount(value: object) -> tuple[float, object]:
    if isinstance(value, MoneyBudget):
        return value.picos, value.period
    if isinstance(value, RateLimit):
        return value.amount, value.period
    assert isinstance(value, int)
    return value, None


def _check_money(config: Config, tenant: TenantConfig, limit: TeamLimitsConfig) -> None:
    assert limit.spend is not None
    for model in config.models:
        covered = any(may_overlap(glob, model.name) for glob in limit.models or ("*",))
        allowed = any(may_overlap(glob, model.name) for glob in tenant.models)
        if not (covered and allowed) or model.pipeline is not None:
            continue
        if model.price is None:
            raise WrongGrant("limits.spend", f"the model {model.name} has no price, so its use would cost nothing")
        if model.price.currency != limit.spend.currency:
            raise WrongGrant(
                "limits.spend", f"is in {limit.spend.currency}, and the prices are in {model.price.currency}"
            )
