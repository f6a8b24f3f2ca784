"""The parts of the file that say who a client is and what a credential is for."""

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from config.schema.section import Section
from config.schema.text import Glob, Jwks, Name, Secret, Shape
from config.schema.units import Delay, Duration

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
    "HS256", "HS384", "HS512",
]  # fmt: skip
Role = Literal["user", "tenant-admin", "operator"]
Operation = Literal["chat", "text_completion", "embeddings", "infer", "app", "models", "metrics"]
"""What a front does for a client, as the access log names it; ``metrics`` is the admin listener's, where protected."""
IssuerName = Annotated[
    str, Shape(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "a name: up to 64 letters, digits and . _ - (not first)")
]
Exact = Annotated[str, Shape(r"[^\s\x00-\x1f]{1,512}", "the claim's exact text, without spaces")]
Claim = Annotated[str, Shape(r"[^\s\x00-\x1f]{1,256}", "a claim's name, or a path such as realm_access.roles")]
CertificateName = Annotated[str, Shape(r"[^\x00-\x1f]{1,512}", "the name exactly as the certificate has it")]

LabelName = Annotated[str, Shape(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}", "a label's name: letters, digits and . _ / -")]
LabelValue = Annotated[str, Shape(r"[^\x00-\x1f\x7f]{1,128}", "up to 128 characters on one line")]

SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Least length of a shared secret: that of the hash (RFC 7518, 3.2)."""


class ScopesConfig(Section):
    """Less than the tenant may do. What is absent is not narrowed."""

    models: tuple[Glob, ...] | None = Field(None, min_length=1)
    """Models it may use, among those that its tenant may; any other looks unknown."""
    fronts: tuple[Operation, ...] | None = Field(None, min_length=1)
    """Operations it may ask for; any other is refused with 403."""
    routes: tuple[Name, ...] | None = Field(None, min_length=1)
    """Routes it may take, by name; a model whose matching route is another looks unknown."""

    @model_validator(mode="after")
    def _narrows(self) -> Self:
        if self.models is self.fronts is self.routes is None:
            raise ValueError("narrows nothing: give models, fronts or routes, or remove it")
        return self


class GrantConfig(Section):
    """What comes with a credential."""

    role: Role = "user"
    """``tenant-admin`` manages its own tenant's keys on the admin listener, ``operator`` everything there."""
    scopes: ScopesConfig | None = None
    """What it is for, where that is less than its tenant may do."""
    labels: dict[LabelName, LabelValue] = Field({}, max_length=16)
    """What it is called by, such as ``{team: search}``."""

    @model_validator(mode="after")
    def _no_authority_in_part(self) -> Self:
        if self.role != "user" and self.scopes is not None:
            raise ValueError(f"scopes leave nothing of the role {self.role}: give one of the two")
        return self


class AdminAuthConfig(Section):
    """Who may use the admin listener. Without it everybody who reaches it may do everything."""

    required: bool = False
    """Everything under ``/admin`` needs a credential with a role: ``operator``, or ``tenant-admin`` for its own
    tenant. ``/livez`` and ``/readyz`` never do. Needed to listen on more than loopback."""
    metrics: bool = False
    """``/metrics`` too: a credential whose scopes name the front ``metrics``, or an operator's."""


class ClaimsConfig(Section):
    """Which claims say what. A name, or a path into nested claims; a name with dots in it is tried first."""

    tenant: Claim | None = None
    """Holds the tenant's name. Trusts the issuer to speak for every tenant of this file."""
    roles: Claim | None = None
    """Holds a name or a list of names, which ``roles`` maps to roles. Routes may match names that it does not map."""
    scope: Claim | None = None
    """Holds scopes, as a list or with spaces between: ``models:GLOB``, ``fronts:OPERATION`` and ``routes:NAME``
    narrow what the token is for, others say nothing here."""


class JwtConfig(Section):
    """An issuer of JSON Web Tokens that clients may send as ``Authorization: Bearer TOKEN``."""

    name: IssuerName
    """Shown in logs and metrics."""
    issuer: Exact
    """What the claim ``iss`` must be."""
    audience: Exact
    """What the claim ``aud`` must be or hold: the name that the issuer knows this gateway by."""
    algorithms: tuple[Algorithm, ...] = Field(min_length=1)
    """What tokens may be signed with."""
    jwks: Jwks | None = None
    """The issuer's public keys: ``https://…/jwks.json``, or ``file:PATH`` relative to this file's folder."""
    allow_symmetric_secret: Secret | None = None
    """Instead of public keys, a secret shared with the issuer, for HS256 and its kin."""
    claims: ClaimsConfig = ClaimsConfig()
    """What is read from a token."""
    roles: dict[Exact, Role] = Field({}, max_length=64)
    """The roles of the names in ``claims.roles``, such as ``{llm-admins: operator}``. A name without an entry has no
    authority, ``operator`` and ``tenant-admin`` included. With ``tenant``, the highest role is tenant-admin."""
    tenant: Name | None = None
    """Whose all tokens of this issuer are, instead of a claim that says it."""
    leeway: Annotated[Delay, Field(le=300)] = 30.0
    """How far the issuer's clock may be from ours."""
    refresh: Duration = 600.0
    """How often the keys are fetched again. A token with an unknown key has them fetched too."""

    @field_validator("allow_symmetric_secret")
    @classmethod
    def _long_enough(cls, secret: Secret | None, info: ValidationInfo) -> Secret | None:
        least = max((SECRET_BYTES.get(name, 0) for name in info.data.get("algorithms", ())), default=0)
        if secret is not None and len(secret.get_secret_value().encode()) < least:
            raise ValueError(f"the secret needs at least {least} bytes, as long as the hash")
        return secret


class CertificateConfig(GrantConfig):
    """A client certificate's name, one of three kinds, compared as a whole, and what it may do."""

    subject_cn: CertificateName | None = None
    """The subject's common name."""
    san_dns: CertificateName | None = None
    """A DNS name among the subject's alternative names."""
    san_uri: CertificateName | None = None
    """A URI among them, such as ``spiffe://example.org/app``."""

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if sum(name is not None for _, name in self.names()) != 1:
            raise ValueError("give one of subject_cn, san_dns and san_uri")
        return self

    def names(self) -> tuple[tuple[str, str | None], ...]:
        """Kind and name of each field that may hold it."""
        return (("subject_cn", self.subject_cn), ("san_dns", self.san_dns), ("san_uri", self.san_uri))
