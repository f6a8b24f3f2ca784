"""The base of sections for servers of other projects, which are programs of their own."""

from pydantic import Field

from config.runtimes.base import RuntimeConfig
from config.schema.units import Duration


class ProgramRuntime(RuntimeConfig):
    """A program of its own. No shell is involved: arguments are passed unchanged."""

    cwd: str | None = Field(None, min_length=1)
    """Working directory; the gateway's when absent."""
    stop_timeout: Duration = 10.0
    """Time to stop after the signal. Then the program and all its child processes are killed."""
