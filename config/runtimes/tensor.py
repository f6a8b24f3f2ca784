"""``kind: tensor``: the bundled server of a repository of models of any framework."""

from typing import Literal

from pydantic import Field

from config.runtimes.bundled import BundledModel
from config.runtimes.ray import PlacedRuntime
from config.schema.text import Name
from config.schema.units import Duration, Size


class TensorRuntime(PlacedRuntime):
    """A repository of models of any framework, served by Headrace's tensor runtime."""

    serves = frozenset({"tensors"})

    kind: Literal["tensor"]
    """Selects this runtime."""
    repository: str = Field(min_length=1)
    """Folder of models in Triton's layout, relative to the working directory."""
    bundled: tuple[BundledModel, ...] = ()
    """Small models of ``headrace models list`` that are downloaded into ``repository`` at the start, if it lacks them.
    """
    mode: Literal["none", "explicit", "poll"] = "none"
    """Models that the runtime serves. ``none``: all, loaded once. ``explicit``: those in ``models``, and those that
    operators load. ``poll``: all, following changes of the folder."""
    models: tuple[Name, ...] = ()
    """With ``explicit``: names of the models to load at the start."""
    poll_interval: Duration = 5.0
    """With ``poll``: time between two scans of the folder."""
    memory: Size | None = None
    """Memory of all loaded models. Idle models are unloaded for others, and loaded again by their next request.
    Unbounded when absent."""
    cache: Size = 64 * 1024**2
    """Memory for cached responses of all models with a response cache."""
