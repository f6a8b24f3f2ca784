import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CredentialError
from config.schema.identity import JwtConfig
from gateway.auth import tokens as tokens_module
from gateway.auth.keys import Principal, holder_id
from gateway.auth.scope import Scope
from gateway.auth.table import REFUSED
from gateway.auth.tokens import MAX_TOKEN, Tokens
from tests.support.issuers import AUDIENCE, ISSUER, SigningKey, jwk_set, payload

RSA, EC, ED = SigningKey("RS256"), SigningKey("ES256"), SigningKey("EdDSA")
TENANTS = {"acme", "beta"}
SECRET = "s" * 32

MakeTokens = Callable[..., Tokens]


def issuer(**changes: Any) -> JwtConfig:
    base = {
        "name": "login", "issuer": ISSUER, "audience": AUDIENCE, "algorithms": ("RS256", "ES256", "EdDSA"),
        "claims": {"tenant": "tenant", "roles": "roles"}, "leeway": "0s",
    }  # fmt: skip
    return JwtConfig.model_validate({**base, **changes})


async def ready(folder: Any, *configs: dict[str, Any]) -> Tokens:
    file = folder / "jwks.json"
    file.write_bytes(jwk_set(RSA, EC, ED))
    tokens = Tokens([issuer(jwks=f"file:{file}", **changes) for changes in configs or ({},)], time.monotonic)
    await tokens.load()
    return tokens


@pytest.fixture
async def tokens(tmp_path: Any) -> Tokens:
    return await ready(tmp_path)


def principal_of(tokens: Tokens, token: str, now: float | None = None) -> Principal:
    return tokens.authenticate(token, time.time() if now is None else now, TENANTS)


def refused(tokens: Tokens, token: str) -> None:
    with pytest.raises(CredentialError) as caught:
        principal_of(tokens, token)
    assert (str(caught.value), caught.value.code) == (REFUSED, "invalid_api_key")


@pytest.mark.parametrize("key", [RSA, EC, ED], ids=lambda key: key.algorithm)
async def test_a_token_of_each_kind_of_key_is_its_tenants(tokens: Tokens, key: SigningKey) -> None:
    for _ in range(2):
        assert principal_of(tokens, key.token()) == Principal("acme", "jwt:login:app-1")
    assert principal_of(tokens, key.token(aud=["other", AUDIENCE], tenant="beta")).tenant == "beta"


NOW = time.time()
HOUR = 3600


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example.org/"}, {"iss": ISSUER.rstrip("/")}, {"iss": None}, {"iss": [ISSUER]}, {"iss": 5},
        {"aud": "other"}, {"aud": None}, {"aud": []}, {"aud": {AUDIENCE: 1}}, {"aud": AUDIENCE + "-2"},
        {"exp": NOW - 1}, {"exp": None}, {"exp": str(NOW + HOUR)}, {"exp": True}, {"exp": [NOW]}, {"exp": float("inf")},
        {"exp": float("nan")}, {"exp": {"at": 1}}, {"nbf": NOW + HOUR}, {"nbf": "0"}, {"iat": NOW + HOUR},
        {"sub": None}, {"sub": ""}, {"sub": 5}, {"tenant": None}, {"tenant": "nobody"}, {"tenant": ["acme"]},
        {"tenant": {"acme": 1}}, {"tenant": 5}, {"tenant": ""}, {"roles": 5}, {"roles": {"operator": True}},
        {"roles": ["operator", 5]},
    ],
    ids=lambda claims: next(iter(claims)),  # not the values: the times among them differ from process to process
)  # fmt: skip
async def test_a_wrong_claim_is_refused(tokens: Tokens, claims: dict[str, Any]) -> None:
    refused(tokens, RSA.token(**claims))


@pytest.mark.parametrize(
    ("cause", "claims"),
    [
        ("token_issuer", {"iss": "https://evil.example.org/"}),
        ("token_audience", {"aud": "other"}),
        ("token_expired", {"exp": NOW - HOUR}),
        ("token_early", {"nbf": NOW + HOUR}),
        ("token_claims", {"sub": None}),
        ("token_claims", {"tenant": 5}),
        ("tenant_removed", {"tenant": "nobody"}),
    ],
)
async def test_operators_learn_the_cause(tokens: Tokens, cause: str, claims: dict[str, Any]) -> None:
    with pytest.raises(CredentialError) as caught:
        principal_of(tokens, RSA.token(**claims))
    refusal, holder = caught.value.refusal, caught.value.holder
    assert refusal is not None
    assert refusal.cause == cause
    assert holder == (("acme", "jwt:login:app-1", "") if cause == "token_expired" else holder)


