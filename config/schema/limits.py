"""The ``limits`` of a tenant: one section for the whole of it, or a list with a scope for each."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from config.schema.money import Spend
from config.schema.section import Section
from config.schema.text import Glob
from config.schema.units import ByteRate, Rate

Per = Literal["tenant", "key", "model", "user"]
ONE, SEVERAL = "[one]", "[several]"
"""Steps that pydantic puts into an error's place and that nobody wrote."""


class QuotaConfig(Section):
    """Absent means unlimited. All that apply to a request must grant it."""

    requests: Rate | None = None
    """Requests per period."""
    tokens: Rate | None = None
    """Prompt and answer tokens per period."""
    rows: Rate | None = None
    """Rows of tensors (a batch's first dimension) per period, in requests to tensor servers."""
    bytes: ByteRate | None = None
    """Bytes per period: of the request's body and of the answer's."""
    device_ms: Rate | None = None
    """Milliseconds of the model's device per period, as far as servers tell them."""
    spend: Spend | None = None
    """Money per hour, day or month of the calendar, in UTC: every model it covers needs a price."""
    concurrency: int | None = Field(None, ge=1)
    """Requests at the same time."""
    count: Literal["host", "exact", "leased"] = "host"
    """Who counts together: the workers of this host, or every gateway that has the same ``state.redis``:
    ``exact`` asks it once a request, ``leased`` takes a little in advance, so that no request waits."""
    on_redis_failure: Literal["allow", "refuse"] = "allow"
    """While Redis is away: ``allow`` has each gateway count for itself, ``refuse`` answers 503."""
    enforce: Literal["always", "shadow"] = "always"
    """``shadow`` counts and reports what it would have refused, and refuses nothing."""


class LimitsConfig(QuotaConfig):
    """Limits of a tenant."""

    per: Per = "tenant"
    """Who has these limits each for itself: the tenant as a whole, each of its keys, each model, or each end
    user (the request's ``user`` field, else its key)."""
    models: tuple[Glob, ...] | None = None
    """Only requests for these models count; all when absent."""


def _form(value: object) -> str:
    return SEVERAL if isinstance(value, tuple | list) else ONE


Limits = Annotated[
    Annotated[LimitsConfig, Tag(ONE)] | Annotated[tuple[LimitsConfig, ...], Tag(SEVERAL)], Discriminator(_form)
]

Quotas = Annotated[
    Annotated[QuotaConfig, Tag(ONE)] | Annotated[tuple[QuotaConfig, ...], Tag(SEVERAL)], Discriminator(_form)
]
