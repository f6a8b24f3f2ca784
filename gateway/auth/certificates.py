"""Client certificates: maps a verified certificate to its tenant."""

import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from adapters.errors import CredentialError
from config.schema.config import TenantConfig
from gateway.auth.keys import Principal, granted, holder_id
from gateway.auth.table import REFUSED

PeerCertificate = Mapping[str, Any]
"""A certificate in the form of `ssl.SSLSocket.getpeercert`. TLS has checked its chain and its purpose."""
_Name = tuple[str, str]


class Certificates:
    """The tenants' certificates, by kind and name. Immutable."""

    __slots__ = ("_holders",)

    def __init__(self, tenants: Iterable[TenantConfig]) -> None:
        self._holders: dict[_Name, Principal] = {}
        for tenant in tenants:
            for entry in tenant.certificates:
                for kind, name in entry.names():
                    if name is not None:
                        comparable = _comparable(kind, name)
                        self._holders[comparable] = granted(tenant.name, holder_id("cert", comparable[1]), entry)

    def authenticate(self, certificate: PeerCertificate, now_utc: float) -> Principal:
        """The principal of a certificate, by the first of its names that the configuration has.

        Raises `CredentialError` for a certificate of no tenant, of several tenants, and for one that has expired since
        its handshake: a connection may last longer than its certificate.
        """
        holders = [self._holders[name] for name in _names(certificate) if name in self._holders]
        tenants = {holder.tenant for holder in holders}
        if len(tenants) != 1:
            first = next(_names(certificate), ("", ""))[1]
            cause = "certificate_ambiguous" if tenants else "certificate_unknown"
            raise CredentialError(REFUSED).because(cause, name=first)
        if now_utc >= ssl.cert_time_to_seconds(certificate["notAfter"]):
            error = CredentialError(REFUSED).because("certificate_expired", key=holders[0].key_id)
            error.holder = holders[0].tenant, holders[0].key_id, holders[0].team
            raise error
        return holders[0]


def _names(certificate: PeerCertificate) -> Iterator[_Name]:
    """URIs, DNS names, then the common name if there is exactly one."""
    alternatives = certificate.get("subjectAltName", ())
    for label, kind in (("URI", "san_uri"), ("DNS", "san_dns")):
        yield from (_comparable(kind, name) for entry_label, name in alternatives if entry_label == label)
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if len(common) == 1:
        yield ("subject_cn", common[0])


def _comparable(kind: str, name: str) -> _Name:
    return kind, name.lower() if kind == "san_dns" else name
