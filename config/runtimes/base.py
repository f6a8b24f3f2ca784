"""What every runtime's section has."""

from typing import ClassVar

from config.protocols.base import Serves
from config.section import Section
from config.units import Duration


class RuntimeConfig(Section):
    """A server that the gateway starts, watches, starts again and stops."""

    serves: ClassVar[frozenset[Serves] | None] = None
    """What a bundled one does; another's does what servers of the pool's protocol do."""

    kind: str
    """Which server."""
    start_timeout: Duration = 300.0
    """How long a new one may take until it answers; a reload that waits for it is given up then."""
