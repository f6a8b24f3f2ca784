"""The issuers of Google Cloud and of Microsoft Entra, as strict as these are."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from adapters.http1.message import Request, Response
from adapters.http1.server import Server

FORM = "application/x-www-form-urlencoded"
EMAIL, KEY_ID = "gateway@project.iam.gserviceaccount.com", "0123456789abcdef"
CLOUD = "https://www.googleapis.com/auth/cloud-platform"
AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/p"
SUBJECT, SUBJECT_TYPE = "subject.token-of-kubernetes", "urn:ietf:params:oauth:token-type:jwt"
TENANT, CLIENT, SECRET = "11111111-aaaa-bbbb-cccc-222222222222", "client-id-1", "entra~secret/+1"
FEDERATED = "federated.token_of-kubernetes"
SCOPE = "https://cognitiveservices.azure.com/.default"
Handler = Callable[[Request, dict[str, str], bytes], Response]


@cache
def private_key() -> str:
    """The key of the service account."""
    made = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.PKCS8
    return made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@cache
def _public_key() -> Any:
    return serialization.load_pem_private_key(private_key().encode(), None).public_key()


def answer(status: int, body: object) -> Response:
    """An answer with JSON."""
    return Response(status, [("content-type", "application/json")], json.dumps(body).encode())


def token(text: str, seconds: object = 3599) -> Response:
    """An answer with a token."""
    return answer(200, {"access_token": text, "token_type": "Bearer", "expires_in": seconds})


def wrong(code: str, status: int = 400) -> Response:
    """A refusal, whose description repeats what must not be in a log."""
    return answer(status, {"error": code, "error_description": f"no: {SECRET} {FEDERATED} {SUBJECT}"})


class Issuers:
    """Records the requests that it grants, as their path and their form or JSON."""

    def __init__(self) -> None:
        self.url = ""
        self.granted: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, http: Request) -> Response:
        body = await http.read()
        handlers: dict[tuple[str, str], Handler] = {
            ("POST", "/google/token"): self._google,
            ("POST", "/google/sts"): self._exchange,
            ("POST", f"/google/impersonate/{EMAIL}:generateAccessToken"): self._impersonate,
            ("GET", "/computeMetadata/v1/instance/service-accounts/default/token"): self._google_machine,
            ("POST", f"/{TENANT}/oauth2/v2.0/token"): self._entra,
            ("GET", "/metadata/identity/oauth2/token"): self._azure_machine,
            ("GET", "/msi/token"): self._app_service,
        }
        handler = handlers.get((http.method, http.path))
        if handler is None:
            return Response(404)
        is_form = (http.headers.get("content-type") or "").partition(";")[0] == FORM
        pairs = parse_qsl(body.decode() if is_form else http.query, keep_blank_values=True)
        if len(form := dict(pairs)) != len(pairs) or (http.method == "POST" and not is_form and body[:1] != b"{"):
            return wrong("invalid_request")
        response = handler(http, form, body)
        if response.status == 200:
            self.granted.append((http.path, form if is_form or http.method == "GET" else json.loads(body)))
        return response

    def _google(self, http: Request, form: dict[str, str], body: bytes) -> Response:
        if form.get("grant_type") == "refresh_token":
            fits = (form.get("client_id"), form.get("client_secret"), form.get("refresh_token")) == ("c", "s", "r")
            return token("of-the-user") if fits else wrong("invalid_grant")
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return wrong("unsupported_grant_type")
        try:
            audience = "https://oauth2.googleapis.com/token"
            claims = jwt.decode(form["assertion"], _public_key(), ["RS256"], audience=audience, issuer=EMAIL)
        except jwt.PyJWTError:
            return wrong("invalid_grant")
        header = jwt.get_unverified_header(form["assertion"])
        fits = set(claims) == {"iat", "exp", "iss", "aud", "scope"} and claims["exp"] - claims["iat"] <= 3600
        fits = fits and header == {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        if not fits or abs(time.time() - claims["iat"]) > 60:
            return wrong("invalid_grant")
        return token(f"of-the-account:{claims['scope'].replace(' ', '+')}")

    def _exchange(self, http: Request, form: dict[str, str], body: bytes) -> Response:
        required = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "audience": AUDIENCE,
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
        if {name: form.get(name) for name in required} != required or not form.get("scope"):
            return wrong("invalid_request")
        if form.get("subject_token_type") == SUBJECT_TYPE:
            return token("federated") if form.get("subject_token") == SUBJECT else wrong("invalid_grant")
        proof = json.loads(unquote(form.get("subject_token", "")))
        headers = {each["key"].lower(): each["value"] for each in proof["headers"]}
        fits = proof["method"] == "POST" and headers["x-goog-cloud-target-resource"] == AUDIENCE
        return token("federated-aws") if fits and "authorization" in headers else wrong("invalid_grant")

    def _impersonate(self, http: Request, form: dict[str, str], body: bytes) -> Response:
        terms = json.loads(body)
        if not (http.headers.get("authorization") or "").startswith("Bearer ") or not terms.get("scope"):
            return answer(403, {"error": {"status": "PERMISSION_DENIED", "message": SUBJECT}})
        ends = (datetime.now(UTC) + timedelta(seconds=int(terms["lifetime"][:-1]))).strftime("%Y-%m-%dT%H:%M:%SZ")
        return answer(200, {"accessToken": "impersonated", "expireTime": ends})

    def _google_machine(self, http: Request, form: dict[str, str], body: bytes) -> Response:
        if http.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in http.headers:
            return Response(403)
        return token(f"of-the-machine:{form.get('scopes')}")

    def _entra(self, http: Request, form: dict[str, str], body: bytes) -> Response:
        if form.get("client_id") != CLIENT or form.get("grant_type") != "client_credentials":
            return wrong("unauthorized_client")
        if "client_secret" in form:
            fits = form["client_secret"] == SECRET and "client_assertion" not in form
        else:
            kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            fits = (form.get("client_assertion_type"), form.get("client_assertion")) == (kind, FEDERATED)
        if not fits:
            return wrong("invalid_client", 401)
        scope = form.get("scope", "")
        return token(f"entra:{scope}") if scope.endswith("/.default") else wrong("invalid_scope")

    def _azure_machine(self, http: Request, form: dict[str, str], body: bytes) -> Response:
        if http.headers.get("metadata") != "true" or form.get("api-version") != "2018-02-01" or "resource" not in form:
            return wrong("bad_request")
        # Azure writes numbers as texts.
        return token(f"machine:{form['resource']}:{form.get('client_id', '')}", "86399")

    def _app_service(self, http: Request, form: dict[str, str], body: bytes) -> Response:
        if http.headers.get("x-identity-header") != SECRET or form.get("api-version") != "2019-08-01":
            return wrong("bad_request", 403)
        expiry = str(int(time.time()) + 3600)
        return answer(200, {"access_token": f"app:{form['resource']}", "expires_on": expiry, "token_type": "Bearer"})


@asynccontextmanager
async def issuers() -> AsyncIterator[Issuers]:
    """Ones that listen."""
    made = Issuers()
    server = Server(made)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        await server.aclose()


def google_files(url: str, subject_file: str) -> dict[str, dict[str, Any]]:
    """The files of Google's accounts, by kind."""
    account = {
        "type": "service_account", "client_email": EMAIL, "private_key": private_key(), "private_key_id": KEY_ID,
        "token_uri": f"{url}/google/token", "project_id": "p",
    }  # fmt: skip
    user = {
        "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r",
        "token_uri": f"{url}/google/token", "quota_project_id": "quota-1",
    }  # fmt: skip
    federated = {
        "type": "external_account", "audience": AUDIENCE, "subject_token_type": SUBJECT_TYPE,
        "token_url": f"{url}/google/sts", "credential_source": {"file": subject_file},
    }  # fmt: skip
    impersonation = f"{url}/google/impersonate/{EMAIL}:generateAccessToken"
    return {
        "service_account": account,
        "authorized_user": user,
        "federated": federated,
        "federated_impersonated": {
            **federated,
            "credential_source": {
                "file": f"{subject_file}.json",
                "format": {"type": "json", "subject_token_field_name": "access_token"},
            },
            "service_account_impersonation_url": impersonation,
            "service_account_impersonation": {"token_lifetime_seconds": 2800},
        },
        "impersonated": {
            "type": "impersonated_service_account", "source_credentials": account,
            "service_account_impersonation_url": impersonation, "delegates": ["d@x"],
        },
    }  # fmt: skip
