"""How a pool spreads its requests: ``balance`` and ``outliers`` of a pool, and what servers report of themselves."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.schema.section import Section
from config.schema.text import Shape
from config.schema.units import Delay, Duration, Percent

HashKey = Annotated[
    str, Shape(r"user|key|tenant|header:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", "user, key, tenant or header:NAME")
]
MetricsPath = Annotated[str, Shape(r"/\S{0,512}", "a path such as /metrics")]


class SignalsConfig(Section):
    """Where an endpoint tells how busy it is."""

    server: Literal[
        "auto", "vllm", "sglang", "llama.cpp", "tgi", "tensorrt-llm", "triton-tensorrt-llm", "triton", "openvino",
        "ray", "bentoml", "torchserve", "headrace",
    ] = "auto"  # fmt: skip
    """Whose metrics they are; ``auto``: whichever of the known names are found."""
    path: MetricsPath = "/metrics"
    """A GET of this path gives metrics in Prometheus' text format, or TensorRT-LLM's in JSON; of TorchServe
    ``/models/NAME`` of its management API gives how many requests wait."""
    port: int | None = Field(None, ge=1, le=65535)
    """Port of the metrics, where it is another than the endpoint's: Triton's is 8002."""
    interval: Duration = 1.0
    """Between two looks, spread by a tenth. What was read counts half as much three intervals later."""
    timeout: Duration = 1.0
    """A look that is not answered by then has failed."""


class BalanceConfig(Section):
    """How a pool picks an endpoint."""

    by: Literal["round_robin", "random", "least_request", "peak_ewma", "load", "hash", "prefix_affinity"] = (
        "least_request"
    )
    """``least_request``: the less loaded of two drawn at random. ``round_robin``: in turn, by weight.
    ``random``: drawn by weight. ``peak_ewma``: the quicker of two, by their latency and load. ``load``: the less
    busy of two, by what the servers themselves report. ``hash``: the same one for the same `key`.
    ``prefix_affinity``: the one that computed the prompt's beginning before."""
    key: HashKey | None = None
    """For ``hash``: ``user`` (the request's user field), ``key``, ``tenant`` or ``header:NAME``. Requests
    without it go by ``least_request``."""
    bound: Percent = 1.5
    """For ``hash`` and ``prefix_affinity``: how loaded an endpoint may be, against its fair share or against
    the least loaded one, before its requests go elsewhere."""
    signals: SignalsConfig = SignalsConfig()
    """For ``load``: where the servers report it."""
    slow_start: Delay = 0.0
    """How long an endpoint that is new or came back takes to climb from a tenth of its weight to all of it."""
    panic: Percent = 0.0
    """When fewer than this share of the endpoints is healthy, health is ignored; ``0%``: never."""
    zone_traffic: Percent | None = None
    """Share of all requests that come in through gateways of this zone. As much as any other zone's when absent."""

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


class OutliersConfig(Section):
    """Leaves alone an endpoint that fails more than the others do, though never often in a row."""

    failures: Percent = 0.2
    """Share of its requests that must fail, and be twice the share that fails at the others."""
    window: Duration = 30.0
    """How far back is looked; older requests count less and less."""
    requests: int = Field(20, ge=1)
    """Requests in that time below which it is not judged."""
    leave_for: Duration = 30.0
    """How long it is left alone the first time; twice as long each time it fails again soon after."""
    at_most: Percent = 0.3
    """Share of the pool that may be left alone at once, one endpoint at least and never the last."""

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if not 0 < self.failures <= 1:
            raise ValueError("a share of failures is above 0% and at most 100%")
        if not 0 < self.at_most <= 1:
            raise ValueError("a share of the pool is above 0% and at most 100%")
        return self
