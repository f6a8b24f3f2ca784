"""The command line, the environment and the name of a replica on its node."""

import re
from hashlib import blake2b
from typing import Any

import msgspec

from config.schema.config import LlmRuntime, TensorRuntime
from config.schema.runtimes.ray import PlacedRuntime
from gateway.features.placement.arguments import llm_arguments, tensor_arguments

KEY_VARIABLE = "HEADRACE_RUNTIME_KEY"
STOP_SECONDS = 40.0
"""Seconds between SIGTERM and SIGKILL: the server finishes its requests."""


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A replica, as the driver receives it."""

    name: str
    """The name of its actor: pool, number and a digest of everything that the server depends on."""
    group: str
    """The replicas that `strategy` places with regard to each other, as a part of a resource's name."""
    namespace: str
    python: str | None
    command: list[str]
    """Arguments of the interpreter. ``{host}`` and ``{port}`` are those of the node."""
    env: dict[str, str]
    resources: dict[str, float]
    strategy: str
    lease: float
    stop_seconds: float = STOP_SECONDS


def spec_of(pool: str, number: int, config: PlacedRuntime) -> ReplicaSpec:
    """The replica `number` of a pool's runtime."""
    assert config.ray is not None
    ray, env = config.ray, dict(config.env)
    env |= {name: value.get_secret_value() for name, value in config.secrets.items()}
    if ray.key is not None:
        env[KEY_VARIABLE] = ray.key.get_secret_value()
    spec = ReplicaSpec(
        name="",
        group="",
        namespace=ray.namespace,
        python=ray.python,
        command=_command(pool, config),
        env=env,
        resources=config.required.required(),
        strategy=ray.strategy,
        lease=ray.lease,
    )
    digest = blake2b(msgspec.json.encode(spec, order="sorted"), digest_size=6).hexdigest()
    group = re.sub(r"\W", "_", f"{pool}_{digest}")
    return msgspec.structs.replace(spec, name=f"{pool}/{number}#{digest}", group=group)


def _command(pool: str, config: PlacedRuntime) -> list[str]:
    line = ["-m", f"runtimes.{config.kind}", "--host", "{host}", "--exit-with-parent"]
    if isinstance(config, LlmRuntime):
        return [*line, "--port", "{port}", *llm_arguments(pool, config, int(config.required.cpus))]
    assert isinstance(config, TensorRuntime)
    return [*line, "--http-port", "{port}", *tensor_arguments(config)]


def describe(spec: ReplicaSpec) -> dict[str, Any]:
    """The message that places a replica."""
    return {"place": msgspec.to_builtins(spec)}
