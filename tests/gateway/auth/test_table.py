from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CredentialError
from gateway.auth.errors import KeyConfigError
from gateway.auth.keys import ApiKey, KeyRecord, Principal, digest, new_key
from gateway.auth.listing import listed
from gateway.auth.scope import Scope
from gateway.auth.table import KeyTable
from tests.gateway.auth.conftest import NOW, PEPPER, MakeConfig

REFUSED = "the API key or token is not valid: it is unknown, revoked or expired"


def record(key: ApiKey, tenant: str = "acme", **fields: Any) -> KeyRecord:
    return KeyRecord(Principal(tenant, key.id), digest(PEPPER, key.plaintext), **fields)


def written(key: ApiKey, **fields: Any) -> dict[str, Any]:
    return {"id": key.id, "hash": digest(PEPPER, key.plaintext).hex(), **fields}


def refusal(table: KeyTable, token: str | None, now: float = NOW) -> CredentialError:
    with pytest.raises(CredentialError) as caught:
        table.authenticate(token, now)
    return caught.value


def test_issued_and_written_keys_are_accepted(make_config: MakeConfig) -> None:
    in_file, in_store = new_key(), new_key()
    table = KeyTable.build(make_config(acme=[written(in_file)], beta=[]), PEPPER, [record(in_store, "beta")])
    assert len(table) == 2
    assert table.authenticate(in_file.plaintext, NOW) == Principal("acme", in_file.id)
    assert table.authenticate(in_store.plaintext, NOW) == Principal("beta", in_store.id)


def test_a_written_key_has_its_grant(make_config: MakeConfig) -> None:
    plain, held = new_key(), new_key()
    grant: dict[str, Any] = {"labels": {"team": "search"}, "scopes": {"models": ("c*",), "fronts": ("chat",)}}
    table = KeyTable.build(make_config(acme=[written(plain), written(held, **grant)]), PEPPER)
    assert table.authenticate(plain.plaintext, NOW) == Principal("acme", plain.id)
    principal = table.authenticate(held.plaintext, NOW)
    scope = Scope(models=["c*"], fronts=["chat"])
    assert principal == Principal("acme", held.id, labels={"team": "search"}, scope=scope)
    assert table.authenticate(held.plaintext, NOW).scope is principal.scope  # compiled once
    admin = KeyTable.build(make_config(acme=[written(plain, role="tenant-admin")]), PEPPER)
    assert admin.authenticate(plain.plaintext, NOW).roles == {"user", "tenant-admin"}


def test_written_keys_of_one_lineage_are_one_subject(make_config: MakeConfig) -> None:
    first, second = new_key(), new_key()
    made = make_config(acme=[written(first), written(second, lineage=first.id)])
    table = KeyTable.build(made, PEPPER)
    assert {table.authenticate(key.plaintext, NOW).subject for key in (first, second)} == {first.id}
    assert [key.lineage for key in listed(made, (), NOW)] == [None, first.id]
    with pytest.raises(KeyConfigError, match="`lineage` is the id"):
        KeyTable.build(make_config(acme=[written(second, lineage="hr-first")]), PEPPER)


def test_one_message_for_every_bad_key(make_config: MakeConfig) -> None:
    good, ended = new_key(), new_key()
    table = KeyTable.build(make_config(), PEPPER, [record(good), record(ended, expires_at=NOW)])
    bad = [
        new_key().plaintext,
        ended.plaintext,
        f"hr-{good.id}-{'A' * 43}",
        "",
        "sk-anything",
        "ключ",
        "\udcff" * 59,
        "x" * 100_000,
    ]
    for token in bad:
        error = refusal(table, token)
        assert (error.message, error.code, error.kind) == (REFUSED, "invalid_api_key", "credential")


def test_invalid_keys_are_indistinguishable(make_config: MakeConfig) -> None:
    error = refusal(KeyTable.build(make_config(), PEPPER), None)
    assert error.code == "missing_api_key"
    assert "Authorization: Bearer" in error.message


def test_a_hash_is_never_a_credential(make_config: MakeConfig) -> None:
    key = new_key()
    table = KeyTable.build(make_config(acme=[written(key)]), PEPPER, [record(key)])
    hashed = digest(PEPPER, key.plaintext).hex()
    for token in (hashed, f"hr-{key.id}-{hashed[:43]}", f"hr-{key.id}-{hashed}"):
        assert refusal(table, token).message == REFUSED


def test_no_key_is_valid_with_another_pepper(make_config: MakeConfig) -> None:
    key = new_key()
    assert refusal(KeyTable.build(make_config(), b"another" * 6, [record(key)]), key.plaintext).message == REFUSED


@given(st.floats(0, 4e9), st.floats(0, 4e9))
def test_a_key_ends_exactly_at_its_end(end: float, now: float) -> None:
    key = new_key()
    table = KeyTable(PEPPER, {key.id: record(key, expires_at=end)})
    if now < end:
        assert table.authenticate(key.plaintext, now).key_id == key.id
    else:
        refusal(table, key.plaintext, now)


def test_a_written_key_is_good_through_its_last_day(make_config: MakeConfig) -> None:
    key = new_key()
    table = KeyTable.build(make_config(acme=[written(key, expires="2024-02-29")]), PEPPER)
    midnight = 1_709_251_200.0  # 2024-03-01T00:00:00Z
    assert table.authenticate(key.plaintext, midnight - 0.001).tenant == "acme"
    refusal(table, key.plaintext, midnight)


def test_a_key_of_a_removed_tenant_is_refused(make_config: MakeConfig) -> None:
    key = new_key()
    assert refusal(KeyTable.build(make_config(), PEPPER, [record(key, "gone")]), key.plaintext).message == REFUSED


def test_the_file_counts_where_both_have_an_id(make_config: MakeConfig) -> None:
    key = new_key()
    table = KeyTable.build(make_config(acme=[written(key)], beta=[]), PEPPER, [record(key, "beta")])
    assert table.authenticate(key.plaintext, NOW).tenant == "acme"


def test_every_bad_written_key_is_named_at_once(make_config: MakeConfig) -> None:
    twice = new_key()
    config = make_config(acme=[written(ApiKey("ci", "")), written(twice)], beta=[written(twice)])
    with pytest.raises(KeyConfigError) as caught:
        KeyTable.build(config, PEPPER)
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["tenant acme, key ci", f"tenant beta, key {twice.id}"]
    assert "12 characters" in lines[0]
    assert "tenant acme has a key of the same id" in lines[1]


def test_the_demo_key_is_valid_only_if_configured(make_config: MakeConfig) -> None:
    demo = new_key()
    on = {"demo_key": True}
    to_demo = KeyTable.build(make_config(auth=on, acme=[], demo=[]), PEPPER, demo=demo)
    assert to_demo.authenticate(demo.plaintext, NOW) == Principal("demo", demo.id)
    to_first = KeyTable.build(make_config(auth=on, acme=[], beta=[]), PEPPER, demo=demo)
    assert to_first.authenticate(demo.plaintext, NOW).tenant == "acme"
    refusal(KeyTable.build(make_config(), PEPPER, demo=demo), demo.plaintext)


def test_a_cached_key_still_expires_and_validates_no_other_key(make_config: MakeConfig) -> None:
    key = new_key()
    table = KeyTable.build(make_config(acme=[]), PEPPER, [record(key, expires_at=NOW + 10)])
    for _ in range(2):
        assert table.authenticate(key.plaintext, NOW).key_id == key.id
        refusal(table, key.plaintext[:-1] + ("a" if key.plaintext[-1] != "a" else "b"))
    assert str(refusal(table, key.plaintext, NOW + 10)) == REFUSED
