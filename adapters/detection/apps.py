"""Detects servers of apps and handlers, which have routes instead of models."""

from urllib.parse import quote

from adapters.detection.found import Found, FoundModel, pool
from adapters.detection.look import Look, text

MOST = 128


async def bentoml(look: Look) -> Found | None:
    """Detect BentoML: `/schema.json` describes a service and its methods."""
    told = (await look.at("/schema.json")).object()
    routes = told.get("routes")
    if told.get("type") != "service" or not isinstance(routes, list):
        return None
    named = [(text(one.get("name")), text(one.get("route"))) for one in routes[:MOST] if isinstance(one, dict)]
    models = [FoundModel(name, "app", f"POST {route}") for name, route in named if name]
    return Found("BentoML", "", (pool("bentoml", "bentoml", *models),))


async def ray_serve(look: Look) -> Found | None:
    """Detect Ray Serve: `/-/routes` maps prefixes to applications. Each application becomes a separate pool."""
    told = (await look.at("/-/routes", below=False)).json
    if not isinstance(told, dict) or not all(isinstance(name, str) for name in told.values()):
        return None
    if (await look.at("/-/healthz", below=False)).body.strip() != b"success":
        return None
    pools = [
        pool(name, "ray-serve", FoundModel(name, "app", f"at {text(prefix)}"), path=text(prefix).rstrip("/"))
        for prefix, app in list(told.items())[:MOST]
        if (name := text(app))
    ]
    return Found("Ray Serve", "", tuple(pools) or (pool("ray-serve", "ray-serve"),))


async def torchserve(look: Look) -> Found | None:
    """Detect TorchServe by the body of `/ping`. It lists its models only on another port that requires a key."""
    told = (await look.at("/ping")).told
    if not isinstance(told, dict):
        return None
    if told.get("type") == "InvalidKeyException":
        return Found(
            "TorchServe", "", (pool("torchserve", "torchserve"),), ("It requires its key for inference: give --key.",)
        )
    if told.get("status") not in ("Healthy", "Partial Healthy", "Unhealthy"):
        return None
    models = [FoundModel(name, "app", f"POST /predictions/{quote(name)}") for name in look.names]
    notes = () if models else ("Its models are listed on its management port only. Name them with --model.",)
    return Found("TorchServe", "", (pool("torchserve", "torchserve", *models),), notes)
