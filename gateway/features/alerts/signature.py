"""The body and the signature of a message, after the Standard Webhooks specification 1.0.0 (standardwebhooks.com).

The receiver computes the signature of id, time and body with the shared secret. The id is the same for each delivery of
one alert, so that a receiver can ignore a second one.
"""

from datetime import UTC, datetime

import msgspec

from adapters.wire.webhook_signature import headers_of as headers_of  # beside the body that it signs
from config.schema.money import format_amount
from gateway.features.alerts.thresholds import BudgetAlert


def body_of(alert: BudgetAlert, at: float) -> bytes:
    """The message as JSON. `at` is the time of the alert, in Unix seconds."""
    return msgspec.json.encode(
        {
            "type": "budget.threshold_reached",
            "timestamp": _time(at),
            "data": {
                "tenant": alert.tenant,
                **({"team": alert.team} if alert.team else {}),
                "budget": alert.budget,
                "period": {"from": _time(alert.begin), "to": _time(alert.end)},
                "threshold": alert.threshold,
                "spent": format_amount(alert.spent),
                "currency": alert.currency,
            },
        }
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
