"""Secrets of a text ↔ placeholders, which a browser may have.

A placeholder is a keyed digest of the secret and of the field to which the secret belongs. It is restored in such a
field only: the password of a URL with its own host, not with another one.
"""

import hmac
import re
from collections import Counter
from collections.abc import Iterable

from config.problem import Problem, hidden
from gateway.admin.drafts.spans import spans_of

_FORM = re.compile(r"redacted-[0-9a-f]{24}(?![0-9a-f])")


class Placeholders:
    """The placeholders of the secrets of some texts."""

    def __init__(self, key: bytes, texts: Iterable[str] = ()) -> None:
        """`texts` have the secrets that `restore` writes."""
        self._key = key
        self._secrets: dict[str, str] = {}
        self._literal: set[str] = set()
        """Texts in the form of a placeholder that stand in the file itself."""
        for text in texts:
            self.redact(text)
            self._literal.update(_FORM.findall(text))

    def redact(self, text: str) -> str:
        """The text with a placeholder for each secret."""
        parts, at = [], 0
        for span in spans_of(text):
            secret = text[span.start : span.end]
            parts += [text[at : span.start], self._of(secret, span.field)]
            at = span.end
        return "".join((*parts, text[at:]))

    def restore(self, text: str, file: str) -> tuple[str, list[Problem]]:
        """The text with its secrets, and the placeholders that have none or stand in another field."""
        if _FORM.search(text) is None:
            return text, []
        unresolved = [
            match for match in _FORM.finditer(text) if match[0] not in self._secrets and match[0] not in self._literal
        ]
        problems = [
            _problem(file, text, match, "stands for no secret of the file: write the secret, or load the file again")
            for match in unresolved
        ]
        restored = _FORM.sub(lambda match: self._secrets.get(match[0], match[0]), text)
        moved = Counter(_FORM.findall(text)) - Counter(_FORM.findall(self.redact(restored)))
        problems += [
            _problem(file, text, match, "belongs to another field, URL or host: write the secret")
            for match in _FORM.finditer(text)
            if match[0] in self._secrets and moved[match[0]] > 0
        ]
        return restored, problems

    def hide(self, text: str) -> str:
        """A message without the secrets."""
        return hidden(text, {secret: placeholder for placeholder, secret in self._secrets.items()})

    def _of(self, secret: str, field: str) -> str:
        digest = hmac.digest(self._key, f"{field}\0{secret}".encode(errors="surrogatepass"), "sha256").hex()
        placeholder = f"redacted-{digest[:24]}"
        self._secrets[placeholder] = secret
        return placeholder


def _problem(file: str, text: str, match: re.Match[str], message: str) -> Problem:
    return Problem(file, text.count("\n", 0, match.start()) + 1, match[0], message)
