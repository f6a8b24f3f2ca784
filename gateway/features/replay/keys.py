"""The key of the records that a command reads."""

import os

from config.schema.config import Config
from gateway.features.recording.keys import RecordError, RecordKey

DEFAULT = "RECORD_KEY"
"""The environment variable of the key if neither an option nor the file names another."""


def record_key(config: Config | None, variable: str | None) -> RecordKey:
    """The key in an environment variable, or in the `record` of a file. Raises `RecordError`."""
    if variable is None and config is not None and config.record is not None:
        return RecordKey(config.record.key.get_secret_value())
    name = variable or DEFAULT
    secret = os.environ.get(name, "")
    if not secret:
        raise RecordError(f"the environment variable {name}, which has the key of the records, is not set")
    return RecordKey(secret)
