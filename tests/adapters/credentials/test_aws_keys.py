"""The sources of access keys: the same key as botocore finds, by the same requests."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from adapters.credentials import aws_files
from adapters.credentials.aws_keys import access_key
from adapters.credentials.renewed import RenewalError
from adapters.credentials.token_endpoint import TokenOutlet
from config.schema.protocols.credentials import AwsCredentials
from tests.support.providers.aws import EXTERNAL, POD_TOKEN, REGION, ROLE, SECRETS, WEB_TOKEN, AwsStub, aws_stub

pytestmark = pytest.mark.realtime

STATIC = {"AWS_ACCESS_KEY_ID": "AKIDSTATIC", "AWS_SECRET_ACCESS_KEY": SECRETS["AKIDSTATIC"]}
WEB = {"AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": "{folder}/web", "AWS_ROLE_SESSION_NAME": "a-session"}
POD = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "{url}/v1/credentials"}
POD_FILE = {**POD, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "{folder}/pod"}
POD_TEXT = {**POD, "AWS_CONTAINER_AUTHORIZATION_TOKEN": POD_TOKEN}
OWN = f"aws_access_key_id = AKIDPROFILE\naws_secret_access_key = {SECRETS['AKIDPROFILE']}\n"
ASSUMES = f"role_arn = {ROLE}\nrole_session_name = a-session\nexternal_id = {EXTERNAL}\n"
CONFIG = f"""
[profile keys]
{OWN}region = ap-south-1
s3 =
    addressing_style = path
[profile "assumed"]
{ASSUMES}source_profile = both
[profile of-environment]
{ASSUMES}credential_source = Environment
[profile of-pod]
{ASSUMES}credential_source = EcsContainer
[profile of-instance]
{ASSUMES}credential_source = Ec2InstanceMetadata
[profile itself]
{ASSUMES}{OWN}source_profile = itself
[profile web]
role_arn = {ROLE}
role_session_name = a-session
web_identity_token_file = {{folder}}/web
[profile sso]
sso_start_url = https://example.awsapps.com/start
[profile both]
region = us-west-2
"""
BOTH = f"[both]\n{OWN}"
DEFAULT = f"[default]\n{OWN}"
CASES: dict[str, tuple[Mapping[str, str], str]] = {
    "environment": (STATIC, ""),
    "temporary": ({**STATIC, "AWS_SESSION_TOKEN": "FwoG"}, ""),
    "environment before profile": ({**STATIC, "AWS_PROFILE": "keys"}, DEFAULT),
    "default": ({}, DEFAULT),
    "default before pod": (POD_FILE, DEFAULT),
    "web before default": (WEB, DEFAULT),
    "named": ({"AWS_PROFILE": "keys"}, DEFAULT),
    "in credentials": ({"AWS_DEFAULT_PROFILE": "both"}, BOTH),
    "assumed": ({"AWS_PROFILE": "assumed"}, BOTH),
    "assumed by the environment": ({"AWS_PROFILE": "of-environment", **STATIC}, ""),
    "assumed by the pod": ({"AWS_PROFILE": "of-pod", **POD_TEXT}, ""),
    "assumed by the instance": ({"AWS_PROFILE": "of-instance"}, ""),
    "assumed before web": ({"AWS_PROFILE": "itself", **WEB}, ""),
    "web of a profile": ({"AWS_PROFILE": "web"}, ""),
    "web": (WEB, ""),
    "pod": (POD_FILE, ""),
    "pod's text": (POD_TEXT, ""),
    "web before pod": ({**WEB, **POD_FILE}, ""),
    "instance": ({}, ""),
}  # fmt: skip


@pytest.fixture
async def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[AwsStub]:
    """A stub, in an environment that has nothing of AWS but the stub."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "web").write_text(WEB_TOKEN)
    (tmp_path / "pod").write_text(POD_TOKEN)
    (tmp_path / "config").write_text(CONFIG.replace("{folder}", str(tmp_path)))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    async with aws_stub() as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", made.url)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", made.url)
        yield made


async def key_of(**fields: Any) -> tuple[str, str, str]:
    issued = await access_key(AwsCredentials(**fields), REGION, TokenOutlet())
    return issued.value.id, issued.value.secret, issued.value.session_token


@pytest.mark.parametrize("case", CASES)
async def test_the_key_that_botocore_finds(
    case: str, stub: AwsStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables, credentials = CASES[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(folder=tmp_path, url=stub.url))
    (tmp_path / "credentials").write_text(credentials)

    def reference() -> tuple[str, str, str]:
        frozen = botocore.session.Session().get_credentials().get_frozen_credentials()
        return frozen.access_key, frozen.secret_key, frozen.token or ""

    expected = await asyncio.to_thread(reference)
    theirs, stub.forms[:] = stub.forms.copy(), []
    assert await key_of() == expected
    assert stub.forms == theirs
    assert stub.problems == []


async def test_a_profile_a_role_and_a_token_of_the_configuration(stub: AwsStub, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(BOTH)
    assert (await key_of(profile="both"))[0] == "AKIDPROFILE"
    keys = {"key_id": "AKIDSTATIC", "secret": SECRETS["AKIDSTATIC"]}
    assert await key_of(**keys) == ("AKIDSTATIC", SECRETS["AKIDSTATIC"], "")
    role = {"role": ROLE, "external_id": EXTERNAL, "session_name": "gate"}
    assert await key_of(**keys, **role) == ("ASIAASSUMEROLE", "a&b/AssumeRole", "FwoG+/<=")
    assert stub.forms[-1]["RoleSessionName"] == "gate"
    issued = await access_key(AwsCredentials(role=ROLE, token_file=str(tmp_path / "web")), REGION, TokenOutlet())
    assert issued.value.id == "ASIAASSUMEROLEWITHWEBIDENTITY"
    assert 3500 < (issued.seconds or 0) <= 3600


async def test_a_profile_without_a_key_and_a_machine_without_one_are_clear(
    stub: AwsStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fields, text in (
        ({"profile": "sso"}, "person's login"),
        ({"profile": "none"}, "no file has the profile none"),
        ({"profile": "assumed"}, "the profile both has no key"),
        ({"key_id": "AKIDSTATIC", "secret": "wrong", "role": ROLE}, "answered 403 SignatureDoesNotMatch"),
        ({"role": ROLE, "token_file": "/nowhere"}, "No such file"),
    ):
        with pytest.raises(RenewalError, match=text) as raised:
            await key_of(**fields)
        assert "wrong" not in str(raised.value)
    stub.metadata_status = 403
    with pytest.raises(RenewalError, match="hop limit"):
        await key_of()
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/keys")
    with pytest.raises(RenewalError, match="nor of this machine"):
        await key_of()


def test_the_region_of_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text(CONFIG)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "keys")
    assert aws_files.region() == "ap-south-1"
    (tmp_path / "config").write_text("no section: AKIDSECRET\n")
    assert aws_files.region() is None


@pytest.mark.processes
async def test_the_program_of_a_profile(stub: AwsStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    printed = {"Version": 1, "AccessKeyId": "AKID", "SecretAccessKey": "s", "SessionToken": "t"}
    (tmp_path / "credentials").write_text(f"[default]\ncredential_process = echo '{json.dumps(printed)}'\n")
    assert await key_of() == ("AKID", "s", "t")
    (tmp_path / "credentials").write_text("[default]\ncredential_process = false\n")
    with pytest.raises(RenewalError, match="false ended with status 1"):
        await key_of()
