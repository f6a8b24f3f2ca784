"""The language of a text, by py3langid (langid.py of Lui and Baldwin, 2012)."""

import asyncio
from functools import cache
from typing import Any

from config.installing import installing
from config.schema.guards import LanguageGuardConfig
from gateway.features.guards.judges.base import GuardCalls, Judge

LETTERS = 20
"""Letters below which no language is decided."""


@cache
def _identifier() -> Any:
    """The identifier with its model, which is loaded once. Raises `ValueError` without the extra."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise ValueError(f"it needs py3langid: {installing('languages')}") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class LanguageJudge(Judge):
    """Finds texts in a language that is denied, or not allowed. A short or unclear text is not decided."""

    def __init__(self, config: LanguageGuardConfig) -> None:
        super().__init__(config)
        self._allow = frozenset(config.allow)
        self._deny = frozenset(config.deny)
        self._confidence = config.confidence
        self._identifier = _identifier()

    async def finds(self, text: str, calls: GuardCalls) -> bool:
        if sum(map(str.isalpha, text)) < LETTERS:
            return False
        await asyncio.sleep(0)  # a prompt may have thousands of windows: other requests go on between them
        language, share = self._identifier.classify(text)
        if share < self._confidence:
            return False
        return language in self._deny or bool(self._allow and language not in self._allow)
