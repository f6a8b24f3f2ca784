"""Tokens of Google Cloud and of Microsoft Entra, by every way to them."""

import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from adapters.credentials.azure import COGNITIVE, FOUNDRY, entra_token, scope_of
from adapters.credentials.google import fields_of, google_token
from adapters.credentials.renewed import RenewalError
from adapters.credentials.token_endpoint import TokenOutlet, _context
from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from config.schema.protocols.credentials import AzureCredentials, GoogleCredentials
from config.schema.protocols.egress import ProxyConfig
from tests.support.providers.aws import REGION, aws_stub
from tests.support.providers.issuers import (
    AUDIENCE,
    CLIENT,
    CLOUD,
    FEDERATED,
    SCOPE,
    SECRET,
    SUBJECT,
    TENANT,
    Issuers,
    google_files,
    issuers,
)
from tests.support.tls import make_certificate

pytestmark = pytest.mark.realtime
PREFIXES = "GOOGLE_", "GCE_", "AZURE_", "IDENTITY_", "AWS_", "CLOUDSDK_"


@pytest.fixture
async def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Issuers]:
    """A stub, in an environment that has nothing of a cloud but the stub."""
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    (tmp_path / "subject").write_text(f"{SUBJECT}\n")
    (tmp_path / "subject.json").write_text(json.dumps({"access_token": SUBJECT}))
    (tmp_path / "federated").write_text(f"{FEDERATED}\n")
    async with issuers() as made:
        monkeypatch.setenv("GCE_METADATA_HOST", made.url.removeprefix("http://"))
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", made.url)
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", made.url)
        yield made


async def google(**fields: Any) -> tuple[dict[str, str], float]:
    issued = await google_token(GoogleCredentials(**fields), TokenOutlet())
    assert issued.value.text not in repr(issued)
    assert issued.seconds is not None
    return dict(fields_of(issued.value)), issued.seconds


async def entra(scope: str = SCOPE, **fields: Any) -> tuple[str, float]:
    issued = await entra_token(AzureCredentials(**fields), scope, TokenOutlet())
    assert issued.seconds is not None
    return issued.value, issued.seconds


@pytest.mark.parametrize(
    ("kind", "text", "seconds"),
    [
        ("service_account", f"of-the-account:{CLOUD}", 3599),
        ("authorized_user", "of-the-user", 3599),
        ("federated", "federated", 3599),
        ("federated_impersonated", "impersonated", 2800),
        ("impersonated", "impersonated", 3600),
    ],
)
async def test_every_file_of_google(kind: str, text: str, seconds: float, stub: Issuers, tmp_path: Path) -> None:
    content = google_files(stub.url, str(tmp_path / "subject"))[kind]
    (tmp_path / "account.json").write_text(json.dumps(content))
    for fields in ({"file": str(tmp_path / "account.json")}, {"key": json.dumps(content)}):
        sent, left = await google(**fields)
        project = content.get("quota_project_id")
        assert sent == {"authorization": f"Bearer {text}", **({"x-goog-user-project": project} if project else {})}
        assert left == pytest.approx(seconds, abs=5)
    own, _ = await google(key=json.dumps(content), quota_project="mine-2", scopes=("a", "b"))
    assert own["x-goog-user-project"] == "mine-2"


async def test_the_files_and_the_machine_that_google_s_libraries_find(
    stub: Issuers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (await google())[0] == {"authorization": f"Bearer of-the-machine:{CLOUD}"}
    files = google_files(stub.url, str(tmp_path / "subject"))
    (tmp_path / "gcloud").mkdir()
    (tmp_path / "gcloud/application_default_credentials.json").write_text(json.dumps(files["authorized_user"]))
    assert (await google())[0]["authorization"] == "Bearer of-the-user"
    (tmp_path / "named.json").write_text(json.dumps(files["federated"]))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "named.json"))
    assert (await google())[0]["authorization"] == "Bearer federated"


