"""The file is replaced as a whole, with its mode and its links, or not at all."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.schema.config import Config
from gateway.admin.drafts.file import NotEditable, check_editable, content_of, replace_content, revision_of
from tests.support.gateways import config


def editable() -> Config:
    return config(auth={"admin": {"edit": True}})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=2000), st.binary(max_size=2000), st.sampled_from([0o600, 0o640, 0o644]))
def test_a_replaced_file_has_its_mode(tmp_path: Path, old: bytes, new: bytes, mode: int) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(old)
    path.chmod(mode)
    replace_content(path, new)
    assert content_of(path) == (new, revision_of(new))
    assert path.stat().st_mode & 0o777 == mode
    assert os.listdir(tmp_path) == ["f.yaml"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "f.yaml", tmp_path / "f.yaml"
    target.write_text("old")
    link.symlink_to(target)
    replace_content(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_content(path, b"new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["f.yaml"]


def test_the_reason_against_a_change_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "etc" / "f.yaml"
    path.parent.mkdir()
    path.write_text("x")
    check_editable(path, editable())
    with pytest.raises(NotEditable, match="not enabled"):
        check_editable(path, config())

    def read_only(_: Any, mode: int) -> bool:
        return mode == os.R_OK

    with monkeypatch.context() as patched:
        patched.setattr(os, "access", read_only)
        with pytest.raises(NotEditable, match="read-only"):
            check_editable(path, editable())
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    with pytest.raises(NotEditable, match="Git work tree"):
        check_editable(path, editable())
