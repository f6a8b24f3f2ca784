"""The `record` section: what is refused, with the reason."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from config.loader import ConfigError, load

KEY = "sixteen characters"


def read(folder: Path, key: str = KEY, **record: Any) -> Any:
    (folder / "record.key").write_text(key)
    file = folder / "file.yaml"
    file.write_text(yaml.safe_dump({
        "version": 1,
        "record": {"to": "traffic", "key": "file:record.key", **record},
        "pools": [{"name": "p", "endpoints": ["http://127.0.0.1:9"]}],
        "models": [{"name": "chat", "routes": [{"to": "p"}]}],
        "tenants": [{"name": "acme", "models": ["chat"]}],
    }))  # fmt: skip
    return load(file).record


def test_defaults(tmp_path: Path) -> None:
    record = read(tmp_path)
    assert (record.share, record.keep, record.max, record.bodies) == (0.01, 7 * 86400, 5 * 2**30, True)
    assert KEY not in repr(record)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": "short"}, "16 characters"),
        ({"max": "10KiB"}, "1MiB"),
        ({"share": "101%"}, "share"),
        ({"answers": True, "bodies": "digest"}, "answers"),
        ({"bodies": False}, "bodies"),
        ({"headers": ["Authorization"]}, "credential"),
        ({"headers": ["X-API-Key"]}, "credential"),
        ({"redact": ["names"]}, "email, phone"),
        ({"redact": ["json:messages"]}, "json:"),
        ({"redact": ["json:$"]}, "json:"),
        ({"exclude": ["chta"]}, "excludes no model"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(tmp_path, **changes)


def test_contents_are_shown_of_recorded_traffic_alone(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    tenants = "tenants: [{name: acme, models: ['*'], show_content: operators}]"
    pools = "pools: [{name: p, endpoints: ['http://127.0.0.1:9']}]\nmodels: [{name: m, routes: [{to: p}]}]"
    file.write_text(f"version: 1\n{pools}\n{tenants}\n")
    with pytest.raises(ConfigError, match="has no effect without `record`"):
        load(file)


def test_a_key_is_never_written_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("version: 1\nrecord: {to: traffic, key: a secret in the file}\n")
    with pytest.raises(ConfigError, match="never written here"):
        load(file)
