"""Which requests are copied, and how their answers are compared: of a shadow, and before a rollout."""

from typing import Annotated

from pydantic import AfterValidator, Field

from config.schema.money import Spend
from config.schema.section import Section
from config.schema.shadow.compare import CompareConfig
from config.schema.target import share_of_requests, small_alpha
from config.schema.units import Percent, Rate, RateLimit


class AtMostConfig(Section):
    """Bounds on the copies of a gateway. Its workers have equal parts."""

    concurrency: int = Field(4, ge=1, le=1000)
    """Copies at the same time."""
    requests: Rate = RateLimit(5, 1.0)
    """Copies per period."""
    spend: Spend | None = None
    """Cost of the copies in each hour, day or month. The price is that of the target if it is a model, else that of the
    route's model. The second answers of the primary and judges count too. Unlimited when absent."""


class CopiesConfig(Section):
    """Which requests are copied, and how their answers are compared."""

    share: Annotated[Percent, AfterValidator(share_of_requests)] = 0.01
    """Share of the requests that are copied."""
    noise: Percent = Field(0.0, ge=0, le=1)
    """Share of the copies that the primary answers once more. If it is above 0, only these count for the verdict, which
    is then about differences beyond those between two answers of the primary."""
    compare: CompareConfig = CompareConfig()
    """When two answers agree."""
    at_most: AtMostConfig = AtMostConfig()
    """Bounds on the copies. A copy beyond them is dropped."""
    alpha: Annotated[Percent, AfterValidator(small_alpha)] = 0.01
    """Probability that a shadow with equal answers ever gets the verdict ``differs``, and that one with too many
    differences ever gets ``agrees``."""
    agree: Annotated[Percent, AfterValidator(share_of_requests)] | None = None
    """Share of the answers that must agree, beyond the noise. The verdict is ``agrees`` when this is certain, and
    ``differs`` when fewer agree for certain. Without it the verdict is ``differs`` as soon as any difference is."""
    answers: int = Field(100, ge=1, le=1_000_000_000)
    """Fewest compared answers before the verdict ``agrees``."""
    samples: int = Field(0, ge=0, le=100)
    """Latest differing copies whose texts are stored in the state database, for ``headrace shadow show``. They are
    redacted as ``record`` is: keys and other secrets always, other kinds by ``record.redact``."""


class ShadowFirstConfig(CopiesConfig):
    """Copies of the requests of ``from`` to ``to`` before the first step of a rollout."""

    agree: Annotated[Percent, AfterValidator(share_of_requests)] = 0.98
    """Share of the answers that must agree, beyond the noise. The first step begins when this is certain, and the
    rollout goes back when fewer agree for certain."""
    answers: int = Field(500, ge=1, le=1_000_000_000)
    """Fewest compared answers before the first step."""
