"""The ``state`` and ``stored_responses`` of the file: data that outlives the process or that gateways share."""

from typing import Annotated, Literal

from pydantic import Field

from config.schema.section import Section
from config.schema.text import Shape
from config.schema.units import Duration

Database = Annotated[
    str,
    Shape(
        r"(sqlite|postgresql)(\+[a-z0-9]+)?://\S*",
        "a database URL such as sqlite:///.headrace/state.db or postgresql://HOST/NAME",
    ),
]
RedisUrl = Annotated[
    str,
    Shape(
        r"rediss?://[^\s/]\S*|unix:///?\S+", "a Redis URL such as redis://HOST:6379/0, rediss://HOST or unix:///PATH"
    ),
]


class StateConfig(Section):
    """Storage of issued keys, and counters that several gateways share."""

    database: Database = Field("sqlite:///.headrace/state.db", repr=False)
    """SQLAlchemy URL. A SQLite path is relative to the working directory. The database is read in the background, never
    while a request waits."""
    folder: str | None = Field(None, min_length=1, max_length=4096)
    """Folder of this host for a sealed copy of the keys, with which a gateway starts while the database is unavailable.
    When absent, a folder in the directory of temporary files. SQLite needs none."""
    redis: RedisUrl | None = Field(None, repr=False)
    """Redis server that counts limits with ``count: exact`` or ``leased``, and has the ids of answered messages of
    ``listen.bus``. Write a password as ``${NAME}``."""
    redis_timeout: Duration = 0.1
    """Longest wait of a request for Redis. After a timeout, further requests treat Redis as unavailable at once."""


class StoredResponsesConfig(Section):
    """Storage of ``/v1/responses`` in the state database. Each tenant reads only its own responses."""

    store: Literal["never", "asked", "default"] = "asked"
    """``asked``: store a response if the request has ``store: true``. ``default``: also if it has no ``store``, as
    OpenAI does. ``never``: refuse requests that need storage; there are no conversations."""
    retention: Duration = 30 * 86400.0
    """How long a response is stored, and a conversation after its last change."""
    per_tenant: int = Field(10_000, ge=1, le=10_000_000)
    """Most responses, and most conversations, of one tenant; the oldest are deleted beyond it."""
