"""``soft_budgets`` of a tenant and the ``webhooks`` of the file: messages about spend, which refuse nothing."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.schema.money import Spend
from config.schema.section import Section
from config.schema.text import Name, Secret, Shape
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
