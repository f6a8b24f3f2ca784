"""The ``models`` of the file: the routes of requests to pools, and the handling of failures."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from config.schema.balance import Priority
from config.schema.copies import CopiesConfig
from config.schema.embeddings import EmbeddingsConfig
from config.schema.experiment import ExperimentConfig
from config.schema.limits import QuotaConfig, Quotas
from config.schema.money import PriceConfig
from config.schema.pipelines.parts import PipelineTensorConfig
from config.schema.pipelines.pipeline import PipelineConfig
from config.schema.rewrite import RewriteConfig
from config.schema.rollout import RolloutArmConfig, RolloutConfig
from config.schema.section import Conflict, Section
from config.schema.target import FallbackConfig, SplitConfig, TargetConfig
from config.schema.telemetry import PayloadEventsConfig, TraceContentConfig
from config.schema.text import Glob, ModelName, Name, Shape, is_glob
from config.schema.units import DURATION, Delay, Duration, Percent, Size, format_duration, parse_duration
from config.schema.when import MatchConfig, Version


def _some_time(after: str) -> str:
    if not after.startswith("p") and parse_duration(after) <= 0:
        raise ValueError("a hedge needs a delay above 0: two requests at once double the load")
    return after


HedgeAfter = Annotated[
    str,
    Shape(rf"p[5-9]\d(\.\d)?|{DURATION}", "p95, or another percentile from p50 on, or a duration such as 200ms"),
    AfterValidator(_some_time),
]


class HedgeConfig(Section):
    """A second attempt on another endpoint while the first has not begun to answer. The first response wins; the other
    attempt is cancelled. Both use capacity of the upstream."""

    after: HedgeAfter = "p95"
    """Delay before the second attempt: a duration, or a percentile. ``p95`` is the time within which 95% of the route's
    recent responses began, measured from twenty responses on."""
    max: int = Field(1, ge=1, le=3)
    """Attempts beyond the first, each after the same delay again."""
    budget: Percent = 0.05
    """Hedges as a share of recent requests. Beyond it no further hedge is sent."""


class CacheConfig(Section):
    """Responses cached for identical requests, and one call for identical requests at the same time."""

    ttl: Delay = 600.0
    """How long a response is cached; ``0s`` only shares calls in flight."""
    max_bytes: Size = 64 * 1024**2
    """Memory for the route's responses in each worker. The least recently used response is evicted. A response larger
    than an eighth of this is not cached."""
    share: Literal["tenant", "key"] = "tenant"
    """Scope of the cache: all keys of a tenant, or each key. Tenants never share a cache."""
    only: Literal["deterministic", "all"] = "deterministic"
    """``deterministic``: requests with ``temperature`` 0 or a ``seed``. ``all``: every request, so that a sampled
    response is repeated."""


class ShadowConfig(CopiesConfig):
    """Copies of a route's requests to another target, after the client's answer. The answers of the copies are compared
    with those of the client, and reach no client."""

    name: Name | None = None
    """Name of the shadow, and key of its counts; that of the target when absent."""
    to: RolloutArmConfig
    """Target of the copies. A pool's name alone is short for ``{pool: NAME}``."""

    @property
    def label(self) -> str:
        """The name of the shadow."""
        return self.name or self.to.label


class DefaultModelsConfig(Section):
    """Default models by operation, for clients that leave ``model`` out, as OpenAI's API permits for some operations.
    Without a default such a request is refused."""

    chat: Name | None = None
    """For ``/v1/chat/completions``."""
    completions: Name | None = None
    """For ``/v1/completions``."""
    embeddings: Name | None = None
    """For ``/v1/embeddings``."""
    responses: Name | None = None
    """For ``/v1/responses`` and its ``input_tokens``."""
    images: Name | None = None
    """For ``/v1/images/…``."""
    moderations: Name | None = None
    """For ``/v1/moderations``."""
    audio: Name | None = None
    """For ``/v1/audio/…``."""
    rerank: Name | None = None
    """For ``/v1/rerank`` and its other paths."""
    score: Name | None = None
    """For ``/v1/score`` and ``/score``."""
    tokenize: Name | None = None
    """For ``/tokenize`` and ``/detokenize``."""
    classify: Name | None = None
    """For ``/v1/classify`` and its other paths."""
    ocr: Name | None = None
    """For ``/v1/ocr``."""

    def of(self, operation: str) -> str | None:
        """The default of one operation."""
        name: str | None = getattr(self, operation, None)
        return name


LONGEST_BACKOFF = 2.0
"""Maximum seconds before any retry."""


