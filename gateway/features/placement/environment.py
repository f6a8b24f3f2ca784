"""The environment of a runtime's process: inherited variables on an allow-list, and those of its section."""

from collections.abc import Mapping

from adapters.process import inherited
from config.schema.config import RuntimeConfig


def environment(ours: Mapping[str, str], written: Mapping[str, str], config: RuntimeConfig) -> dict[str, str]:
    """The variables of a runtime's process: the inherited ones, those of its section, and its secrets."""
    secret = {name: value.get_secret_value() for name, value in config.secrets.items()}
    return {**inherited(ours), **written, **secret}
