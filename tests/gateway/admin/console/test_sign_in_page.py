"""docs/sign-in.md: each provider's file admits tokens with the claims that the provider documents, and no others."""

import json
import re
import shlex
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import yaml

from adapters.errors import CredentialError
from config.schema.identity import JwtConfig
from gateway.auth.keys import Principal
from gateway.auth.tokens import Tokens
from tests.gateway.admin.conftest import OpenDoor
from tests.support.issuers import SigningKey, jwk_set
from tests.support.page_commands import commands, yaml_blocks
from tests.support.sign_ins import signing_in

TEXT = Path("docs/sign-in.md").read_text()
FILES = {
    each["auth"]["jwt"][0]["name"]: each for each in map(yaml.safe_load, yaml_blocks(TEXT))
}  # fmt: skip
KEY = SigningKey("RS256", "a-key")
Claims = dict[str, Any]


class Issued(NamedTuple):
    """What one provider issues, beside `iss`, `aud` and the times."""

    person: Claims
    """Of the ID token of an operator."""
    program: Claims
    """Of the token of a program."""
    holder: str
    tenant: str
    foreign: Claims
    """Of a token of the same provider that must not be accepted, in place of those of a program."""


DIRECTORY = "11111111-2222-3333-4444-555555555555"
ISSUED = {
    "keycloak": Issued(
        person={
            "sub": "8f14e45f-ceea-467f-a9c5-1b2c3d4e5f60", "typ": "ID", "azp": "headrace-console", "sid": "s",
            "at_hash": "a", "acr": "1", "email_verified": True, "email": "zoe@example.org", "name": "Zoe Doe",
            "preferred_username": "zoe",
            "realm_access": {"roles": ["default-roles-company", "offline_access", "llm-operators"]},
        },
        program={
            "sub": "c9f0f895-fb98-4b91-8a3c-0d1e2f304152", "typ": "Bearer", "azp": "nightly-report", "acr": "1",
            "aud": ["headrace", "account"], "realm_access": {"roles": ["offline_access"]},
            "resource_access": {"account": {"roles": ["view-profile"]}}, "scope": "email profile",
            "clientHost": "10.0.0.9", "preferred_username": "service-account-nightly-report", "tenant": "acme",
        },
        holder="jwt:keycloak:c9f0f895-fb98-4b91-8a3c-0d1e2f304152",
        tenant="acme",
        foreign={"aud": "account"},  # without the audience mapper
    ),
    "entra": Issued(
        person={
            "sub": "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ", "oid": "0f0f", "tid": DIRECTORY, "ver": "2.0",
            "uti": "u", "rh": "0.r", "name": "Zoe Doe", "preferred_username": "zoe@example.org",
            "roles": ["Models.Operator"],
        },
        program={
            "sub": "5e5e5e5e-0000-0000-0000-000000000001", "oid": "5e5e5e5e-0000-0000-0000-000000000001",
            "tid": DIRECTORY, "ver": "2.0", "uti": "u", "rh": "0.r", "azpacr": "1",
            "azp": "0a0a0a0a-1b1b-2c2c-3d3d-4e4e4e4e4e4e", "roles": ["Models.Use"],
        },
        holder="jwt:entra:5e5e5e5e-0000-0000-0000-000000000001",
        tenant="0a0a0a0a-1b1b-2c2c-3d3d-4e4e4e4e4e4e",
        foreign={"iss": f"https://sts.windows.net/{DIRECTORY}/", "ver": "1.0", "appid": "0a0a0a0a"},  # of version 1
    ),
    "okta": Issued(
        person={
            "sub": "00u1a2b3c4d5e6f7g8h9", "ver": 1, "jti": "ID.j", "amr": ["pwd", "mfa"], "idp": "00o1",
            "auth_time": 1, "at_hash": "a", "name": "Zoe Doe", "email": "zoe@example.org",
            "preferred_username": "zoe@example.org", "groups": ["llm-operators", "llm-users"],
        },
        program={
            "sub": "0oaprogram", "cid": "0oaprogram", "ver": 1, "jti": "AT.j", "scp": ["models"], "tenant": "acme",
        },
        holder="jwt:okta:0oaprogram",
        tenant="acme",
        foreign={"aud": "https://company.okta.com"},  # for Okta's own API
    ),
    "google": Issued(
        person={
            "sub": "110169484474386276334", "azp": "1234567890-abcdef.apps.googleusercontent.com", "at_hash": "a",
            "hd": "example.org", "email": "zoe@example.org", "email_verified": True, "name": "Zoe Doe",
            "picture": "https://lh3.example.org/p", "given_name": "Zoe", "family_name": "Doe",
        },
        program={
            "sub": "107517467455664443765", "azp": "107517467455664443765", "email_verified": True,
            "email": "nightly@project.iam.gserviceaccount.com",
        },
        holder="jwt:google:107517467455664443765",
        tenant="107517467455664443765",
        foreign={"sub": "999999999999999999999", "azp": "999999999999999999999"},  # of anyone's service account
    ),
}  # fmt: skip


