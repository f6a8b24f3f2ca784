"""TLS to brokers, and to the endpoints of pools."""

from typing import Self

from pydantic import Field, model_validator

from config.schema.section import Section
from config.schema.text import PemFile


class UpstreamTls(Section):
    """TLS to ``https://`` endpoints."""

    ca: PemFile | None = None
    """Root certificates to trust instead of the system's."""
    cert: PemFile | None = None
    """Client certificate chain, for servers that require one."""
    key: PemFile | None = None
    """Private key of the client certificate."""
    server_name: str | None = Field(None, min_length=1, max_length=253)
    """Name that the server's certificate must have, if it differs from the host of the URL."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: give both or neither")
        return self
