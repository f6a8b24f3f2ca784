"""The published messages of the Open Inference Protocol's gRPC service, of Triton's configuration and of gRPC's health.

keda/       messages of KEDA's external scaler
tfserving/  messages of TensorFlow Serving's gRPC services
envoy/      messages of Envoy's external processing

The `.proto` files are Triton's, unchanged (BSD 3-clause, see their heads); `make protos` generates `oip.binpb`. The
messages are in a separate descriptor pool, because `tritonclient`, `kserve` and others register the same names in
protobuf's default pool, which admits each name once.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass


class RpcMethod(NamedTuple):
    """One call of a service, and its messages."""

    path: str
    request: Any
    response: Any
    streams: bool


def load(path: Path) -> dict[str, Any]:
    """The descriptor of each file of a set, by the file's name, in a pool of their own."""
    pool = DescriptorPool()
    files = FileDescriptorSet.FromString(path.read_bytes()).file
    for file in files:
        pool.Add(file)
    return {file.name: pool.FindFileByName(file.name) for file in files}


def messages(file: Any) -> Any:
    """The classes of a file's messages, by name."""
    return SimpleNamespace(**{name: GetMessageClass(d) for name, d in file.message_types_by_name.items()})


def methods(service: Any) -> dict[str, RpcMethod]:
    """The calls of a service, by name."""
    return {
        method.name: RpcMethod(
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            bool(method.server_streaming),
        )
        for method in service.methods
    }


_FILES = load(Path(__file__).parent / "oip.binpb")

inference: Any = messages(_FILES["grpc_service.proto"])
"""`inference.ModelInferRequest` and the others."""
model_config: Any = messages(_FILES["model_config.proto"])
"""`model_config.ModelConfig` and the messages in it."""
health: Any = messages(_FILES["health.proto"])

METHODS = methods(_FILES["grpc_service.proto"].services_by_name["GRPCInferenceService"])
"""The methods of `inference.GRPCInferenceService`, by name."""
HEALTH_METHODS = methods(_FILES["health.proto"].services_by_name["Health"])
"""The methods of `grpc.health.v1.Health`, by name."""
