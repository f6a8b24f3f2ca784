"""The shapes of keys and tokens, as their issuers document them.

Each begins with fixed letters. `run` are the characters that it may have after them: a secret ends before the first
other character, which settles it in a stream.
"""

from typing import NamedTuple


class SecretShape(NamedTuple):
    """One kind of secret."""

    name: str
    begin: str
    """Its first letters."""
    run: str
    """The class of its other characters, as in a pattern."""
    rest: str
    """The pattern of what follows the first letters."""


_WORD, _KEY, _PEM = "[A-Za-z0-9]", "[A-Za-z0-9_-]", r"[A-Za-z0-9 ,:+/=\s\\_-]"
_PEM_HEAD = "[A-Z ]{0,32}PRIVATE KEY-----"

SHAPES: tuple[SecretShape, ...] = (
    SecretShape("openai", "sk-", _KEY, f"{_KEY}{{20,}}"),
    SecretShape("headrace", "hr-", _KEY, f"[a-z2-7]+-{_KEY}{{43}}"),
    SecretShape("aws-access-key", "AKIA", _WORD, "[A-Z0-9]{16}"),
    SecretShape("aws-session-key", "ASIA", _WORD, "[A-Z0-9]{16}"),
    SecretShape("github", "gh", "[A-Za-z0-9_]", "[opusr]_[A-Za-z0-9]{36,}"),
    SecretShape("github-fine-grained", "github_pat_", "[A-Za-z0-9_]", "[A-Za-z0-9_]{22,}"),
    SecretShape("gitlab", "glpat-", _KEY, f"{_KEY}{{20,}}"),
    SecretShape("slack", "xox", _KEY, f"[abeoprs]-{_KEY}{{10,}}"),
    SecretShape("google-api-key", "AIza", _KEY, f"{_KEY}{{35}}"),
    SecretShape("stripe", "sk_", "[A-Za-z0-9_]", "(?:live|test)_[A-Za-z0-9]{16,}"),
    SecretShape("stripe-restricted", "rk_", "[A-Za-z0-9_]", "(?:live|test)_[A-Za-z0-9]{16,}"),
    SecretShape("npm", "npm_", _WORD, f"{_WORD}{{36}}"),
    SecretShape("hugging-face", "hf_", _WORD, f"{_WORD}{{30,}}"),
    SecretShape("sendgrid", "SG.", "[A-Za-z0-9_.-]", rf"{_KEY}{{16,}}\.{_KEY}{{16,}}"),
    SecretShape("jwt", "eyJ", "[A-Za-z0-9_.-]", rf"{_KEY}{{8,}}\.eyJ{_KEY}{{8,}}\.{_KEY}*"),
    SecretShape("private-key", "-----BEGIN ", _PEM, rf"{_PEM_HEAD}(?:{_PEM}*?-----END {_PEM_HEAD}|{_PEM}*)"),
)
