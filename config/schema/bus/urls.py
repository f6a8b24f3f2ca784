"""URLs of message brokers, and of endpoints that may be brokers."""

from typing import Annotated

from pydantic import AfterValidator

from config.schema.text import HTTP_URL, Shape, real_port

_HOSTS = r"[A-Za-z0-9._\[\]-]+(:\d{1,5})?"
_VHOST = r"([A-Za-z0-9._~-]|%[0-9A-Fa-f]{2}){1,255}"
_BROKER = (
    rf"(kafka|mqtt|nats|redis)://{_HOSTS}(,{_HOSTS})*(/\d{{1,3}})?|amqp://{_HOSTS}(,{_HOSTS})*(/{_VHOST})?|"
    r"redis\+unix:/[^\s?#]+"
)
BrokerUrl = Annotated[
    str,
    Shape(
        rf"{_BROKER}|sqs://{_HOSTS}",
        "amqp://HOST:PORT/VHOST, kafka://HOST:PORT, mqtt://HOST:PORT, nats://HOST:PORT, redis://HOST:PORT/0, "
        "redis+unix:/PATH or sqs://HOST:PORT, without a user",
    ),
]


def is_broker(url: str) -> bool:
    """Whether a URL is that of a message broker."""
    return not url.startswith(("http:", "https:", "unix:"))


def _real_port(url: str) -> str:
    return url if is_broker(url) else real_port(url)


EndpointUrl = Annotated[
    str,
    Shape(
        f"{HTTP_URL}|{_BROKER}",
        "http://HOST:PORT, https://HOST:PORT or unix:/PATH, without a user, a query or a fragment",
    ),
    AfterValidator(_real_port),
]
