"""``kind: command``: any other server."""

import re
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from config.runtimes.base import Argument
from config.runtimes.program import ProgramRuntime
from config.schema.text import ProbePath

PLACES = re.compile(r"\{(port|socket)(?::([a-z][a-z0-9_-]{0,31}))?\}")
"""``{port}``, ``{port:NAME}`` and ``{socket}``. Other braces are not changed."""
StopSignal = Literal["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP"]


class CommandRuntime(ProgramRuntime):
    """Any server that a command starts and that stays in the foreground."""

    kind: Literal["command"]
    """Selects this runtime."""
    command: tuple[Argument, ...] = Field(min_length=1)
    """Program and arguments. ``{port}`` becomes a free port, ``{socket}`` the path of a Unix socket; use the one that
    the server listens on. ``{port:NAME}`` is a further port, for metrics and the like. They also work in ``env``."""
    ready: ProbePath | None = None
    """Path that is answered with 200 when the server is ready. When absent: the readiness check of the pool's protocol.
    """
    stop_signal: StopSignal = "SIGTERM"
    """Signal that stops the server."""

    @property
    def listens(self) -> str | None:
        """``port`` or ``socket``; None for neither or both."""
        places = {match[1] for text in self._texts() for match in PLACES.finditer(text) if match[2] is None}
        return places.pop() if len(places) == 1 else None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.listens is None:
            raise ValueError("does not set where to listen: write either {port} or {socket}, in command or env")
        return self

    def _texts(self) -> Iterator[str]:
        yield from self.command
        yield from self.env.values()
