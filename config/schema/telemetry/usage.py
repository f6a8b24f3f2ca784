"""The ``usage`` of the file: what tenants have used and spent, in the state database."""

from pydantic import Field

from config.schema.section import Section
from config.schema.units import Duration


class UsageConfig(Section):
    """Requests, tokens, rows and money by tenant, key, model and arm, for each hour and day."""

    folder: str | None = Field(None, min_length=1)
    """Folder of this host where counters wait for the database. They survive a killed process. When absent, a folder
    beside an SQLite database, or in the directory of temporary files."""
    flush: Duration = 2.0
    """Time between two writes to the database."""
    hours: Duration = 90 * 86400.0
    """How long the amounts of each hour are retained."""
    days: Duration = 1096 * 86400.0
    """How long the amounts of each day are retained."""
