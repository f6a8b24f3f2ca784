"""The ``batches`` of the file: uploaded files, and requests that may wait; the batches of a pool's provider."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from config.schema.protocols.credentials import AwsCredentials
from config.schema.section import Section
from config.schema.text import Secret, Shape, Url
from config.schema.units import Count, Duration, Percent, Size

Storage = Annotated[
    str,
    Shape(r"file:.+|s3://[a-z0-9][a-z0-9.-]{1,62}(/[A-Za-z0-9._/-]*)?", "file:FOLDER, or s3://BUCKET/PREFIX"),
]


class S3Credentials(Section):
    """Access keys that the gateway makes and renews, as for a pool: see ``docs/credentials.md``."""

    aws: AwsCredentials
    """Source of the keys. The region is that of ``s3``."""

    @model_validator(mode="after")
    def _is_of_s3(self) -> Self:
        if self.aws.region is not None or self.aws.service is not None:
            raise ValueError("the region of the signatures is the `region` of `s3`, and the service is S3")
        return self


class S3Config(Section):
    """A server of S3's protocol."""

    endpoint: Url
    """URL of the server, without the bucket."""
    region: str = Field("us-east-1", min_length=1, max_length=64)
    """Region in the signatures of requests."""
    key_id: Secret | None = None
    """Access key id, together with ``secret``."""
    secret: Secret | None = None
    """Secret access key."""
    credentials: S3Credentials | None = None
    """Keys that the gateway makes, in place of ``key_id`` and ``secret``."""
    timeout: Duration = 30.0
    """Longest time of one request to the server."""

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if (self.key_id is None) != (self.secret is None):
            raise ValueError("an access key has two parts: give `key_id` and `secret`")
        if (self.key_id is None) == (self.credentials is None):
            raise ValueError("the server needs one credential: give `key_id` and `secret`, or `credentials`")
        return self


class BatchesConfig(Section):
    """OpenAI's ``/v1/files`` and ``/v1/batches``, and Anthropic's ``/v1/messages/batches``."""

    storage: Storage = "file:.headrace/files"
    """Where files and results are stored. ``file:FOLDER`` is relative to the working directory. Gateways that share
    batches need the same ``state.database`` and the same storage: a shared folder, or ``s3://BUCKET/PREFIX``."""
    s3: S3Config | None = None
    """Server and credentials of ``s3://``."""
    max_file: Size = 200 * 1024**2
    """Largest uploaded file. A file is streamed to the storage, so that ``http.max_body`` does not bound it."""
    max_lines: int = Field(50_000, ge=1, le=1_000_000)
    """Most lines of a batch. Anthropic's batches may have twice as many."""
    retention: Duration = 30 * 86400.0
    """How long a file is stored, and a batch after its end. A client may choose an earlier end."""
    window: Duration = 86400.0
    """Longest ``completion_window``. Lines that have not run by then are reported as expired."""
    concurrency: int = Field(64, ge=1, le=4096)
    """Most lines that one process runs at the same time."""
    reserve: Percent = 0.1
    """Share of a pool's places that batches leave free for live requests."""
    commit: Duration = 1.0
    """Longest time until a result is durable. A crash repeats at most the calls of this time and those in flight."""

    takeover: Duration = 10.0
    """Time without a sign of life after which another process continues the work of a process that has died. A process
    shows its life once a second."""

    @model_validator(mode="after")
    def _server_of_s3(self) -> Self:
        if self.storage.startswith("s3:") != (self.s3 is not None):
            raise ValueError("`s3` goes with `storage: s3://BUCKET/PREFIX`, and this storage needs it")
        return self


class TenantBatchesConfig(Section):
    """Bounds on the batches of a tenant."""

    enqueued_tokens: Count | None = None
    """Most prompt tokens, by estimate, in all unfinished batches of the tenant. A batch beyond it fails at once."""
    active: int = Field(100, ge=1)
    """Most unfinished batches."""


class ProviderBatchesConfig(Section):
    """Lines of batches go to the provider's own batch API, at its price for batches: OpenAI's ``/v1/batches`` or
    Anthropic's ``/v1/messages/batches``. The pool has one endpoint and its ``key``. Live requests are sent as usual."""

    poll: Duration = 30.0
    """Time between two requests for the state of a batch."""
    max_size: int = Field(16 * 1024**2, ge=64 * 1024, le=200 * 1024**2)
    """Bytes after which a submission is sent to the provider. A batch of up to 500 lines is one submission for each
    model."""
