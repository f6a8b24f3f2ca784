"""The body and the signature of a message, after the Standard Webhooks specification 1.0.0 (standardwebhooks.com).

The receiver computes the signature of id, time and body with the shared secret. The id is the same for each delivery of
one alert, so that a receiver can ignore a second one.
"""

import base64
import binascii
import hmac
from datetime import UTC, datetime

import msgspec

from config.schema.money import format_amount
from gateway.features.alerts.thresholds import BudgetAlert

_PREFIX = "whsec_"


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


def headers_of(id_: str, body: bytes, secret: str, now: float) -> dict[str, str]:
    """The headers that identify and sign a message."""
    sent = str(int(now))
    signed = hmac.digest(_key(secret), f"{id_}.{sent}.".encode() + body, "sha256")
    return {
        "content-type": "application/json",
        "webhook-id": id_,
        "webhook-timestamp": sent,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


def _key(secret: str) -> bytes:
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
