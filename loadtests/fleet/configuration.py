"""The gateway's file: one pool a system, one tenant for them all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtests.fleet.member import Member
from loadtests.fleet.work import ADDERS
from loadtests.gateways.headrace import TENANT

_DECLARED = {
    "inputs": [{"name": name, "datatype": "INT32", "shape": [16]} for name in ("INPUT0", "INPUT1")],
    "outputs": [{"name": name, "datatype": "INT32", "shape": [16]} for name in ("OUTPUT0", "OUTPUT1")],
}


def configuration(members: Mapping[str, Member], folder: Path, http: int, admin: int) -> dict[str, Any]:
    """As data. Models of two systems: `magika` (the same ONNX file) and `chat` (the same weights)."""
    pools = [
        _pool("triton", "oip-grpc", members["triton"].url(1), model="add_sub"),
        _pool("triton-magika", "oip-http", members["triton"].url(), model="magika"),
        _pool("torchserve", {"name": "torchserve", **_DECLARED}, members["torchserve"].url(), model="add_sub"),
        _pool("ray-serve", {"name": "ray-serve", **_DECLARED}, members["ray-serve"].url()),
        _pool("bentoml", "bentoml", members["bentoml"].url(), model="infer"),
        _pool("kserve", {"name": "oip-http", "server": "kserve"}, members["kserve"].url(), model="add_sub"),
        _pool("mlserver", {"name": "oip-http", "server": "mlserver"}, members["mlserver"].url(), model="add_sub"),
        _pool("tfserving", "tfserving-grpc", members["tfserving"].url(1), model="scale"),
        _pool("vllm", "openai", members["vllm"].url(), model="smollm2"),
        {"name": "llm", "runtime": {"kind": "llm", "model": "bundled:smollm2-135m-instruct"}},
        {"name": "headrace", "runtime": {"kind": "tensor", "repository": str(folder / "models")}, "model": "add_sub"},
        {"name": "headrace-magika", "runtime": {"kind": "tensor", "repository": str(folder / "models")}},
    ]
    models: list[dict[str, Any]] = [{"name": f"add-{name}", "routes": [{"to": name}]} for name in ADDERS]
    models += [{"name": "scale", "routes": [{"to": "tfserving"}]}]
    models += [_split("magika", "triton-magika", "headrace-magika"), _split("chat", "llm", "vllm")]
    return {
        "version": 1,
        "listen": {"http": f"127.0.0.1:{http}", "admin": f"127.0.0.1:{admin}"},
        "state": {"database": f"sqlite:///{folder}/state.db"},
        "access_log": {"to": str(folder / "access.log")},
        "pools": pools,
        "models": models,
        "tenants": [{"name": TENANT, "models": ["*"], "limits": {"concurrency": 1000}}],
    }


def _pool(name: str, protocol: Any, url: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "protocol": protocol, "endpoints": [url], "probe": {"interval": "1s"}, **more}


def _split(name: str, one: str, other: str) -> dict[str, Any]:
    arms = [{"pool": one, "weight": 50}, {"pool": other, "weight": 50}]
    fallback = [one, other]
    return {"name": name, "routes": [{"split": {"arms": arms}, "retry": {"attempts": 2}, "fallback": fallback}]}
