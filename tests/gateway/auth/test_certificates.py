from typing import Any

import pytest

from adapters.errors import CredentialError
from config.schema.config import TenantConfig
from gateway.auth.certificates import Certificates
from gateway.auth.keys import Principal
from gateway.auth.table import REFUSED

UNTIL = "Nov 21 00:00:00 2027 GMT"
NOW = 1_800_000_000.0
AFTER = 1_827_000_000.0


def tenant(name: str, *certificates: dict[str, Any]) -> TenantConfig:
    return TenantConfig.model_validate({"name": name, "models": ("*",), "certificates": certificates})


CERTIFICATES = Certificates(
    [
        tenant("acme", {"subject_cn": "app.acme"}, {"san_uri": "spiffe://example.org/acme"}),
        tenant("beta", {"san_dns": "Beta.example.org"}),
    ]
)


def certificate(*names: tuple[str, str], cn: tuple[str, ...] = (), until: str = UNTIL) -> dict[str, Any]:
    """A certificate in the form of `getpeercert`."""
    subject = ((("organizationName", "app.acme"),), *((("commonName", name),) for name in cn))
    return {"subject": subject, "subjectAltName": names, "notAfter": until}


@pytest.mark.parametrize(
    ("given", "principal"),
    [
        (certificate(cn=("app.acme",)), Principal("acme", "cert:app.acme")),
        (
            certificate(("DNS", "x"), ("URI", "spiffe://example.org/acme")),
            Principal("acme", "cert:spiffe://example.org/acme"),
        ),
        (certificate(("DNS", "BETA.example.org"), cn=("other",)), Principal("beta", "cert:beta.example.org")),
        (
            certificate(("URI", "spiffe://example.org/acme"), cn=("app.acme",)),
            Principal("acme", "cert:spiffe://example.org/acme"),
        ),
    ],
)
def test_a_name_that_a_tenant_lists_is_the_tenants(given: dict[str, Any], principal: Principal) -> None:
    assert CERTIFICATES.authenticate(given, NOW) == principal


@pytest.mark.parametrize(
    "given",
    [
        certificate(),
        certificate(cn=("app.acme.evil",)),
        certificate(cn=("APP.ACME",)),
        certificate(cn=("app.acme", "app.acme")),
        certificate(("DNS", "app.acme")),
        certificate(("DNS", "*.example.org")),
        certificate(("DNS", "a.beta.example.org")),
        certificate(("email", "beta.example.org"), ("URI", "beta.example.org"), cn=("beta.example.org",)),
        certificate(("URI", "SPIFFE://example.org/acme")),
        certificate(("DNS", "beta.example.org"), cn=("app.acme",)),
        {"notAfter": UNTIL},
    ],
)
def test_any_other_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(CredentialError) as caught:
        CERTIFICATES.authenticate(given, NOW)
    assert str(caught.value) == REFUSED


def test_one_that_expired_while_its_connection_stayed_open_is_refused() -> None:
    assert CERTIFICATES.authenticate(certificate(cn=("app.acme",)), NOW).tenant == "acme"
    with pytest.raises(CredentialError):
        CERTIFICATES.authenticate(certificate(cn=("app.acme",)), AFTER)


def test_a_certificate_has_its_role_and_labels() -> None:
    held = {"subject_cn": "app", "role": "operator", "labels": {"team": "ops"}}
    principal = Certificates([tenant("acme", held)]).authenticate(certificate(cn=("app",)), NOW)
    assert principal == Principal("acme", "cert:app", frozenset({"user", "operator"}), {"team": "ops"})
    scoped = {"san_dns": "app.example.org", "scopes": {"fronts": ("chat",)}}
    certificates = Certificates([tenant("acme", scoped, held)])
    assert certificates.authenticate(certificate(("DNS", "app.example.org"), cn=("app",)), NOW).scope is not None