async def test_a_token_with_a_wrong_signature_has_no_holder(tokens: Tokens) -> None:
    head, payload, signature = RSA.token(exp=NOW - HOUR).split(".")
    for token, cause in (
        (f"{head}.{payload}.{signature[:-8]}AAAAAAAA", "token_signature"),
        ("a.b.c", "token_malformed"),
        (RSA.token({"kid": "no-such-key"}), "token_key"),
    ):
        with pytest.raises(CredentialError) as caught:
            principal_of(tokens, token)
        assert caught.value.refusal is not None
        assert caught.value.refusal.cause == cause
        assert caught.value.holder is None
        assert "app-1" not in str(caught.value.refusal)


async def test_an_issuer_grants_no_role_by_its_name(tokens: Tokens) -> None:
    assert principal_of(tokens, RSA.token()).roles == {"user"}
    assert principal_of(tokens, RSA.token(roles=["operator", "root"])).roles == {"user", "root"}
    assert principal_of(tokens, RSA.token(roles="tenant-admin")).roles == {"user"}
    assert principal_of(tokens, RSA.token(roles=[])).roles == {"user"}


async def test_roles_come_from_the_mapping(tmp_path: Any) -> None:
    tokens = await ready(tmp_path, {"roles": {"llm-admins": "operator", "operator": "user", "leads": "tenant-admin"}})
    assert principal_of(tokens, RSA.token(roles=["llm-admins", "staff"])).roles == {"user", "operator", "staff"}
    assert principal_of(tokens, RSA.token(roles="operator")).roles == {"user"}
    assert principal_of(tokens, RSA.token(roles="leads")).roles == {"user", "tenant-admin"}
    same = await ready(tmp_path, {"roles": {"operator": "operator"}})
    assert principal_of(same, RSA.token(roles="operator")).roles == {"user", "operator"}


NAMES = st.sampled_from(["operator", "tenant-admin", "user", "admins", "leads", "Operator", "operator ", "staff"])


@given(
    fixed=st.booleans(),
    mapping=st.dictionaries(NAMES.map(str.strip), st.sampled_from(["user", "tenant-admin", "operator"]), max_size=4),
    claimed=st.none() | NAMES | st.lists(NAMES, max_size=4),
    tenant=st.sampled_from(["acme", "beta"]),
)
def test_no_token_has_a_role_that_the_file_does_not_grant(
    fixed: bool, mapping: dict[str, str], claimed: str | list[str] | None, tenant: str
) -> None:
    """Issuers of one tenant and of all, every mapping, every claim: the file alone maps names to authority."""
    bound = {"tenant": "acme", "claims": {"roles": "roles"}} if fixed else {}
    config = issuer(algorithms=("HS256",), allow_symmetric_secret=SECRET, roles=mapping, **bound)
    principal = principal_of(
        Tokens([config], time.monotonic), jwt.encode(payload(roles=claimed, tenant=tenant), SECRET, "HS256")
    )
    names = {claimed} if isinstance(claimed, str) else set(claimed or ())
    granted = {mapping[name] for name in names if name in mapping} - ({"operator"} if fixed else set())
    assert principal.tenant == ("acme" if fixed else tenant)
    assert principal.roles & {"user", "tenant-admin", "operator"} == granted | {"user"}
    assert principal.roles - granted - {"user"} <= names - mapping.keys()


async def test_scopes_narrow_the_use_of_a_token(tmp_path: Any) -> None:
    claims = {"tenant": "tenant", "scope": "scope"}
    tokens = await ready(tmp_path, {"claims": claims})
    for held in ("openid models:gpt-* models:chat fronts:chat", ["openid", "models:gpt-* models:chat", "fronts:chat"]):
        assert principal_of(tokens, RSA.token(scope=held)).scope == Scope(models=["gpt-*", "chat"], fronts=["chat"])
    for other in (None, "", "openid profile", "model:chat:", "routes"):
        assert principal_of(tokens, RSA.token(scope=other)).scope is None
    assert principal_of(tokens, RSA.token(scope="routes:gold")).scope == Scope(routes=["gold"])
    for wrong in (5, {"models": "chat"}, ["models:chat", 5]):
        refused(tokens, RSA.token(scope=wrong))
    assert principal_of(await ready(tmp_path), RSA.token(scope="models:chat")).scope is None


