"""The examples, in a folder with the files that they require."""

import shutil
from pathlib import Path

import pytest

from config import default_path


def examples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of all, with their tests."""
    made = folder / "examples"
    shutil.copytree(default_path().parent / "examples", made)
    (made / "secrets").mkdir()
    (made / "secrets" / "private-key.txt").write_text("private-key\n")
    (made / "tls").mkdir()
    (made / "tls" / "company-ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    monkeypatch.setenv("PROVIDER_API_KEY", "provider-key")
    monkeypatch.setenv("HEADRACE_RAY_KEY", "of-the-runtimes")
    monkeypatch.setenv("HF_TOKEN", "hub-token")
    monkeypatch.setenv("KEY_PEPPER", "pepper")
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("REDIS_PASSWORD", "secret")
    monkeypatch.delenv("ADMIN_ADDRESS", raising=False)
    return made
