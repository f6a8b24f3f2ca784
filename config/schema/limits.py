"""The ``limits`` of a tenant: one section for the tenant, or a list of sections with scopes."""

from math import ceil
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from config.schema.money import Spend
from config.schema.section import Section
from config.schema.text import Glob
from config.schema.units import ByteRate, Rate, Size

Per = Literal["tenant", "team", "key", "model", "user"]
TeamPer = Literal["team", "key", "model", "user"]
Count = Literal["host", "exact", "leased"]
_SECONDS = {"hour": 3600.0, "day": 86400.0, "month": 31 * 86400.0}
DEFAULT_STORAGE = 20 * 1024**3
"""The bytes that a tenant may store whose limits have no ``storage``."""
ONE, SEVERAL = "[one]", "[several]"
"""Steps that pydantic inserts into the place of an error; they are not in the file."""


class AmountsConfig(Section):
    """The limited amounts. An absent amount is unlimited."""

    requests: Rate | None = None
    """Requests per period."""
    tokens: Rate | None = None
    """Prompt and completion tokens per period."""
    rows: Rate | None = None
    """Rows of tensors (the first dimension of a batch) per period, in requests to tensor servers."""
    bytes: ByteRate | None = None
    """Bytes of request and response bodies per period."""
    device_ms: Rate | None = None
    """Milliseconds of the model's device per period, as far as servers report them."""
    spend: Spend | None = None
    """Money per hour, day or month of the calendar, in UTC. Every model that it covers needs a price."""
    concurrency: int | None = Field(None, ge=1)
    """Requests at the same time."""


class QuotaConfig(AmountsConfig):
    """A set of limits. An absent field is unlimited. Every limit that applies to a request must admit it."""

    count: Count = "host"
    """Scope of the count. ``host``: the workers of this host. With ``usage``, budgets and rates of a day or longer also
    continue after a restart, and follow other hosts within seconds. ``exact``: every gateway with the same
    ``state.redis``, with one Redis call for each request. ``leased``: the same, with small amounts leased in advance,
    so that no request waits for Redis."""
    on_redis_failure: Literal["allow", "refuse"] = "allow"
    """While Redis is unavailable, ``allow`` lets each gateway count for itself, ``refuse`` answers 503."""
    enforce: Literal["always", "shadow"] = "always"
    """``shadow`` counts and reports refusals, and refuses nothing."""


class LimitsConfig(QuotaConfig):
    """Limits of a tenant."""

    per: Per = "tenant"
    """Subject of the limits: the whole tenant, or each of its teams, keys, models or end users. Requests without a team
    share one amount. An end user is the request's ``user`` field, else its key."""
    models: tuple[Glob, ...] | None = None
    """Count only requests for these models; all when absent."""


class TenantLimitsConfig(LimitsConfig):
    """Limits of a tenant, and of what it stores."""

    storage: Size | None = None
    """Most bytes that the whole tenant stores: responses, conversations, files, inputs and results of batches. Without
    it 20GiB. What would exceed it is refused until the tenant deletes something, or something expires."""

    @model_validator(mode="after")
    def _of_the_whole_tenant(self) -> Self:
        if self.storage is not None and (self.per, self.models, self.enforce) != ("tenant", None, "always"):
            raise ValueError("`storage` is a limit of the whole tenant: give it without `per`, `models` and `enforce`")
        return self


class TeamLimitsConfig(LimitsConfig):
    """Limits of a team, beside those of its tenant."""

    per: TeamPer = "team"
    """Subject of the limits: the whole team, each of its keys, each model, or each end user of it."""


def _form(value: object) -> str:
    return SEVERAL if isinstance(value, tuple | list) else ONE


Limits = Annotated[
    Annotated[TenantLimitsConfig, Tag(ONE)] | Annotated[tuple[TenantLimitsConfig, ...], Tag(SEVERAL)],
    Discriminator(_form),
]

TeamLimits = Annotated[
    Annotated[TeamLimitsConfig, Tag(ONE)] | Annotated[tuple[TeamLimitsConfig, ...], Tag(SEVERAL)], Discriminator(_form)
]

Quotas = Annotated[
    Annotated[QuotaConfig, Tag(ONE)] | Annotated[tuple[QuotaConfig, ...], Tag(SEVERAL)], Discriminator(_form)
]


def exceeds(inner: tuple[float, object], outer: tuple[float, object]) -> bool:
    """Whether an inner limit can never refuse before an outer limit of the same unit.

    Each is an amount and its period: seconds of a rate, the name of a budget's period, None for concurrency.
    """
    windows = ceil(_seconds(inner[1]) / _seconds(outer[1]))
    return inner[0] > outer[0] * max(1, windows)


def _seconds(period: object) -> float:
    if isinstance(period, str):
        return _SECONDS[period]
    return float(period) if isinstance(period, int | float) else 1.0
