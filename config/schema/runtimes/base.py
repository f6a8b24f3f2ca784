"""The base of every runtime's section."""

from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, WithJsonSchema

from config.schema.protocols.base import Serves
from config.schema.runtimes.replicas import ReplicasConfig
from config.schema.section import Section
from config.schema.text import ENV_NAME, Secret, Shape
from config.schema.units import Duration


def _written_number(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Argument = Annotated[
    str,
    BeforeValidator(_written_number),
    Shape(r"[^\x00]*", "text without a NUL"),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
]
"""An argument. Numbers need no quotes."""
EnvName = Annotated[str, Shape(ENV_NAME, "the name of an environment variable")]


class RuntimeConfig(Section):
    """A server that the gateway starts, monitors, restarts and stops."""

    serves: ClassVar[frozenset[Serves] | None] = None
    """The operations of a bundled server; None for other servers, which have those of the pool's protocol."""

    kind: str
    """Kind of server."""
    start_timeout: Duration = 300.0
    """Longest time until a new server is ready. A reload that waits longer is refused."""
    env: dict[EnvName, Argument] = Field(default_factory=dict)
    """Environment variables. Of the gateway's own environment the server inherits those that programs need, such as
    ``PATH``, ``OMP_NUM_THREADS`` and ``HF_HOME``, and no credentials."""
    secrets: dict[EnvName, Secret] = Field(default_factory=dict)
    """Environment variables with secret values: ``${NAME}`` or ``file:PATH``. Every user of the machine can read
    arguments, but not these."""
    replicas: ReplicasConfig = ReplicasConfig()
    """Processes of this server: a number, or a number with options. A reload that changes only this section starts and
    drains processes, and leaves the others."""

    @property
    def server(self) -> Self:
        """The section of one server, whatever the number of its replicas."""
        return self.model_copy(update={"replicas": ReplicasConfig()})
