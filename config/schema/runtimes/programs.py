"""Servers of other projects, which are programs of their own: vLLM, and any that a command starts."""

import re
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from config.schema.runtimes.base import Argument, RuntimeConfig
from config.schema.text import ProbePath
from config.schema.units import Duration


class ProgramRuntime(RuntimeConfig):
    """A program of its own. No shell is involved: arguments are passed unchanged."""

    cwd: str | None = Field(None, min_length=1)
    """Working directory; the gateway's when absent."""
    stop_timeout: Duration = 10.0
    """Time to stop after the signal. Then the program and all its child processes are killed."""


_OURS = ("--model", "--served-model-name", "--uds", "--host", "--port", "--api-key", "--ssl-keyfile", "--ssl-certfile")


class VllmRuntime(ProgramRuntime):
    """One language model, served by ``vllm serve`` on a Unix socket."""

    kind: Literal["vllm"]
    """Selects this runtime."""
    start_timeout: Duration = 900.0
    """Longest time until a new server is ready; it loads, profiles and compiles first."""
    model: str = Field(min_length=1)
    """``hf:ORG/NAME[@REVISION]``, or the path of a safetensors folder, relative to the working directory."""
    args: tuple[Argument, ...] = ()
    """Further arguments of ``vllm serve``, such as ``[--max-model-len, 4096]``."""
    venv: str | None = Field(None, min_length=1)
    """Folder of the virtual environment with vLLM. When absent: Headrace's own, else the ``PATH``."""

    @model_validator(mode="after")
    def _not_ours(self) -> Self:
        if self.model.startswith("bundled:"):
            raise ValueError("bundled models are GGUF files, which vLLM does not read: name a folder or hf:ORG/NAME")
        for argument in self.args:
            name = argument.partition("=")[0].replace("_", "-")
            if name in _OURS:
                raise ValueError(f"{name} is not for `args`: the gateway sets the model and the address")
        return self


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
