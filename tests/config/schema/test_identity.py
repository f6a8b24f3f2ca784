"""Token issuers and keys in the file. Their mistakes are in `tests/config/checks`."""

from pathlib import Path

from config.loader import load, read
from tests.config.checks.changes import document


def test_a_key_file_lies_beside_the_yaml_and_is_followed(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text('{"keys": []}')
    path = tmp_path / "headrace.yaml"
    jwks = "jwks: https://login.example.org/jwks.json"
    path.write_text(document("issuers")["file"].replace(jwks, "jwks: file:jwks.json"))
    assert load(path).auth.jwt[0].jwks == f"file:{tmp_path}/jwks.json"
    assert tmp_path / "jwks.json" in read(path).sources


def test_grants_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text(document("grants")["file"])
    (key,) = load(path).tenants[0].keys
    assert key.scopes is not None
    assert (key.labels["team"], key.scopes.models, key.scopes.fronts) == ("search", ("ch*",), ("chat",))
