"""The ``balance``, ``outliers`` and ``queue`` of a pool, and the load that servers report."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.schema.section import Conflict, Section
from config.schema.text import Shape
from config.schema.units import Delay, Duration, Percent

Priority = Literal["high", "normal", "low", "batch"]
"""Lines of batches have ``batch``, below everything live. Other requests may have it too."""


class QueueConfig(Section):
    """Lets requests wait while every endpoint of the pool is full."""

    max: int = Field(256, ge=1)
    """Requests that may wait. At the bound, a new request replaces one of lower priority, or one of the tenant with
    most waiting requests for its share. If there is none, it is refused with 503."""
    timeout: Duration = 30.0
    """Longest wait. A request whose expected wait is longer, by the pool's current rate, is refused at once."""
    max_in_flight: int | None = Field(None, ge=1)
    """Requests in flight at one endpoint; further ones wait. When absent: ``max_connections``, or ``max_num_seqs`` of a
    bundled runtime."""
    lower_priorities: Percent = 0.0
    """Share that each lower priority receives for each turn of a higher one. ``0%``: it waits until no request of
    higher priority does."""

    @model_validator(mode="after")
    def _lower(self) -> Self:
        if self.lower_priorities > 0.5:
            raise ValueError("lower priorities have at most 50% of a turn each")
        return self


HashKey = Annotated[
    str, Shape(r"user|key|tenant|header:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", "user, key, tenant or header:NAME")
]
MetricsPath = Annotated[str, Shape(r"/\S{0,512}", "a path such as /metrics")]


class SignalsConfig(Section):
    """Source of an endpoint's reported load."""

    server: Literal[
        "auto", "vllm", "sglang", "llama.cpp", "tgi", "tensorrt-llm", "triton-tensorrt-llm", "triton", "openvino",
        "ray", "bentoml", "torchserve", "headrace",
    ] = "auto"  # fmt: skip
    """Format of the metrics. ``auto`` uses every metric name that it recognises."""
    path: MetricsPath = "/metrics"
    """Path of the metrics, in Prometheus' text format or TensorRT-LLM's JSON. For TorchServe, ``/models/NAME`` of the
    management API reports the number of waiting requests."""
    port: int | None = Field(None, ge=1, le=65535)
    """Port of the metrics, if it differs from the endpoint's. Triton uses 8002."""
    interval: Duration = 1.0
    """Time between two reads, with a jitter of a tenth. The weight of a value halves after three intervals."""
    timeout: Duration = 1.0
    """Longest wait for one read."""


class BalanceConfig(Section):
    """Selection of an endpoint by a pool."""

    by: Literal["round_robin", "random", "least_request", "peak_ewma", "load", "hash", "prefix_affinity", "quota"] = (
        "least_request"
    )
    """``least_request``: the less loaded of two random endpoints. ``round_robin``: in turn, by weight. ``random``: at
    random, by weight. ``peak_ewma``: the faster of two, by latency and load. ``load``: the less busy of two, by the
    load that the servers report. ``hash``: the same endpoint for the same `key`. ``prefix_affinity``: the endpoint that
    has computed the beginning of the prompt. ``quota``: the endpoint whose provider has the largest share of its quota
    left, by the headers of its answers and the endpoint's ``limits``."""
    key: HashKey | None = None
    """With ``hash``: ``user`` (the request's user field), ``key``, ``tenant`` or ``header:NAME``. Requests without it
    are balanced by ``least_request``."""
    bound: Percent = 1.5
    """With ``hash`` and ``prefix_affinity``: load of an endpoint, relative to its fair share or to the least loaded
    endpoint, beyond which its requests go elsewhere."""
    signals: SignalsConfig = SignalsConfig()
    """With ``load``: where the servers report it."""
    slow_start: Delay = 0.0
    """Time in which a new or recovered endpoint rises from a tenth of its weight to all of it."""
    panic: Percent = 0.0
    """Share of healthy endpoints below which health is ignored; ``0%`` for never."""
    locality: Literal["shares", "nearest"] = "shares"
    """With the gateway's `zone`. ``shares``: the own zone first, as far as its capacity suffices for its share of the
    traffic. ``nearest``: the own zone, then the own region (`regions`), then the world. A farther one is used only
    while no endpoint of a nearer one is eligible: all are unhealthy, stopped by their breakers or full."""
    zone_traffic: Percent | None = None
    """Share of all requests that arrive through gateways of this zone. Zones are assumed equal when absent."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.by == "hash" and self.key is None:
            raise ValueError("hash needs a key: user, key, tenant or header:NAME")
        if self.bound <= 1:
            raise ValueError("a bound is above 100%, which is an even load")
        if self.panic > 1:
            raise ValueError("a panic threshold is at most 100%")
        if self.zone_traffic is not None and not 0 < self.zone_traffic <= 1:
            raise ValueError("a zone's traffic is above 0% and at most 100%")
        return self

    def conflicts(self) -> Iterator[Conflict]:
        if self.by != "hash":
            yield from self.inert(f"has no effect: {self.by} uses no key, only hash does", "key")
        if self.by not in ("hash", "prefix_affinity"):
            message = f"has no effect: {self.by} binds no request to an endpoint, only hash and prefix_affinity do"
            yield from self.inert(message, "bound")
        if self.by != "load":
            message = f"has no effect: {self.by} does not use the load that servers report, only load does"
            yield from self.inert(message, "signals")
        if self.locality == "nearest":
            if self.by == "hash":
                yield from self.inert(
                    "has no effect: hash sends a key to the same endpoint from every zone", "locality"
                )
            yield from self.inert("has no effect: the locality is nearest", "zone_traffic")


class OutliersConfig(Section):
    """Ejects an endpoint that fails more often than the others, even if never several times in a row."""

    failures: Percent = 0.2
    """Share of its requests that must fail, and that must be twice the share of the other endpoints."""
    window: Duration = 30.0
    """Time constant of the statistics; older requests count less."""
    requests: int = Field(20, ge=1)
    """Requests within the window below which an endpoint is not judged."""
    leave_for: Duration = 30.0
    """Duration of the first ejection; doubled each time the endpoint fails again soon after."""
    at_most: Percent = 0.3
    """Share of the pool that may be ejected at once: at least one endpoint, never the last."""

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if not 0 < self.failures <= 1:
            raise ValueError("a share of failures is above 0% and at most 100%")
        if not 0 < self.at_most <= 1:
            raise ValueError("a share of the pool is above 0% and at most 100%")
        return self
