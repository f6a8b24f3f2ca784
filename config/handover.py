"""Encodes a configuration for another process of the gateway, with its references replaced.

The other process does not read the file, which may have changed, and does not need the environment's secrets.
"""

import json

from config.code import with_code
from config.schema.config import Config


def pack(config: Config) -> str:
    """Encode a loaded configuration as text. The text contains secrets."""
    assert config._source is not None, "only a configuration that was loaded from a file can be handed over"
    return json.dumps({"source": config._source, "lines": list(config._lines.items()), "text": config.text})


def unpack(text: str) -> Config:
    """Decode a configuration. It is validated again, as the other process may be a newer version.

    Raises pydantic's ``ValidationError``, a ``ValueError``.
    """
    packed = json.loads(text)
    source = _as_loaded(packed["source"])
    lines = {tuple(place): line for place, line in packed["lines"]}
    return with_code(Config.model_validate(source, strict=True)).written_at(lines, source, packed["text"])


def _as_loaded(value: object) -> object:
    """Convert lists to tuples, as in a document."""
    if isinstance(value, list):
        return tuple(_as_loaded(item) for item in value)
    return {name: _as_loaded(item) for name, item in value.items()} if isinstance(value, dict) else value
