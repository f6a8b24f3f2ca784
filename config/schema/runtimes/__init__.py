"""Servers that the gateway starts: one section for each kind.

base.py      the base of every section
replicas.py  several processes of one server; devices whose memory runtimes share
ray.py       bundled runtimes in a Ray cluster
bundled.py   the bundled LLM engine and tensor runtime
programs.py  vLLM, and any server that a command starts
"""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Discriminator, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.runtimes.base import RuntimeConfig
from config.schema.runtimes.bundled import LlmRuntime, TensorRuntime
from config.schema.runtimes.programs import CommandRuntime, ProgramRuntime, VllmRuntime
from config.schema.runtimes.replicas import EndpointScaleConfig, ReplicasConfig, ScaleConfig

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
