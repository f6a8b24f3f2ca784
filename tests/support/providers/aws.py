"""What botocore would send to AWS, and a stub of the services that issue access keys."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from adapters.credentials.sigv4 import AccessKey
from adapters.http1.message import Request, Response
from adapters.http1.server import Server

SERVICES = {"bedrock": SigV4Auth, "s3": S3SigV4Auth}
KEY, REGION, HOST = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1", "h.example:8443"


def botocores(
    service: str,
    key: AccessKey,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    region: str = REGION,
) -> dict[str, str]:
    """The fields that botocore adds. Its `add_auth` reads the clock; these are its steps after that."""
    request = AWSRequest(method, f"https://{HOST}{target}", headers=dict(headers), data=body)
    request.context["timestamp"] = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    request.context["payload_signing_enabled"] = True
    signer = SERVICES.get(service, SigV4Auth)(
        Credentials(key.id, key.secret, key.session_token or None), service, region
    )
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(text, request))
    return {name.lower(): value for name, value in request.headers.items()}


ROLE, EXTERNAL = "arn:aws:iam::123456789012:role/models", "external:id/1"
POD_TOKEN, WEB_TOKEN, IMDS_TOKEN = "pod-token.eyJ9", "web.identity-token_1", "AQAEAimds=="
"""Tokens: of a pod, of web identity, and of the instance's metadata."""
SECRETS = {"AKIDSTATIC": "static/secret+1", "AKIDPROFILE": "profile/secret+2", "ASIAPOD": "pod-secret", "ASIAEC2": "e"}
STS_FORM = "application/x-www-form-urlencoded; charset=utf-8"


class AwsStub:
    """STS, the metadata of a container, and that of an instance, as strict as AWS."""

    def __init__(self) -> None:
        self.url = ""
        self.forms: list[dict[str, str]] = []
        self.problems: list[str] = []
        self.metadata_status = 200
        self.session = "a-session"

    async def __call__(self, http: Request) -> Response:
        place = http.method, http.path
        if place == ("PUT", "/latest/api/token"):
            return self._token(http)
        if place == ("GET", "/latest/meta-data/placement/availability-zone"):
            fits = http.headers.get("x-aws-ec2-metadata-token") == IMDS_TOKEN
            return Response(200, [], f"{REGION}b".encode()) if fits else Response(401)
        if http.path.startswith("/latest/meta-data/iam/security-credentials/"):
            return self._instance(http)
        if place == ("GET", "/v1/credentials"):
            if http.headers.get("authorization") != POD_TOKEN:
                return Response(401)
            return Response(200, [], json.dumps(self._key("ASIAPOD")).encode())
        if place == ("POST", "/"):
            return await self._sts(http)
        return Response(404)

    def _token(self, http: Request) -> Response:
        seconds = http.headers.get("x-aws-ec2-metadata-token-ttl-seconds") or ""
        if not seconds.isdigit() or not 1 <= int(seconds) <= 21600 or "x-forwarded-for" in http.headers:
            return Response(400)
        return Response(self.metadata_status, [], IMDS_TOKEN.encode())

    def _instance(self, http: Request) -> Response:
        if http.method != "GET" or http.headers.get("x-aws-ec2-metadata-token") != IMDS_TOKEN:
            return Response(401)
        role = http.path.rpartition("/")[2]
        if not role:
            return Response(200, [], b"models-role")
        return Response(200, [], json.dumps({"Code": "Success", **self._key("ASIAEC2")}).encode())

    def _key(self, id_: str) -> dict[str, str]:
        expiry = datetime.now(UTC) + timedelta(hours=1)
        ends = expiry.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"AccessKeyId": id_, "SecretAccessKey": SECRETS[id_], "Token": self.session, "Expiration": ends}

    async def _sts(self, http: Request) -> Response:
        body = await http.read()
        pairs = parse_qsl(body.decode("ascii"), strict_parsing=True)
        form = dict(pairs)
        self.forms.append(form)
        problem = self._problem(http, form, body)
        if problem or len(form) != len(pairs) or http.headers.get("content-type") != STS_FORM:
            self.problems.append(problem or "the form")
            code = f"<ErrorResponse><Error><Code>{problem or 'MalformedInput'}</Code></Error></ErrorResponse>"
            return Response(403, [("content-type", "text/xml")], code.encode())
        ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        action = form["Action"]
        key = (
            f"<AccessKeyId>ASIA{action.upper()}</AccessKeyId><SecretAccessKey>a&amp;b/{action}</SecretAccessKey>"
            f"<SessionToken>FwoG+/&lt;=</SessionToken><Expiration>{ends}</Expiration>"
        )
        namespace = "https://sts.amazonaws.com/doc/2011-06-15/"
        text = f'<{action}Response xmlns="{namespace}"><{action}Result><Credentials>{key}</Credentials>'
        text += f"</{action}Result></{action}Response>"
        return Response(200, [("content-type", "text/xml")], text.encode())

    def _problem(self, http: Request, form: dict[str, str], body: bytes) -> str:
        if form.get("RoleArn") != ROLE or form.get("Version") != "2011-06-15":
            return "ValidationError"
        if form.get("Action") == "AssumeRoleWithWebIdentity":
            return "" if form.get("WebIdentityToken") == WEB_TOKEN else "InvalidIdentityToken"
        if form.get("Action") != "AssumeRole" or form.get("ExternalId", EXTERNAL) != EXTERNAL:
            return "AccessDenied"
        return "" if self.verifies(http, "sts", body) else "SignatureDoesNotMatch"

    def verifies(self, http: Request, service: str, body: bytes, now: float | None = None) -> bool:
        """Whether a request has a signature that botocore makes of the fields that it signs."""
        authorization = http.headers["authorization"]
        parts = {part.partition("=")[0]: part.partition("=")[2] for part in authorization.split(" ", 1)[1].split(", ")}
        id_, day, region, named, _ = parts["Credential"].split("/")
        stamp = datetime.strptime(http.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        now = datetime.now(UTC).timestamp() if now is None else now
        if abs(now - stamp.timestamp()) > 300 or day != stamp.strftime("%Y%m%d"):
            return False
        session = http.headers.get("x-amz-security-token") or ""
        names = parts["SignedHeaders"].split(";")
        own = {name: http.headers[name] for name in names if name not in ("x-amz-date", "x-amz-security-token")}
        key = AccessKey(id_, SECRETS.get(id_, ""), session)
        target = http.target.decode() + (f"?{http.query}" if http.query else "")
        expected = botocores(service, key, http.method, target, own, body, stamp.timestamp(), region)
        return (named, region) == (service, REGION) and authorization == expected["authorization"]


@asynccontextmanager
async def aws_stub() -> AsyncIterator[AwsStub]:
    """One that listens."""
    made = AwsStub()
    server = Server(made)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        await server.aclose()
