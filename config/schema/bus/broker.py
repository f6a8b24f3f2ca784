"""A message broker: its address, its credentials and its TLS."""

from typing import Literal

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.bus.tls import UpstreamTls
from config.schema.bus.urls import BrokerUrl
from config.schema.section import Section
from config.schema.text import Secret


class BrokerConfig(Section):
    """One broker. A URL alone is short for ``{url: URL}``."""

    url: BrokerUrl
    """``amqp://HOST:PORT/VHOST`` (RabbitMQ), ``kafka://HOST:PORT``, ``mqtt://HOST:PORT`` (MQTT 5),
    ``nats://HOST:PORT``, ``redis://HOST:PORT/DATABASE`` for Redis Streams, or ``sqs://HOST`` for Amazon SQS. Several
    servers of one cluster are separated by commas."""
    username: Secret | None = None
    """User at the broker."""
    password: Secret | None = None
    """Password of the user. NATS accepts it alone, as a token."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """SASL mechanism of the user, for Kafka."""
    tls: UpstreamTls | None = None
    """TLS to the broker; plain text when absent. ``{}`` verifies against the system's root certificates."""

    @property
    def scheme(self) -> str:
        """The kind of the broker."""
        return self.url.partition(":")[0].partition("+")[0]

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        url = handler.resolve_ref_schema(reference)["properties"]["url"]
        return {"anyOf": [url, reference]}
