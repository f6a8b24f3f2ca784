"""All protocols over HTTP/1.1. A new one adds its samples here, and to the file of its kind: a few lines."""

from tests.hostile import cloud_samples as clouds
from tests.hostile import tensor_samples as tensors
from tests.hostile import text_samples as texts
from tests.hostile.sample import Sample

SAMPLES: dict[str, list[Sample]] = {
    "openai": texts.OPENAI,
    "anthropic": texts.ANTHROPIC,
    "gemini": clouds.GEMINI,
    "vertex": clouds.VERTEX,
    "bedrock": clouds.BEDROCK,
    "tgi": texts.TGI,
    "triton-generate": texts.TRITON_GENERATE,
    "oip-http": tensors.OIP_HTTP,
    "tfserving": tensors.TFSERVING,
    "kserve-v1": tensors.KSERVE_V1,
    "bentoml": tensors.BENTOML,
    "http": tensors.HTTP_APP,
    "torchserve": tensors.TORCHSERVE,
    "ray-serve": tensors.RAY_SERVE,
}
