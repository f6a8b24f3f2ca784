"""The batches of a pool's provider."""

from pydantic import Field

from config.schema.section import Section
from config.schema.units import Duration


class ProviderBatchesConfig(Section):
    """Lines of batches go to the provider's own batch API, at its price for batches: OpenAI's ``/v1/batches`` or
    Anthropic's ``/v1/messages/batches``. The pool has one endpoint and its ``key``. Live requests are sent as usual."""

    poll: Duration = 30.0
    """Time between two requests for the state of a batch."""
    max_size: int = Field(16 * 1024**2, ge=64 * 1024, le=200 * 1024**2)
    """Bytes after which a submission is sent to the provider. A batch of up to 500 lines is one submission for each
    model."""
