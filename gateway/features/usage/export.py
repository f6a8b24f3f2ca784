"""Reports of usage as text: JSON with amounts, CSV, FOCUS, invoices.

FOCUS is the FinOps Open Cost and Usage Specification 1.2 (https://focus.finops.org/focus-specification/v1-2/).
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from config.schema.money import format_amount
from gateway.features.usage.discounts import Volumes, discount
from gateway.features.usage.labels import COUNTERS, HOUR

NO_VOLUMES: Volumes = {}
_UNITS = (("prompt_tokens", "prompt tokens"), ("completion_tokens", "completion tokens"), ("rows", "rows"))
FOCUS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
    "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "EffectiveCost", "InvoiceIssuerName",
    "ListCost", "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId",
    "ServiceCategory", "ServiceName", "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags", "x_Arm",
    "x_CompletionTokens", "x_Failures", "x_PromptTokens", "x_Requests", "x_Rows",
)  # fmt: skip
"""Columns of a FOCUS file; those with `x_` are this gateway's own."""
_ISSUER = "Headrace"


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON shows it: with the amount as a decimal, and an hour as a time."""
    made = dict(row)
    if "hour" in made:
        made["hour"] = _time(made["hour"] * HOUR)
    if made["currency"]:
        made["amount"] = format_amount(made["picos"])
    return made


def rows_csv(groups: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of sums as CSV, with the amount in its currency. `picos` are the same amount as a whole number."""
    priced = ({**row, "amount": format_amount(row["picos"]) if row["currency"] else ""} for row in rows)
    return csv_of((*groups, "amount", *COUNTERS), priced)


def csv_of(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV. A text that a spreadsheet would compute gets an apostrophe."""
    output = io.StringIO()
    writer = csv.DictWriter(output, columns, extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _inert(value) for name, value in row.items()})
    return output.getvalue()


def focus_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows by tenant, key, model, arm, team and day as a FOCUS file. Requests without a price are no charges."""
    return csv_of(FOCUS, charges_of(rows))


def charges_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The charges of a FOCUS file, by column. Requests without a price are no charges."""
    return (_charge(row) for row in rows if row["currency"])


def _charge(row: Mapping[str, Any]) -> dict[str, Any]:
    begin = datetime.fromisoformat(row["day"]).replace(tzinfo=UTC)
    month = begin.replace(day=1)
    cost = format_amount(row["picos"])
    return {
        "BilledCost": cost, "EffectiveCost": cost, "ListCost": cost, "ContractedCost": cost,
        "BillingAccountId": row["tenant"], "BillingAccountName": row["tenant"],
        "BillingCurrency": row["currency"].upper(),
        "BillingPeriodStart": _iso(month), "BillingPeriodEnd": _iso(_next_month(month)),
        "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based",
        "ChargeDescription": f"Requests to the model {row['model']}",
        "ChargePeriodStart": _iso(begin), "ChargePeriodEnd": _iso(begin + timedelta(days=1)),
        "ConsumedQuantity": row["requests"], "ConsumedUnit": "Requests",
        "PricingQuantity": row["requests"], "PricingUnit": "Requests",
        "InvoiceIssuerName": _ISSUER, "ProviderName": _ISSUER, "PublisherName": _ISSUER,
        "ResourceId": row["model"], "ServiceCategory": "AI and Machine Learning", "ServiceName": "Inference",
        "SkuId": row["model"], "SkuPriceId": f"{row['model']}/list", "PricingCategory": "Standard",
        "SubAccountId": row["key"], "SubAccountName": row["key"],
        "Tags": json.dumps({"team": row["team"]} if row["team"] else {}),
        "x_Arm": row["arm"], "x_Requests": row["requests"], "x_Failures": row["failures"],
        "x_PromptTokens": row["prompt_tokens"], "x_CompletionTokens": row["completion_tokens"], "x_Rows": row["rows"],
    }  # fmt: skip


def invoice(
    tenant: str, month: str, rows: Iterable[Mapping[str, Any]], volumes: Volumes = NO_VOLUMES
) -> dict[str, Any]:
    """The invoice of a tenant for a month (YYYY-MM), from its rows by model and team.

    The lines add up to the totals exactly, and so do the amounts of the teams, among them that of requests without one.
    With discounts, the amount due is the total less the discounts.
    """
    begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    models: dict[tuple[str, str], Counter[str]] = {}
    teams: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    for row in rows:
        if not (currency := row["currency"]):
            continue
        totals[currency] += row["picos"]
        teams[row["team"], currency] += row["picos"]
        amounts = models.setdefault((row["model"], currency), Counter())
        amounts.update({name: row[name] for name in ("picos", "requests", *(name for name, _ in _UNITS))})
    lines = [
        {
            "model": model,
            "requests": amounts["requests"],
            "quantities": {unit: amounts[name] for name, unit in _UNITS if amounts[name]},
            "amount": format_amount(amounts["picos"]),
            "currency": currency,
        }
        for (model, currency), amounts in models.items()
    ]
    discounts: Counter[str] = Counter()
    reduced = []
    for (model, currency), amounts in models.items():
        tokens = amounts["prompt_tokens"] + amounts["completion_tokens"]
        if less := discount(volumes.get(model, ()), tokens, amounts["picos"]):
            discounts[currency] += less
            reduced.append({"model": model, "tokens": tokens, "amount": format_amount(less), "currency": currency})
    due = [{"currency": each, "amount": format_amount(totals[each] - discounts[each])} for each in totals]
    return {
        "tenant": tenant,
        "period": {"from": _iso(begin), "to": _iso(_next_month(begin))},
        "lines": lines,
        "teams": [
            {"team": team or None, "amount": format_amount(picos), "currency": currency}
            for (team, currency), picos in sorted(teams.items())
        ],
        "totals": [{"currency": currency, "amount": format_amount(picos)} for currency, picos in totals.items()],
        **({"discounts": reduced, "due": due} if reduced else {}),
    }


def _next_month(begin: datetime) -> datetime:
    return (begin + timedelta(days=32)).replace(day=1)


def hours_of(begin: datetime, end: datetime) -> tuple[int, int]:
    """The hours (Unix time // 3600) of a time range that begins and ends on whole hours."""
    return int(begin.timestamp()) // HOUR, int(end.timestamp()) // HOUR


def month_of(month: str) -> tuple[int, int]:
    """The hours of a month (YYYY-MM) in UTC. Raises `ValueError`."""
    begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    try:
        return hours_of(begin, _next_month(begin))
    except OverflowError:
        raise ValueError("the month after it has no date") from None


def _time(seconds: int) -> str:
    return _iso(datetime.fromtimestamp(seconds, UTC))


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
