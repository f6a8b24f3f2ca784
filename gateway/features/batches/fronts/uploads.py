"""The largest bodies of uploads, which `http.max_body` does not bound."""

from config.schema.batches.batches import BatchesConfig
from gateway.features.batches.fronts.anthropic import MOST_BYTES
from gateway.features.batches.fronts.files import OVERHEAD
from gateway.fronts.paths import FILES, MESSAGE_BATCHES


def uploads_of(config: BatchesConfig) -> dict[bytes, int]:
    """The largest body by path."""
    return {FILES: config.max_file + OVERHEAD, MESSAGE_BATCHES: MOST_BYTES}
