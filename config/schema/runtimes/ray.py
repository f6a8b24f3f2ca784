"""``on: ray``: replicas of a bundled runtime as actors of a Ray cluster."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from config.schema.runtimes.base import RuntimeConfig
from config.schema.section import Conflict, Section
from config.schema.text import Name, Secret, Shape
from config.schema.units import Duration, Size

ClusterAddress = Annotated[
    str, Shape(r"auto|(?:ray://)?[^\s/:@]+:\d{1,5}", "`auto`, HOST:PORT or ray://HOST:PORT of a Ray cluster")
]
Amount = Annotated[float, Field(ge=0, le=1_000_000)]
ResourceName = Annotated[str, Shape(r"[A-Za-z][\w:.-]{0,63}", "the name of a resource of the cluster")]
_FETCHED = ("bundled:", "hf:", "/")
_BUILT_IN = {"CPU": "cpus", "GPU": "gpus", "memory": "memory"}


class RayConfig(Section):
    """The Ray cluster of a runtime. The gateway itself needs no Ray: a process of its own, the driver, connects."""

    address: ClusterAddress
    """``HOST:PORT`` of the cluster's head, ``ray://HOST:PORT`` of its client server, or ``auto``. Without ``ray://``
    the gateway's machine must be a node of the cluster."""
    namespace: Name = "headrace"
    """Namespace of the actors. Gateways with the same namespace share the replicas of equal runtimes."""
    key: Secret | None = None
    """Key that the replicas demand, as ``${NAME}`` or ``file:PATH``. Without a key, everything that reaches the ports
    of the nodes can use the models."""
    driver: str | None = Field(None, min_length=1)
    """Python interpreter with Ray on the gateway's machine, of the versions of the cluster; the gateway's own when
    absent."""
    python: str | None = Field(None, min_length=1)
    """Python interpreter with Headrace on the nodes; Ray's own when absent."""
    strategy: Literal["spread", "strict_spread", "pack"] = "spread"
    """Placement of the replicas. ``spread``: each on a node of its own, and on a shared node when no other node has the
    resources. ``strict_spread``: at most one on a node; a replica without a node waits. ``pack``: on as few as Ray can.
    """
    lease: Duration = Field(120.0, ge=5, le=86400)
    """Time for which a replica continues without a gateway. A gateway that starts again within it uses the replica as
    it is."""


class ResourcesConfig(Section):
    """The resources of one replica on its node. Ray reserves them."""

    cpus: Amount = 1.0
    """Processor cores. The ``threads`` of an LLM follow unless they are written."""
    gpus: Amount = 0.0
    """GPUs; a fraction shares one."""
    memory: Size | None = None
    """Memory of the node."""
    custom: dict[ResourceName, Annotated[float, Field(ge=0.0001, le=1_000_000)]] = Field({}, max_length=16)
    """Resources that the nodes declare themselves, such as ``{a100: 1}``."""

    @model_validator(mode="after")
    def _not_built_in(self) -> Self:
        for name in self.custom:
            if (field := _BUILT_IN.get(name)) is not None:
                raise ValueError(f"custom: {name} is not a custom resource: write `{field}`")
        return self

    def required(self) -> dict[str, float]:
        """The amounts by Ray's names, without those that are 0."""
        amounts: dict[str, Any] = {"CPU": self.cpus, "GPU": self.gpus, "memory": float(self.memory or 0), **self.custom}
        return {name: amount for name, amount in amounts.items() if amount}


class PlacedRuntime(RuntimeConfig):
    """A bundled runtime, which can run on the gateway's machine or in a Ray cluster."""

    on: Literal["local", "ray"] = "local"
    """``local``: processes of the gateway's machine. ``ray``: actors of a Ray cluster, on any of its nodes."""
    ray: RayConfig | None = None
    """With ``on: ray``: the cluster."""
    resources: ResourcesConfig | None = None
    """With ``on: ray``: the resources of one replica. When absent: one core."""

    @property
    def required(self) -> ResourcesConfig:
        """The resources of one replica in a Ray cluster."""
        return self.resources or ResourcesConfig()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.on == "ray" and self.ray is None:
            raise ValueError("`on: ray` needs `ray: {address: ...}`")
        return self

    def conflicts(self) -> Iterator[Conflict]:
        if self.on == "local":
            yield from self.inert("has no effect without `on: ray`", "ray", "resources")
            return
        messages = dict.fromkeys(("cpus", "gpus"), "is for the gateway's machine: with `on: ray`, write `resources`")
        messages["device"] = "is for the gateway's machine: Ray places each replica on its own resources"
        for field, message in messages.items():
            if self.replicas.has(field):
                yield Conflict(("replicas", field), message)
        field = "model" if self.kind == "llm" else "repository"
        written = getattr(self, field)
        places = [written] if isinstance(written, str) else written
        if not all(each.startswith(_FETCHED) or "://" in each for each in places):
            message = "is relative to the working directory, which nodes do not have: write the path on the nodes"
            yield Conflict((field,), message, concerns_value=True)
