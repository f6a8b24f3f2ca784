"""The ``replicas`` of a runtime, as many as the demand needs, and the ``devices`` whose memory runtimes share."""

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.section import Conflict, Section
from config.schema.text import Name
from config.schema.units import Duration, Percent, Size
from config.schema.when import TimeConfig


class SharedDeviceConfig(Section):
    """Memory, of a GPU or of the machine, in which only some of the runtimes that use it are loaded at a time."""

    name: Name
    """Name of the device, for ``replicas.device`` of runtimes."""
    memory: Size
    """Memory of all runtimes that are loaded at the same time."""
    patience: Duration = 30.0
    """Time that a request waits for its model until the model takes precedence. Then another model is stopped for it,
    even if that one has requests, after those that it computes."""


MOST_REPLICAS = 256


class ReplicaScheduleConfig(Section):
    """Replicas that a window of time requires."""

    during: TimeConfig
    """Window of time, as in a route's ``when: {time: ...}``."""
    min: int = Field(ge=1, le=MOST_REPLICAS)
    """Replicas that run in the window at least."""


class ScaleConfig(Section):
    """The number of a pool's endpoints that serve."""

    min: int = Field(1, ge=0, le=MOST_REPLICAS)
    """Endpoints that always run. With 0 a request to a pool without an endpoint waits for the first one."""
    max: int | None = Field(None, ge=1, le=MOST_REPLICAS)
    """Number that is never exceeded; ``min`` when absent. Between the two, it follows the demand."""
    places: int | None = Field(None, ge=1)
    """Requests that one of them serves at the same time. When absent: the pool's ``queue.max_in_flight``, else
    ``max_num_seqs`` of a bundled LLM, else 8."""
    wait: Duration = 1.0
    """Objective: the longest wait in the pool's queue."""
    late: Percent = Field(0.01, gt=0, lt=1)
    """Share of the requests that may wait longer than ``wait``. The number has a margin over the mean demand, which
    grows and shrinks until the share is met."""
    hold: Duration = 600.0
    """Time after which one that is no longer needed is drained and stopped."""
    idle: Duration = 600.0
    """With ``min: 0``: time without a request after which the last one is stopped."""
    max_held: int = Field(1024, ge=1, le=65536)
    """With ``min: 0``: requests that may wait for the first one, each within its own deadline. More are refused with
    503 and the measured time of a start in ``retry-after``."""
    max_held_size: Size = 64 * 1024**2
    """With ``min: 0``: size of all these requests."""
    prewarm: bool = False
    """With ``min: 0``: start one before the hours of the day in which the pool's models were used yesterday or a week
    ago, by the recorded ``usage``."""
    schedule: tuple[ReplicaScheduleConfig, ...] = Field((), max_length=64)
    """Windows of time in which more than ``min`` run."""

    @property
    def most(self) -> int:
        """Number that can run at the same time."""
        return max(self.min, 1) if self.max is None else self.max

    @property
    def scales(self) -> bool:
        """Whether the number follows the demand."""
        return self.min < self.most

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.most:
            raise ValueError(f"min ({self.min}) exceeds max ({self.most})")
        for window in self.schedule:
            if window.min > self.most:
                raise ValueError(f"schedule: min ({window.min}) exceeds max ({self.most})")
        return self

    def conflicts(self) -> Iterator[Conflict]:
        if self.min == self.most:
            fields = ("places", "wait", "late", "occupancy", "hold", "schedule")
            yield from self.inert("has no effect: min and max are equal", *fields)
        if self.min != 0:
            yield from self.inert("has no effect: min is not 0", "prewarm", "idle", "max_held", "max_held_size")


class EndpointScaleConfig(ScaleConfig):
    """The number of a pool's endpoints that serve. An autoscaler outside of the gateway runs as many, such as KEDA. Or
    the gateway wakes as many of the written endpoints."""

    sleep: Literal[1, 2] | None = None
    """Put the other endpoints to sleep, which are vLLM servers, and wake them when they are needed. Level 1 holds the
    weights in the machine's memory; level 2 drops them and reads them again. For ``endpoints`` with ``protocol: {name:
    openai, dialect: vllm}``, of servers with ``VLLM_SERVER_DEV_MODE=1`` and ``--enable-sleep-mode``."""
    deployment: str | None = Field(None, min_length=1, max_length=256)
    """Deployment of a Ray Serve application whose number of replicas the gateway sets, for one endpoint with
    ``protocol: {name: ray-serve, application: ..., dashboard_port: ...}``. Deploy the application with
    ``external_scaler_enabled: true``, and without ``autoscaling_config``."""


class ReplicasConfig(ScaleConfig):
    """The replicas of a runtime. A number alone is short for ``{min: NUMBER, max: NUMBER}``."""

    min: int = Field(1, ge=0, le=MOST_REPLICAS)
    """Replicas that always run. With 0 the model starts for its first request, which waits for it. Each replica is a
    process of its own and an endpoint of the pool, with its own health check, breaker and restarts."""
    cpus: int | None = Field(None, ge=1)
    """Processor cores of one replica. When absent, the cores of the machine are divided evenly among ``max`` replicas.
    If there is one replica, or if there are more replicas than cores, each may use all cores."""
    gpus: int = Field(1, ge=1)
    """GPUs of one replica, in turn, on a machine with GPUs. ``CUDA_VISIBLE_DEVICES`` of the gateway, or of the
    runtime's ``env``, restricts them."""
    occupancy: Percent = Field(0.9, gt=0, le=1)
    """Share of the replicas' KV caches that may be in use before a replica is added. Bundled LLMs and vLLM report
    it."""
    device: Name | None = None
    """Name of one of ``devices``, whose memory the runtime shares with others. Needs ``min: 0``, ``max: 1`` and
    ``memory``."""
    memory: Size | None = None
    """Memory of the device that the runtime needs: weights, caches and the library's own."""
    pinned: bool = False
    """With ``device``: load it at the start, and never stop it for another model."""
    warm_up: bool = False
    """Let each new replica compute one token before it receives requests. For models of text; tensor models have their
    own ``warmup``."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"min": data} if isinstance(data, int) and not isinstance(data, bool) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        least = handler.resolve_ref_schema(reference)["properties"]["min"]
        return {"anyOf": [{"type": "integer", "minimum": least["minimum"], "maximum": least["maximum"]}, reference]}

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.device is None:
            yield from self.inert("has no effect without `device`", "memory", "pinned")
