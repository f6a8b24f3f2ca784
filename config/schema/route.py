"""The ``models`` part of the file: which requests go to which pools, and what happens when one fails."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from config.schema.embeddings import EmbeddingsConfig
from config.schema.limits import QuotaConfig, Quotas
from config.schema.money import Amount, PerTokens
from config.schema.queue import Priority
from config.schema.resilience import CacheConfig, HedgeConfig
from config.schema.rewrite import RewriteConfig
from config.schema.section import Section
from config.schema.target import FallbackConfig, SplitConfig, TargetConfig
from config.schema.text import Glob, Name
from config.schema.units import Delay, Duration, Percent, format_duration
from config.schema.when import MatchConfig, Version

LONGEST_BACKOFF = 2.0
"""Seconds that any retry waits at most."""


def _at_most_the_longest(backoff: float) -> float:
    if backoff > LONGEST_BACKOFF:
        raise ValueError(f"no retry waits longer than {format_duration(LONGEST_BACKOFF)}")
    return backoff


class RetryConfig(Section):
    """A second try elsewhere. Never after the first byte has gone to the client."""

    attempts: int = Field(2, ge=1, le=10)
    """Tries in all, the first included."""
    methods: Literal["idempotent", "all"] = "idempotent"
    """Of calls of an app under ``/apps``: which are sent again where a server may have begun on them, be it to another
    endpoint or to a fallback. ``idempotent``: GET, PUT and DELETE. ``all``: POST and PATCH too."""
    budget: Percent = 0.2
    """Retries as a share of recent requests; beyond it a failure is final, so retries cannot become a storm."""
    backoff: Annotated[Delay, AfterValidator(_at_most_the_longest)] = 0.025
    """Longest wait before the first retry; it doubles for each next one up to 2 s, and the real wait is drawn below
    it."""


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
    otherwise: Literal[True] | None = Field(None, alias="else")
    """``true`` on the last route, in the place of ``when``: the requests that no other one takes."""
    to: Name | None = None
    """The pool to send them to."""
    split: SplitConfig | None = None
    """Or several, by weight."""
    fallback: tuple[FallbackConfig, ...] = ()
    """Where to go next when that fails, tried in this order."""
    rewrite: RewriteConfig | None = None
    """What the upstream is sent instead of what the client wrote."""
    retry: RetryConfig = RetryConfig()
    """Second tries within one pool."""
    hedge: HedgeConfig | None = None
    """A second attempt while the first has not begun; none when absent."""
    cache: CacheConfig | None = None
    """Answers kept, and calls shared; none when absent."""
    timeout: TimeoutConfig = TimeoutConfig()
    """How long to wait for what."""
    strict: bool = False
    """Whether a field that the model has no use for is refused. Otherwise it is left out, and the answer's header
    ``x-headrace-ignored`` lists it."""
    hide_model_errors: bool = False
    """Whether a failed model's own report goes to the access log only, and not to clients too."""
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

    @property
    def target(self) -> TargetConfig:
        """Where it leads."""
        return TargetConfig.model_construct(pool=self.to, split=self.split, fallback=self.fallback)

    def pools(self) -> tuple[str, ...]:
        """Every pool this route can reach."""
        return self.target.pools()


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
    aliases: tuple[Name, ...] = ()
    """Other names for it. Allow-lists, limits, prices, logs and metrics know it by its own."""
    versions: tuple[Version, ...] = ()
    """Versions that clients may ask for as ``NAME@VERSION``, for routes to look at."""
    routes: tuple[RouteConfig, ...] = Field(min_length=1)
    """Tried in order."""
    embeddings: EmbeddingsConfig | None = None
    """How a model of tensors answers ``/v1/embeddings``; when absent it does not."""
    explainer: Name | None = None
    """Another model, which explains this one's answers: ``/v1/models/NAME:explain`` asks it."""
    price: PriceConfig | None = None
    """What its use costs, for budgets and reports."""
    limits: Quotas = ()
    """How much all tenants together may use of it, for the sake of what serves it."""

    def limit_list(self) -> tuple[QuotaConfig, ...]:
        """Its limits in whichever form they were written."""
        return self.limits if isinstance(self.limits, tuple) else (self.limits,)
