"""The ``default_models`` part of the file: the model of a request that names none."""

from config.schema.section import Section
from config.schema.text import Name


class DefaultModelsConfig(Section):
    """By operation. OpenAI's API lets clients leave out ``model`` for some of them. Without a default here such a
    request is refused."""

    chat: Name | None = None
    """Of ``/v1/chat/completions``."""
    completions: Name | None = None
    """Of ``/v1/completions``."""
    embeddings: Name | None = None
    """Of ``/v1/embeddings``."""
    responses: Name | None = None
    """Of ``/v1/responses`` and its ``input_tokens``."""
    images: Name | None = None
    """Of ``/v1/images/…``."""
    moderations: Name | None = None
    """Of ``/v1/moderations``."""
    audio: Name | None = None
    """Of ``/v1/audio/…``."""
    rerank: Name | None = None
    """Of ``/v1/rerank`` and its other paths."""
    score: Name | None = None
    """Of ``/v1/score`` and ``/score``."""
    tokenize: Name | None = None
    """Of ``/tokenize`` and ``/detokenize``."""

    def of(self, operation: str) -> str | None:
        """The default of one operation."""
        name: str | None = getattr(self, operation, None)
        return name