async def test_the_identity_of_aws_at_google(stub: Issuers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("ACCESS_KEY_ID", "AKID"), ("SECRET_ACCESS_KEY", "s"), ("REGION", "eu-west-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    url = "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
    content = {
        **google_files(stub.url, "")["federated"],
        "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
        "credential_source": {"environment_id": "aws1", "regional_cred_verification_url": url},
    }
    assert (await google(key=json.dumps(content)))[0]["authorization"] == "Bearer federated-aws"
    # Without a region in the environment, the instance has it.
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    async with aws_stub() as instance:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{instance.url}/")
        content["credential_source"]["region_url"] = f"{instance.url}/latest/meta-data/placement/availability-zone"
        assert (await google(key=json.dumps(content)))[0]["authorization"] == "Bearer federated-aws"
    proof = json.loads(unquote(stub.granted[-1][1]["subject_token"]))
    assert proof["url"].startswith(f"https://sts.{REGION}.amazonaws.com?")


async def test_an_internal_issuer_is_reached_beside_the_proxy(stub: Issuers) -> None:
    async def internal(http: Request) -> Response:
        return Response(200, [], SUBJECT.encode())

    server = Server(internal)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    content = {
        **google_files("http://sts.example.test", "")["federated"],
        "credential_source": {"url": f"http://{host}:{port}/token"},
    }
    outlet = TokenOutlet(ProxyConfig(url=stub.url))  # the stub also serves as a proxy
    assert (await google_token(GoogleCredentials(key=json.dumps(content)), outlet)).value.text == "federated"
    await server.aclose()


def test_a_ca_file_that_changes_is_read_again(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    for time, name in enumerate(("one.test", "two.test"), 1):
        ca.write_bytes((make_certificate(tmp_path / name, name) / "cert.pem").read_bytes())
        os.utime(ca, (time, time))
        context = _context(str(ca))
        assert ssl.PEM_cert_to_DER_cert(ca.read_text()) in context.get_ca_certs(binary_form=True)
        assert _context(str(ca)) is context
    ca.unlink()
    with pytest.raises(RenewalError, match=r"ca\.pem: No such file"):
        _context(str(ca))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[]", "not a JSON object"),
        ('{"type": "gdch_service_account"}', "is not supported"),
        ('{"type": "service_account", "client_email": "a@b", "private_key": "-----BEGIN s3cr3t"}', "not a private key"),
        ('{"type": "external_account", "audience": "a", "subject_token_type": "t"}', "no credential_source"),
        (json.dumps({"type": "authorized_user", "client_id": "c", "client_secret": "s3cr3t"}), "no `refresh_token`"),
    ],
)
async def test_a_file_of_google_that_is_wrong_is_clear(content: str, text: str, stub: Issuers) -> None:
    with pytest.raises(RenewalError, match=text) as raised:
        await google(key=content)
    assert "s3cr3t" not in str(raised.value)


async def test_a_program_of_google_needs_its_permission(stub: Issuers) -> None:
    content = {**google_files(stub.url, "")["federated"], "credential_source": {"executable": {"command": "cat x"}}}
    with pytest.raises(RenewalError, match="ALLOW_EXECUTABLES"):
        await google(key=json.dumps(content))


@pytest.mark.processes
async def test_a_program_prints_the_token_for_google(
    stub: Issuers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1")
    program = tmp_path / "program"
    printed = json.dumps({"version": 1, "success": True, "id_token": SUBJECT, "token_type": "t"})
    program.write_text(f"#!/bin/sh\n[ \"$GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE\" = '{AUDIENCE}' ] && echo '{printed}'\n")
    program.chmod(0o700)
    content = {
        **google_files(stub.url, "")["federated"],
        "credential_source": {"executable": {"command": str(program), "timeout_millis": 5000}},
    }
    assert (await google(key=json.dumps(content)))[0]["authorization"] == "Bearer federated"


async def test_every_source_of_azure(stub: Issuers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    application = {"tenant": TENANT, "client_id": CLIENT}
    assert await entra(**application, secret=SECRET) == (f"entra:{SCOPE}", 3599.0)
    assert (await entra(**application, token_file=str(tmp_path / "federated")))[0] == f"entra:{SCOPE}"
    assert await entra() == ("machine:https://cognitiveservices.azure.com:", 86399.0)
    monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT)
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    assert (await entra())[0] == f"machine:https://cognitiveservices.azure.com:{CLIENT}"
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "federated"))
    assert (await entra(FOUNDRY))[0] == f"entra:{FOUNDRY}"
    monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
    assert (await entra())[0] == f"entra:{SCOPE}"
    assert (await entra(managed=True))[0] == "machine:https://cognitiveservices.azure.com:"
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{stub.url}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", SECRET)
    token, seconds = await entra(managed=True)
    assert token == "app:https://cognitiveservices.azure.com"
    assert seconds == pytest.approx(3600, abs=5)


async def test_a_source_of_azure_that_is_wrong_is_clear(stub: Issuers) -> None:
    for fields, text in (
        ({"client_id": CLIENT, "secret": SECRET}, "`tenant` or AZURE_TENANT_ID"),
        ({"tenant": TENANT, "client_id": CLIENT, "secret": "other"}, "answered 401 invalid_client"),
        ({"tenant": TENANT, "client_id": "x", "secret": SECRET}, "answered 400 unauthorized_client"),
        ({"tenant": TENANT, "client_id": CLIENT, "token_file": "/nowhere"}, "No such file"),
    ):
        with pytest.raises(RenewalError, match=text) as raised:
            await entra(**fields)
        assert SECRET not in str(raised.value)


def test_the_scope_of_a_host() -> None:
    assert scope_of("https://r.services.ai.azure.com/anthropic") == FOUNDRY
    assert scope_of("https://r.openai.azure.com/openai/v1") == COGNITIVE
