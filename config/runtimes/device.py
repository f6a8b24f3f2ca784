"""The ``devices`` of the file: memory that several runtimes share, one after the other."""

from config.schema.section import Section
from config.schema.text import Name
from config.schema.units import Duration, Size


class SharedDeviceConfig(Section):
    """Memory, of a GPU or of the machine, in which only some of the runtimes that use it are loaded at a time."""

    name: Name
    """Name of the device, for ``replicas.device`` of runtimes."""
    memory: Size
    """Memory of all runtimes that are loaded at the same time."""
    patience: Duration = 30.0
    """Time that a request waits for its model until the model takes precedence. Then another model is stopped for it,
    even if that one has requests, after those that it computes."""
