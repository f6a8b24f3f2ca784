"""Our own file: its fields, and the errors for mistakes in it."""

import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from config.problem import ConfigError
from runtimes.tensor import catalogue
from runtimes.tensor.catalogue.repository import CATALOGUE
from runtimes.tensor.configuration.model_config import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    SequenceControl,
    SequenceState,
    TensorSpec,
    VersionPolicy,
)
from runtimes.tensor.configuration.reading import FILES, read_model
from tests.support.cases import cases

pytestmark = pytest.mark.plain
WHOLE = Path(__file__).with_name("whole_model.yaml").read_text()


def a_model(root: Path, text: str, name: str = "vad") -> Path:
    folder = root / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.onnx").write_bytes(b"x")
    (folder / "model.yaml").write_text(text)
    return folder


def read(folder: Path) -> ModelConfig:
    return read_model(folder, folder.name, [folder / "1"]).config


def complaints(folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder)
    return [str(problem).removeprefix(f"{folder / 'model.yaml'}:") for problem in caught.value.problems]


def test_the_whole_file(tmp_path: Path) -> None:
    folder = a_model(tmp_path, WHOLE)
    (folder / "labels.txt").write_text("noise\nspeech\n")
    (folder / "initial_state").mkdir()
    (folder / "initial_state" / "h").write_bytes(b"\0" * 512)
    config = read(folder)
    assert (config.name, config.backend, config.default_model_filename) == ("vad", "onnx", "vad.onnx")
    assert config.inputs == (
        TensorSpec("AUDIO", "FP32", (-1,), allow_ragged_batch=True),
        TensorSpec("RATE", "INT64", (1,), optional=True, reshape=()),
    )
    assert config.outputs[0].labels == ("noise", "speech")
    assert config.version_policy == VersionPolicy("latest", 2)
    assert config.version_labels == {"stable": 1}
    batching = config.sequence_batching
    assert batching is not None
    assert (batching.strategy, batching.max_sequence_idle, batching.max_queue_delay) == ("oldest", 5.0, 0.0005)
    assert batching.controls[1] == SequenceControl("corrid", "ID", "UINT64")
    assert batching.states == (SequenceState("H", "H_NEW", "FP32", (2, 64), b"\0" * 512, "h"),)
    assert config.instance_groups == (InstanceGroup(2, placement="process", cpus=(0, 1), threads=1),)
    assert (config.warmup[0].count, config.warmup[0].inputs[0].data) == (3, "random")
    assert (config.quantize, config.execution_timeout, config.memory_bytes) == ("int8", 10.0, 200 << 20)
    assert config.parameters == {"providers": "CPUExecutionProvider", "verbose": "true", "level": "3"}


def test_short_forms(tmp_path: Path) -> None:
    config = read(a_model(tmp_path, "dynamic_batching: true\ninstances: 3\nversions: all\ncache: true\n"))
    assert config.backend == "onnx"
    assert config.dynamic_batching == DynamicBatching()
    assert config.instance_groups == (InstanceGroup(3),)
    assert config.version_policy == VersionPolicy("all")
    assert config.response_cache.enable


def test_queues_by_priority(tmp_path: Path) -> None:
    text = (
        "dynamic_batching: {priority_levels: 2, default_priority_level: 2, priority_queues: {1: {max_queue_size: 5}}}"
    )
    batching = read(a_model(tmp_path, text)).dynamic_batching
    assert batching is not None
    assert batching.priority_queue_policy == {1: QueuePolicy(5)}


def test_no_file_at_all_is_a_configuration_too(tmp_path: Path) -> None:
    folder = a_model(tmp_path, "")
    (folder / "model.yaml").unlink()
    assert read(folder) == ModelConfig("vad", "onnx")


def test_the_backend_is_inferred_from_the_file(tmp_path: Path) -> None:
    assert read(a_model(tmp_path, "file: other.pt")).backend == "torch"
    folder = a_model(tmp_path, "max_batch_size: 2", "unknown")
    (folder / "1" / "model.onnx").rename(folder / "1" / "weights.bin")
    assert "backend: is required" in complaints(folder)[0]


@pytest.mark.parametrize(
    ("text", "reported"),
    cases(__file__, "mistakes"),
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, text: str, reported: str) -> None:
    assert complaints(a_model(tmp_path, text)) == [reported]


def test_two_files_are_one_too_many(tmp_path: Path) -> None:
    folder = a_model(tmp_path, "backend: onnx")
    (folder / "config.pbtxt").write_text('backend: "onnxruntime"')
    with pytest.raises(ConfigError, match=r"beside a config\.pbtxt: keep one"):
        read(folder)


def test_every_field_can_be_written(tmp_path: Path) -> None:
    """`WHOLE` leaves at its default only what does not go together with it, and Triton's own word."""
    folder = a_model(tmp_path, WHOLE)
    (folder / "labels.txt").write_text("noise\nspeech\n")
    (folder / "initial_state").mkdir()
    (folder / "initial_state" / "h").write_bytes(b"")
    config, plain = read(folder), ModelConfig("vad", "onnx")
    same = {field.name for field in fields(ModelConfig) if getattr(config, field.name) == getattr(plain, field.name)}
    assert same == {
        "name", "backend", "decoupled", "response_cache", "dynamic_batching", "platform", "ensemble", "batch_inputs",
        "batch_outputs", "processes", "explain", "explains", "drift", "counted",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_the_catalogue_is_written_in_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    shutil.copytree(Path(catalogue.__file__).parent / "models" / name, folder)
    config = read_model(folder, name, [folder / "1"]).config
    assert config.backend in FILES
    assert config.max_batch_size >= 1 or name in ("ocr-crop", "speech-parts")  # a row for each part


def test_the_examples_on_the_page(tmp_path: Path) -> None:
    page = Path("docs/tensor-runtime.md").read_text()
    examples = re.findall(r"```yaml model\n(.*?)```", page, re.DOTALL)
    assert examples
    for i, text in enumerate(examples):
        folder = a_model(tmp_path, text, f"m{i}")
        (folder / "labels.txt").write_text("a\nb\n")
        (folder / "background.csv").write_text("1,2,3,4\n")
        written = re.search(r"^(?:backend: )?(\w+):?$", text, re.MULTILINE)
        assert written
        assert read(folder).backend == written[1]


def test_files_are_called_as_their_backends_call_them() -> None:
    backends = "\n".join(path.read_text() for path in Path("runtimes/tensor/backends").glob("*.py"))
    for name in (name for names in FILES.values() for name in names):
        assert f'"{name}"' in backends, name
