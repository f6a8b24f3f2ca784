"""The published messages, beside others' copies of them."""

from pathlib import Path
from subprocess import run
from sys import executable

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tritonclient.grpc import model_config_pb2, service_pb2

from adapters.errors import CallerError
from adapters.wire import proto_json, protos

FOLDER = Path(protos.__file__).parent


@pytest.mark.processes
def test_the_descriptors_are_those_of_the_files(tmp_path: Path) -> None:
    """`make protos` was run after the last change."""
    made = tmp_path / "made.binpb"
    names = sorted(path.name for path in FOLDER.glob("*.proto"))
    run([executable, "-m", "grpc_tools.protoc", f"-I{FOLDER}", f"--descriptor_set_out={made}", *names], check=True)
    files = [
        {f.name: f for f in FileDescriptorSet.FromString(p.read_bytes()).file} for p in (made, FOLDER / "oip.binpb")
    ]
    assert files[0] == files[1]


@pytest.mark.processes
def test_the_descriptors_of_tensorflow_serving_are_those_of_its_files(tmp_path: Path) -> None:
    folder, made = FOLDER / "tfserving", tmp_path / "made.binpb"
    names = sorted(path.name for path in folder.glob("*.proto"))
    options = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={made}"]
    run([executable, "-m", "grpc_tools.protoc", *options, *names], check=True)
    sets = [FileDescriptorSet.FromString(path.read_bytes()).file for path in (made, folder / "tfserving.binpb")]
    files = [{file.name: file for file in files if not file.name.startswith("google/")} for files in sets]
    assert sorted(files[0]) == names
    assert files[0] == files[1]


def test_tritonclients_messages_are_other_classes_with_the_same_bytes() -> None:
    ours = protos.inference.ModelMetadataRequest(name="m", version="2")
    theirs = service_pb2.ModelMetadataRequest(name="m", version="2")
    assert type(ours) is not type(theirs)
    assert ours.SerializeToString() == theirs.SerializeToString()


def test_every_call_of_the_service_has_a_method() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert set(protos.METHODS) >= {method.name for method in service.methods}
    assert protos.METHODS["ModelInfer"].path == "/inference.GRPCInferenceService/ModelInfer"
    assert [name for name, method in protos.METHODS.items() if method.streams] == ["ModelStreamInfer"]
    assert protos.HEALTH_METHODS["Check"].path == "/grpc.health.v1.Health/Check"


def test_a_configuration_is_written_as_triton_writes_it() -> None:
    config = protos.model_config.ModelConfig(name="m", max_batch_size=8)
    config.input.add(name="x", data_type="TYPE_INT32", dims=[-1, 2**40])
    config.dynamic_batching.max_queue_delay_microseconds = 5
    config.dynamic_batching.priority_queue_policy[3].max_queue_size = 7
    config.parameters["key"].string_value = "value"
    fields = proto_json.plain(config)
    assert fields["input"][0]["data_type"] == "TYPE_INT32"
    assert fields["input"][0]["dims"] == [-1, 2**40]
    assert fields["dynamic_batching"]["max_queue_delay_microseconds"] == 5
    assert fields["dynamic_batching"]["priority_queue_policy"]["3"]["max_queue_size"] == 7
    assert fields["parameters"] == {"key": {"string_value": "value"}}
    assert fields["output"] == []
    assert "sequence_batching" not in fields
    assert "output" not in proto_json.plain(config, defaults=False)
    again = proto_json.fill(protos.model_config.ModelConfig(), fields)
    assert again == config
    assert model_config_pb2.ModelConfig.FromString(again.SerializeToString()).name == "m"


def test_objects_that_are_no_message_are_refused() -> None:
    with pytest.raises(CallerError, match="not valid"):
        proto_json.fill(protos.model_config.ModelConfig(), {"max_batch_size": "many"})
