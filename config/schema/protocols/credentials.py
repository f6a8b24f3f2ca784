"""The ``credentials`` of a pool: made by the gateway, and renewed before they expire."""

from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from config.schema.section import Section, ShortSection
from config.schema.text import Secret, Shape, Url
from config.schema.units import Duration

KINDS = ("aws", "google", "azure", "oauth", "command")
Word = Annotated[str, Field(min_length=1, max_length=512), Shape(r"[!-~]+", "printable ASCII without spaces")]
Scope = Annotated[str, Field(max_length=2048), Shape(r"[!-~]+( [!-~]+)*", "scopes, separated by one space")]


class AwsCredentials(Section):
    """Requests are signed with AWS Signature Version 4."""

    region: Annotated[str, Shape(r"[a-z0-9-]{2,40}", "a region such as eu-central-1")] | None = None
    """Region in the signatures. When absent: that of the endpoint's host name, else of the environment."""
    service: Annotated[str, Shape(r"[a-z0-9-]{2,64}", "a service such as bedrock")] | None = None
    """Service in the signatures. When absent, that of the endpoint's host name."""
    key_id: Secret
    """Access key id."""
    secret: Secret
    """Secret access key."""
    session_token: Secret | None = None
    """Token of a temporary access key."""


class OAuthCredentials(Section):
    """An access token by OAuth's client credentials (RFC 6749 4.4)."""

    url: Url
    """URL of the token endpoint."""
    client_id: Word
    """Id of the client."""
    secret: Secret
    """Secret of the client."""
    scope: Scope | None = None
    """Scopes of the token, separated by spaces."""
    audience: Word | None = None
    """Audience of the token, for issuers that require it."""
    in_body: bool = False
    """Send the client's id and secret in the body. When false they are sent by HTTP's Basic authentication."""


class CommandCredentials(ShortSection):
    """A token that a program prints. A program alone is short for ``{run: [PROGRAM]}``. There is no shell.

    The output is a token, or JSON with a token and its expiry. Its names may be those of Kubernetes' exec plugins, of
    gcloud, or of az.
    """

    short = "run"

    run: tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...] = Field(min_length=1, max_length=64)
    """The program and its arguments. Put no secret in them: other users of the host can read them."""
    timeout: Duration = 10.0
    """Time after which the program is stopped and has failed."""
    lifetime: Duration = 300.0
    """How long a token without an expiry is used."""

    @model_validator(mode="before")
    @classmethod
    def _one_program(cls, data: object) -> object:
        if isinstance(data, dict) and isinstance(run := data.get("run"), str):
            return {**data, "run": (run,)}
        return data


class CredentialsConfig(Section):
    """Credentials that the gateway makes, in place of ``key``. One of the fields is the kind."""

    aws: AwsCredentials | None = None
    """AWS Signature Version 4, for Bedrock and other services of AWS."""
    oauth: OAuthCredentials | None = None
    """OAuth's client credentials, for any issuer."""
    command: CommandCredentials | None = None
    """A program that prints a token."""

    @property
    def kind(self) -> str:
        """The field that is set."""
        return next(kind for kind in KINDS if getattr(self, kind, None) is not None)

    @property
    def secrets(self) -> tuple[SecretStr, ...]:
        """The secrets of the file."""
        return tuple(value for _, value in getattr(self, self.kind) if isinstance(value, SecretStr))

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self.model_fields_set) != 1 or all(getattr(self, kind, None) is None for kind in KINDS):
            raise ValueError(f"give one kind of credentials: {', '.join(type(self).model_fields)}")
        return self
