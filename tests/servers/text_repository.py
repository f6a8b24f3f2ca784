"""Models of text for a real Triton, each with the signature of another's."""

import shutil
from pathlib import Path

MODELS = Path(__file__).parent / "text_models"
NAMES = ("llm_api", "bls", "vllm", "plain")


def texts(folder: Path) -> Path:
    """A repository of TensorRT-LLM's LLM API, its BLS, vLLM's backend, and a model that does not stream."""
    for name in NAMES:
        version = folder / name / "1"
        version.mkdir(parents=True)
        shutil.copy(MODELS / name / "config.pbtxt", folder / name)
        shutil.copy(MODELS / "parrot.py", version / "model.py")
    return folder
