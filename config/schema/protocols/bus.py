"""Workers behind a message broker."""

from typing import Literal, Self

from pydantic import model_validator

from config.schema.bus import Topic
from config.schema.protocols.base import ProtocolConfig, Serves
from config.schema.text import Secret


class BusProtocol(ProtocolConfig):
    """A message broker between the gateway and its workers. The endpoints are brokers, such as ``kafka://HOST:PORT``. A
    worker is another gateway with ``listen.bus``, or any program that answers a CloudEvent with another one."""

    serves = frozenset({"text", "tensors"})
    has_paths = False

    name: Literal["bus"]
    """Selects this protocol."""
    topic: Topic
    """Topic of the requests."""
    reply: Topic
    """Topic of the answers to this gateway. Each of its processes reads all of them."""
    cancels: Topic | None = None
    """Topic that receives the ``id`` and ``source`` of a request whose client has left. When absent, workers complete
    such requests."""
    speaks: Literal["openai", "oip-http"] = "openai"
    """Form of the requests: those of OpenAI's API, or tensors of the Open Inference Protocol."""
    username: Secret | None = None
    """User at the broker."""
    password: Secret | None = None
    """Password of the user. NATS accepts it alone, as a token."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """SASL mechanism of the user, for Kafka."""

    @property
    def offers(self) -> frozenset[Serves]:
        return frozenset({"text"}) if self.speaks == "openai" else frozenset({"tensors"})

    @model_validator(mode="after")
    def _separate_topics(self) -> Self:
        if len({self.topic, self.reply, self.cancels}) < 3:
            raise ValueError("requests, answers and cancellations need a topic each")
        return self
