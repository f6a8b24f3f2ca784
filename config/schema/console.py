"""The ``console`` of the file: the pages for operators and tenants' admins, and the sign-in by an OpenID provider."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.schema.identity import Claim, Exact, Role
from config.schema.section import Conflict, Section
from config.schema.text import Secret, Url, private_or_local
from config.schema.units import Duration


def _over_http(url: str) -> str:
    if url.startswith("unix:"):
        raise ValueError("expected https://HOST/PATH")
    return private_or_local(url)


ProviderUrl = Annotated[Url, AfterValidator(_over_http)]


class ConsoleClaimsConfig(Section):
    """Claims that are read from an ID token. Each is a name, or a path into nested claims."""

    roles: Claim = "groups"
    """Claim with a name or a list of names, which ``roles`` maps to roles."""
    tenant: Claim | None = None
    """Claim with the name of the tenant of a tenant-admin."""
    label: Claim = "email"
    """Claim with the name that the console shows; the subject when absent."""


class OidcConfig(Section):
    """Sign-in by an OpenID provider, with the authorization code flow and PKCE."""

    issuer: ProviderUrl
    """The provider, exactly as in its tokens: ``ISSUER/.well-known/openid-configuration`` describes it. ``http://`` is
    for loopback only."""
    client_id: Exact
    """The client that the provider has registered, with the redirect URI ``URL/console/oidc/callback``, where ``URL``
    is ``console.url``."""
    client_secret: Secret | None = None
    """Secret of a confidential client; absent for a public one."""
    scopes: tuple[Exact, ...] = ("openid", "email", "profile")
    """Requested scopes. ``openid`` must be one of them."""
    algorithms: tuple[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"],
                      ...] = Field(("RS256", "ES256"), min_length=1)  # fmt: skip
    """Accepted signature algorithms of ID tokens."""
    claims: ConsoleClaimsConfig = ConsoleClaimsConfig()
    """Claims that are read from the ID token."""
    roles: dict[Exact, Role] = Field(min_length=1, max_length=64)
    """Maps the names in ``claims.roles`` to roles, such as ``{llm-admins: operator}``. An unmapped name gives none."""

    def conflicts(self) -> Iterator[Conflict]:
        if "openid" not in self.scopes:
            yield Conflict(("scopes",), "needs the scope openid", concerns_value=True)


class ConsoleConfig(Section):
    """The console: pages at ``/console/`` on the admin listener."""

    enabled: bool = True
    """``false`` serves no pages, and ends all sessions."""
    url: Url | None = None
    """Address of the admin listener in browsers, such as ``https://headrace.example.org``, if it is behind a proxy."""
    idle: Annotated[Duration, Field(le=7 * 86400)] = 3600.0
    """A session ends after this time without a request."""
    longest: Annotated[Duration, Field(le=30 * 86400)] = 43200.0
    """A session ends after this time in any case."""
    oidc: OidcConfig | None = None
    """Sign-in by an OpenID provider, beside keys. Needs ``auth.admin.required``."""
