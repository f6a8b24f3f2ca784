"""Reads a query of usage from texts: options of the command line, or parameters of a URL."""

import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import cast, get_args

import msgspec

from adapters.wire.decoding import whole_number
from gateway.features.usage.labels import HOUR
from gateway.features.usage.overview import MOST_ROWS as LARGEST_OVERVIEW
from gateway.features.usage.overview import OverviewQuery
from gateway.features.usage.report import MOST_ROWS, Label, Period, UsageQuery, groups_of

PARAMETERS = ("from", "to", "by", "per", "tenant", "limit", "after", "team", "model", "key", "user")
OVERVIEW = ("from", "to", "by", "tenant", "limit", "team", "model", "key", "user")
"""The parameters of an overview."""
_TESTED: tuple[Label, ...] = ("team", "model", "key", "user")
_MOST_DAYS = 1100
_after = msgspec.json.Decoder(list[str | int])


class BadQuery(ValueError):
    """A text is not valid. `name` is its parameter."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def query_of(texts: Mapping[str, str], within: str | None = None) -> UsageQuery:
    """A query, by default of this month by tenant. `within` is the only tenant that it may read. Raises `BadQuery`."""
    now = datetime.fromtimestamp(time.time(), UTC)
    begin = _hour("from", texts["from"]) if "from" in texts else _hour("from", f"{now:%Y-%m-01}")
    end = _hour("to", texts["to"]) if "to" in texts else int(now.timestamp()) // HOUR + 1
    if end <= begin:
        raise BadQuery("to", "must be after `from`")
    tenant = texts.get("tenant", within)
    if within is not None and tenant != within:
        raise BadQuery("tenant", f"this key may read the usage of {within} alone")
    tests = _tests(texts)
    query = UsageQuery(begin, end, _labels(texts.get("by", "tenant")), _period(texts.get("per")), tenant, tests)
    return query._replace(limit=_limit(texts.get("limit")), after=_group(texts.get("after"), query))


def overview_query(texts: Mapping[str, str], within: str | None = None) -> OverviewQuery:
    """An overview, by default of this month. `within` is the only tenant that it may read. Raises `BadQuery`."""
    by = texts.get("by", "tenant")
    query = query_of({**texts, "by": by, "limit": "1"}, within)
    labels = _labels(by)
    if len(labels) != 1 or labels == ("currency",):
        raise BadQuery("by", "must be one of tenant, team, model, key, user, arm")
    for name, hour in (("from", query.begin), ("to", query.end)):
        if name in texts and hour % 24:
            raise BadQuery(name, "must be a day such as 2026-11-01")
    begin, end = _day(query.begin), _day(query.end + 23)
    if (end - begin).days > _MOST_DAYS:
        raise BadQuery("from", f"must be at most {_MOST_DAYS} days before `to`")
    if (limit := whole_number(texts.get("limit", "200"), 1, LARGEST_OVERVIEW)) is None:
        raise BadQuery("limit", f"must be a number from 1 to {LARGEST_OVERVIEW}")
    tests = query.tests if query.tenant is None else (("tenant", query.tenant), *query.tests)
    today = datetime.fromtimestamp(time.time(), UTC).date()
    return OverviewQuery(begin, end, today, labels[0], tests, limit)


def _day(hour: int) -> date:
    return datetime.fromtimestamp(hour * HOUR, UTC).date()


def _tests(texts: Mapping[str, str]) -> tuple[tuple[Label, str], ...]:
    return tuple((label, texts[label]) for label in _TESTED if label in texts)


def _hour(name: str, text: str) -> int:
    """The hour of a day or a time in UTC: 2026-11-01, 2026-11-01T13, 2026-11-01T13:00:00Z."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = int(moment.timestamp())
    except (ValueError, OverflowError):
        raise BadQuery(name, "must be a day or a time such as 2026-11-01 or 2026-11-01T13:00Z") from None
    if seconds % HOUR:
        raise BadQuery(name, "must be a whole hour")
    if not 0 <= seconds < 253_402_300_800:
        raise BadQuery(name, "must be a year from 1970 to 9999")
    return seconds // HOUR


def _labels(text: str) -> tuple[Label, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(set(names)) < len(names) or not set(names) <= set(get_args(Label)):
        raise BadQuery("by", f"must list some of {', '.join(get_args(Label))}, each once")
    return cast(tuple[Label, ...], names)


def _period(text: str | None) -> Period | None:
    if text is None or text in get_args(Period):
        return cast(Period | None, text)
    raise BadQuery("per", f"must be {' or '.join(get_args(Period))}")


def _limit(text: str | None) -> int:
    if text is None:
        return MOST_ROWS
    if (limit := whole_number(text, 1, MOST_ROWS)) is None:
        raise BadQuery("limit", f"must be a number from 1 to {MOST_ROWS}")
    return limit


def _group(text: str | None, query: UsageQuery) -> list[str | int]:
    if text is None:
        return []
    try:
        group = _after.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        group = []
    names = groups_of(query)
    if len(group) != len(names) or any(
        isinstance(value, int) != (name == "hour") for name, value in zip(names, group, strict=True)
    ):
        raise BadQuery("after", "must be the `next` of the page before")
    return group
