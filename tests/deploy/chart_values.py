"""Values of the chart: samples of every field of its schema, and a generator of whole values from them."""

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.support.helm import CHART

Values = dict[str, Any]
SETS = 48
"""Generated values of the tests: the seeds from 0."""
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())

_PLACE: Values = {
    "nodeSelector": [{"karpenter.sh/capacity-type": "on-demand"}],
    "tolerations": [[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]],
    "affinity": [{"podAntiAffinity": {}}],
    "priorityClassName": ["high", ""],
    "podLabels": [{"team": "search"}],
    "podAnnotations": [{"example.org/note": 'with "quotes": and {{ braces }}'}],
    "resources": [{}, {"requests": {"cpu": 2, "memory": "512Mi"}}, {"limits": {"memory": "1.5Gi"}}],
}
_VARIABLES: Values = {
    "env": [{"TIER": "gold", "NUMBER": 3, "FLAG": True, "LONG": 'a: b # "c"'}],
    "secrets": [{"API_KEY": {"name": "vault", "key": "api.key"}}],
}
_PEERS = [[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}], []]
_EGRESS = [[{"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}], []]
_IMAGE: Values = {
    "repository": ["headrace", "registry.example.org:5000/team/headrace"],
    "tag": ["", "1.2.3"], "digest": ["", "sha256:" + "0a" * 32],
}  # fmt: skip
SAMPLES: Values = {
    "fullnameOverride": ["", "gateway", "a" * 32],
    "image": {**_IMAGE, "pullPolicy": ["Always", "IfNotPresent", "Never"]},
    "imagePullSecrets": [[], [{"name": "registry"}]],
    "config": [],  # see _config
    "configFiles": [{"headrace.tests.yaml": "tests: []\n", "step.py": "def call(x):\n    return x\n"}],
    **_VARIABLES,
    "secretFiles": [["tls", "provider-keys"], []],
    "gateway": {
        **_PLACE,
        "replicas": [1, 2, 1000],
        "readiness": ["service", "models"],
        "startSeconds": [2, 61, 600],
        "preStopSeconds": [0, 5, 30],
        "marginSeconds": [5, 60],
        "persistence": {"size": ["", "1Gi"], "storageClass": ["", "fast"], "claim": ["", "existing"]},
        "zoneFromNode": [True, False],
        "topologySpread": [True, False],
    },
    "serviceAccount": {
        "create": [True, False],
        "name": ["", "inference"],
        "annotations": [{"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/headrace"}],
    },
    "autoscaling": {
        "kind": ["none", "hpa", "keda"],
        "minReplicas": [1, 3],
        "maxReplicas": [3, 100],
        "cpu": [50, 100],
        "scaleDownSeconds": [0, 3600],
        "inFlight": [0, 64],
        "prometheus": ["http://prometheus.monitoring:9090"],
    },
    "podDisruptionBudget": {"maxUnavailable": [1, 3, "25%"]},
    "service": {
        "type": ["ClusterIP", "NodePort", "LoadBalancer"],
        "port": [80, 443, 8080],
        "grpcPort": [8081, 9000],
        "pickerPort": [9002, 9443],
        "annotations": [{"service.beta.kubernetes.io/aws-load-balancer-type": "external"}],
        "loadBalancerClass": ["", "service.k8s.aws/nlb"],
        "sourceRanges": [["10.0.0.0/8"]],
        "externalTrafficPolicy": ["", "Local", "Cluster"],
    },
    "admin": {"port": [8082, 9090]},
    "ingress": {
        "enabled": [True, False],
        "className": ["", "nginx"],
        "annotations": [{"nginx.ingress.kubernetes.io/proxy-buffering": "off"}],
        "hosts": [["models.example.org", "*.example.net"]],
        "tls": [[], [{"secretName": "tls", "hosts": ["models.example.org"]}]],
    },
    "httpRoute": {
        "enabled": [True, False],
        "parentRefs": [[{"name": "public", "namespace": "gateways", "sectionName": "https"}]],
        "hostnames": [[], ["models.example.org"]],
        "grpcHostnames": [[], ["grpc.example.org"]],
        "timeout": ["", "0s", "10m", "1h30m"],
    },
    "networkPolicy": {
        "enabled": [True, False],
        "clients": [*_PEERS, [{"podSelector": {"matchLabels": {"client": "yes"}}}]],
        "proxies": _PEERS,
        "operators": _PEERS,
        "egress": _EGRESS,
        "apiServer": [[], ["10.96.0.1/32"]],
    },
    "monitoring": {
        "serviceMonitor": {
            "enabled": [True, False],
            "interval": ["15s", "1m"],
            "labels": [{"release": "prometheus"}],
            "credentials": {"name": ["scraper"], "key": ["key"]},
            "insecureSkipVerify": [True, False],
        },
        "rules": {"enabled": [True, False], "labels": [{"role": "alert-rules"}]},
        "dashboards": {
            "enabled": [True, False],
            "labels": [{"grafana_dashboard": "1"}],
            "annotations": [{"grafana_folder": "Headrace"}],
        },
    },
    "runtimes": [],  # see _runtimes
    "global": [{}],
}
RUNTIME_SAMPLES: Values = {
    **_PLACE,
    **_VARIABLES,
    "kind": ["llm", "tensor", "server"],
    "model": ["bundled:smollm2-135m-instruct", "hf:ORG/NAME", "/models/a.gguf"],
    "repository": ["/models/repository"],
    "add": [["magika"]],
    "image": _IMAGE,
    "command": [["vllm", "serve"]],
    "args": [["--max-held=1GiB"], []],
    "port": [8000, 80],
    "health": ["/health", "/v2/health/ready"],
    "metrics": [True, False],
    "replicas": [0, 1, 5],
    "gpus": [0, 1, 8],
    "gpuResource": ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb"],
    "models": [
        {"volume": {"persistentVolumeClaim": {"claimName": "models"}}},
        {"volume": {"csi": {"driver": "efs.csi.aws.com"}}, "readOnly": False, "mountPath": "/srv/models"},
        {"size": "100Gi"},
        {"size": "1Ti", "storageClass": "fast", "readOnly": False},
    ],
    "cacheSize": ["20Gi"],
    "sharedMemory": ["64Mi", "8Gi"],
    "startSeconds": [1, 901],
    "drainSeconds": [1, 600],
    "serviceAccount": ["models"],
    "runtimeClassName": ["nvidia", ""],
    "podSecurityContext": [{"runAsUser": 1000}],
    "securityContext": [{"readOnlyRootFilesystem": True}],
    "egress": _EGRESS,
    "autoscaling": [
        {"minReplicas": 0, "maxReplicas": 4, "perReplica": 8, "prometheus": "http://prometheus:9090"},
        {
            "minReplicas": 1,
            "maxReplicas": 1,
            "perReplica": 0.5,
            "prometheus": "https://prometheus:9090",
            "pool": "other",
            "idleSeconds": 60,
            "scaleDownSeconds": 0,
        },
    ],
}
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
    config: Values = {"version": 1, "listen": listen, "auth": {"admin": {"required": True}}}
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
    config["tenants"] = [{"name": "${TIER:-gold}", "models": ["*"]}]
    return f"# A comment with ${{UNUSED}}\n{json.dumps(config, indent=1)}\n"


def _make_possible(values: Values) -> None:
    """Resolve combinations that the chart refuses."""
    gateway, autoscaling = values["gateway"], values["autoscaling"]
    if any(gateway["persistence"].get(field) for field in ("size", "claim")):
        gateway["replicas"], autoscaling["kind"] = 1, "none"
    if autoscaling.get("inFlight"):
        autoscaling["prometheus"] = "http://prometheus.monitoring:9090"
    if autoscaling.get("minReplicas", 2) > autoscaling.get("maxReplicas", 10):
        autoscaling["minReplicas"] = autoscaling["maxReplicas"]
    values["ingress"]["hosts"] = SAMPLES["ingress"]["hosts"][0]
    values["httpRoute"]["parentRefs"] = SAMPLES["httpRoute"]["parentRefs"][0]


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
