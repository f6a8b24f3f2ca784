"""What botocore would send to AWS."""

from collections.abc import Mapping
from datetime import UTC, datetime

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from adapters.credentials.sigv4 import AccessKey

SERVICES = {"bedrock": SigV4Auth, "s3": S3SigV4Auth}
KEY, REGION, HOST = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1", "h.example:8443"


def botocores(
    service: str, key: AccessKey, method: str, target: str, headers: Mapping[str, str], body: bytes, now: float
) -> dict[str, str]:
    """The fields that botocore adds. Its `add_auth` reads the clock; these are its steps after that."""
    request = AWSRequest(method, f"https://{HOST}{target}", headers=dict(headers), data=body)
    request.context["timestamp"] = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    request.context["payload_signing_enabled"] = True
    signer = SERVICES[service](Credentials(key.id, key.secret, key.session_token or None), service, REGION)
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(text, request))
    return {name.lower(): value for name, value in request.headers.items()}