def _at_most_the_longest(backoff: float) -> float:
    if backoff > LONGEST_BACKOFF:
        raise ValueError(f"no retry waits longer than {format_duration(LONGEST_BACKOFF)}")
    return backoff


class RetryConfig(Section):
    """Further attempts within a pool. No request is retried after its first byte has reached the client."""

    attempts: int = Field(2, ge=1, le=10)
    """Attempts in all, the first included."""
    methods: Literal["idempotent", "all"] = "idempotent"
    """Which requests may be sent again while a server may compute them. ``idempotent``: of the calls of an app under
    ``/apps``, GET, PUT and DELETE. A chat, completion or Response is not sent again after a server was silent for too
    long. ``all``: any."""
    budget: Percent = 0.2
    """Retries as a share of recent requests. Beyond it a failure is final, which prevents retry storms."""
    backoff: Annotated[Delay, AfterValidator(_at_most_the_longest)] = 0.025
    """Longest wait before the first retry. It doubles for each further retry, up to 2 s. The actual wait is random
    below it."""

    def conflicts(self) -> Iterator[Conflict]:
        if self.attempts == 1:
            yield from self.inert("has no effect: attempts is 1, so nothing is retried", "budget", "backoff")


class TimeoutConfig(Section):
    """Bounds on every wait of a request."""

    first_byte: Duration = 300.0
    """Until an answer begins. Each sign of life in a stream, such as a comment, a ping or an opening event, starts it
    again, up to ``total``."""
    idle: Duration = 120.0
    """Between two chunks of a stream that has begun, comments included."""
    whole: Duration | None = None
    """Until a text that is not streamed is complete; ``total`` when absent. ``first_byte`` and ``idle`` do not apply to
    such a text."""
    total: Duration = 600.0
    """The whole request, with retries and fallbacks."""

    def conflicts(self) -> Iterator[Conflict]:
        message = f"has no effect: the total of {format_duration(self.total)} ends the request before"
        for field in ("first_byte", "idle", "whole"):
            if self.has(field) and getattr(self, field) > self.total:
                yield Conflict((field,), message, concerns_value=True)


class RouteConfig(Section):
    """Target of matching requests. The first route that matches wins."""

    name: Name | None = None
    """Name of the route, for scopes. Routes of several models may share a name."""
    when: MatchConfig = MatchConfig()
    """Conditions on the request; every request matches when absent."""
    otherwise: Literal[True] | None = Field(None, alias="else")
    """``true`` on the last route, instead of ``when``: requests that no other route matches."""
    to: Name | None = None
    """Pool that receives the requests."""
    split: SplitConfig | None = None
    """Several targets by weight, instead of ``to``."""
    rollout: RolloutConfig | None = None
    """A gradual move from one target to another, instead of ``to``."""
    experiment: ExperimentConfig | None = None
    """A comparison of several targets by values that clients report, instead of ``to``."""
    fallback: tuple[FallbackConfig, ...] = ()
    """Targets to try when that fails, in this order."""
    shadow: ShadowConfig | None = None
    """Copies of the requests to another target, whose answers are compared; none when absent."""
    rewrite: RewriteConfig | None = None
    """Changes to the request before it is forwarded."""
    retry: RetryConfig = RetryConfig()
    """Further attempts within one pool."""
    hedge: HedgeConfig | None = None
    """A second attempt while the first has not begun to answer; disabled when absent."""
    cache: CacheConfig | None = None
    """Cached responses and shared calls; disabled when absent."""
    timeout: TimeoutConfig = TimeoutConfig()
    """Bounds on every wait."""
    strict: bool = False
    """Refuse a request with a field that the model does not support. Otherwise the field is dropped, and the response
    header ``x-headrace-ignored`` lists it."""
    hide_model_errors: bool = False
    """Write the error text of a failed model to the access log only, and not to the client."""
    guards: tuple[Name, ...] = ()
    """Guards of the route's requests, beside those of the model and of tenants."""
    trace_content: TraceContentConfig | None = None
    """Texts of the route's requests and answers in exported traces; none when absent."""
    priority: Priority | None = None
    """Priority of the route's requests in a full pool; their tenant's when absent."""
    when_full: Literal["wait", "fallback"] = "wait"
    """``wait``: try the fallback after the pool's queue has refused. ``fallback``: try it first, and wait only when no
    pool can serve the request at once."""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if sum(target is not None for target in (self.to, self.split, self.rollout, self.experiment)) != 1:
            raise ValueError("a route has one target: give `to`, `split`, `rollout` or `experiment`")
        return self

    @property
    def target(self) -> TargetConfig:
        """The target of the route."""
        split = self.split if self.comparison is None else self.comparison.split
        return TargetConfig.model_construct(pool=self.to, split=split, fallback=self.fallback)

    @property
    def comparison(self) -> RolloutConfig | ExperimentConfig | None:
        """The rollout or the experiment."""
        return self.experiment if self.rollout is None else self.rollout

    def pools(self) -> tuple[str, ...]:
        """Every pool that this route can reach, except by another model."""
        return self.target.pools()

    def models(self) -> tuple[str, ...]:
        """Every other model that this route leads to: arms of a rollout or an experiment."""
        arms = () if self.comparison is None else self.comparison.sides
        return tuple(arm.model for arm in arms if arm.model is not None)

    def conflicts(self) -> Iterator[Conflict]:
        if self.otherwise:
            yield from self.inert("excludes `else`, which takes every request that no other route takes", "when")


