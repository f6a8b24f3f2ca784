"""``kind: tensor``: the bundled server of a repository of models of any framework."""

from typing import Literal

from pydantic import Field

from config.runtimes.base import RuntimeConfig
from config.schema.text import Name
from config.schema.units import Duration, Size


class TensorRuntime(RuntimeConfig):
    """A folder of models of any framework, served by Headrace's own runtime."""

    serves = frozenset({"tensors"})

    kind: Literal["tensor"]
    """A repository of models."""
    repository: str = Field(min_length=1)
    """Folder of models in Triton's layout, relative to the working directory."""
    mode: Literal["none", "explicit", "poll"] = "none"
    """Which are served. ``none``: all, once. ``explicit``: those of ``models``, and what
    operators load. ``poll``: as the folder changes."""
    models: tuple[Name, ...] = ()
    """With ``explicit``: by name."""
    poll_interval: Duration = 5.0
    """With ``poll``: between two looks into the folder."""
    memory: Size | None = None
    """What all loaded models may take; idle ones make way, and come back with their next request. No bound when
    absent."""
    cache: Size = 64 * 1024**2
    """Memory for kept answers, of all models that have a response cache."""
