"""The processor cores and GPUs of one replica of a runtime."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from config.schema.config import RuntimeConfig
from config.schema.runtimes.bundled import LlmRuntime
from config.schema.runtimes.ray import PlacedRuntime

GPUS = "CUDA_VISIBLE_DEVICES"
THREADS = "OMP_NUM_THREADS"
T = TypeVar("T")


class Place(NamedTuple):
    """Cores and GPUs; empty for all."""

    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()

    def variables(self, config: RuntimeConfig) -> dict[str, str]:
        """The environment variables by which libraries use the place, unless the section sets them."""
        variables = {GPUS: ",".join(self.gpus)} if self.gpus else {}
        if self.cores:
            variables[THREADS] = str(len(self.cores))
        return {name: value for name, value in variables.items() if name not in config.env}


EVERYWHERE = Place()


def place_of(config: RuntimeConfig, number: int) -> Place:
    """The place of the replica `number`. Replicas that together exceed the machine share cores or GPUs. In a Ray
    cluster, Ray places it."""
    if isinstance(config, PlacedRuntime) and config.on == "ray":
        return EVERYWHERE
    replicas = config.replicas
    if replicas.most == 1:
        return Place(_turn(_cores(), replicas.cpus or 0, number))
    share = replicas.cpus or len(_cores()) // replicas.most
    return Place(_turn(_cores(), share, number), _turn(_gpus(config), replicas.gpus, number))


def _turn(present: Sequence[T], share: int, number: int) -> tuple[T, ...]:
    """The part of the replica `number`, in turn. Empty for all."""
    if not share or share >= len(present):
        return ()
    return tuple(present[(number * share + step) % len(present)] for step in range(share))


def _cores() -> list[int]:
    """The cores that this process may use; empty on systems that cannot restrict a process to some."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _gpus(config: RuntimeConfig) -> list[str]:
    if GPUS in config.env or (isinstance(config, LlmRuntime) and config.device == "cpu"):
        return []
    if (visible := os.environ.get(GPUS)) is not None:
        return [name for name in visible.split(",") if name]
    numbers = (match[1] for path in Path("/dev").glob("nvidia*") if (match := re.fullmatch(r"nvidia(\d+)", path.name)))
    return sorted(numbers, key=int)
