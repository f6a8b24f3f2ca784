"""Servers of the Open Inference Protocol: `GET /v2` tells who they are."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from adapters.detection.found import Found, FoundModel, FoundPool, pool
from adapters.detection.look import Look, text
from adapters.detection.text import listed, speaking
from adapters.errors import InferenceError
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata, decode_metadata

MOST_MODELS = 64


class Kind(NamedTuple):
    system: str
    name: str
    server: str = ""
    """As the protocol's section has it, where this one is not as Triton is."""
    text_path: str | None = None
    """Where models of text are, beside those of tensors."""
    generates: bool = False
    """Whether models of text may be among those of tensors."""


KINDS = {
    "triton": Kind("NVIDIA Triton", "triton", generates=True),
    "kserve": Kind("KServe model server", "kserve", "kserve", text_path="/openai/v1"),
    "mlserver": Kind("MLServer", "mlserver", "mlserver"),
    "openvino model server": Kind("OpenVINO Model Server", "ovms", "openvino", text_path="/v3"),
    "headrace": Kind("Headrace", "headrace"),
}
OTHER = Kind("a server of the Open Inference Protocol", "tensors")


async def oip(look: Look) -> Found | None:
    """Its models by the repository's index, or by whichever list it has."""
    told = (await look.at("/v2")).object()
    if not text(told.get("name")):
        return None
    kind, version = KINDS.get(text(told["name"]).lower(), OTHER), text(told.get("version"))
    names = [name for one in await _names(look) if (name := text(one))]
    told_of = {name: await _metadata(look, name) for name in names[:MOST_MODELS]}
    notes = [f"Only the first {MOST_MODELS} of {len(names)} models are listed."] if len(names) > MOST_MODELS else []
    if not told_of:
        notes.append("It lists no model that is loaded. Name those that you know of with --model.")
    return Found(kind.system, version, (*pools(kind, "oip-http", told_of), *await _beside(look, kind)), tuple(notes))


def pools(kind: Kind, protocol: str, models: Mapping[str, ModelMetadata | None]) -> list[FoundPool]:
    """One of tensors, and one of text where a Triton has models whose tensors are a prompt and what is said to it."""
    texts, tensors = list[FoundModel](), list[FoundModel]()
    for name, metadata in models.items():
        if kind.generates and metadata is not None and _is_text(metadata):
            texts.append(FoundModel(name, "text", described(metadata)))
        else:
            tensors.append(FoundModel(name, "tensors", described(metadata) if metadata is not None else ""))
    section = {"name": protocol, "server": kind.server} if kind.server else {"name": protocol}
    found = [pool(kind.name, section, *tensors)] if tensors or not texts else []
    return [*found, pool(f"{kind.name}-text", "triton-generate", *texts)] if texts else found


def _is_text(metadata: ModelMetadata) -> bool:
    """TensorRT-LLM's and vLLM's backends name theirs so."""
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
    """Its tensors, in a line."""
    return f"{_tensors(metadata.inputs)} → {_tensors(metadata.outputs)}"


def _tensors(tensors: list[TensorMetadata]) -> str:
    shown = [f"{text(one.name)} {text(one.datatype)}[{','.join(map(str, one.shape))}]" for one in tensors[:8]]
    return ", ".join(shown) + (", …" if len(tensors) > 8 else "")


async def _beside(look: Look, kind: Kind) -> list[FoundPool]:
    """Models of text, which some of these servers have on a path of their own."""
    if kind.text_path is None:
        return []
    models = listed((await look.at(f"{kind.text_path}/models")).object())
    return [pool(f"{kind.name}-text", speaking(kind.server), *models, path=kind.text_path)] if models else []
