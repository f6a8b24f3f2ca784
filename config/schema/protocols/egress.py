"""The way of a pool's requests to its servers: a proxy, and header fields that every request has."""

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from config.schema.section import Section, ShortSection
from config.schema.text import Secret, Shape, plain_header, real_port

DIRECT = "direct"
ProxyUrl = Annotated[
    str,
    Shape(rf"http://[^\s/?#@]+/?|{DIRECT}", "http://HOST:PORT without a user, or direct"),
    AfterValidator(real_port),
]


class ProxyConfig(ShortSection):
    """A proxy. A URL alone is short for ``{url: URL}``."""

    short = "url"

    url: ProxyUrl
    """``http://HOST:PORT``, or ``direct`` for no proxy, whatever the environment names. ``https://`` endpoints are
    reached by ``CONNECT``."""
    user: Secret | None = None
    """``USER:PASSWORD`` at the proxy."""


class HeaderConfig(Section):
    """A header field of every request to the servers: its value, or its secret value."""

    name: Annotated[
        str, Shape(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", "an HTTP header's name"), AfterValidator(plain_header)
    ]
    """Name of the field, such as ``HTTP-Referer`` or ``CF-Access-Client-Id``."""
    value: Annotated[str, Field(max_length=4096), Shape(r"[!-~]([ -~]*[!-~])?", "printable ASCII")] | None = None
    """Value of the field."""
    secret: Secret | None = None
    """The value, if it is a credential; instead of ``value``."""

    @model_validator(mode="after")
    def _one_value(self) -> "HeaderConfig":
        if (self.value is None) == (self.secret is None):
            raise ValueError("a header has one value: give `value` or `secret`")
        return self
