"""The shapes of keys and tokens, as their issuers document them.

Each begins with fixed letters. `run` are the characters that it may have after them: a secret ends before the first
other character, which settles it in a stream. `is_random` tells a key from the name of a thing: `sk-learn-compatible`.
"""

import re
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

    @property
    def is_named(self) -> bool:
        """Whether the first letters are the name of the secret, which stands before it."""
        return self.run == _AWS_RUN


_WORD, _KEY, _PEM = "[A-Za-z0-9]", "[A-Za-z0-9_-]", r"[A-Za-z0-9 ,:+/=\s\\_-]"
_NAME, _DOTS, _BASE64 = "[A-Za-z0-9_]", "[A-Za-z0-9_.-]", "[A-Za-z0-9+/=]"
_PEM_HEAD = "[A-Z ]{0,32}PRIVATE KEY-----"
_AWS_RUN = r"[A-Za-z0-9+/ \"':=]"
_AWS_REST = r"[\"' ]{0,2}[:=][\"' ]{0,3}[A-Za-z0-9+/]{40}"
"""Of a secret without first letters of its own: its name stands before it, and belongs to the span."""
_GITLAB = "(?:pat|oas|dt|rtr?|cbt|ptt|ft|imt|agent|wt|soat|ffct)"

SHAPES: tuple[SecretShape, ...] = (
    SecretShape("openai", "sk-", _KEY, f"{_KEY}{{20,}}"),  # also Anthropic, OpenRouter, DeepSeek
    SecretShape("headrace", "hr-", _KEY, f"[a-z2-7]+-{_KEY}{{43}}"),
    # Not the middle of a longer word, which a picture in base64 has.
    SecretShape("aws-access-key", "AKIA", _WORD, r"[A-Z0-9]{16}\b"),
    SecretShape("aws-session-key", "ASIA", _WORD, r"[A-Z0-9]{16}\b"),
    SecretShape("aws-secret-key", "aws_secret_access_key", _AWS_RUN, _AWS_REST),
    SecretShape("aws-secret-key", "AWS_SECRET_ACCESS_KEY", _AWS_RUN, _AWS_REST),
    SecretShape("aws-secret-key", "SecretAccessKey", _AWS_RUN, _AWS_REST),
    SecretShape("aws-secret-key", "secretAccessKey", _AWS_RUN, _AWS_REST),
    SecretShape("azure-storage-key", "AccountKey=", _BASE64, "[A-Za-z0-9+/]{86}=="),
    SecretShape("azure-sas", "sig=", "[A-Za-z0-9%]", "[A-Za-z0-9%]{43,}%3[Dd]"),
    SecretShape("github", "gh", _NAME, "[opusr]_[A-Za-z0-9]{36,}"),
    SecretShape("github-fine-grained", "github_pat_", _NAME, "[A-Za-z0-9_]{22,}"),
    SecretShape("gitlab", "gl", _DOTS, rf"{_GITLAB}-{_KEY}{{20,}}(?:\.[a-z0-9]{{2}}\.[a-z0-9]{{9}})?"),
    SecretShape("slack", "xox", _KEY, f"[abeoprs]-{_KEY}{{10,}}"),
    SecretShape("slack-app", "xapp-", _KEY, f"[0-9]-{_KEY}{{20,}}"),
    SecretShape(
        "slack-webhook", "https://hooks.slack.com/services/", "[A-Za-z0-9/]", "T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{16,}"
    ),
    SecretShape("google-api-key", "AIza", _KEY, f"{_KEY}{{35}}"),
    SecretShape("google-access-token", "ya29.", _KEY, f"{_KEY}{{30,}}"),
    SecretShape("google-client-secret", "GOCSPX-", _KEY, f"{_KEY}{{28}}"),
    SecretShape("stripe", "sk_", _NAME, "(?:live|test)_[A-Za-z0-9]{16,}"),
    SecretShape("stripe-restricted", "rk_", _NAME, "(?:live|test)_[A-Za-z0-9]{16,}"),
    SecretShape("stripe-webhook", "whsec_", _BASE64, "[A-Za-z0-9+/=]{32,}"),
    SecretShape("npm", "npm_", _WORD, f"{_WORD}{{36}}"),
    SecretShape("pypi", "pypi-", _KEY, f"{_KEY}{{50,}}"),
    SecretShape("hugging-face", "hf_", _WORD, f"{_WORD}{{30,}}"),
    SecretShape("sendgrid", "SG.", _DOTS, rf"{_KEY}{{16,}}\.{_KEY}{{16,}}"),
    SecretShape("groq", "gsk_", _WORD, f"{_WORD}{{40,}}"),
    SecretShape("xai", "xai-", _WORD, f"{_WORD}{{60,}}"),
    SecretShape("perplexity", "pplx-", _WORD, f"{_WORD}{{40,}}"),
    SecretShape("replicate", "r8_", _WORD, f"{_WORD}{{37}}"),
    SecretShape("docker", "dckr_", _KEY, f"[po]at_{_KEY}{{27,}}"),
    SecretShape("digitalocean", "do", "[a-z0-9_]", "[opr]_v1_[a-f0-9]{64}"),
    SecretShape("databricks", "dapi", "[a-f0-9-]", "[a-f0-9]{32}(?:-[0-9])?"),
    SecretShape("shopify", "shp", _NAME, "(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    SecretShape("vault", "hvs.", _KEY, f"{_KEY}{{24,}}"),
    SecretShape("jwt", "eyJ", _DOTS, rf"{_KEY}{{8,}}\.eyJ{_KEY}{{8,}}\.{_KEY}*"),
    SecretShape("private-key", "-----BEGIN ", _PEM, rf"{_PEM_HEAD}(?:{_PEM}*?-----END {_PEM_HEAD}|{_PEM}*)"),
)

_PARTS = re.compile(r"[A-Za-z0-9]+")
_SHOWN = re.compile("[xX0]{6,}")
"""What only shows where a key goes."""
_MIXED = re.compile(r"[a-z]*\d+[A-Za-z]|[A-Za-z]+\d|[A-Za-z]*[a-z][A-Z]")
_DIGIT = re.compile(r"\d")


def is_random(secret: str) -> bool:
    """Whether a part between hyphens is one that a machine has made: no word, and not `xxxx`.

    A part of 20 is no word, and neither is one of eight with a digit or a capital inside. Two shorter ones suffice.
    """
    if secret.startswith("-----"):
        return True
    parts = _PARTS.findall(_SHOWN.sub("", secret))
    if any(len(part) >= 20 or (len(part) >= 8 and (_DIGIT.search(part) or _MIXED.match(part))) for part in parts):
        return True
    return sum(len(part) >= 3 and _MIXED.match(part) is not None for part in parts) >= 2
