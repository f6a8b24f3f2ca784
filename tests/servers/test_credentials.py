"""The libraries of Google and Microsoft request tokens as the gateway does, of the same issuers."""

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest

from adapters.credentials.azure import entra_token
from adapters.credentials.google import google_token
from adapters.credentials.token_endpoint import TokenOutlet
from config.schema.protocols.credentials import AzureCredentials, GoogleCredentials
from loadtests.venvs import ensure
from tests.support.providers.issuers import (
    CLIENT,
    CLOUD,
    FEDERATED,
    SCOPE,
    SECRET,
    SUBJECT,
    TENANT,
    google_files,
    issuers,
)

REQUIREMENTS = ("google-auth==2.63.0", "requests==2.34.2", "msal==1.39.0", "azure-identity==1.27.0")
GOOGLE = """
import json, sys
import google.auth, google.auth.identity_pool as pool
import google.auth.transport.requests as transport
file, scope, stub = sys.argv[1:]
class Request(transport.Request):  # the library has addresses that no file changes
    def __call__(self, url, *more, **options):
        iam = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"
        url = url.replace(iam, stub + "/google/impersonate/").replace("https://oauth2.googleapis.com", stub + "/google")
        return super().__call__(url, *more, **options)
info = json.load(open(file))
if info["type"] == "external_account":
    credentials = pool.Credentials.from_info(info, scopes=[scope])
else:
    credentials, _ = google.auth.load_credentials_from_file(file, scopes=[scope])
credentials.refresh(Request())
print(credentials.token)
"""
MSAL = """
import sys, json, msal, requests
stub, tenant, client, credential, scope = sys.argv[1:]
authority = "https://login.microsoftonline.com/" + tenant
class Http(requests.Session):  # the library accepts the addresses of Microsoft alone
    def get(self, url, **more):
        token = authority + "/oauth2/v2.0/token"
        body = {"authorization_endpoint": authority + "/authorize", "token_endpoint": token, "issuer": authority}
        return type("R", (), {"status_code": 200, "text": json.dumps(body), "headers": {}})()
    def post(self, url, **more):
        return super().post(url.replace("https://login.microsoftonline.com", stub), **more)
app = msal.ConfidentialClientApplication(client, client_credential=json.loads(credential), http_client=Http(),
    authority=authority, instance_discovery=False)
result = app.acquire_token_for_client([scope])
print(result["access_token"])
"""
MACHINE = """
import sys
from azure.identity import ManagedIdentityCredential
scope, *client = sys.argv[1:]
print(ManagedIdentityCredential(**({"client_id": client[0]} if client else {})).get_token(scope).token)
"""
ONLY_MSAL = {"client_info", "x-client-sku", "x-client-ver", "x-client-os"}
"""Fields by which Microsoft counts the versions of its library."""


@cache
def python() -> str:
    return str(ensure("cloud-identity", REQUIREMENTS) / "bin/python")


async def printed(program: str, *arguments: str, **variables: str) -> str:
    """What a program of the libraries prints."""
    process = await asyncio.create_subprocess_exec(
        await asyncio.to_thread(python), "-c", program, *arguments, env={"HOME": "/nonexistent", **variables},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    return output.decode().strip()


def _comparable(granted: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Requests without what differs each time: the times of an assertion and, with them, its signature."""
    return [(path, {name: _claims(value) if name == "assertion" else value for name, value in form.items()
                    if name not in ONLY_MSAL}) for path, form in granted]  # fmt: skip


def _claims(assertion: str) -> dict[str, Any]:
    claims = jwt.decode(assertion, options={"verify_signature": False})
    return {**claims, "iat": 0, "exp": claims["exp"] - claims["iat"], "header": jwt.get_unverified_header(assertion)}


@pytest.mark.parametrize(
    "kind", ["service_account", "authorized_user", "federated", "federated_impersonated", "impersonated"]
)
async def test_google_auth_sends_the_same_requests(kind: str, tmp_path: Path) -> None:
    (tmp_path / "subject").write_text(SUBJECT)
    (tmp_path / "subject.json").write_text(json.dumps({"access_token": SUBJECT}))
    async with issuers() as stub:
        file = tmp_path / "account.json"
        file.write_text(json.dumps(google_files(stub.url, str(tmp_path / "subject"))[kind]))
        theirs = await printed(GOOGLE, str(file), CLOUD, stub.url)
        expected, stub.granted[:] = _comparable(stub.granted), []
        issued = await google_token(GoogleCredentials(file=str(file)), TokenOutlet())
    assert issued.value.text == theirs
    ours = _comparable(stub.granted)
    if kind == "authorized_user":  # the scopes of a person's consent are fixed; the library repeats them
        expected = [(path, {name: value for name, value in form.items() if name != "scope"}) for path, form in expected]
    assert ours == expected


@pytest.mark.parametrize("source", ["secret", "token_file"])
async def test_msal_sends_the_same_requests(source: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(FEDERATED)
    credential = SECRET if source == "secret" else {"client_assertion": FEDERATED}
    value = SECRET if source == "secret" else str(tmp_path / "token")
    async with issuers() as stub:
        theirs = await printed(MSAL, stub.url, TENANT, CLIENT, json.dumps(credential), SCOPE)
        expected, stub.granted[:] = _comparable(stub.granted), []
        config = AzureCredentials(tenant=TENANT, client_id=CLIENT, authority=stub.url, **{source: value})
        issued = await entra_token(config, SCOPE, TokenOutlet())
    assert issued.value == theirs
    assert _comparable(stub.granted) == expected


@pytest.mark.parametrize("client", [None, CLIENT])
@pytest.mark.parametrize("app_service", [False, True])
async def test_azure_identity_sends_the_same_requests(
    client: str | None, app_service: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with issuers() as stub:
        if app_service:
            variables = {"IDENTITY_ENDPOINT": f"{stub.url}/msi/token", "IDENTITY_HEADER": SECRET}
        else:
            variables = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": stub.url}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        theirs = await printed(MACHINE, SCOPE, *([client] if client else []), **variables)
        expected, stub.granted[:] = stub.granted[-1:], []
        issued = await entra_token(AzureCredentials(managed=True, client_id=client), SCOPE, TokenOutlet())
    assert issued.value == theirs
    assert stub.granted == expected
