"""The same of protocols over gRPC."""

GRPC_SAMPLES: dict[str, list[object]] = {
    "oip-grpc": [], "tfserving-grpc": [], "torchserve-grpc": [], "ray-serve-grpc": [],
}  # fmt: skip
