"""Detects servers of the Open Inference Protocol: `GET /v2` returns the name of the system."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from adapters.detection.look import DetectedModel, DetectedPool, Detection, Look, pool, text
from adapters.detection.text import listed, speaking
from adapters.errors import InferenceError
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata, decode_metadata

MOST_MODELS = 64


class Kind(NamedTuple):
    system: str
    name: str
    server: str = ""
    """The `server` field of the protocol's section; empty if the server behaves like Triton."""
    text_path: str | None = None
    """The path of text models, if the system has them in addition to tensor models."""
    generates: bool = False
    """Whether text models may be listed among the tensor models."""


KINDS = {
    "triton": Kind("NVIDIA Triton", "triton", generates=True),
    "kserve": Kind("KServe model server", "kserve", "kserve", text_path="/openai/v1"),
    "mlserver": Kind("MLServer", "mlserver", "mlserver"),
    "openvino model server": Kind("OpenVINO Model Server", "ovms", "openvino", text_path="/v3"),
    "headrace": Kind("Headrace", "headrace"),
}
OTHER = Kind("a server of the Open Inference Protocol", "tensors")


async def oip(look: Look) -> Detection | None:
    """Detect a server, and list its models from the index of the repository or from another list."""
    server = (await look.at("/v2")).object()
    if not text(server.get("name")):
        return None
    kind, version = KINDS.get(text(server["name"]).lower(), OTHER), text(server.get("version"))
    names = [name for one in await _names(look) if (name := text(one))]
    models = {name: await _metadata(look, name) for name in names[:MOST_MODELS]}
    notes = [f"Only the first {MOST_MODELS} of {len(names)} models are listed."] if len(names) > MOST_MODELS else []
    if not models:
        notes.append("It lists no loaded model. Name your models with --model.")
    return Detection(kind.system, version, (*pools(kind, "oip-http", models), *await _beside(look, kind)), tuple(notes))


def pools(kind: Kind, protocol: str, models: Mapping[str, ModelMetadata | None]) -> list[DetectedPool]:
    """A pool of tensor models, and a pool of text models if a Triton has models with text tensors."""
    texts, tensors = list[DetectedModel](), list[DetectedModel]()
    for name, metadata in models.items():
        if kind.generates and metadata is not None and _is_text(metadata):
            texts.append(DetectedModel(name, "text", described(metadata)))
        else:
            tensors.append(DetectedModel(name, "tensors", described(metadata) if metadata is not None else ""))
    section = {"name": protocol, "server": kind.server} if kind.server else {"name": protocol}
    detected = [pool(kind.name, section, *tensors)] if tensors or not texts else []
    return [*detected, pool(f"{kind.name}-text", "triton-generate", *texts)] if texts else detected


def _is_text(metadata: ModelMetadata) -> bool:
    """Whether a model has the tensor names of the TensorRT-LLM and vLLM backends."""
    return "text_input" in [one.name for one in metadata.inputs] and "text_output" in [
        one.name for one in metadata.outputs
    ]


async def _names(look: Look) -> list[object]:
    if look.names:
        return list(look.names)
    index = (await look.at("/v2/repository/index", b'{"ready":true}')).json
    if isinstance(index, list):
        ready = [one for one in index if isinstance(one, dict) and one.get("state", "READY") in ("READY", "")]
        return list(dict.fromkeys(one.get("name") for one in ready))
    listed = (await look.at("/v2/models")).object().get("models")
    if isinstance(listed, list):
        return [one.get("name") if isinstance(one, dict) else one for one in listed]
    return [name for name, one in (await look.at("/v1/config")).object().items() if isinstance(one, dict)]


async def _metadata(look: Look, name: str) -> ModelMetadata | None:
    seen = await look.at(f"/v2/models/{quote(name, safe='')}")
    try:
        return decode_metadata(seen.body) if seen.status == 200 else None
    except InferenceError:
        return None


def described(metadata: ModelMetadata) -> str:
    """The tensors of a model, on one line."""
    return f"{_tensors(metadata.inputs)} → {_tensors(metadata.outputs)}"


def _tensors(tensors: list[TensorMetadata]) -> str:
    shown = [f"{text(one.name)} {text(one.datatype)}[{','.join(map(str, one.shape))}]" for one in tensors[:8]]
    return ", ".join(shown) + (", …" if len(tensors) > 8 else "")


async def _beside(look: Look, kind: Kind) -> list[DetectedPool]:
    """The pool of text models, which some of these servers offer on a separate path."""
    if kind.text_path is None:
        return []
    models = listed((await look.at(f"{kind.text_path}/models")).object())
    return [pool(f"{kind.name}-text", speaking(kind.server), *models, path=kind.text_path)] if models else []
