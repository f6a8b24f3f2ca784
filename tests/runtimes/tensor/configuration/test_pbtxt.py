"""Triton's own file: parsed in full, reported in Triton's form, and its mistakes with their lines."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.problem import ConfigError
from runtimes.tensor.configuration.model_config import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    ResponseCache,
    SequenceBatching,
    SequenceControl,
    SequenceState,
    TensorSpec,
    VersionPolicy,
    Warmup,
    WarmupInput,
)
from runtimes.tensor.configuration.pbtxt import parse
from runtimes.tensor.configuration.reading import Reading, read_model, read_override
from runtimes.tensor.configuration.triton import to_json, to_message
from tests.support.cases import cases

pytestmark = pytest.mark.plain
NAMES = ("add_sub", "accelerated", "sequences", "settings")
ADD_SUB, ACCELERATED, SEQUENCES, SETTINGS = (Path(__file__).with_name(f"{name}.pbtxt").read_text() for name in NAMES)


def reading(tmp_path: Path, text: str, name: str = "add_sub") -> Reading:
    folder = tmp_path / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(text)
    return read_model(folder, name, [folder / "1"])


def complaints(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        reading(tmp_path, text)
    file = tmp_path / "add_sub" / "config.pbtxt"
    return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    read = reading(tmp_path, ADD_SUB)
    assert read.warnings == ()
    spec = TensorSpec("INPUT0", "INT32", (16,))
    assert read.config == ModelConfig(
        name="add_sub",
        backend="python",
        inputs=(spec, TensorSpec("INPUT1", "INT32", (16,))),
        outputs=(TensorSpec("OUTPUT0", "INT32", (16,)), TensorSpec("OUTPUT1", "INT32", (16,))),
        max_batch_size=8,
        version_policy=VersionPolicy("all"),
        dynamic_batching=DynamicBatching(
            preferred_batch_size=(4, 8),
            max_queue_delay=0.0005,
            priority_levels=2,
            default_priority_level=1,
            default_queue_policy=QueuePolicy(10, 0.1, "delay"),
            priority_queue_policy={2: QueuePolicy(5, allow_timeout_override=True)},
        ),
        instance_groups=(InstanceGroup(2, "cpu"),),
        warmup=(
            Warmup(
                "first",
                1,
                1,
                inputs=(WarmupInput("INPUT0", "INT32", (16,)), WarmupInput("INPUT1", "INT32", (16,), "random")),
            ),
        ),
        response_cache=ResponseCache(enable=True),
        parameters={"FORCE_CPU_ONLY_INPUT_TENSORS": "no"},
    )


def test_sequences(tmp_path: Path) -> None:
    config = reading(tmp_path, SEQUENCES).config
    assert config.backend == "onnx"
    assert config.decoupled
    assert config.sequence_batching == SequenceBatching(
        "oldest",
        5.0,
        4,
        0.0001,
        preferred_batch_size=(2,),
        controls=(
            SequenceControl("start", "START", "FP32"),
            SequenceControl("ready", "READY", "INT32", (-1, 1)),
            SequenceControl("corrid", "CORRID", "BYTES"),
        ),
        states=(SequenceState("IN", "OUT", "FP32", (2,), initial_dims=(2,)),),
    )


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    cases(__file__, "mistakes"),
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, old: str, new: str, reported: str) -> None:
    assert old in ADD_SUB
    text = ADD_SUB.replace(old, new, 1)
    if "#" in new:
        text = text.replace('value: { string_value: "no" } }', "}")
        text = text.replace('headrace.quantise" #', 'headrace.quantise" value: { string_value: "int8" } } #')
    actual = complaints(tmp_path, text)
    assert len(actual) == 1
    assert actual[0].startswith(reported)


def test_fields_without_effect_are_reported(tmp_path: Path) -> None:
    read = reading(tmp_path, ADD_SUB + "\noptimization { priority: PRIORITY_MAX }\n")
    reported = [str(warning).partition("config.pbtxt:")[2] for warning in read.warnings]
    assert reported == ["34: warning: optimization: has no effect here: set the backend's own parameters"]


def test_accelerators_of_onnx_models_are_execution_providers(tmp_path: Path) -> None:
    read = reading(tmp_path, ACCELERATED)
    assert read.warnings == ()
    assert read.config.parameters == {
        "execution_providers": "TensorrtExecutionProvider,OpenVINOExecutionProvider,CUDAExecutionProvider",
        "TensorrtExecutionProvider.trt_fp16_enable": "1",
        "TensorrtExecutionProvider.trt_max_workspace_size": "1073741824",
        "TensorrtExecutionProvider.trt_engine_cache_enable": "1",
        "OpenVINOExecutionProvider.device_type": "CPU",
        "graph_optimization_level": "extended",
        "intra_op_thread_count": "2",
    }


def test_an_accelerator_that_there_is_none_of(tmp_path: Path) -> None:
    place = "optimization.execution_accelerators.gpu_execution_accelerator[0]"
    assert complaints(tmp_path, ACCELERATED.replace("tensorrt", "tensorflow")) == [
        f"8: {place}.name: expected tensorrt, cuda, openvino"
    ]
    reported = complaints(tmp_path, ACCELERATED.replace("FP16", "FP8"))
    assert reported == [f"9: {place}.parameters: precision_mode is one of FP32, FP16, INT8"]
    other = reading(tmp_path, ACCELERATED.replace("onnxruntime_onnx", "pytorch_libtorch"))
    assert "optimization: has no effect here" in str(other.warnings[0])


def test_a_file_that_is_no_text_or_too_large(tmp_path: Path) -> None:
    folder = tmp_path / "add_sub"
    (folder / "1").mkdir(parents=True)
    for content, reported in ((b"\xff\xfe", "is not UTF-8 text"), (b"#" * (1 << 21), "is larger than")):
        (folder / "config.pbtxt").write_bytes(content)
        with pytest.raises(ConfigError, match=reported):
            read_model(folder, "add_sub", [])


@given(
    st.integers(0, len(ADD_SUB) - 1),
    st.integers(0, 40),
    st.text(st.sampled_from('{}[]<>:,;"#\\\n x0-.TYPE_'), max_size=8),
)
@settings(max_examples=150)
def test_any_damage_is_a_problem_and_never_a_crash(at: int, length: int, noise: str) -> None:
    text = ADD_SUB[:at] + noise + ADD_SUB[at + length :]
    count = text.count("\n") + 1
    try:
        _, doc = parse(text, "config.pbtxt")
        reported = [lines.key for lines in doc.lines.values()]
    except ConfigError as error:
        reported = [problem.line or 1 for problem in error.problems]
    assert all(1 <= line <= count for line in reported)


# ── reported ──────────────────────────────────────────────────────────────────────────────────────────


def test_it_is_reported_in_tritons_form(tmp_path: Path) -> None:
    reported = to_json(reading(tmp_path, ADD_SUB).config)
    assert reported["name"] == "add_sub"
    assert reported["platform"] == ""
    assert reported["input"][0] == {
        "name": "INPUT0",
        "data_type": "TYPE_INT32",
        "format": "FORMAT_NONE",
        "dims": [16],
        "is_shape_tensor": False,
        "allow_ragged_batch": False,
        "optional": False,
        "is_non_linear_format_io": False,
    }
    assert reported["version_policy"] == {"all": {}}
    assert reported["dynamic_batching"]["max_queue_delay_microseconds"] == 500
    assert reported["dynamic_batching"]["priority_queue_policy"]["2"]["max_queue_size"] == 5
    assert reported["instance_group"][0]["kind"] == "KIND_CPU"
    assert reported["instance_group"][0]["name"] == "add_sub_0"
    assert reported["parameters"]["FORCE_CPU_ONLY_INPUT_TENSORS"] == {"string_value": "no"}


RECORDED = json.loads(Path("tests/servers/triton-2.51.0.json").read_text())


@pytest.mark.parametrize(
    ("case", "model"),
    [
        ("metadata: config", "add_sub"),
        ("metadata: config of bytes", "text"),
        ("metadata: config with a queue delay", "picky"),
        ("metadata: config of a decoupled model", "repeat"),
        ("metadata: config with sequences", "accumulate"),
    ],
)
def test_a_real_triton_reports_the_same(case: str, model: str) -> None:
    config = read_model(Path("tests/servers/models", model), model, []).config
    assert to_json(replace(config, default_model_filename="model.py")) == RECORDED[case][0][2]


def test_a_reported_configuration_is_accepted(tmp_path: Path) -> None:
    config = reading(tmp_path, ADD_SUB).config
    again = read_override(json.dumps(to_json(config)), "add_sub", tmp_path / "add_sub", [])
    assert again.config == config


def test_settings_without_a_field_of_triton_are_parameters(tmp_path: Path) -> None:
    config = reading(tmp_path, SETTINGS).config
    assert config.quantize == "int8"
    assert config.execution_timeout == 5.0
    assert config.memory_bytes == 64 << 20
    assert config.version_labels == {"stable": 1}
    assert config.instance_groups == (InstanceGroup(2, placement="process"),)
    assert config.dynamic_batching == DynamicBatching((4,), allowed_batch_sizes=(1, 4, 8), pad_to={"ids": (32, 64)})
    reported = to_message(config)
    assert reported.parameters["headrace.labels"].string_value == '{"stable": 1}'
    sent = read_override(json.dumps(to_json(config)), "add_sub", tmp_path, [])
    assert {**sent.config.parameters} == {key: value.string_value for key, value in reported.parameters.items()}
    assert sent.config.version_labels == config.version_labels
    assert sent.config.instance_groups == config.instance_groups
    assert sent.config.dynamic_batching == config.dynamic_batching


@pytest.mark.parametrize("sent", ["", "[]", "{", '{"max_batch_siz": 3}', '{"max_batch_size": "x"}', "null", "[" * 5000])
def test_an_override_that_is_no_configuration_is_a_problem(tmp_path: Path, sent: str) -> None:
    with pytest.raises(ConfigError, match="the configuration sent for m"):
        read_override(sent, "m", tmp_path, [])
