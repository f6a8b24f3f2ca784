"""Servers that the gateway starts: one section for each kind.

base.py          the base of every section
replicas.py      several processes of one server; devices whose memory runtimes share
ray.py           bundled runtimes in a Ray cluster
bundled.py       the bundled LLM engine and tensor runtime
repositories.py  where the models of the tensor runtime are
programs.py      vLLM, and any server that a command starts
"""

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict

from config.schema.runtimes.base import RuntimeConfig
from config.schema.runtimes.bundled import LlmRuntime, TensorRuntime
from config.schema.runtimes.programs import CommandRuntime, ProgramRuntime, VllmRuntime
from config.schema.runtimes.replicas import EndpointScaleConfig, ReplicasConfig, ScaleConfig
from config.schema.section import any_of, by_kind

__all__ = [
    "KINDS", "AnyRuntime", "CommandRuntime", "EndpointScaleConfig", "LlmRuntime", "ProgramRuntime", "ReplicasConfig",
    "RuntimeConfig", "ScaleConfig", "TensorRuntime", "VllmRuntime",
]  # fmt: skip

_SECTIONS: tuple[type[RuntimeConfig], ...] = (LlmRuntime, TensorRuntime, VllmRuntime, CommandRuntime)

KINDS: dict[str, type[RuntimeConfig]] = by_kind(_SECTIONS)
"""The section of each kind."""


class _NoKind(RuntimeConfig):
    """The section for a missing or unknown kind: it validates only `kind`, and so reports the valid kinds."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["llm", "tensor", "vllm", "command"]


if TYPE_CHECKING:
    AnyRuntime = RuntimeConfig
else:
    AnyRuntime = any_of(KINDS, _NoKind)
    """Any runtime's section."""
