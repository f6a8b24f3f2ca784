"""The history has the newest versions of a file, encrypted."""

from pathlib import Path

import pytest

from gateway.admin.drafts import history
from gateway.admin.drafts.history import ConfigHistory, UnreadableVersion
from gateway.auth.audit import Actor
from gateway.auth.pepper import Pepper
from gateway.auth.store import KeyStore

PEPPER, OTHER = b"p" * 32, b"q" * 32
ACTOR = Actor("cli:root@here")
SECRET = "redis://:a-password@cache"


def opened(folder: Path, file: str = "/etc/f.yaml", pepper: bytes = PEPPER) -> ConfigHistory:
    return ConfigHistory(f"sqlite:///{folder}/state.db", pepper, file)


def test_each_change_is_one_version(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path, "/etc/g.yaml")
    for number, text in enumerate(["a", "a", SECRET, "a"]):
        one.add(text, float(number), "reload", ACTOR)
    other.add("b", 9.0, "start", ACTOR)
    versions = one.read(10)
    assert [version.at for version in versions] == [3.0, 2.0, 0.0]
    assert [one.text(version.version) for version in versions] == ["a", SECRET, "a"]
    assert one.read(1, before=versions[0].version) == versions[1:2]
    assert one.text(other.read(1)[0].version) is None
    one.close()
    other.close()
    assert b"a-password" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_old_versions_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_VERSIONS", 5)
    one = opened(tmp_path)
    for number in range(12):
        one.add(f"text {number}", float(number), "reload", ACTOR)
    assert [version.at for version in one.read(100)] == [11.0, 10.0, 9.0, 8.0, 7.0]
    monkeypatch.setattr(history, "MOST_CONTENT", 1)
    one.add("last", 12.0, "reload", ACTOR)
    assert [version.at for version in one.read(100)] == [12.0]
    one.close()


def test_versions_of_another_pepper_are_reported(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.add("a", 0.0, "start", ACTOR)
    one.close()
    KeyStore(f"sqlite:///{tmp_path}/state.db", OTHER).close()  # without keys, a pepper may be replaced
    two = opened(tmp_path, pepper=OTHER)
    with pytest.raises(UnreadableVersion, match="another pepper"):
        two.text(two.read(1)[0].version)
    two.close()


def test_versions_are_readable_over_a_rotation_of_the_pepper(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.add("a", 0.0, "start", ACTOR)
    one.close()
    rotated = Pepper(OTHER)
    rotated.previous = PEPPER
    two = opened(tmp_path, pepper=rotated)
    assert two.text(1) == "a"
    two.add("a", 1.0, "start", ACTOR)  # each start, also with the same file
    two.close()
    after = opened(tmp_path, pepper=OTHER)
    assert after.text(1) == "a"
    after.close()
