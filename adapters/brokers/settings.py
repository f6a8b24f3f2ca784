"""Credentials and TLS of a broker, for its library."""

import ssl
from socket import socket

from config.schema.bus import BrokerConfig


def servers_of(config: BrokerConfig) -> list[str]:
    """The servers of the cluster as HOST or HOST:PORT."""
    return config.url.partition("://")[2].partition("/")[0].split(",")


def credentials_of(config: BrokerConfig) -> tuple[str | None, str | None]:
    """The user and the password."""
    user, password = config.username, config.password
    return (
        None if user is None else user.get_secret_value(),
        None if password is None else password.get_secret_value(),
    )


class _NamedContext(ssl.SSLContext):
    """Checks the server's certificate for `name`, whatever name a library gives."""

    name: str | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.name or server_hostname, session)

    def wrap_socket(
        self,
        sock: socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        name = self.name or server_hostname
        return super().wrap_socket(sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, name, session)


def tls_of(config: BrokerConfig) -> ssl.SSLContext | None:
    """The TLS context; None for plain text. Raises `OSError` and `ssl.SSLError` for files that cannot be used."""
    tls = config.tls
    if tls is None:
        return None
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = tls.server_name
    if tls.ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(tls.ca)
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context
