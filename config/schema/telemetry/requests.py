"""The ``requests`` of the file: a record of each request, for the search of requests."""

from pydantic import Field

from config.schema.section import Section
from config.schema.text import Glob
from config.schema.units import Duration, Size


class RequestsConfig(Section):
    """Requests by day, with their decision, attempts, steps, tokens and cost. No prompt and no answer is stored."""

    retention: Duration = 14 * 86400.0
    """How long a day is stored. A day is deleted as a whole."""
    max: Size = 20 * 2**30
    """Most bytes of all days. The oldest days are deleted beyond it, and today's requests are lost when the bytes are
    those of today."""
    folder: str | None = Field(None, min_length=1)
    """Folder of this host where requests wait for the database, and where the days of an SQLite database are. When
    absent, a folder beside an SQLite database, or in the directory of temporary files."""
    flush: Duration = 1.0
    """Time between two writes to the database."""
    max_waiting: Size = 256 * 2**20
    """Most bytes of requests that wait for the database. The oldest are lost beyond it, and counted."""
    exclude: tuple[Glob, ...] = ()
    """Models whose requests are not stored."""
