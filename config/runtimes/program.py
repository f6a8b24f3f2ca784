"""What the sections of other people's servers have, which are programs of their own."""

from pydantic import Field

from config.runtimes.base import RuntimeConfig
from config.schema.units import Duration


class ProgramRuntime(RuntimeConfig):
    """A program of its own. No shell is between: each argument arrives as it is written."""

    cwd: str | None = Field(None, min_length=1)
    """Its working directory; the gateway's when absent."""
    stop_timeout: Duration = 10.0
    """How long it may take to stop, once it is told to; then it is killed, with every process that came of it."""
