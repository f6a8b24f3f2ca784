"""The ``stored_responses`` part of the file: OpenAI's stored responses and conversations."""

from typing import Literal

from pydantic import Field

from config.schema.section import Section
from config.schema.units import Duration


class StoredResponsesConfig(Section):
    """What the gateway stores of ``/v1/responses`` in the state database, each tenant's for that tenant only."""

    store: Literal["never", "asked", "default"] = "asked"
    """``asked``: a response with ``store: true``. ``default``: one without ``store`` too, as OpenAI does. ``never``:
    requests that need storage are refused, and there are no conversations."""
    retention: Duration = 30 * 86400.0
    """How long a response is stored, and a conversation after its last change."""
    per_tenant: int = Field(10_000, ge=1, le=10_000_000)
    """The most responses, and the most conversations, of one tenant; the oldest are deleted beyond that."""
