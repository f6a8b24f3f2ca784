"""The benchmark's models, laid out for Triton and for ours: the same arithmetic, each written as its users would."""

import shutil
from pathlib import Path

from loadtests.venvs import InstallError
from runtimes.tensor.catalogue.repository import add
from runtimes.wheels import ModelUnavailable

MODELS = Path(__file__).parent / "models"
WRITTEN = ("add_sub", "mixed", "echo_texts", "echo_floats")
MAGIKA = "magika"
SUFFIX = "_500us"
"""Of the names of Triton's models that wait half a millisecond for company."""
_AT_ONCE, _DELAYED = "dynamic_batching { }", "dynamic_batching { max_queue_delay_microseconds: 500 }"
ONE_THREAD = """\
parameters { key: "headrace.instances" value { string_value: "[{count: 1, threads: 1, placement: process}]" } }
"""
"""Of our copies; Triton's have theirs from the environment."""
_OURS = """\
backend: onnx
max_batch_size: 8
inputs:
  - {name: bytes, datatype: INT32, dims: [2048]}
outputs:
  - {name: target_label, datatype: FP32, dims: [214]}
dynamic_batching: true
instances: [{count: 1, threads: 1}]
"""


def for_headrace(folder: Path) -> Path:
    """Written in our python backend; magika in our ONNX backend."""
    for name in WRITTEN:
        version = _version(folder / name)
        (folder / name / "config.pbtxt").write_text((MODELS / name / "config.pbtxt").read_text() + ONE_THREAD)
        shutil.copy(MODELS / name / "headrace.py", version / "model.py")
    _magika(folder)
    (folder / MAGIKA / "model.yaml").write_text(_OURS)
    return folder


def for_triton(folder: Path) -> Path:
    """Every model twice: unchanged, and with a queue delay."""
    onnx = _magika(folder / ".fetched") / "1/model.onnx"
    for name in (*WRITTEN, MAGIKA):
        source = MODELS / name
        config = next(source.glob("*.pbtxt")).read_text()
        for target, batching in ((folder / name, _AT_ONCE), (folder / f"{name}{SUFFIX}", _DELAYED)):
            version = _version(target)
            (target / "config.pbtxt").write_text(config.replace(_AT_ONCE, batching))
            shutil.copy(source / "triton.py", version / "model.py")
            if name == MAGIKA:
                shutil.copy(onnx, version)
            else:
                shutil.copy(source / "headrace.py", version / "headrace_model.py")
    shutil.rmtree(folder / ".fetched")
    return folder


def _version(model: Path) -> Path:
    version = model / "1"
    version.mkdir(parents=True)
    return version


def _magika(folder: Path) -> Path:
    try:
        return add(MAGIKA, folder)
    except ModelUnavailable as error:
        raise InstallError(str(error)) from None
