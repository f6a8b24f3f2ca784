"""Orders to servers of OpenAI's family: loading, unloading, sleep, LoRA adapters.

Each server has its own API: vLLM and SGLang load LoRA adapters and release their memory, llama.cpp's router and Ollama
load and unload whole models.
"""

from typing import Any, Literal, NamedTuple

import msgspec

from adapters.errors import CallerError, Unsupported
from adapters.types import Order
from adapters.wire import decoding
from adapters.wire.openai.model_field import ListedModel

_decode = msgspec.json.Decoder(dict[str, Any]).decode
Below = Literal["api", "server"]


class OrderCall(NamedTuple):
    """The POST of an order."""

    below: Below
    path: str
    body: dict[str, Any]


def call_of(orders: str, order: Order, model: str, body: bytes, listed: list[ListedModel]) -> OrderCall:
    """Return the POST of an order.

    `orders` names the server's API. `body` has the order's parameters. `listed` are the server's models. Raises
    `CallerError` and `Unsupported`.
    """
    options = _parameters(body)
    match orders:
        case "vllm":
            return _vllm(order, model, options, listed)
        case "sglang":
            return _sglang(order, model, options, listed)
        case "llama.cpp":
            return OrderCall("server", f"/models/{order}", {"model": model})
        case "ollama":
            unloaded = {"keep_alive": 0} if order == "unload" else {}
            return OrderCall("server", "/api/generate", {"model": model, "stream": False, **unloaded})
    raise Unsupported(f"The server of `{model}` cannot load or unload models, or its pool sets no `dialect`.")


def _vllm(order: Order, model: str, options: dict[str, Any], listed: list[ListedModel]) -> OrderCall:
    if (adapter := _adapter(order, model, options, listed)) is not None:
        return OrderCall("api", f"/{order}_lora_adapter", adapter)
    if order == "load":
        return OrderCall("server", "/wake_up", {})
    level = options.get("level", 1)
    if level not in (1, 2):
        raise CallerError("`level` is 1 or 2.", param="level")
    # Without `mode=wait`, vLLM aborts the requests of all tenants that run on it.
    return OrderCall("server", f"/sleep?level={level}&mode=wait", {})


def _sglang(order: Order, model: str, options: dict[str, Any], listed: list[ListedModel]) -> OrderCall:
    if (adapter := _adapter(order, model, options, listed)) is not None:
        return OrderCall("server", f"/{order}_lora_adapter", adapter)
    return OrderCall("server", "/resume_memory_occupation" if order == "load" else "/release_memory_occupation", {})


def _adapter(order: Order, model: str, options: dict[str, Any], listed: list[ListedModel]) -> dict[str, Any] | None:
    """Return the body of an order for a LoRA adapter: the order has a path, or its model has a parent. Else None."""
    path = options.get("lora_path")
    if order == "load" and path is not None:
        if not isinstance(path, str) or not path:
            raise CallerError("`lora_path` is a path on the server's machine.", param="lora_path")
        return {"lora_name": model, "lora_path": path}
    is_adapter = any(one.id == model and one.parent for one in listed)
    return {"lora_name": model} if order == "unload" and is_adapter else None


def _parameters(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        given = _decode(body).get("parameters", {})
    except decoding.MALFORMED_JSON:
        given = None
    if not isinstance(given, dict):
        raise CallerError("The body must be a JSON object, with an object `parameters`.", code="invalid_json")
    return given
