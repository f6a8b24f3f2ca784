"""The sections for the identity of clients and the permissions of credentials."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from config.schema.section import Conflict, Section
from config.schema.text import Glob, Jwks, Name, Secret, Shape
from config.schema.units import Delay, Duration

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
    "HS256", "HS384", "HS512",
]  # fmt: skip
Role = Literal["user", "tenant-admin", "operator"]
ROLES: frozenset[str] = frozenset(get_args(Role))
"""Roles that give authority."""
USER: frozenset[str] = frozenset({"user"})
Operation = Literal[
    "chat", "text_completion", "embeddings", "rerank", "score", "classify", "infer", "explain", "app", "models",
    "feedback", "files", "batches", "metrics",
]  # fmt: skip
"""An operation of a front, as in the access log. ``app`` includes ``rerank``, ``score`` and
``classify``, and ``infer`` includes ``explain``. ``metrics`` is the admin listener's, if protected."""
IssuerName = Annotated[
    str, Shape(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "a name: up to 64 letters, digits and . _ - (not first)")
]
Exact = Annotated[str, Shape(r"[^\s\x00-\x1f]{1,512}", "the claim's exact text, without spaces")]
Claim = Annotated[str, Shape(r"[^\s\x00-\x1f]{1,256}", "a claim's name, or a path such as realm_access.roles")]
CertificateName = Annotated[str, Shape(r"[^\x00-\x1f]{1,512}", "the name exactly as the certificate has it")]

