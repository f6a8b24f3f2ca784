"""The ``models`` part of the file: which requests go to which pools, and what happens when one fails."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.money import Amount, PerTokens
from config.queue import Priority
from config.resilience import HedgeConfig
from config.section import Section
from config.text import Glob, HeaderName, Name, Shape
from config.units import Delay, Duration, Percent

TokenRange = Annotated[str, Shape(r"(<=|>=|<|>)\s*\d{1,9}", "a comparison such as >4000 or <=512")]
Sticky = Annotated[
    str,
    Shape(
        r"user|key|tenant|request|header:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}",
        "user, key, tenant, request or header:NAME",
    ),
]


class MatchConfig(Section):
    """All fields given must match; a list matches when any of its globs does."""

    tenant: tuple[Glob, ...] | None = None
    """Tenants' names."""
    model: tuple[Glob, ...] | None = None
    """Models asked for, where the model's own name is a glob."""
    header: dict[HeaderName, str] | None = None
    """Header name to glob of its value. An absent header does not match."""
    stream: bool | None = None
    """Whether the client asked for a stream."""
    prompt_tokens: TokenRange | None = None
    """The prompt's estimated length, such as ``>4000``."""


class ArmConfig(Section):
    """One side of a split."""

    pool: Name
    """Where this side's requests go."""
    weight: float = Field(ge=0)
    """Share of the requests, relative to the other arms; 0 parks an arm."""


class SplitConfig(Section):
    """Weighted choice between pools; the same subject always gets the same arm."""

    sticky: Sticky = "request"
    """What keeps its arm: ``user`` (the request's user field, else the key), ``key``, ``tenant``,
    ``header:NAME``, or ``request`` (nothing: each request is drawn anew)."""
    arms: tuple[ArmConfig, ...] = Field(min_length=2)
    """The sides."""

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if not any(arm.weight for arm in self.arms):
            raise ValueError("all weights are 0: give at least one arm a share")
        return self


class RetryConfig(Section):
    """A second try elsewhere. Never after the first byte has gone to the client."""

    attempts: int = Field(2, ge=1, le=10)
    """Tries in all, the first included."""
    budget: Percent = 0.2
    """Retries as a share of recent requests; beyond it a failure is final, so retries cannot become a storm."""
    backoff: Delay = 0.025
    """Longest wait before the first retry; it doubles for each next one, and the real wait is drawn below it."""


class TimeoutConfig(Section):
    """Every wait of one request has an end."""

    first_byte: Duration = 60.0
    """Until the upstream's answer begins."""
    idle: Duration = 30.0
    """Between two pieces of an answer."""
    total: Duration = 600.0
    """The whole request, retries and fallbacks included."""


class RouteConfig(Section):
    """Where requests that match go. The first route that matches wins."""

    name: Name | None = None
    """What scopes call it; routes of several models may have the same name."""
    when: MatchConfig = MatchConfig()
    """Which requests; all when absent."""
    to: Name | None = None
    """The pool to send them to."""
    split: SplitConfig | None = None
    """Or several pools, by weight."""
    fallback: tuple[Name, ...] = ()
    """Pools tried in this order when the first one fails."""
    retry: RetryConfig = RetryConfig()
    """Second tries within one pool."""
    hedge: HedgeConfig | None = None
    """A second attempt while the first has not begun; none when absent."""
    timeout: TimeoutConfig = TimeoutConfig()
    """How long to wait for what."""
    priority: Priority | None = None
    """Of its requests in a full pool; their tenant's when absent."""
    when_full: Literal["wait", "fallback"] = "wait"
    """``wait``: the fallback comes after the pool's queue has refused. ``fallback``: it comes before, and a request
    waits only when none of the pools could take it at once."""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.to is None) == (self.split is None):
            raise ValueError("a route has either `to` or `split`: give one of the two")
        return self

    def pools(self) -> tuple[str, ...]:
        """Every pool this route can reach."""
        first = (self.to,) if self.to else tuple(arm.pool for arm in self.split.arms) if self.split else ()
        return (*first, *self.fallback)


class PriceConfig(Section):
    """What an answered request costs: its tokens, itself, or both."""

    prompt: PerTokens | None = None
    """Per prompt token."""
    completion: PerTokens | None = None
    """Per token of the answer."""
    request: Amount | None = None
    """Per request that was answered, whatever its length."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.prompt is None) != (self.completion is None):
            raise ValueError("prompt and completion go together: write 0 for what is free")
        if self.prompt is None and self.request is None:
            raise ValueError("names no price: give prompt and completion, or request")
        return self

    @property
    def currency(self) -> str:
        """The same in the whole file."""
        return next(part.currency for part in (self.prompt, self.request) if part is not None)


class ModelConfig(Section):
    """A name that clients ask for, and where its requests go."""

    name: Glob
    """As clients write it; a glob such as ``gpt-*`` serves a family. An exact name wins over a glob."""
    routes: tuple[RouteConfig, ...] = Field(min_length=1)
    """Tried in order."""
    price: PriceConfig | None = None
    """What its use costs, for budgets and reports."""
