"""Token issuers and client certificates in the file."""

from pathlib import Path

import pytest

from config.loader import load, read
from tests.config.conftest import RIGHT, Complaints

JWT = """\
version: 1
auth:
  jwt:
    - name: login
      issuer: https://login.example.org/
      audience: headrace
      algorithms: [RS256]
      jwks: https://login.example.org/jwks.json
      claims: {tenant: org.tenant, roles: roles}
"""
ISSUED = RIGHT.replace("version: 1\n", JWT)
TLS = """\
version: 1
listen:
  tls: {cert: a.pem, key: a.pem, client_ca: a.pem}
"""
MUTUAL = RIGHT.replace("version: 1\n", TLS) + "    certificates: [{subject_cn: app}]\n"
JWKS = "jwks: https://login.example.org/jwks.json"
CLAIMS = "claims: {tenant: org.tenant, roles: roles}"
SECRET = "allow_symmetric_secret: file:secret"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "secret").write_text("s" * 32)
    (tmp_path / "short").write_text("s" * 31)
    (tmp_path / "jwks.json").write_text('{"keys": []}')


def test_valid_sections_are_accepted(complaints: Complaints) -> None:
    assert complaints(ISSUED) == []
    assert complaints(MUTUAL) == []
    assert complaints(ISSUED.replace(JWKS, SECRET).replace("RS256", "HS256")) == []
    assert complaints(ISSUED.replace(CLAIMS, "tenant: acme\n      leeway: 0s\n      refresh: 1h")) == []
    assert complaints(ISSUED.replace(JWKS, "jwks: http://127.0.0.1:80/jwks?a=b")) == []


def test_a_key_file_lies_beside_the_yaml_and_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text(ISSUED.replace(JWKS, "jwks: file:jwks.json"))
    assert load(path).auth.jwt[0].jwks == f"file:{tmp_path}/jwks.json"
    assert tmp_path / "jwks.json" in read(path).sources


