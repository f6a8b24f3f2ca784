"""``kind: vllm``: vLLM, if it is installed."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.runtimes.base import Argument
from config.runtimes.program import ProgramRuntime
from config.schema.units import Duration

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