async def authenticated(folder: Path, name: str, claims: Claims) -> Principal:
    """The principal of a token under the page's file, whose keys are in a file here."""
    (entry,), tenants = FILES[name]["auth"]["jwt"], [each["name"] for each in FILES[name]["tenants"]]
    keys = folder / "jwks.json"
    keys.write_bytes(jwk_set(KEY))
    tokens = Tokens([JwtConfig.model_validate({**entry, "jwks": f"file:{keys}"})], time.monotonic)
    await tokens.load()
    now = time.time()
    basic = {"iss": entry["issuer"], "aud": entry["audience"], "iat": now, "nbf": now, "exp": now + 3600}
    return tokens.authenticate(KEY.token(**{"tenant": None, **basic, **claims}), now, tenants)


def test_each_provider_has_a_section_and_a_file() -> None:
    assert FILES.keys() == ISSUED.keys()
    headings = re.findall(r"^## (\w+)$", TEXT, re.MULTILINE)
    assert {name.lower() for name in headings} >= ISSUED.keys()


def test_the_last_command_shows_the_claims_of_a_token() -> None:
    command = next(line for line in commands(TEXT) if line.startswith("python3 "))
    program, *words = shlex.split(command)[2:]
    assert words == ["$TOKEN"]
    shown = StringIO()
    with redirect_stdout(shown), patch("sys.argv", ["-c", KEY.token(sub="??>>~~")]):
        exec(program, {})
    assert json.loads(shown.getvalue())["sub"] == "??>>~~"


@pytest.mark.parametrize("name", ISSUED)
async def test_an_operator_signs_in_and_another_person_does_not(name: str, admin_door: OpenDoor) -> None:
    oidc = FILES[name]["console"]["oidc"]
    page = {field: value for field, value in oidc.items() if field not in ("issuer", "client_secret")}
    issued = ISSUED[name]
    async with signing_in(admin_door, **page, client_secret="of a reader") as (browser, provider):
        provider.claims = {"groups": None, "aud": page["client_id"], **issued.person}
        assert await browser.come_back() == "/console/"
        session = await browser.session()
        assert session["role"] == "operator"
        assert session["name"] == issued.person.get(page["claims"].get("label", "email"))
    role_claim = page["claims"]["roles"].partition(".")[0]
    async with signing_in(admin_door, **page) as (browser, provider):
        other = {**issued.person, role_claim: {"roles": ["llm-users"]} if "." in page["claims"]["roles"] else "none"}
        provider.claims = {"groups": None, "aud": page["client_id"], **other}
        assert await browser.come_back() == "/console/#failed=role"


@pytest.mark.parametrize("name", ISSUED)
async def test_a_program_calls_models_for_its_tenant(name: str, tmp_path: Path) -> None:
    issued = ISSUED[name]
    principal = await authenticated(tmp_path, name, issued.program)
    assert (principal.tenant, principal.key_id) == (issued.tenant, issued.holder)
    assert not principal.roles & {"operator", "tenant-admin"}
    for refused in ({**issued.program, **issued.foreign}, {**issued.program, "aud": "other"}):
        with pytest.raises(CredentialError):
            await authenticated(tmp_path, name, refused)


@pytest.mark.parametrize(
    ("name", "authority"),
    [
        ("keycloak", {"realm_access": {"roles": ["llm-operators"]}}),
        ("entra", {"roles": ["Models.Operator"]}),
        ("okta", {"groups": ["llm-operators"]}),
    ],
)
async def test_a_mapped_name_in_a_token_is_an_operator_s(name: str, authority: Claims, tmp_path: Path) -> None:
    assert "operator" in (await authenticated(tmp_path, name, {**ISSUED[name].program, **authority})).roles


@pytest.mark.parametrize(
    ("claim", "claims", "tenant"),
    [
        ("hd", {"hd": "example.org"}, "example.org"),
        (
            "google.compute_engine.project_id",
            {"google": {"compute_engine": {"project_id": "our-project", "zone": "europe-west3-a"}}},
            "our-project",
        ),
    ],
)
async def test_other_claims_of_google(
    claim: str, claims: Claims, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"| `{claim}` |" in TEXT
    (entry,) = FILES["google"]["auth"]["jwt"]
    monkeypatch.setitem(entry, "claims", {"tenant": claim})
    monkeypatch.setitem(FILES["google"], "tenants", [{"name": tenant}])
    program = ISSUED["google"].program
    assert (await authenticated(tmp_path, "google", {**program, **claims})).tenant == tenant
    with pytest.raises(CredentialError):
        await authenticated(tmp_path, "google", program)
