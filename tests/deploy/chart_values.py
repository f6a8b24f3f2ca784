"""Values of the chart: samples of every field of its schema, and a generator of whole values from them."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.helm import CHART

Values = dict[str, Any]
SETS = 48
"""Generated values of the tests: the seeds from 0."""
CONFIG = """
version: 1
listen: {http: 0.0.0.0:8080, admin: 0.0.0.0:8082}
state: {database: "postgresql://headrace@10.0.0.9/headrace"}
auth: {pepper: "${PEPPER}", admin: {required: true}}
pools: [{name: a, endpoints: ["http://10.0.0.5:8000"]}]
models: [{name: a, routes: [{to: a}]}]
tenants: [{name: a, models: ["*"]}]
"""
"""A small configuration of the gateway."""
SMALL: Values = {"config": CONFIG, "secrets": {"PEPPER": {"name": "headrace", "key": "pepper"}}}
"""The fewest values."""
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())

_WRITTEN: Values = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
SAMPLES: Values = _WRITTEN["samples"]
"""`config` and `runtimes` have none: see `_config` and `_runtimes`."""
RUNTIME_SAMPLES: Values = _WRITTEN["runtime"]
_NOT_OF_KIND = {
    "llm": {"repository", "add", "command", "port", "podSecurityContext", "securityContext"},
    "tensor": {"model", "command", "port", "podSecurityContext", "securityContext"},
    "server": {"model", "repository", "add"},
}


def values_of(seed: int) -> Values:
    """Valid values of a seed."""
    dice = random.Random(seed)
    values = _choose(dice, SAMPLES, dice.random())
    values["runtimes"] = dict(_runtimes(dice))
    values["config"] = _config(dice, values)
    _make_possible(values)
    return values


def _choose(dice: random.Random, samples: Values, share: float) -> Values:
    chosen: Values = {}
    for name, options in samples.items():
        if isinstance(options, dict):
            chosen[name] = _choose(dice, options, share)
        elif options and dice.random() < share:
            chosen[name] = dice.choice(options)
    return chosen


def _runtimes(dice: random.Random) -> Iterator[tuple[str, Values]]:
    for name in dice.sample(["smollm2", "v", "a-tensor-runtime-19"], dice.randint(0, 3)):
        kind = dice.choice(RUNTIME_SAMPLES["kind"])
        samples = {key: options for key, options in RUNTIME_SAMPLES.items() if key not in _NOT_OF_KIND[kind]}
        runtime = {**_choose(dice, samples, dice.random()), "kind": kind}
        if kind == "llm":
            runtime.setdefault("model", RUNTIME_SAMPLES["model"][0])
        if kind == "server":
            runtime["image"] = {"repository": "vllm/vllm-openai", "tag": "v0.11.0"}
        if "mountPath" in runtime.get("models", {}):
            runtime.pop("repository", None)  # on another volume
        yield name, runtime


def _config(dice: random.Random, values: Values) -> str:
    listen = {"http": f"{dice.choice(['0.0.0.0', '[::]'])}:{dice.choice([8080, 8443])}", "admin": "0.0.0.0:8082"}
    if dice.random() < 0.5:
        listen["grpc"] = "0.0.0.0:9081"
    if dice.random() < 0.5:
        listen["endpoint_picker"] = "0.0.0.0:9082"
    auth = {"pepper": "${PEPPER}", "admin": {"required": True}}
    config: Values = {"version": 1, "listen": listen, "auth": auth}
    if dice.random() < 0.5:
        config["workers"] = dice.choice([1, 4])
        config["http"] = {"max_held": dice.choice(["512MiB", "1GiB"])}
    if not _has_volume(values):
        database = "postgresql://a@${DATABASE_HOST:-db.internal}:5433/b"
        config["state"] = dice.choice(
            [{"database": database}, {"database": database, "redis": "rediss://redis.data.svc"}]
        )
    if dice.random() < 0.7:
        config["drain"] = dice.choice(["0s", "30s", "500ms", "1.5 min", "2m", "1h"])
    if "API_KEY" in values.get("secrets", {}):
        config["pools"] = [{"name": "hosted", "endpoints": ["https://models.example.org"], "key": "${API_KEY}"}]
    if dice.random() < 0.5:
        service = {"service": "${HEADRACE_NAME}-smollm2", **dice.choice([{}, {"namespace": "other"}])}
        config.setdefault("pools", []).append({"name": "discovered", "discover": {"kubernetes": service}})
    if dice.random() < 0.5:
        pool = dice.choice(["vllm-qwen", {"name": "vllm-qwen", "namespace": "other"}])
        config.setdefault("pools", []).append({"name": "pooled", "discover": {"inference_pool": pool}})
    config.setdefault("pools", [{"name": "written", "endpoints": ["http://10.0.0.5:8000"]}])
    config["models"] = [{"name": each["name"], "routes": [{"to": each["name"]}]} for each in config["pools"]]
    limits = {"requests": "60/min", "count": "exact" if "redis" in config.get("state", {}) else "host"}
    config["tenants"] = [{"name": "${TIER:-gold}", "models": ["*"], "limits": limits}]
    return f"# A comment with ${{UNUSED}}\n{json.dumps(config, indent=1)}\n"


def _make_possible(values: Values) -> None:
    """Resolve combinations that the chart refuses."""
    gateway, autoscaling = values["gateway"], values["autoscaling"]
    values["secrets"] = values.get("secrets") or SAMPLES["secrets"][-1]
    if _has_volume(values):
        gateway["replicas"], autoscaling["kind"] = 1, "none"
        values["migrate"]["database"].pop("name", None)
    if autoscaling.get("inFlight"):
        autoscaling["prometheus"] = "http://prometheus.monitoring:9090"
    if autoscaling.get("minReplicas", 2) > autoscaling.get("maxReplicas", 10):
        autoscaling["minReplicas"] = autoscaling["maxReplicas"]
    values["ingress"]["hosts"] = SAMPLES["ingress"]["hosts"][0]
    values["httpRoute"]["parentRefs"] = SAMPLES["httpRoute"]["parentRefs"][0]


def _has_volume(values: Values) -> bool:
    return any(values["gateway"]["persistence"].get(field) for field in ("size", "claim"))


def differences(schema: Values, samples: Values, place: str = "") -> set[str]:
    """Fields of the schema without samples, and samples without a field."""
    fields = schema["properties"]
    odd = {f"{place}{name}" for name in fields.keys() ^ samples.keys()}
    for name in fields.keys() & samples.keys():
        if isinstance(samples[name], dict):
            odd |= differences(fields[name], samples[name], f"{place}{name}.")
    return odd


def wrong(schema: Values, samples: Values) -> Iterator[tuple[str, Values]]:
    """Values with one mistake each, by its place: a wrong type, or a field that does not exist."""
    for name, options in samples.items():
        if isinstance(options, dict):
            for place, values in wrong(schema["properties"][name], options):
                yield f"{name}.{place}", {name: values}
        else:
            yield name, {name: [[]] if schema["properties"][name].get("type") != "array" else 1}
    yield "unknwon", {"unknwon": 1}