NAME = "a name: up to 64 letters, digits and . _ - (not first)"
ALGORITHMS = "RS256 or RS384 or RS512 or PS256 or PS384 or PS512 or ES256 or ES384 or ES512 or EdDSA or HS256 or HS384"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("      issuer: https://login.example.org/\n", "", "4: auth.jwt[0].issuer: is required"),
        ("      audience: headrace\n", "", "4: auth.jwt[0].audience: is required"),
        ("      algorithms: [RS256]\n", "", "4: auth.jwt[0].algorithms: is required"),
        ("[RS256]", "[]", "7: auth.jwt[0].algorithms: needs 1 or more entries"),
        ("[RS256]", "[none]", f"7: auth.jwt[0].algorithms[0]: expected {ALGORITHMS} or HS512"),
        (
            "[RS256]",
            "[RS265]",
            f'7: auth.jwt[0].algorithms[0]: expected {ALGORITHMS} or HS512 (did you mean "RS256"?)',
        ),
        (
            "[RS256]",
            "[RS256, HS256]",
            "7: auth.jwt[0].algorithms[1]: is signed with a secret, and the keys are public: remove it, or use "
            'allow_symmetric_secret (did you mean "RS256"?)',
        ),
        (
            JWKS,
            SECRET,
            "7: auth.jwt[0].algorithms[0]: is signed with a key pair, and there is a shared secret "
            '(did you mean "HS256"?)',
        ),
        (
            JWKS,
            f"{JWKS}\n      {SECRET}",
            "4: auth.jwt[0]: has one source of keys: give jwks, or allow_symmetric_secret with HS256",
        ),
        (JWKS, "leeway: 1s", "4: auth.jwt[0]: has one source of keys: give jwks, or allow_symmetric_secret with HS256"),
        (
            f"[RS256]\n      {JWKS}",
            f"[HS256]\n      {SECRET}\n      refresh: 1h",
            "9: auth.jwt[0].refresh: has no effect: a shared secret is not fetched",
        ),
        (
            f"[RS256]\n      {JWKS}",
            "[HS256]\n      allow_symmetric_secret: file:short",
            "8: auth.jwt[0].allow_symmetric_secret: the secret needs at least 32 bytes, as long as the hash",
        ),
        (
            f"[RS256]\n      {JWKS}",
            f"[HS256, HS512]\n      {SECRET}",
            "8: auth.jwt[0].allow_symmetric_secret: the secret needs at least 64 bytes, as long as the hash",
        ),
        (
            f"[RS256]\n      {JWKS}",
            "[HS256]\n      allow_symmetric_secret: ${HEADRACE_TEST_NOT_SET}",
            "8: auth.jwt[0].allow_symmetric_secret: the environment variable HEADRACE_TEST_NOT_SET is not set",
        ),
        (
            JWKS,
            "jwks: http://login.example.org/",
            "8: auth.jwt[0].jwks: keys come over https://; plain http:// is for loopback only",
        ),
        (
            JWKS,
            "jwks: http://127.0.0.1.example.org/",
            "8: auth.jwt[0].jwks: keys come over https://; plain http:// is for loopback only",
        ),
        (JWKS, "jwks: ftp://a/", "8: auth.jwt[0].jwks: expected https://HOST/PATH, or file:PATH"),
        (JWKS, "jwks: https://me@a/", "8: auth.jwt[0].jwks: expected https://HOST/PATH, or file:PATH"),
        (JWKS, "jwks: file:away", "8: auth.jwt[0].jwks: {folder}/away cannot be read: No such file or directory"),
        (JWKS, "jwks: file:a.pem", '8: auth.jwt[0].jwks: {folder}/a.pem is not a JWK set: it has no "keys"'),
        (
            CLAIMS,
            "claims: {roles: roles}",
            "4: auth.jwt[0]: has one source of the tenant: give tenant, or claims.tenant",
        ),
        (
            CLAIMS,
            f"{CLAIMS}\n      tenant: acme",
            "4: auth.jwt[0]: has one source of the tenant: give tenant, or claims.tenant",
        ),
        (
            CLAIMS,
            "tenant: acne",
            '9: auth.jwt[0].tenant: no tenant is named "acne" (did you mean "acme"?)',
        ),
        ("roles: roles", "rolls: x", '9: auth.jwt[0].claims.rolls: unknown field (did you mean "roles"?)'),
        ("name: login", "name: a:b", f"4: auth.jwt[0].name: expected {NAME}"),
        (
            CLAIMS,
            f"{CLAIMS}\n      roles: {{admins: root}}",
            "10: auth.jwt[0].roles.admins: expected user or tenant-admin or operator",
        ),
        (
            CLAIMS,
            "tenant: acme\n      roles: {admins: operator}",
            "10: auth.jwt[0].roles: has no effect without claims.roles",
        ),
        (
            CLAIMS,
            "tenant: acme\n      claims: {roles: groups}\n      roles: {leads: tenant-admin, admins: operator}",
            "11: auth.jwt[0].roles.admins: an issuer of one tenant grants tenant-admin at most",
        ),
        (CLAIMS, f"{CLAIMS}\n      leeway: 10m", "10: auth.jwt[0].leeway: must be at most 300"),
    ],
)  # fmt: skip
def test_an_issuer_that_cannot_stand(complaints: Complaints, tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert ISSUED.count(old) == 1
    assert complaints(ISSUED.replace(old, new)) == [problem.replace("{folder}", str(tmp_path))]


def test_two_issuers_of_one_name(complaints: Complaints) -> None:
    entry = JWT[JWT.index("    - name") :]
    assert complaints(ISSUED.replace(entry, entry + entry)) == ["10: auth.jwt[1].name: is given twice, first on line 4"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "    certificates: [{subject_cn: app}]\n",
            "",
            "3: listen.tls.client_ca: has no effect: no tenant has `certificates`, and client_auth is not required",
        ),
        (", client_ca: a.pem", "", "17: tenants[0].certificates: has no effect without listen.tls.client_ca"),
        (
            "client_ca: a.pem}",
            "client_ca: a.pem, client_auth: maybe}",
            "3: listen.tls.client_auth: expected optional or required",
        ),
        (
            "{subject_cn: app}",
            "{subject_cn: app, san_dns: app}",
            "17: tenants[0].certificates[0]: give one of subject_cn, san_dns and san_uri",
        ),
        ("{subject_cn: app}", "{}", "17: tenants[0].certificates[0]: give one of subject_cn, san_dns and san_uri"),
        (
            "{subject_cn: app}",
            "{subject_cn: app}, {subject_cn: app}",
            "17: tenants[0].certificates[1].subject_cn: is given twice, first on line 17",
        ),
        (
            "{subject_cn: app}",
            "{san_url: app}",
            '17: tenants[0].certificates[0].san_url: unknown field (did you mean "san_uri"?)',
        ),
    ],
)
def test_certificates_that_cannot_stand(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert MUTUAL.count(old) == 1
    assert complaints(MUTUAL.replace(old, new)) == [problem]


HELD = """\
    keys:
      - id: abcdefghijkl
        hash: "%s"
        role: user
        labels: {team: search, cost-centre: "17"}
        scopes: {models: ["ch*"], fronts: [chat], routes: [gold]}
""" % ("0" * 64)
SCOPED = RIGHT.replace("      - to: vllm", "      - name: gold\n        to: vllm") + HELD


def test_grants_of_a_key_or_a_certificate(complaints: Complaints, tmp_path: Path) -> None:
    assert complaints(SCOPED) == []
    (key,) = load(tmp_path / "file.yaml").tenants[0].keys
    assert key.scopes is not None
    assert (key.labels["team"], key.scopes.models, key.scopes.fronts) == ("search", ("ch*",), ("chat",))
    certificate = "{subject_cn: app, role: operator, labels: {team: ops}}"
    assert complaints(MUTUAL.replace("{subject_cn: app}", certificate)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("role: user", "role: admin", "19: tenants[0].keys[0].role: expected user or tenant-admin or operator"),
        (
            "role: user",
            "role: operator",
            "17: tenants[0].keys[0]: scopes leave nothing of the role operator: give one of the two",
        ),
        (
            "{models: [\"ch*\"], fronts: [chat], routes: [gold]}",
            "{}",
            "21: tenants[0].keys[0].scopes: narrows nothing: give models, fronts or routes, or remove it",
        ),
        ("[chat], routes", "[], routes", "21: tenants[0].keys[0].scopes.fronts: needs 1 or more entries"),
        (
            "[chat], routes",
            "[chats], routes",
            "21: tenants[0].keys[0].scopes.fronts[0]: expected chat or text_completion or embeddings or infer or app "
            'or models or feedback or files or batches or metrics (did you mean "chat"?)',
        ),
        ("ch*", "cat", '21: tenants[0].keys[0].scopes.models[0]: no model is named "cat" (did you mean "chat"?)'),
        ("[gold]", "[god]", '21: tenants[0].keys[0].scopes.routes[0]: no route is named "god" (did you mean "gold"?)'),
        (
            "{team: search",
            "{_team: search",
            "20: tenants[0].keys[0].labels._team: expected a label's name: letters, digits and . _ / -",
        ),
        (
            '"17"',
            "17",
            "20: tenants[0].keys[0].labels.cost-centre: expected text: put a number, true or false in quotes, got 17",
        ),
        (
            "      - name: gold\n",
            "      - {name: gold, to: spare, when: {stream: true}}\n      - name: gold\n",
            "11: models[0].routes[1].name: is given twice, first on line 10",
        ),
    ],
)  # fmt: skip
def test_grants_that_cannot_stand(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert SCOPED.count(old) == 1
    assert complaints(SCOPED.replace(old, new)) == [problem]


def test_labels_are_bounded(complaints: Complaints) -> None:
    many = f"labels: {{{', '.join(f'l{i}: x' for i in range(17))}}}"
    text = SCOPED.replace('labels: {team: search, cost-centre: "17"}', many)
    assert complaints(text) == ["20: tenants[0].keys[0].labels: takes 16 entries at most"]


def test_client_auth_is_nothing_without_roots(complaints: Complaints) -> None:
    text = RIGHT.replace("version: 1\n", TLS.replace("client_ca: a.pem", "client_auth: required"))
    assert complaints(text) == ["3: listen.tls.client_auth: has no effect without client_ca"]
    required = RIGHT.replace("version: 1\n", TLS.replace("a.pem}", "a.pem, client_auth: required}"))
    assert complaints(required) == []
