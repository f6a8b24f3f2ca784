"""Authenticates a request by key, token or certificate, and selects one if a request has several."""

from collections.abc import Container
from dataclasses import dataclass

from gateway.auth.certificates import Certificates, PeerCertificate
from gateway.auth.keys import Principal
from gateway.auth.table import KeyTable
from gateway.auth.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is known of credentials under one configuration, and the keys of one moment."""

    keys: KeyTable
    tokens: Tokens
    """Outlives configurations, as the keys that it has fetched do."""
    certificates: Certificates
    tenants: Container[str]

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        """Who asks. Raises `CredentialError`.

        A key or a token counts before a certificate, and when it is refused the certificate does not help. Three
        parts joined by dots are a token, which no key has; all else is checked as a key.
        """
        if token is None and certificate is not None:
            return self.certificates.authenticate(certificate, now_utc)
        if token is not None and token.count(".") == 2:
            return self.tokens.authenticate(token, now_utc, self.tenants)
        return self.keys.authenticate(token, now_utc)
