"""Servers that the gateway starts: one section for each kind.

base.py      the base of every section
replicas.py  several processes of one server
device.py    memory that runtimes share
ray.py       bundled runtimes in a Ray cluster
llm.py       the bundled LLM engine
tensor.py    the bundled tensor runtime; bundled.py: the small models that it adds
code.py      the tensor runtime of the Python files of pipelines
program.py   the base of programs of other projects
vllm.py      vLLM
command.py   any server that a command starts
"""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Discriminator, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.runtimes.base import RuntimeConfig
from config.runtimes.command import CommandRuntime
from config.runtimes.llm import LlmRuntime
from config.runtimes.program import ProgramRuntime
from config.runtimes.replicas import EndpointScaleConfig, ReplicasConfig, ScaleConfig
from config.runtimes.tensor import TensorRuntime
from config.runtimes.vllm import VllmRuntime

__all__ = [
    "KINDS", "AnyRuntime", "CommandRuntime", "EndpointScaleConfig", "LlmRuntime", "ProgramRuntime", "ReplicasConfig",
    "RuntimeConfig", "ScaleConfig", "TensorRuntime", "VllmRuntime",
]  # fmt: skip

_SECTIONS: tuple[type[RuntimeConfig], ...] = (LlmRuntime, TensorRuntime, VllmRuntime, CommandRuntime)

KINDS: dict[str, type[RuntimeConfig]] = {
    get_args(section.model_fields["kind"].annotation)[0]: section for section in _SECTIONS
}
"""The section of each kind."""

_NONE = "[no kind]"


class _NoKind(RuntimeConfig):
    """The section for a missing or unknown kind: it validates only `kind`, and so reports the valid kinds."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["llm", "tensor", "vllm", "command"]


def _tag(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"[{kind}]" if isinstance(kind, str) and kind in KINDS else _NONE


class _Kinds:
    """Restricts the JSON Schema to the real kinds."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        generated: dict[str, Any] = handler(schema)
        return {"oneOf": generated["oneOf"][:-1]}


if TYPE_CHECKING:
    AnyRuntime = RuntimeConfig
else:
    _FORMS = [Annotated[section, Tag(f"[{kind}]")] for kind, section in KINDS.items()]
    AnyRuntime = Annotated[reduce(or_, [*_FORMS, Annotated[_NoKind, Tag(_NONE)]]), Discriminator(_tag), _Kinds()]
    """Any runtime's section."""
