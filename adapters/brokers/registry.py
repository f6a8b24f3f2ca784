"""The module of each broker, which is imported with its library when a configuration names it."""

from importlib import import_module

from adapters.brokers.base import BrokerClient
from config.schema.bus import BrokerConfig

MODULES = {
    "amqp": "adapters.brokers.rabbitmq.client",
    "kafka": "adapters.brokers.kafka",
    "mqtt": "adapters.brokers.mqtt.client",
    "nats": "adapters.brokers.nats",
    "redis": "adapters.brokers.redis",
    "sqs": "adapters.brokers.sqs.client",
}
"""The modules by the scheme of the URL. Each has `make(config)`; the extra has the name of the scheme."""


class BrokerLibraryMissing(Exception):
    """The library of a broker is not installed. The message names the extra."""


def make(config: BrokerConfig) -> BrokerClient:
    """The client of a broker, not connected. Raises `BrokerLibraryMissing`."""
    try:
        module = import_module(MODULES[config.scheme])
    except ModuleNotFoundError:
        raise BrokerLibraryMissing(
            f"{config.scheme}:// needs an extra: pip install 'headrace[{config.scheme}]'"
        ) from None
    client: BrokerClient = module.make(config)
    return client
