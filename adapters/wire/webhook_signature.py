"""The signature of a message, after the Standard Webhooks specification 1.0.0 (standardwebhooks.com).

The receiver computes the signature of id, time and body with the shared secret.
"""

import base64
import binascii
import hmac

_PREFIX = "whsec_"


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
