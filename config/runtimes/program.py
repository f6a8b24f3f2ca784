"""What the sections of other people's servers have, which are programs of their own."""

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from config.runtimes.base import RuntimeConfig
from config.text import ENV_NAME, Secret, Shape
from config.units import Duration


def _written_number(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Argument = Annotated[
    str,
    BeforeValidator(_written_number),
    Shape(r"[^\x00]*", "text without a NUL"),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
]
"""Numbers need no quotes."""
EnvName = Annotated[str, Shape(ENV_NAME, "the name of an environment variable")]


class ProgramRuntime(RuntimeConfig):
    """A program in the gateway's environment. No shell is between: each argument arrives as it is written."""

    env: dict[EnvName, Argument] = Field(default_factory=dict)
    """Environment variables beside the gateway's own, which it inherits."""
    secrets: dict[EnvName, Secret] = Field(default_factory=dict)
    """Those whose values are secret: ``${NAME}`` or ``file:PATH``. Arguments can be read by every user of the machine,
    these cannot."""
    cwd: str | None = Field(None, min_length=1)
    """Its working directory; the gateway's when absent."""
    stop_timeout: Duration = 10.0
    """How long it may take to stop, once it is told to; then it is killed, with every process that came of it."""