async def test_claims_by_path_and_names_with_dots_in_them(tmp_path: Any) -> None:
    url = "https://example.org/tenant"
    nested = await ready(
        tmp_path, {"claims": {"tenant": "org.tenant", "roles": "realm_access.roles"}, "roles": {"ops": "operator"}}
    )
    token = RSA.token(tenant=None, org={"tenant": "beta"}, realm_access={"roles": ["ops"]})
    assert principal_of(nested, token) == Principal("beta", "jwt:login:app-1", frozenset({"user", "operator"}))
    refused(nested, RSA.token(org="beta"))
    named = await ready(tmp_path, {"claims": {"tenant": url}})
    assert principal_of(named, RSA.token(**{"tenant": None, url: "beta"})).tenant == "beta"


async def test_a_fixed_tenant_needs_no_claim_and_heeds_none(tmp_path: Any) -> None:
    tokens = await ready(tmp_path, {"tenant": "beta", "claims": {}})
    assert principal_of(tokens, RSA.token(tenant="acme", roles=["operator"])) == Principal("beta", "jwt:login:app-1")


def unsigned(header: dict[str, Any], **claims: Any) -> str:
    parts = [json.dumps(part).encode() for part in (header, payload(**claims))]
    return b".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts), b""]).decode()


async def test_none_is_no_algorithm(tokens: Tokens) -> None:
    for name in ("none", "None", "NONE", "", None, ["RS256"], 5):
        refused(tokens, unsigned({"alg": name, "kid": RSA.kid}))
        refused(tokens, unsigned({"alg": name, "kid": RSA.kid}) + RSA.token().rpartition(".")[2])


async def test_a_public_key_is_never_a_shared_secret(tokens: Tokens) -> None:
    """A token signed with the public key, the oldest attack on JWTs."""
    pem = RSA.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for secret in (pem, json.dumps(RSA.jwk()).encode(), b""):
        parts = unsigned({"alg": "HS256", "kid": RSA.kid}).removesuffix(".")
        signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(parts.encode(), secret)
        refused(tokens, f"{parts}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")


async def test_a_key_serves_the_algorithms_made_for_it_only(tokens: Tokens, tmp_path: Any) -> None:
    refused(tokens, jwt.encode(payload(), RSA.private, "RS256", {"kid": EC.kid}))
    refused(tokens, jwt.encode(payload(), RSA.private, "PS256", {"kid": RSA.kid}))
    refused(tokens, jwt.encode(payload(), RSA.private, "RS512", {"kid": RSA.kid}))
    only_ec = await ready(tmp_path, {"algorithms": ("ES256",)})
    assert principal_of(only_ec, EC.token()).tenant == "acme"
    refused(only_ec, RSA.token())


async def test_the_key_is_ours_despite_the_header(tokens: Tokens) -> None:
    mallory = SigningKey("RS256", RSA.kid)
    evil = "https://evil.example.org/jwks.json"
    for headers in ({}, {"jwk": mallory.jwk()}, {"jku": evil}, {"x5u": evil}, {"x5c": ["MIIB"]}):
        refused(tokens, mallory.token(headers))
        assert principal_of(tokens, RSA.token(headers)).tenant == "acme"


@pytest.mark.parametrize("kid", ["../../dev/null", "' OR 1=1 --", "\x00", "k" * 4000, "file:///etc/passwd", ""])
async def test_a_key_id_is_only_looked_up(tokens: Tokens, kid: str) -> None:
    refused(tokens, RSA.token({"kid": kid}))


async def test_a_key_id_that_is_no_text_and_extensions_are_refused(tokens: Tokens) -> None:
    signature = RSA.token().rpartition(".")[2]
    extras: list[dict[str, Any]] = [
        {"kid": 5}, {"kid": ["a"]}, {"kid": None}, {"crit": ["exp"]}, {"crit": []}, {"b64": False},
    ]  # fmt: skip
    for more in extras:
        refused(tokens, unsigned({"alg": "RS256", "kid": RSA.kid, **more}) + signature)


async def test_without_a_key_id_the_only_key_that_fits_counts(tokens: Tokens) -> None:
    assert principal_of(tokens, jwt.encode(payload(), EC.private, "ES256")).tenant == "acme"


async def test_a_changed_token_is_refused(tokens: Tokens) -> None:
    head, body, signature = RSA.token().split(".")
    other = RSA.token(tenant="beta").split(".")[1]
    for token in (f"{head}.{other}.{signature}", f"{head}.{body}.", f"{head}.{body}.{signature[:-4]}", "..", "a.b.c"):
        refused(tokens, token)


