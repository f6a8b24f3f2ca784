"""Our own file: its fields, and the errors for mistakes in it."""

import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from config.problem import ConfigError
from runtimes.tensor import catalogue
from runtimes.tensor.catalogue.entries import CATALOGUE
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

pytestmark = pytest.mark.plain
WHOLE = """
backend: onnx
file: vad.onnx
max_batch_size: 16
inputs:
  - {name: AUDIO, datatype: FP32, dims: [-1], ragged: true}
  - {name: RATE, datatype: INT64, dims: [1], optional: true, reshape: []}
outputs:
  - {name: SPEECH, datatype: FP32, dims: [2], labels: labels.txt}
versions: {latest: 2}
labels: {stable: 1}
sequence_batching:
  strategy: oldest
  max_sequence_idle: 5s
  max_candidate_sequences: 64
  max_queue_delay: 0.5ms
  preferred_batch_size: [4]
  controls:
    - {kind: start, name: START, datatype: FP32}
    - {kind: corrid, name: ID, datatype: UINT64}
  states:
    - {input_name: H, output_name: H_NEW, datatype: FP32, dims: [2, 64], initial_file: h}
instances: [{count: 2, placement: process, cpus: [0, 1], threads: 1}]
warmup:
  - name: second
    batch_size: 2
    count: 3
    inputs: [{name: AUDIO, datatype: FP32, dims: [512], data: random}]
quantize: int8
execution_timeout: 10s
memory: 200MiB
parameters: {providers: CPUExecutionProvider, verbose: true, level: 3}
"""


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
    [
        ("backend: onnx\nmax_batch_siz: 8", '2: max_batch_siz: unknown field (did you mean "max_batch_size"?)'),
        ("backend: onnx\nmax_batch_size: '8'", "2: max_batch_size: expected a whole number"),
        (
            "inputs:\n  - {name: A, datatype: FP23, dims: [1]}",
            "2: inputs[0].datatype: expected a datatype: BF16, BOOL, BYTES, FP16, FP32, FP64, INT16, INT32, INT64, "
            'INT8, UINT16, UINT32, UINT64, UINT8 (did you mean "FP32"?)',
        ),
        (
            "inputs:\n  - {name: A, datatype: FP32, dims: [0]}",
            "2: inputs[0].dims: each must be a length from 1 up, or -1 for any",
        ),
        (
            "inputs:\n  - {name: A, datatype: FP32, dims: [4], reshape: [3]}",
            "2: inputs[0].reshape: holds 3 elements where dims hold 4",
        ),
        (
            "outputs:\n  - {name: A, datatype: FP32, dims: [4]}\n  - {name: A, datatype: FP32, dims: [4]}",
            "3: outputs[1].name: A is given twice: keep one",
        ),
        ("instances:\n  - {count: 1, thread: 3}", '2: instances[0].thread: unknown field (did you mean "threads"?)'),
        ("instances: [{kind: cpu, gpus: [0]}]", "1: instances[0].gpus: are not for kind: cpu"),
        ("versions: newest", "1: versions: expected latest, all, a list of numbers or {latest: NUMBER}"),
        ("versions: {latest: 1, all: true}", "1: versions: give one of latest, all and only"),
        ("versions: [0]", "1: versions: expected the numbers of versions, from 1"),
        ("labels: {'1': 1}", "1: labels: a label is a word such as stable, and not a number"),
        (
            "dynamic_batching: {max_queue_delay: 5}",
            "1: dynamic_batching.max_queue_delay: expected a duration such as 250ms, 10s, 5m or 1h, got 5",
        ),
        (
            "max_batch_size: 4\ndynamic_batching:\n  preferred_batch_size: [8]",
            "3: dynamic_batching.preferred_batch_size: must be between 1 and 4, the largest batch",
        ),
        (
            "dynamic_batching:\n  priority_levels: 2",
            "1: dynamic_batching.default_priority_level: must be between 1 and priority_levels, 2",
        ),
        (
            "dynamic_batching:\n  priority_queues: {3: {}}",
            "2: dynamic_batching.priority_queues: 3 is not a level between 1 and priority_levels, 0",
        ),
        (
            "inputs: [{name: A, datatype: FP32, dims: [-1]}]\ndynamic_batching: {pad_to: {B: [4]}}",
            "2: dynamic_batching.pad_to.B: is not an input of the model",
        ),
        (
            "inputs: [{name: A, datatype: FP32, dims: [-1], ragged: true}]\ndynamic_batching: {pad_to: {A: [4]}}",
            "2: dynamic_batching.pad_to.A: the input `A` is ragged, and ragged inputs are joined without padding: leave"
            " it out here",
        ),
        (
            "dynamic_batching: true\nsequence_batching: true",
            "2: sequence_batching: and dynamic_batching exclude each other: keep one",
        ),
        (
            "cache: true\ndecoupled: true",
            "1: cache: stores one response, and a decoupled model has many: leave one of them out",
        ),
        ("file: ../../secret", "1: file: expected the name of a file in the version's folder"),
        (
            "outputs: [{name: A, datatype: FP32, dims: [2], labels: ../x}]",
            "1: outputs[0].labels: must lie in the model's own folder",
        ),
        (
            "outputs: [{name: A, datatype: FP32, dims: [2], labels: x}]",
            "1: outputs[0].labels: x cannot be read: No such file or directory",
        ),
        (
            "warmup: [{inputs: [{name: A, datatype: FP32, dims: [-1]}]}]",
            "1: warmup[0].inputs[0].dims: each must be a length, from 1: a warm-up has one shape",
        ),
        (
            "sequence_batching:\n  controls:\n    - {kind: start, name: S, datatype: INT8}",
            "3: sequence_batching.controls[0].datatype: of a start control must be BOOL or FP32 or INT32",
        ),
        ("max_batch_size: [\n", "2: is not valid YAML: did not find expected node content"),
    ],
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
        "batch_outputs", "processes",
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
        written = re.search(r"^(?:backend: )?(\w+):?$", text, re.MULTILINE)
        assert written
        assert read(folder).backend == written[1]


def test_files_are_called_as_their_backends_call_them() -> None:
    backends = "\n".join(path.read_text() for path in Path("runtimes/tensor/backends").glob("*.py"))
    for name in (name for names in FILES.values() for name in names):
        assert f'"{name}"' in backends, name
