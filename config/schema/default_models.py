"""The ``default_models`` part of the file: the model of a request that names none."""

from config.schema.section import Section
from config.schema.text import Name


class DefaultModelsConfig(Section):
    """Default models by operation, for clients that leave ``model`` out, as OpenAI's API permits for some operations.
    Without a default such a request is refused."""

    chat: Name | None = None
    """For ``/v1/chat/completions``."""
    completions: Name | None = None
    """For ``/v1/completions``."""
    embeddings: Name | None = None
    """For ``/v1/embeddings``."""
    responses: Name | None = None
    """For ``/v1/responses`` and its ``input_tokens``."""
    images: Name | None = None
    """For ``/v1/images/…``."""
    moderations: Name | None = None
    """For ``/v1/moderations``."""
    audio: Name | None = None
    """For ``/v1/audio/…``."""
    rerank: Name | None = None
    """For ``/v1/rerank`` and its other paths."""
    score: Name | None = None
    """For ``/v1/score`` and ``/score``."""
    tokenize: Name | None = None
    """For ``/tokenize`` and ``/detokenize``."""

    def of(self, operation: str) -> str | None:
        """The default of one operation."""
        name: str | None = getattr(self, operation, None)
        return name
