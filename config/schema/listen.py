"""The ``listen`` of the file: the addresses of the listeners, and their TLS."""

from typing import Literal

from config.schema.section import Section
from config.schema.text import PemFile
from config.schema.units import HostPort, Listen


class ListenTls(Section):
    """Certificate chain and private key of the listeners, as PEM files."""

    cert: PemFile
    """Certificate chain, the server's own certificate first."""
    key: PemFile
    """Private key of the certificate."""
    client_ca: PemFile | None = None
    """Root certificates that client certificates are verified against. A changed file needs a restart."""
    client_auth: Literal["optional", "required"] = "optional"
    """``required`` refuses every connection without a client certificate, even if the client has another credential."""


class ListenConfig(Section):
    """Addresses of the listeners. The admin listener is separate, so that clients cannot reach it."""

    http: Listen = HostPort("127.0.0.1", 8080)
    """HTTP listener for clients."""
    grpc: Listen | None = None
    """gRPC listener for clients of the Open Inference Protocol and TensorFlow Serving; no such listener when absent.
    Uses TLS when ``tls`` is set."""
    admin: Listen = HostPort("127.0.0.1", 8082)
    """Listener for operators: metrics, health, administration. Keep it out of reach of clients."""
    tls: ListenTls | None = None
    """Enables TLS on the listeners for clients."""
    admin_tls: bool = False
    """Enables TLS on the admin listener with the same files. Client certificates then count there too."""
