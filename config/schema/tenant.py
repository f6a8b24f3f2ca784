"""The ``tenants`` of the file: the clients of the gateway."""

from typing import Annotated

from pydantic import Field

from config.schema.batches.batches import TenantBatchesConfig
from config.schema.identity import CertificateConfig, GrantConfig
from config.schema.limits import DEFAULT_STORAGE, Limits, TeamLimits, TeamLimitsConfig, TenantLimitsConfig
from config.schema.pricing.soft_budget import SoftBudgetConfig
from config.schema.queue import Priority
from config.schema.section import Section
from config.schema.text import Date, Glob, Name, Shape

Hash = Annotated[str, Shape(r"[0-9a-f]{64}", "the 64 hex digits that `headrace keys create --yaml` prints")]


class KeyConfig(GrantConfig):
    """A key stored in the file itself, as ``headrace keys create --yaml`` prints it."""

    id: Name
    """Public part of the key."""
    hash: Hash
    """Hash of the key. The key cannot be derived from it."""
    expires: Date | None = None
    """Last day on which the key is accepted, in UTC."""


class TeamConfig(Section):
    """A team: keys of one tenant with limits and budgets of their own, within those of the tenant."""

    name: Name
    """Name of the team, also in usage and invoices."""
    limits: TeamLimits = TeamLimitsConfig()
    """Limits of the whole team, or a list of limits with ``per``. Those of the tenant apply too."""

    def limit_list(self) -> tuple[TeamLimitsConfig, ...]:
        """The team's limits, from either form."""
        return self.limits if isinstance(self.limits, tuple) else (self.limits,)


class TenantConfig(Section):
    """A tenant: its credentials, its models and its limits."""

    name: Name
    """Name of the tenant, also in logs and metrics."""
    keys: tuple[KeyConfig, ...] = ()
    """Keys stored in this file. Issued keys are in the state database."""
    certificates: tuple[CertificateConfig, ...] = ()
    """Client certificates of the tenant, for requests without a key or token."""
    models: tuple[Glob, ...] = Field(min_length=1)
    """Models that the tenant may use; ``*`` for all."""
    limits: Limits = TenantLimitsConfig()
    """Limits of the whole tenant, or a list of limits with ``per``."""
    teams: tuple[TeamConfig, ...] = ()
    """Teams of the tenant that this file defines. Others are in the state database: an operator or a tenant-admin
    creates them while the gateway runs."""

    soft_budgets: tuple[SoftBudgetConfig, ...] = Field((), max_length=20)
    """Amounts whose spend is reported to webhooks. They refuse nothing."""
    batches: TenantBatchesConfig = TenantBatchesConfig()
    """Bounds on the tenant's batches."""
    share: float = Field(1.0, gt=0, le=1e6)
    """Weight of the tenant among those that wait for a full pool."""
    priority: Priority = "normal"
    """Priority of the tenant's requests in a full pool. A request may lower its own with the header
    ``x-headrace-priority``, and cannot raise it."""
    explain: bool = False
    """Whether the header ``x-headrace-explain: 1`` makes the response explain its route. The explanation names routes,
    pools and lines of this file."""

    def limit_list(self) -> tuple[TenantLimitsConfig, ...]:
        """The tenant's limits, from either form."""
        return self.limits if isinstance(self.limits, tuple) else (self.limits,)

    @property
    def storage_quota(self) -> int:
        """The most bytes that the tenant stores."""
        return min([limit.storage for limit in self.limit_list() if limit.storage is not None], default=DEFAULT_STORAGE)
