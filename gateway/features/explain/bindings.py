"""The bindings of message brokers, in a line each, for `headrace check`."""

from collections.abc import Iterator

from config.schema.bus import BindingConfig
from config.schema.config import Config


def binding_lines(config: Config) -> Iterator[str]:
    """One line for each binding: topic, API, model, tenant, and the topics of its answers."""
    for binding in config.listen.bus:
        replies = ", ".join((binding.reply.topic, *binding.reply.allowed))
        yield (
            f"listen.bus {binding.name}: {binding.broker.scheme} {binding.topic} (group {binding.group}) -> "
            f"{_api(binding)} as {_holder(binding)} -> {replies}; dead letters: {binding.dead_letters}"
        )


def _api(binding: BindingConfig) -> str:
    paths = " or ".join((binding.path, *binding.paths))
    if binding.path.startswith("/v2/"):
        return paths
    return f"{paths} of {binding.model or 'the model that the message names'}"


def _holder(binding: BindingConfig) -> str:
    if binding.key_header is None:
        return f"tenant {binding.tenant}"
    of = "" if binding.tenant is None else f" of tenant {binding.tenant}"
    return f"the holder of the key{of} in the header {binding.key_header}"
