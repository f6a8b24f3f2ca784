"""The names of topics."""

from typing import Annotated

from config.schema.text import Shape

Topic = Annotated[
    str,
    Shape(
        r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,248}",
        "the name of a topic: up to 249 letters, digits and . _ : / - (not first)",
    ),
]
"""A topic of Kafka or MQTT, a subject of NATS JetStream, a routing key of RabbitMQ, or a stream of Redis."""
