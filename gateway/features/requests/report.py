"""Records as JSON."""

from collections.abc import Mapping
from typing import Any

import msgspec

from config.schema.money import format_amount
from gateway.features.journal.lines import time_of

_SHOWN = (
    "id",
    "tenant",
    "team",
    "user",
    "key",
    "model",
    "operation",
    "pool",
    "arm",
    "endpoint",
    "status",
    "error",
    "code",
    "stream",
)
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "rows", "bytes")


class _Detail(msgspec.Struct):
    """The part of a detail that a list shows. Records of earlier releases have no reason."""

    reason: dict[str, Any] = {}


_detail_of = msgspec.json.Decoder(_Detail).decode
_SECRET_CAUSES = {"model_not_allowed": "model_unknown"}
"""Causes that only operators read: a tenant must not learn the names of others' models."""


def summary(row: Mapping[str, Any], *, of_tenant: bool = False) -> dict[str, Any]:
    """One row of a list. Empty fields are omitted. `of_tenant`: the reader is the admin of a tenant."""
    made: dict[str, Any] = {"time": time_of(row["at"])}
    made |= {name: row[name] for name in _SHOWN if row[name] != ""}
    made["duration_ms"] = row["duration"] / 1000
    if row["first_chunk"] >= 0:
        made["first_chunk_ms"] = row["first_chunk"] / 1000
    made |= {name: row[name] for name in _COUNTS if row[name]}
    if row["device_us"]:
        made["device_ms"] = row["device_us"] / 1000
    if row["currency"]:
        made |= {"cost": format_amount(row["picos"]), "currency": row["currency"]}
    if row["trace"]:
        made["trace_id"] = row["trace"]
    if row["code"] and (reason := _detail_of(row["detail"]).reason):
        made["cause"] = _shown(reason["cause"], of_tenant=of_tenant)
    return made


def _shown(cause: str, *, of_tenant: bool) -> str:
    return _SECRET_CAUSES.get(cause, cause) if of_tenant else cause


def timeline(row: Mapping[str, Any], *, of_tenant: bool = False) -> dict[str, Any]:
    """One request with its decision, attempts, steps and events. Times are milliseconds after its begin."""
    made = summary(row, of_tenant=of_tenant)
    detail: dict[str, Any] = msgspec.json.decode(row["detail"])
    if "reason" in detail:
        detail["reason"]["cause"] = made.pop("cause")
    if "attempts" in detail:
        detail["attempts"] = [{"endpoint": endpoint, "at_ms": at} for endpoint, at in detail["attempts"]]
    if "events" in detail:
        detail["events"] = [{"event": event, "of": of} for event, of in detail["events"]]
    return made | detail


def following(row: Mapping[str, Any]) -> str:
    """The `after` of the page behind a row."""
    return f"{row['at']}-{row['number']}"


def total(sums: Mapping[str, Any]) -> dict[str, Any]:
    """The sums of a currency."""
    made = {name: sums[name] for name in ("requests", *_COUNTS)}
    return made | ({"cost": format_amount(sums["picos"]), "currency": sums["currency"]} if sums["currency"] else {})
