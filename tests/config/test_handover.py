from pathlib import Path

import pytest

from config.loader import load, pack, unpack


def test_secrets_and_files_are_resolved_where_it_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-1")
    path = tmp_path / "headrace.yaml"
    path.write_text(
        "version: 1\nworkers: 2\nauth: {pepper: file:pepper.txt}\n"
        "pools: [{name: a, endpoints: [http://127.0.0.1:9], key: '${UPSTREAM_KEY}'}]\n"
        "models: [{name: chat, routes: [{to: a}]}]\n"
        "tenants: [{name: acme, models: ['*'], limits: [{requests: 10/min}, {tokens: 5/s, per: key}]}]\n"
    )
    (tmp_path / "pepper.txt").write_text("p" * 32)
    packed = pack(load(path))
    monkeypatch.delenv("UPSTREAM_KEY")
    path.unlink()
    (tmp_path / "pepper.txt").unlink()
    config = unpack(packed)
    assert config.pools[0].key is not None
    assert config.pools[0].key.get_secret_value() == "sk-1"
    assert config.auth.pepper is not None
    assert config.auth.pepper.get_secret_value() == "p" * 32
    assert [str(limit.requests) for limit in config.tenants[0].limit_list()] == ["10/min", "None"]


def test_fields_of_another_version_are_an_error() -> None:
    with pytest.raises(ValueError, match="extra"):
        unpack('{"source": {"version": 1, "colour": "blue"}, "lines": []}')
