"""The ``stored_responses`` part of the file: OpenAI's stored responses and conversations."""

from typing import Literal

from pydantic import Field

from config.schema.section import Section
from config.schema.units import Duration


class StoredResponsesConfig(Section):
    """Storage of ``/v1/responses`` in the state database. Each tenant reads only its own responses."""

    store: Literal["never", "asked", "default"] = "asked"
    """``asked``: store a response if the request has ``store: true``. ``default``: also if it has no ``store``, as
    OpenAI does. ``never``: refuse requests that need storage; there are no conversations."""
    retention: Duration = 30 * 86400.0
    """How long a response is stored, and a conversation after its last change."""
    per_tenant: int = Field(10_000, ge=1, le=10_000_000)
    """Most responses, and most conversations, of one tenant; the oldest are deleted beyond it."""
