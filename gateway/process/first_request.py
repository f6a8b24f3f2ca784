"""A first command to try: a request that the first model of the configuration answers."""

import json
import shlex
from math import prod
from typing import Any
from urllib.parse import quote

import aiohttp

from config.schema.config import Config
from config.schema.text import is_glob

SECONDS = 10.0
"""Seconds to wait for the description of a model by its server."""
MOST_ELEMENTS = 1024
"""The most elements of a tensor in the command, so that it stays readable."""
Object = dict[str, Any]


async def command(config: Config, base: str, key: str) -> list[str]:
    """The lines of a curl command for a gateway at `base`, whose clients have `key`; none without any model."""
    model = next((model for model in config.models if not is_glob(model.name)), None)
    if model is None:
        return []
    pools = {pool for route in model.routes for pool in route.pools()}
    serves = {kind for pool in config.pools if pool.name in pools for kind in pool.serves}
    if "text" in serves:
        body = {"model": model.name, "messages": [{"role": "user", "content": "What is a river?"}]}
        return _curl(f"{base}/v1/chat/completions", key, body)
    if "tensors" not in serves:
        return _curl(f"{base}/v1/models", key)
    url = f"{base}/v2/models/{quote(model.name, safe='')}"
    try:
        described, settings = await _described(url, key)
        verb = "infer_stream" if settings.get("model_transaction_policy", {}).get("decoupled") else "infer"
        return _curl(f"{url}/{verb}", key, _inference(described, settings))
    except (aiohttp.ClientError, TimeoutError, _Unknown):
        return _curl(url, key)


class _Unknown(Exception):
    """The model's server does not describe the model, or the model has an input that JSON has no form for."""


async def _described(url: str, key: str) -> tuple[Object, Object]:
    """A model's metadata, and its configuration if its server has one."""
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(SECONDS)) as http:
        async with http.get(url, ssl=False) as answer:
            if answer.status != 200:
                raise _Unknown
            described: Object = await answer.json()
        async with http.get(f"{url}/config", ssl=False) as answer:
            settings: Object = await answer.json() if answer.status == 200 else {}
    return described, settings


def _inference(described: Object, settings: Object) -> Object:
    optional = {one["name"] for one in settings.get("input", ()) if one.get("optional")}
    body: Object = {"inputs": [_tensor(one) for one in described.get("inputs", ()) if one["name"] not in optional]}
    if "sequence_batching" in settings:
        body["parameters"] = {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
    return body


def _tensor(described: Object) -> Object:
    """An input in the command: one element for a variable dimension, with a simple value."""
    datatype, shape = described["datatype"], [max(1, int(size)) for size in described["shape"]]
    if datatype == "BF16":
        raise _Unknown
    value: object = "What is a river?" if datatype == "BYTES" else False if datatype == "BOOL" else 0
    if prod(shape) > MOST_ELEMENTS:
        raise _Unknown
    return {"name": described["name"], "shape": shape, "datatype": datatype, "data": [value] * prod(shape)}


def _curl(url: str, key: str, body: Object | None = None) -> list[str]:
    lines = [f"curl {shlex.quote(url)} \\"]
    if body is None:
        return [*lines, f"  -H 'Authorization: Bearer {key}'"]
    lines.append(f"  -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\")
    return [*lines, f"  -d {shlex.quote(json.dumps(body))}"]