async def test_a_token_too_large_is_refused_unread(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    large = RSA.token(more="x" * MAX_TOKEN)
    monkeypatch.setattr(jwt, "decode_complete", pytest.fail)
    refused(tokens, large)


async def test_no_issuer_no_token() -> None:
    refused(Tokens((), time.monotonic), RSA.token())


async def test_leeway_is_for_clocks_that_differ(tmp_path: Any) -> None:
    tokens = await ready(tmp_path, {"leeway": "60s"})
    assert principal_of(tokens, RSA.token(exp=time.time() - 30, nbf=time.time() + 30)).tenant == "acme"
    refused(tokens, RSA.token(exp=time.time() - 90))


async def test_two_entries_for_one_issuer_differ_by_audience(tmp_path: Any) -> None:
    second = {"name": "second", "audience": "batch", "tenant": "beta", "claims": {}}
    tokens = await ready(tmp_path, {}, second)
    assert principal_of(tokens, RSA.token()).key_id == "jwt:login:app-1"
    assert principal_of(tokens, RSA.token(aud="batch")) == Principal("beta", "jwt:second:app-1")


async def test_a_configured_shared_secret_is_used() -> None:
    tokens = Tokens([issuer(algorithms=("HS256",), allow_symmetric_secret=SECRET)], time.monotonic)
    await tokens.load()
    assert principal_of(tokens, jwt.encode(payload(), SECRET)).tenant == "acme"
    refused(tokens, jwt.encode(payload(), "t" * 32))
    refused(tokens, jwt.encode(payload(), "t" * 64, "HS512"))
    refused(tokens, RSA.token())


async def test_a_token_is_verified_once_until_it_ends(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    short, long = RSA.token(exp=int(now) + 20), RSA.token(exp=int(now) + 600)
    for token in (short, long):
        principal_of(tokens, token, now)
    calls: list[str] = []
    real = jwt.decode_complete

    def counted(token: str, **options: Any) -> dict[str, Any]:
        calls.append(token)
        return real(token, **options)

    monkeypatch.setattr(jwt, "decode_complete", counted)
    principal_of(tokens, short, now + 10)
    principal_of(tokens, long, now + 59)
    assert calls == []
    principal_of(tokens, short, int(now) + 20)  # looked at again; the real clock lets it pass here
    principal_of(tokens, long, now + 60)
    principal_of(tokens, long, now - 5)  # a clock that was set back
    assert calls == [short, long, long]


async def test_a_verified_token_of_a_tenant_that_left_is_refused(tokens: Tokens) -> None:
    token = RSA.token()
    assert principal_of(tokens, token).tenant == "acme"
    with pytest.raises(CredentialError, match=REFUSED):
        tokens.authenticate(token, time.time(), {"beta"})


async def test_verified_tokens_are_bounded(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "MAX_VERIFIED", 3)
    made = [RSA.token(sub=f"app-{i}") for i in range(6)]
    for token in made:
        principal_of(tokens, token)
        assert len(tokens._verified) <= 3
    assert principal_of(tokens, made[0]).key_id == "jwt:login:app-0"


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_whatever_is_sent_there_is_one_answer(a: str, b: str, c: str) -> None:
    tokens = Tokens([issuer(algorithms=("HS256",), allow_symmetric_secret=SECRET)], time.monotonic)
    refused(tokens, f"{a}.{b}.{c}")


@given(
    st.recursive(st.none() | st.booleans() | st.integers(max_value=10**9) | st.text(max_size=9), st.lists, max_leaves=4)
)
def test_whatever_the_claims_hold_there_is_one_answer(value: Any) -> None:
    tokens = Tokens([issuer(algorithms=("HS256",), allow_symmetric_secret=SECRET)], time.monotonic)
    for name in ("iss", "aud", "exp", "tenant"):
        claims = json.dumps({**payload(), name: value}).encode()
        refused(tokens, jwt.api_jws.encode(claims, SECRET, "HS256"))
    refused(tokens, jwt.api_jws.encode(json.dumps(value).encode(), SECRET, "HS256"))


@given(st.text(max_size=200), st.text(max_size=200))
def test_holder_ids_are_bounded_harmless_and_distinct(one: str, two: str) -> None:
    first, second = holder_id("jwt:login", one), holder_id("jwt:login", two)
    assert (first == second) == (one == two)
    assert len(first) <= 100
    assert first.isascii()
    assert first.isprintable()
