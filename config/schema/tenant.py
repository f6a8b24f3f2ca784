"""The ``tenants`` of the file: the clients of the gateway, and the messages about their spend to ``webhooks``."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.schema.balance import Priority
from config.schema.batches import TenantBatchesConfig
from config.schema.identity import CertificateConfig, GrantConfig
from config.schema.limits import DEFAULT_STORAGE, Limits, TeamLimits, TeamLimitsConfig, TenantLimitsConfig
from config.schema.money import Spend
from config.schema.section import Section
from config.schema.text import Date, Glob, Name, Secret, Shape
from config.schema.units import Duration, Percent

WebhookUrl = Annotated[
    str, Shape(r"https?://[^\s/?#@]+(/[^\s?#]*)?", "https://HOST/PATH, without a user, a query or a fragment")
]


def _each_once(at: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(at)) < len(at):
        raise ValueError("each share is listed once")
    return at


class SoftBudgetConfig(Section):
    """An amount of money for each period. A webhook receives a message when a share of it is spent."""

    spend: Spend
    """Money per hour, day or month of the calendar, in UTC."""
    per: Literal["tenant", "team"] = "tenant"
    """Subject of the budget: the whole tenant, or each of its teams."""
    at: Annotated[tuple[Percent, ...], Field(min_length=1, max_length=20), AfterValidator(_each_once)] = (0.8, 1.0)
    """Shares of the budget at which the webhook receives a message."""
    webhook: Name
    """Name of the webhook."""


class WebhookConfig(Section):
    """An address that receives signed messages. The gateway sends to no other address: no request names a host."""

    name: Name
    """Name of the webhook."""
    url: WebhookUrl
    """Address of the receiver."""
    secret: Secret
    """Secret of the signatures, after the Standard Webhooks specification: ``whsec_`` and base64, or any text."""
    private: bool = False
    """Whether the host may be a private or loopback address, and the URL may be http. Otherwise a name that resolves to
    such an address is refused."""
    timeout: Annotated[Duration, Field(le=60)] = 10.0
    """Longest time of one delivery."""


Hash = Annotated[str, Shape(r"[0-9a-f]{64}", "the 64 hex digits that `headrace keys create --yaml` prints")]


class KeyConfig(GrantConfig):
    """A key stored in the file itself, as ``headrace keys create --yaml`` prints it."""

    id: Name
    """Public part of the key."""
    hash: Hash
    """Hash of the key. The key cannot be derived from it."""
    expires: Date | None = None
    """Last day on which the key is accepted, in UTC."""
    lineage: Name | None = None
    """Id of the first key that this one replaces: for limits and usage, all keys of one lineage are one."""


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

    guards: tuple[Name, ...] = ()
    """Guards of all requests of the tenant, beside those of models and routes."""
    soft_budgets: tuple[SoftBudgetConfig, ...] = Field((), max_length=20)
    """Amounts whose spend is reported to webhooks. They refuse nothing."""
    batches: TenantBatchesConfig = TenantBatchesConfig()
    """Bounds on the tenant's batches."""
    share: float = Field(1.0, gt=0, le=1e6)
    """Weight of the tenant among those that wait for a full pool."""
    priority: Priority = "normal"
    """Priority of the tenant's requests in a full pool. A request may lower its own with the header
    ``x-headrace-priority``, and cannot raise it."""
    show_content: Literal["operators", "tenant"] | None = None
    """Who may read the recorded prompts and answers of the tenant: operators, or its tenant-admins too. Nobody when
    absent. Each view is in the audit log. Needs ``record``."""
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
