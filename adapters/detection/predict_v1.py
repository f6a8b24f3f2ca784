"""Detects servers of `/v1/models/NAME:predict`: TensorFlow Serving, and KServe's older protocol."""

import re
from urllib.parse import quote

from adapters.detection.look import Look, text
from adapters.detection.result import DetectedModel, Detection, pool

_NO_NAME = re.compile(r"Missing model name|Malformed request")


async def kserve_v1(look: Look) -> Detection | None:
    """Detect KServe v1: `/v1/models` lists only names."""
    names = (await look.at("/v1/models")).object().get("models")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    models = [DetectedModel(text(name), "tensors") for name in names[:128]]
    return Detection("KServe, protocol v1", "", (pool("kserve", "kserve-v1", *models),))


async def tfserving(look: Look) -> Detection | None:
    """Detect TensorFlow Serving by its error for a path without a model. It does not list its models."""
    decoded = (await look.at("/v1/models")).decoded
    error = decoded.get("error") if isinstance(decoded, dict) else None
    if not (isinstance(error, str) and _NO_NAME.search(error)):
        return None
    models = [model for name in look.names if (model := await _model(look, name)) is not None]
    notes = () if models else ("It does not list its models. Name your models with --model.",)
    return Detection("TensorFlow Serving", "", (pool("tfserving", "tfserving", *models),), notes)


async def _model(look: Look, name: str) -> DetectedModel | None:
    statuses = (await look.at(f"/v1/models/{quote(name, safe='')}")).object().get("model_version_status")
    if not isinstance(statuses, list):
        return None
    available = [
        text(one.get("version")) for one in statuses if isinstance(one, dict) and one.get("state") == "AVAILABLE"
    ]
    return DetectedModel(name, "tensors", f"version {', '.join(available[:8])}" if available else "not available")
