"""The limits of long periods in a configuration, each with the usage that it counts."""

from collections.abc import Iterable
from typing import NamedTuple

from config.schema.config import ClientModelConfig, TenantConfig
from config.schema.limits import LimitsConfig, QuotaConfig
from gateway.limits.drawn import DrawnUnit, units_of

_EACH = ""
"""In place of a subject: the unit of the limit itself, for all subjects."""


class LongLimit(NamedTuple):
    """A limit of a tenant, of a team, or of a model."""

    owner: str
    """The account in the names of draws."""
    config: LimitsConfig
    tenant: str = ""
    team: str = ""
    model: str = ""

    @property
    def holder(self) -> str:
        """The tenant or the model of the file whose limit it is."""
        return f"tenant {self.tenant}" if self.tenant else f"model {self.model}"

    def units(self, subject: str = _EACH) -> tuple[DrawnUnit, ...]:
        """The units with a long period, for one subject, or for all of them together."""
        return units_of(self.config, self.owner, subject)


class LongLimits(NamedTuple):
    """Those of one configuration."""

    holders: frozenset[str] = frozenset()
    """All tenants and models, also those without such limits."""
    limits: tuple[LongLimit, ...] = ()


def team_owner(tenant: str, team: str) -> str:
    """The account of a team."""
    return f"{tenant}\0team\0{team}"


def model_owner(model: str) -> str:
    """The account of a model."""
    return f"model\0{model}"


def limits_of_model(quotas: Iterable[QuotaConfig]) -> list[LimitsConfig]:
    """The limits of a model, as those of a subject."""
    fields = [{name: getattr(quota, name) for name in QuotaConfig.model_fields} for quota in quotas]
    return [LimitsConfig.model_construct(**given, per="model") for given in fields]


def long_limits(tenants: Iterable[TenantConfig], models: Iterable[ClientModelConfig]) -> LongLimits:
    """The limits with a long period. `tenants` have their teams of the database too."""
    tenants, models = list(tenants), list(models)
    limits: list[LongLimit] = []
    for tenant in tenants:
        limits += [LongLimit(tenant.name, config, tenant.name) for config in tenant.limit_list()]
        for team in tenant.teams:
            owner = team_owner(tenant.name, team.name)
            limits += [LongLimit(owner, config, tenant.name, team.name) for config in team.limit_list()]
    for model in models:
        owner = model_owner(model.name)
        limits += [LongLimit(owner, config, model=model.name) for config in limits_of_model(model.limit_list())]
    holders = [LongLimit("", LimitsConfig(), tenant.name).holder for tenant in tenants]
    holders += [LongLimit("", LimitsConfig(), model=model.name).holder for model in models]
    return LongLimits(frozenset(holders), tuple(limit for limit in limits if limit.units()))
