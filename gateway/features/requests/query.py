"""Reads a search from texts: parameters of a URL."""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from adapters.wire.decoding import whole_number
from gateway.features.journal.lines import DAY_MICROS, LABELS, MICROS, MOST_TEXT
from gateway.features.requests.search import MOST_ROWS, LabelTest, RequestQuery
from gateway.features.usage.query import BadQuery
from policies.facts import bounded_user

PARAMETERS = ("id", "trace", "user", "from", "to", "limit", "after", "totals", "choices", *(name for name in LABELS))
_STATUS = re.compile(r"[1-5]\d\d|[1-5]xx")
_AFTER = re.compile(r"(\d{1,18})-(\d{1,19})")
_LARGEST = 2**63 - 1
_YEAR_10000 = 253_402_300_800 * MICROS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ANY = "*"
"""As `error` or `code`: any error."""


def query_of(texts: Mapping[str, str], within: str | None = None) -> RequestQuery:
    """A search, by default of all times. `within` is the only tenant whose requests it finds. Raises `BadQuery`."""
    end = int(time.time() * MICROS) + DAY_MICROS  # clocks of gateways differ
    begin, end = _time("from", texts, 0), _time("to", texts, end)
    if end <= begin:
        raise BadQuery("to", "must be after `from`")
    tests = [label_test(name, texts[name]) for name in LABELS if name in texts and (name != "tenant" or within is None)]
    if within is not None:
        if texts.get("tenant", within) != within:
            raise BadQuery("tenant", f"this key may read the requests of {within} alone")
        tests.append(LabelTest("tenant", within))
    for name in ("id", "trace"):
        if len(texts.get(name, "")) > MOST_TEXT:
            raise BadQuery(name, f"must have at most {MOST_TEXT} characters")
    id_, trace, after = texts.get("id"), texts.get("trace"), _after(texts.get("after"))
    return RequestQuery(begin, end, tuple(tests), id_, trace, _user(texts.get("user")), after, _limit(texts))


def label_test(name: str, text: str) -> LabelTest:
    """The comparison that a parameter demands. Raises `BadQuery`."""
    if name == "status":
        if not _STATUS.fullmatch(text):
            raise BadQuery(name, "must be a status such as 429, or a class such as 5xx")
        first = int(text.replace("x", "0"))
        return LabelTest(name, first, first + 99 if text.endswith("xx") else None)
    if len(text) > 2 * MOST_TEXT:
        raise BadQuery(name, f"must have at most {2 * MOST_TEXT} characters")
    return LabelTest(name, None) if text == ANY and name in ("error", "code") else LabelTest(name, text)


def _user(text: str | None) -> str | None:
    """The end user as records name it."""
    if text == "":
        raise BadQuery("user", "must not be empty")
    return None if text is None else bounded_user(text)


def _time(name: str, texts: Mapping[str, str], default: int) -> int:
    if name not in texts:
        return default
    try:
        moment = datetime.fromisoformat(texts[name].replace("Z", "+00:00"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        micros = (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise BadQuery(name, "must be a time such as 2026-11-01 or 2026-11-01T13:07:30Z") from None
    if not 0 <= micros < _YEAR_10000:
        raise BadQuery(name, "must be a year from 1970 to 9999")
    return micros


def _after(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = _AFTER.fullmatch(text)
    if match is None or not text.isascii() or int(match[2]) > _LARGEST:
        raise BadQuery("after", "must be the `next` of the page before")
    return int(match[1]), int(match[2])


def _limit(texts: Mapping[str, str]) -> int:
    if (limit := whole_number(texts.get("limit", "50"), 1, MOST_ROWS)) is None:
        raise BadQuery("limit", f"must be a number from 1 to {MOST_ROWS}")
    return limit
