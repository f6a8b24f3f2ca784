"""The ``credentials`` of a pool: made by the gateway, and renewed before they expire."""

from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic.json_schema import JsonSchemaValue

from config.schema.section import Section, ShortSection
from config.schema.text import LocalFile, Secret, Shape, Url
from config.schema.units import Duration

KINDS = ("aws", "google", "azure", "oauth", "command")
Word = Annotated[str, Field(min_length=1, max_length=512), Shape(r"[!-~]+", "printable ASCII without spaces")]
Scope = Annotated[str, Field(max_length=2048), Shape(r"[!-~]+( [!-~]+)*", "scopes, separated by one space")]


class AwsCredentials(Section):
    """Requests are signed with AWS Signature Version 4. Without a source of its access key, the gateway seeks one as
    AWS's own tools do. Their order is the environment, the profile, web identity, the container, the instance."""

    region: Annotated[str, Shape(r"[a-z0-9-]{2,40}", "a region such as eu-central-1")] | None = None
    """Region in the signatures. When absent: that of the endpoint's host name, of the protocol, or of the
    environment."""
    service: Annotated[str, Shape(r"[a-z0-9-]{2,64}", "a service such as bedrock")] | None = None
    """Service in the signatures. When absent: that of the endpoint's host name, or ``bedrock``."""
    key_id: Secret | None = None
    """Access key id, together with ``secret``."""
    secret: Secret | None = None
    """Secret access key."""
    session_token: Secret | None = None
    """Token of a temporary access key."""
    profile: Word | None = None
    """Profile in ``~/.aws/config`` and ``~/.aws/credentials``, or in the files that the environment names."""
    role: Annotated[str, Shape(r"arn:[!-~]{1,2000}", "the ARN of a role")] | None = None
    """Role that the gateway assumes with the access key, or with ``token_file``."""
    token_file: LocalFile | None = None
    """File with a token by which ``role`` is assumed: web identity, such as IAM roles for service accounts."""
    external_id: Word | None = None
    """External id that the role's trust policy requires."""
    session_name: Annotated[str, Shape(r"[A-Za-z0-9_=,.@-]{2,64}", "a name of 2 to 64 characters")] = "headrace"
    """Name of the sessions of ``role``, for AWS's audit log."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.key_id is None) != (self.secret is None):
            raise ValueError("an access key has two parts: give `key_id` and `secret`")
        if self.session_token is not None and self.key_id is None:
            raise ValueError("session_token goes with `key_id` and `secret`")
        if sum(one is not None for one in (self.key_id, self.profile, self.token_file)) > 1:
            raise ValueError("an access key has one source: give `key_id`, `profile` or `token_file`")
        if self.role is None and (self.token_file is not None or self.external_id is not None):
            raise ValueError("token_file and external_id go with `role`, the role that is assumed")
        if self.external_id is not None and self.token_file is not None:
            raise ValueError("external_id has no effect beside token_file")
        return self


class GoogleCredentials(Section):
    """Access tokens for Google Cloud. Without a file or a key, the gateway seeks them as Google's own libraries do: the
    file that ``GOOGLE_APPLICATION_CREDENTIALS`` names, gcloud's, the metadata server."""

    file: LocalFile | None = None
    """JSON file of a service account, of workload identity federation, of an impersonated account, or of gcloud. It is
    read again for every token."""
    key: Secret | None = None
    """Content of such a file, instead of ``file``."""
    scopes: tuple[Word, ...] = Field(("https://www.googleapis.com/auth/cloud-platform",), min_length=1, max_length=32)
    """Scopes of the token."""
    quota_project: Annotated[str, Shape(r"[a-z0-9.:-]{1,100}", "the id of a project")] | None = None
    """Project that is charged, in ``x-goog-user-project``. When absent, the one that the file names."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.file is not None and self.key is not None:
            raise ValueError("give `file` or `key`: they have the same content")
        return self


class AzureCredentials(Section):
    """Access tokens of Microsoft Entra. Without a source, the gateway seeks one: a secret of the environment, workload
    identity, the managed identity of the machine."""

    tenant: Word | None = None
    """Id of the directory. When absent, ``AZURE_TENANT_ID``."""
    client_id: Word | None = None
    """Id of the application, or of a user-assigned managed identity. When absent, ``AZURE_CLIENT_ID``."""
    secret: Secret | None = None
    """Secret of the application."""
    token_file: LocalFile | None = None
    """File with the token of a workload identity. It is read again for every token."""
    managed: bool = False
    """Use the managed identity of the machine, whatever the environment names."""
    scope: Scope | None = None
    """Scope of the token. When absent: ``https://ai.azure.com/.default`` for hosts of Foundry, and else
    ``https://cognitiveservices.azure.com/.default``."""
    authority: Url | None = None
    """Issuer of the tokens. When absent: ``AZURE_AUTHORITY_HOST``, or ``https://login.microsoftonline.com``."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.secret is not None) + (self.token_file is not None) + self.managed > 1:
            raise ValueError("a token has one source: give `secret`, `token_file` or `managed`")
        return self


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
    short_schema: ClassVar[JsonSchemaValue | None] = {"type": "string", "minLength": 1}

    run: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...],
        BeforeValidator(lambda run: (run,) if isinstance(run, str) else run),
    ] = Field(min_length=1, max_length=64)
    """The program and its arguments. Put no secret in them: other users of the host can read them."""
    timeout: Duration = 10.0
    """Time after which the program is stopped and has failed."""
    lifetime: Duration = 300.0
    """How long a token without an expiry is used."""


class CredentialsConfig(Section):
    """Credentials that the gateway makes, in place of ``key``. One of the fields is the kind."""

    aws: AwsCredentials | None = None
    """AWS Signature Version 4, for Bedrock and other services of AWS."""
    google: GoogleCredentials | None = None
    """Access tokens of Google Cloud, for Vertex AI and Gemini."""
    azure: AzureCredentials | None = None
    """Access tokens of Microsoft Entra, for Azure OpenAI and Foundry."""
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
