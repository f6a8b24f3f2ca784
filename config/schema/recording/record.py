"""The ``record`` of the file: requests, decisions and answers that are written to a folder, encrypted."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from config.schema.section import Section
from config.schema.text import Glob, HeaderName, Secret, Shape
from config.schema.units import Duration, Percent, Size

NAMED = ("email", "phone", "card", "ip")
"""Kinds of text that ``redact`` can remove. Keys and other secrets are always removed."""
LEAST_KEY = 16
LEAST_SIZE = 2**20
CREDENTIAL_HEADERS = frozenset(
    {
        "api-key", "authorization", "cookie", "ocp-apim-subscription-key", "proxy-authorization", "set-cookie",
        "x-amz-security-token", "x-api-key", "x-auth-token", "x-csrf-token", "x-goog-api-key",
    }
)  # fmt: skip
"""Headers that carry credentials, which no record has."""

_STEP = r"(\.[A-Za-z_][A-Za-z0-9_-]*|\[\*\]|\[\d{1,6}\])"
Redaction = Annotated[
    str,
    Shape(
        rf"({'|'.join(NAMED)})|json:\${_STEP}+",
        f"{', '.join(NAMED)}, or a path such as json:$.messages[*].content",
    ),
]


def _no_credential(name: str) -> str:
    if name.lower() in CREDENTIAL_HEADERS:
        raise ValueError("this header carries a credential, which is never recorded")
    return name.lower()


RecordedHeader = Annotated[HeaderName, AfterValidator(_no_credential)]


class RecordConfig(Section):
    """Recorded traffic, for ``headrace replay``. Records are written behind the requests, redacted and encrypted."""

    to: str = Field(min_length=1)
    """Folder of the records, relative to the working directory. Several processes may write to one folder."""
    key: Secret
    """Secret under which the key of each segment is encrypted; 16 characters at least."""
    share: Percent = Field(0.01, ge=0, le=1)
    """Share of requests that are recorded, chosen by a keyed digest of the request's id."""
    keep: Duration = 7 * 86400.0
    """Time until a segment is deleted, after its last record. Then its key and its file are deleted."""
    max: Size = 5 * 2**30
    """Most bytes of the folder, at least ``1MiB``. The oldest segments are deleted beyond it."""
    bodies: Literal[True, "digest"] = True
    """``true``: the redacted bodies of requests. ``digest``: only a keyed digest of each body, and no answers."""
    answers: bool = False
    """Whether the redacted answers are recorded, for ``headrace replay --against``."""
    redact: tuple[Redaction, ...] = ()
    """Texts to remove before anything is queued: ``email``, ``phone``, ``card``, ``ip``, or the values at a path of a
    JSON body. Keys, tokens, passwords and other secrets are removed in any case."""
    headers: tuple[RecordedHeader, ...] = ()
    """Headers to record besides those that routes read. Headers of credentials are never recorded."""
    exclude: tuple[Glob, ...] = ()
    """Models whose requests are not recorded."""

    @model_validator(mode="after")
    def _effective(self) -> Self:
        if len(self.key.get_secret_value()) < LEAST_KEY:
            raise ValueError(f"the key has fewer than {LEAST_KEY} characters: use a random one")
        if self.max < LEAST_SIZE:
            raise ValueError("max is at least 1MiB")
        if self.answers and self.bodies == "digest":
            raise ValueError("answers are recorded with bodies only: remove `answers` or `bodies: digest`")
        return self
