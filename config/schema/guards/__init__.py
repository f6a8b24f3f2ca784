"""The ``guards`` of the file: what texts of requests and answers must not contain.

kinds.py     the sections of guards that compare texts, one for each kind
judges.py    the sections of guards that judge whole texts
personal.py  the section of personal data
"""

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict

from config.schema.guards.judges import (
    InjectionGuardConfig,
    JudgingGuardConfig,
    LanguageGuardConfig,
    ModelGuardConfig,
    SchemaGuardConfig,
    TopicsGuardConfig,
    WebhookGuardConfig,
)
from config.schema.guards.kinds import (
    MOST_WORDS,
    ExemptConfig,
    NamedGuardConfig,
    PatternGuardConfig,
    SecretsGuardConfig,
    Side,
    UrlsGuardConfig,
    WordsGuardConfig,
)  # fmt: skip
from config.schema.guards.personal import PersonalGuardConfig, RecogniserConfig
from config.schema.section import any_of, by_kind

__all__ = [
    "KINDS", "MOST_WORDS", "AnyGuard", "ExemptConfig", "InjectionGuardConfig", "JudgingGuardConfig",
    "LanguageGuardConfig", "ModelGuardConfig", "NamedGuardConfig", "PatternGuardConfig", "PersonalGuardConfig",
    "RecogniserConfig", "SchemaGuardConfig", "SecretsGuardConfig", "Side", "TopicsGuardConfig", "UrlsGuardConfig",
    "WebhookGuardConfig", "WordsGuardConfig",
]  # fmt: skip

_SECTIONS: tuple[type[NamedGuardConfig], ...] = (
    WordsGuardConfig,
    PatternGuardConfig,
    SecretsGuardConfig,
    UrlsGuardConfig,
    PersonalGuardConfig,
    ModelGuardConfig,
    InjectionGuardConfig,
    TopicsGuardConfig,
    LanguageGuardConfig,
    SchemaGuardConfig,
    WebhookGuardConfig,
)
KINDS: dict[str, type[NamedGuardConfig]] = by_kind(_SECTIONS)
"""The section of each kind."""


class _NoKind(NamedGuardConfig):
    """The section for a missing or unknown kind: it validates only `kind`, and so reports the valid kinds."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal[
        "words", "pattern", "secrets", "urls", "personal", "model", "injection", "topics", "language", "schema",
        "webhook",
    ]  # fmt: skip


if TYPE_CHECKING:
    AnyGuard = NamedGuardConfig
else:
    AnyGuard = any_of(KINDS, _NoKind)
    """Any guard's section."""