class SignatureConfig(Section):
    """Inputs and outputs of a model of tensors, for the checks of pipelines. Its server receives no request for
    them."""

    inputs: tuple[PipelineTensorConfig, ...] = ()
    """Inputs that every request has."""
    outputs: tuple[PipelineTensorConfig, ...] = ()
    """Outputs."""


class ClientModelConfig(Section):
    """A model name that clients request, and its routes or its pipeline."""

    name: Glob
    """Name as clients write it. A glob such as ``gpt-*`` serves a family. An exact name takes precedence over a glob.
    """
    aliases: tuple[ModelName, ...] = ()
    """Other names of the model, which are no globs: ``claude-opus-4-6[1m]``. Allow-lists, limits, prices, logs and
    metrics use its ``name``."""
    listed: tuple[ModelName, ...] = Field((), max_length=1000)
    """With a glob as ``name``: names of the family that ``/v1/models`` lists. Requests for others are served too."""
    versions: tuple[Version, ...] = ()
    """Versions that clients may request as ``NAME@VERSION``, for routes to match."""
    routes: tuple[RouteConfig, ...] = ()
    """Routes, tried in order. A model has routes or a ``pipeline``."""
    pipeline: PipelineConfig | None = None
    """Steps that answer with other models of this file, instead of routes."""
    embeddings: EmbeddingsConfig | None = None
    """Lets a tensor model answer ``/v1/embeddings``; when absent it does not."""
    signature: SignatureConfig | None = None
    """Inputs and outputs, which the checks of pipelines compare; not compared when absent."""
    explainer: Name | None = None
    """Name of another model that answers ``/v1/models/NAME:explain``."""
    payload_events: PayloadEventsConfig | None = None
    """Sends requests and answers as CloudEvents; none when absent."""
    price: PriceConfig | None = None
    """Price of the model, for budgets and reports."""
    guards: tuple[Name, ...] = ()
    """Guards of all requests for the model, beside those of routes and of tenants."""
    limits: Quotas = ()
    """Limits of all tenants together, to protect the servers of the model."""

    @model_validator(mode="after")
    def _listed_names_match(self) -> Self:
        if self.listed and not is_glob(self.name):
            raise ValueError("`listed` is for a glob: a model with a name of its own is listed in any case")
        if other := next((name for name in self.listed if not fnmatchcase(name, self.name)), None):
            raise ValueError(f"`listed` has {other}, which the glob {self.name} does not match")
        return self

    @model_validator(mode="after")
    def _routes_or_pipeline(self) -> Self:
        if bool(self.routes) == (self.pipeline is not None):
            raise ValueError("a model has either `routes` or a `pipeline`: give one of the two")
        if self.pipeline is not None and self.signature is not None:
            raise ValueError("`signature` belongs to a model with routes: a pipeline has `inputs` and `outputs`")
        if self.pipeline is not None and self.embeddings is not None:
            raise ValueError("`embeddings` belongs to a model with routes: a pipeline names such a model in a step")
        return self

    def limit_list(self) -> tuple[QuotaConfig, ...]:
        """The model's limits, from either form."""
        return self.limits if isinstance(self.limits, tuple) else (self.limits,)

    def conflicts(self) -> Iterator[Conflict]:
        if is_glob(self.name):
            message = "belong to a model with one name: a glob serves each name that clients write"
            yield from (Conflict((name,), message) for name in ("aliases", "versions") if getattr(self, name))
        for index, route in enumerate(self.routes[:-1]):
            if route.otherwise:
                message = "must be the last route: no route after it is tried"
                yield Conflict(("routes", index, "else"), message, concerns_value=True)
