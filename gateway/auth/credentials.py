"""Authenticates a request by key, token or certificate, and selects one if a request has several."""

from collections.abc import Container
from dataclasses import dataclass

from gateway.auth.certificates import Certificates, PeerCertificate
from gateway.auth.keys import Principal
from gateway.auth.table import KeyTable
from gateway.auth.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Credentials:
    """Authenticates credentials under one configuration, with the keys of one moment."""

    keys: KeyTable
    tokens: Tokens
    """Survives reloads, as do the keys that it has fetched."""
    certificates: Certificates
    tenants: Container[str]

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        """The principal of a request. Raises `CredentialError`.

        A key or a token takes precedence over a certificate; if it is refused, the certificate is not tried. A
        credential of three parts joined by dots is a token, since no key contains dots; any other is checked as a key.
        """
        if token is None and certificate is not None:
            return self.certificates.authenticate(certificate, now_utc)
        if token is not None and token.count(".") == 2:
            return self.tokens.authenticate(token, now_utc, self.tenants)
        return self.keys.authenticate(token, now_utc)
