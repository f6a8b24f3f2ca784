"""Detects servers of apps and handlers, which have routes instead of models, and of the v1 REST protocols."""

import re
from urllib.parse import quote

from adapters.detection.look import DetectedModel, Detection, Look, pool, text

MOST = 128


async def bentoml(look: Look) -> Detection | None:
    """Detect BentoML: `/schema.json` describes a service and its methods."""
    schema = (await look.at("/schema.json")).object()
    routes = schema.get("routes")
    if schema.get("type") != "service" or not isinstance(routes, list):
        return None
    named = [(text(one.get("name")), text(one.get("route"))) for one in routes[:MOST] if isinstance(one, dict)]
    models = [DetectedModel(name, "app", f"POST {route}") for name, route in named if name]
    return Detection("BentoML", "", (pool("bentoml", "bentoml", *models),))


async def ray_serve(look: Look) -> Detection | None:
    """Detect Ray Serve: `/-/routes` maps prefixes to applications. Each application becomes a separate pool."""
    routes = (await look.at("/-/routes", below=False)).json
    if not isinstance(routes, dict) or not all(isinstance(name, str) for name in routes.values()):
        return None
    if (await look.at("/-/healthz", below=False)).body.strip() != b"success":
        return None
    pools = [
        pool(name, "ray-serve", DetectedModel(name, "app", f"at {text(prefix)}"), path=text(prefix).rstrip("/"))
        for prefix, app in list(routes.items())[:MOST]
        if (name := text(app))
    ]
    return Detection("Ray Serve", "", tuple(pools) or (pool("ray-serve", "ray-serve"),))


async def torchserve(look: Look) -> Detection | None:
    """Detect TorchServe by the body of `/ping`. It lists its models only on another port that requires a key."""
    status = (await look.at("/ping")).decoded
    if not isinstance(status, dict):
        return None
    if status.get("type") == "InvalidKeyException":
        return Detection(
            "TorchServe", "", (pool("torchserve", "torchserve"),), ("It requires its key for inference: give --key.",)
        )
    if status.get("status") not in ("Healthy", "Partial Healthy", "Unhealthy"):
        return None
    models = [DetectedModel(name, "app", f"POST /predictions/{quote(name)}") for name in look.names]
    notes = () if models else ("Its models are listed on its management port only. Name them with --model.",)
    return Detection("TorchServe", "", (pool("torchserve", "torchserve", *models),), notes)


# Detects servers of `/v1/models/NAME:predict`: TensorFlow Serving, and KServe's older protocol.

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