LabelName = Annotated[str, Shape(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}", "a label's name: letters, digits and . _ / -")]
LabelValue = Annotated[str, Shape(r"[^\x00-\x1f\x7f]{1,128}", "up to 128 characters on one line")]

SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Minimum bytes of a shared secret: the length of the hash (RFC 7518, 3.2)."""


class ScopesConfig(Section):
    """Restricts a credential to less than its tenant may do. An absent field restricts nothing."""

    models: tuple[Glob, ...] | None = Field(None, min_length=1)
    """Models that the credential may use, among those of its tenant; any other is reported as unknown."""
    fronts: tuple[Operation, ...] | None = Field(None, min_length=1)
    """Operations that the credential may use; any other is refused with 403."""
    routes: tuple[Name, ...] | None = Field(None, min_length=1)
    """Names of routes that the credential may use. A model whose matching route is not listed is reported as unknown.
    """

    @model_validator(mode="after")
    def _narrows(self) -> Self:
        if self.models is self.fronts is self.routes is None:
            raise ValueError("narrows nothing: give models, fronts or routes, or remove it")
        return self


class GrantConfig(Section):
    """The authority of a credential."""

    role: Role = "user"
    """``tenant-admin`` manages its own tenant's keys on the admin listener, ``operator`` everything there."""
    scopes: ScopesConfig | None = None
    """Restrictions within the rights of the tenant."""
    labels: dict[LabelName, LabelValue] = Field({}, max_length=16)
    """Labels such as ``{tier: gold}``, for routes and reports."""
    team: Name | None = None
    """Team of the tenant whose limits apply too."""

    @model_validator(mode="after")
    def _no_authority_in_part(self) -> Self:
        if self.role != "user" and self.scopes is not None:
            raise ValueError(f"scopes leave nothing of the role {self.role}: give one of the two")
        return self


class AdminAuthConfig(Section):
    """Authentication on the admin listener. Without it, every client that reaches the listener may do everything."""

    required: bool = False
    """Require a credential with a role for everything under ``/admin``: ``operator``, or ``tenant-admin`` for its own
    tenant. ``/livez`` and ``/readyz`` stay open. Mandatory when the listener is not on loopback."""
    metrics: bool = False
    """Protect ``/metrics`` too: it needs a credential whose scopes name the front ``metrics``, or an operator's."""
    edit: bool = False
    """Let operators replace this file over the admin API. A file in a Git work tree and a read-only file are never
    replaced."""

    def conflicts(self) -> Iterator[Conflict]:
        if self.metrics and not self.required:
            yield from self.inert("has no effect without required", "metrics")


class ClaimsConfig(Section):
    """Claims that are read from a token. Each is a name, or a path into nested claims; a literal name with dots is
    tried first."""

    tenant: Claim | None = None
    """Claim with the tenant's name. The issuer is then trusted for every tenant of this file."""
    roles: Claim | None = None
    """Claim with a name or a list of names, which ``roles`` maps to roles. Routes may match unmapped names."""
    scope: Claim | None = None
    """Claim with scopes, as a list or separated by spaces. ``models:GLOB``, ``fronts:OPERATION`` and ``routes:NAME``
    restrict the token; others are ignored."""


class JwtConfig(Section):
    """An issuer of JSON Web Tokens, which clients send as ``Authorization: Bearer TOKEN``."""

    name: IssuerName
    """Name of the issuer in logs and metrics."""
    issuer: Exact
    """Required value of the claim ``iss``."""
    audience: Exact
    """Required value of the claim ``aud``, or one of its values: the issuer's name for this gateway."""
    algorithms: tuple[Algorithm, ...] = Field(min_length=1)
    """Accepted signature algorithms."""
    jwks: Jwks | None = None
    """The issuer's public keys: ``https://…/jwks.json``, or ``file:PATH`` relative to this file's folder."""
    allow_symmetric_secret: Secret | None = None
    """Secret shared with the issuer, instead of public keys, for HS256, HS384 and HS512."""
    claims: ClaimsConfig = ClaimsConfig()
    """Claims that are read from a token."""
    roles: dict[Exact, Role] = Field({}, max_length=64)
    """Maps the names in ``claims.roles`` to roles, such as ``{llm-admins: operator}``. An unmapped name gives no
    authority, even if it is ``operator`` or ``tenant-admin``. With ``tenant``, the highest role is tenant-admin."""
    tenant: Name | None = None
    """Tenant of every token of this issuer, instead of a claim."""
    leeway: Annotated[Delay, Field(le=300)] = 30.0
    """Tolerated difference between the issuer's clock and the gateway's."""
    refresh: Duration = 600.0
    """How often the public keys are fetched again. A token with an unknown key id triggers a fetch too."""

    @field_validator("allow_symmetric_secret")
    @classmethod
    def _long_enough(cls, secret: Secret | None, info: ValidationInfo) -> Secret | None:
        least = max((SECRET_BYTES.get(name, 0) for name in info.data.get("algorithms", ())), default=0)
        if secret is not None and len(secret.get_secret_value().encode()) < least:
            raise ValueError(f"the secret needs at least {least} bytes, as long as the hash")
        return secret


class CertificateConfig(GrantConfig):
    """One name of a client certificate, compared exactly, and the rights of the certificate."""

    subject_cn: CertificateName | None = None
    """Common name of the subject."""
    san_dns: CertificateName | None = None
    """A DNS name among the subject's alternative names."""
    san_uri: CertificateName | None = None
    """A URI among the subject's alternative names, such as ``spiffe://example.org/app``."""

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if sum(name is not None for _, name in self.names()) != 1:
            raise ValueError("give one of subject_cn, san_dns and san_uri")
        return self

    def names(self) -> tuple[tuple[str, str | None], ...]:
        """Kind and name of each field for a name in the certificate."""
        return (("subject_cn", self.subject_cn), ("san_dns", self.san_dns), ("san_uri", self.san_uri))


class AuthConfig(Section):
    """Verification of credentials."""

    pepper: Secret | None = None
    """Server secret that is mixed into the hashes of keys. When absent, a file beside the SQLite database is created
    and used."""
    previous_pepper: Secret | None = None
    """Pepper before this one, while it is rotated: keys of both are accepted, and each key is hashed anew when it is
    used. Remove it when ``headrace keys list`` shows no key of the old pepper."""
    demo_key: bool = False
    """Print and accept a demo key. Allowed only while every listener is on loopback."""
    jwt: tuple[JwtConfig, ...] = ()
    """Issuers whose JSON Web Tokens are accepted beside keys."""
    admin: AdminAuthConfig = AdminAuthConfig()
    """Authentication on the admin listener."""
    keys_per_tenant: int = Field(1000, ge=1, le=1_000_000)
    """Most valid keys of one tenant in the state database. As many more are valid for the overlap of a rotation, and as
    many ended ones stay in lists."""
