"""The text of a model's failure, without secrets and addresses.

A server returns the text of its model's exception, which may contain a traceback, paths, addresses and credentials.
"""

import re

MAX_SCANNED = 8_000
"""Characters of a text that are processed: the patterns take linear time, and a text may have megabytes."""
MAX_TEXT = 1_000

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*")
_FRAMES = re.compile(r"\n+At:\n(?:[ \t]+[^\n]*\n?)*")
"""Triton's form of a traceback, which follows the message."""
_NAMED_SECRET = re.compile(
    r"(?i)\b((?:[\w-]{0,40}(?:api[_-]?key|token|secret|passw(?:or)?d|authorization|credential))\w{0,40}[\"']?\s{0,3}[:=]"
    r"\s{0,3}[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"',;)}\]]+"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_SECRET = re.compile(
    r"\b(?:sk|pk|hr|rk|xox[abp]|hf|gh[opsru]|glpat|AKIA|ASIA|AIza)[_-]?[\w-]{12,}|\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"
)
_OPAQUE = re.compile(r"(?<![\w+/=-])(?=[\w+/=-]{0,200}[0-9])(?=[\w+/=-]{0,200}[A-Za-z])[\w+/=-]{32,}")

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}:/{1,3}[^\s\"'<>)\]]+")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.]*\d)")
_IPV6 = re.compile(
    r"\[[0-9A-Fa-f:.%\w]{2,60}\](?::\d{1,5})|(?<![\w:])(?:(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{0,4}"
    r"|(?:[0-9A-Fa-f]{1,4}:){0,6}:(?:[0-9A-Fa-f]{1,4}:){0,6}[0-9A-Fa-f]{1,4})(?![\w:])"
)
_HOST = re.compile(
    r"\b[A-Za-z0-9][\w.-]{0,200}:\d{4,5}\b|\blocalhost\b(?::\d{1,5})?"
    r"|\b(?:[A-Za-z0-9][\w-]{0,62}\.){1,10}(?:svc|local|internal|cluster|lan|corp|intranet|consul)\b(?:\.\w+)*(?::\d+)?"
)
_PATH = re.compile(r"(?<![\w.\])}>])~?(?:/[\w.@+%=~-]+){2,}/?|\b[A-Za-z]:\\[^\s\"']+")


def for_log(text: str) -> str:
    """Return the text as one bounded line without credentials."""
    text = _TRACEBACK.sub("", text[:MAX_SCANNED])
    text = _FRAMES.sub("", text)
    text = _NAMED_SECRET.sub(r"\1[secret]", text)
    text = _BEARER.sub(r"\1 [secret]", text)
    text = _SECRET.sub("[secret]", text)
    printable = "".join([sign if sign.isprintable() else " " for sign in text])
    return " ".join(printable.split())[:MAX_TEXT]


def for_clients(text: str) -> str:
    """Return the text as one bounded line without addresses, paths of the machine and possible credentials."""
    text = _URL.sub("[address]", for_log(text))
    text = _IPV6.sub("[address]", _IPV4.sub("[address]", text))
    text = _PATH.sub("[path]", _HOST.sub("[address]", text))
    return _OPAQUE.sub("[secret]", text)[:MAX_TEXT]
