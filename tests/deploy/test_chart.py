"""The Helm chart: lint, its values, and the schemas of Kubernetes and of other projects."""

import json
import re
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.schema.listen import HttpConfig
from tests.deploy.chart_values import CONFIG, SMALL
from tests.support.helm import CHART, HelmRefused, Object, helm, identity, lint, notes, of_kind, pods, render
from tests.support.kubernetes_schemas import problems

EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_pass_helm_lint_and_all_schemas(path: Path) -> None:
    assert "0 chart(s) failed" in lint(path)
    assert problems(render(path)) == []


@pytest.mark.timeout(600)
def test_objects_of_generated_values_pass_all_schemas(rendered: list[list[Object]]) -> None:
    assert problems(each for objects in rendered for each in objects) == []


def test_a_schema_refuses_a_wrong_object() -> None:
    wrong_ones: list[Object] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"prots": []}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": {"selector": 1}},
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "a"},
            "spec": {"rules": [{"timeouts": {"request": "soon"}}]},
        },
        {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "a"}, "spec": {"triggers": 1}},
    ]
    for each in wrong_ones:
        assert problems([each]), each["kind"]


NO_DATABASE = "\n".join(line for line in CONFIG.splitlines() if not line.startswith("state:")) + "\n"
OWN_KEYS = NO_DATABASE.replace("name: a, models", f"name: a, keys: [{{id: a, hash: {'0' * 64}}}], models")
FOUR_WORKERS = CONFIG + "workers: 4\n"
MEMORY = {"gateway": {"resources": {"limits": {"memory": "1Gi"}}}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"config": ""}, "config: is empty"),
    ({"config": "a: [}"}, "config: is not YAML"),
    ({"config": CONFIG.replace("http: 0.0.0.0:8080, ", "")}, "listen.http is missing"),
    ({"config": CONFIG.replace("0.0.0.0:8082", "127.0.0.1:8082")}, "listen.admin is 127.0.0.1:8082"),
    ({"config": CONFIG.replace(":8080", ":80")}, "port from 1024 on"),
    ({"config": CONFIG.replace("required: true", "metrics: true")}, "auth.admin.required"),
    ({"config": CONFIG + "drain: soon\n"}, "drain is soon"),
    ({"config": CONFIG.replace("10.0.0.5", "${SERVER}")}, "uses ${SERVER}"),
    ({"config": NO_DATABASE}, "state.database is SQLite, so each gateway has keys and usage of its own"),
    ({"config": NO_DATABASE, "gateway": {"replicas": 1}}, "set gateway.persistence.size: 1Gi, or write state:"),
    ({"config": NO_DATABASE, "gateway": {"replicas": 1}, "autoscaling": {"kind": "hpa"}}, "state.database is SQLite"),
    ({"config": OWN_KEYS + "usage: {}\n"}, "state.database is SQLite"),
    ({"config": CONFIG.replace('pepper: "${PEPPER}", ', "")}, 'write auth: {pepper: "${PEPPER}"}'),
    ({"config": OWN_KEYS, "migrate": {"database": {"name": "owner"}}}, "state.database is SQLite, whose tables"),
    (MEMORY, "2304Mi, or http: {max_held: 768MiB} in the file"),
    ({"config": FOUR_WORKERS, **MEMORY}, "write gateway.resources.limits.memory: 9472Mi"),
    ({"gateway": {"persistence": {"size": "1Gi"}}}, "set gateway.replicas to 1"),
    ({"autoscaling": {"kind": "hpa", "minReplicas": 5, "maxReplicas": 2}}, "minReplicas is larger"),
    ({"autoscaling": {"kind": "keda", "inFlight": 5}}, "needs autoscaling.prometheus"),
    ({"gateway": {"replcias": 2}}, "replcias"),
    ({"secrets": {"KEY": "in-plain-text"}}, "/secrets/KEY"),
    ({"ingress": {"enabled": True}}, "/ingress/hosts"),
    ({"runtimes": {"a": {"kind": "llm"}}}, "model"),
    ({"runtimes": {"a": {"kind": "server"}}}, "image"),
    ({"runtimes": {"a": {"kind": "tensor", "model": "b"}}}, "/runtimes/a"),
    ({"runtimes": {"admin": {"kind": "tensor"}}}, "admin"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_helm_refuses_values_that_cannot_work(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmRefused) as refusal:
        render({**SMALL, **values})
    assert message in " ".join(str(refusal.value).split())


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"config": OWN_KEYS},
        {"config": CONFIG.replace("postgresql://headrace@10.0.0.9/headrace", "${PEPPER}")},
        {"config": NO_DATABASE, "gateway": {"replicas": 1, "persistence": {"size": "1Gi"}}},
        {"config": CONFIG + "http: {max_held: 768MiB}\n", "gateway": {"resources": {"limits": {"memory": "1Gi"}}}},
    ],
    ids=["Postgres", "keys of the file", "the URL is a Secret", "a volume", "memory"],
)  # fmt: skip
def test_values_that_keep_their_state_are_accepted(values: dict[str, Any]) -> None:
    assert problems(render({**SMALL, **values})) == []


@pytest.mark.parametrize("http", [{}, {"max_held": "512MiB"}, {"max_held": "1.5GB"}, {"max_body": "256MiB"}])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_memory_limit_is_enough_for_all_workers(http: dict[str, str], workers: int) -> None:
    held = HttpConfig.model_validate(http).held_by_all
    config = CONFIG + f"http: {json.dumps(http)}\nworkers: {workers}\n"
    (container,) = pods(render({**SMALL, "config": config}, "--no-hooks"))["headrace"]["spec"]["containers"]
    processes = workers + (workers > 1)
    least = (workers * held + processes * 256 * 2**20) / 2**20
    assert container["resources"]["limits"] == {"memory": f"{ceil(least)}Mi"}


def test_the_gateway_reaches_the_hosts_of_its_file() -> None:
    config = """
version: 1
listen: {http: 0.0.0.0:8080, admin: 0.0.0.0:8082}
state: {database: "${DATABASE}", redis: "rediss://:${PASSWORD}@10.0.0.7:6380/0"}
auth: {pepper: "${PEPPER}", admin: {required: true}, jwt: [{issuer: "https://login.example.org/", audience: a}]}
console: {url: "https://console.example.org:9999"}
pools:
  - {name: a, endpoints: ["https://api.openai.com", "http://[fd00::5]:8000"]}
  - {name: b, endpoints: ["http://vllm.gpus.svc.cluster.local:80", "http://${HOST:-other}:81", "http://127.0.0.1:9"]}
  - {name: c, discover: {kubernetes: {service: llm, namespace: models-b, port: 8000}}}
  - {name: d, discover: {kubernetes: {service: "${HEADRACE_NAME}-own", port: http}}}
  - {name: e, discover: {dns: "models.example.org:9000"}}
models: [{name: a, routes: [{to: a}]}]
tenants: [{name: a, models: ["*"]}]
"""
    secret = {"name": "headrace", "key": "key"}
    values = {
        "config": config,
        "secrets": {"DATABASE": secret, "PASSWORD": secret, "PEPPER": secret},
        "runtimes": {"own": {"kind": "tensor"}},
        "migrate": {"database": {"name": "owner"}},
    }
    objects = render(values)
    policies = {each["metadata"]["name"]: each["spec"].get("egress", []) for each in of_kind(objects, "NetworkPolicy")}
    dns = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    assert dns in policies["headrace"]

    def pods_of(namespace: str) -> list[Object]:
        return [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]

    assert {"to": pods_of("models-b"), "ports": [{"port": 8000}]} in policies["headrace"]
    for rule in (
        {"ports": [{"port": 6380}], "to": [{"ipBlock": {"cidr": "10.0.0.7/32"}}]},
        {"ports": [{"port": 8000}], "to": [{"ipBlock": {"cidr": "fd00::5/128"}}]},
        {"to": pods_of("gpus")},
        {"to": pods_of("models")},
    ):
        assert rule in policies["headrace"], rule
    to_any = [[port["port"] for port in rule["ports"]] for rule in policies["headrace"] if "to" not in rule]
    assert to_any == [[53, 53], [443, 6443], [443, 5432, 9000]]
    assert policies["headrace-migrate"] == [dns, {"ports": [{"port": 5432}]}]


def test_the_file_is_checked_before_an_installation_with_the_gateways_variables() -> None:
    objects = render({**SMALL, "secretFiles": ["openai"], "migrate": {"database": {"name": "owner"}}})
    jobs = {each["metadata"]["name"]: each for each in of_kind(objects, "Job")}
    assert list(jobs) == ["headrace-check", "headrace-migrate"]
    gateway = pods(objects)["headrace"]["spec"]
    for job in jobs.values():
        spec = job["spec"]["template"]["spec"]
        assert spec["containers"][0]["env"][: len(gateway["containers"][0]["env"])] == gateway["containers"][0]["env"]
        assert {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]} == {
            mount["mountPath"] for mount in gateway["containers"][0]["volumeMounts"]
        }
    maps = {each["metadata"]["name"]: each for each in of_kind(objects, "ConfigMap")}
    before = maps["headrace-before"]
    assert before["data"] == maps["headrace"]["data"]
    weights = [int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in (before, *jobs.values())]
    assert weights == sorted(weights)
    assert of_kind(render({**SMALL, "check": {"enabled": False}}), "Job") == []


SPENDS = "{spend: 5 usd/day}, {spend: 9 usd/day, count: exact}"
BUDGET = CONFIG.replace('models: ["*"]}', f'models: ["*"], limits: [{SPENDS}]}}')
BUDGETS = [
    (BUDGET, True),
    (BUDGET.replace(f"[{SPENDS}]", "{spend: 5 usd/day}"), True),
    (BUDGET.replace("{spend: 5 usd/day}", "{requests: 5/min}"), False),
    (BUDGET + "usage: {}\n", False),
    (CONFIG, False),
]


@pytest.mark.parametrize(("config", "warned"), BUDGETS)
def test_the_notes_warn_of_budgets_that_each_gateway_counts(config: str, warned: bool) -> None:
    assert ("budget of a" in " ".join(notes({**SMALL, "config": config}).split())) is warned


def test_a_change_of_the_configuration_changes_no_pod() -> None:
    changes = (CONFIG, CONFIG.replace("models: [{name: a", "models: [{name: b"))
    before, after = (render({**SMALL, "config": config}, "--no-hooks") for config in changes)
    changed = [identity(a) for a, b in zip(before, after, strict=True) if a != b]
    assert changed == [("ConfigMap", "models", "headrace")]
    (container,) = pods(before)["headrace"]["spec"]["containers"]
    assert not any("subPath" in mount for mount in container["volumeMounts"])


def test_rules_and_dashboards_are_the_repositorys_own() -> None:
    on = {"enabled": True}
    objects = render({**SMALL, "monitoring": {"rules": on, "dashboards": on}})
    deploy = CHART.parents[1]
    (rules,) = of_kind(objects, "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((deploy / "prometheus" / "headrace.rules.yaml").read_text())
    dashboards = {name: text for each in of_kind(objects, "ConfigMap") for name, text in each["data"].items()}
    del dashboards["headrace.yaml"]
    assert dashboards == {path.name: path.read_text() for path in (deploy / "grafana").glob("*.json")}


def test_a_packaged_chart_renders_the_same(tmp_path: Path) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    (archive,) = tmp_path.glob("*.tgz")
    example = EXAMPLES[0]
    text = helm("template", "headrace", str(archive), "--namespace", "models", "--values", str(example))
    objects = [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each is not None]
    assert objects == render(example)


def blocks() -> list[tuple[str, str]]:
    """The values in the documentation, by their page."""
    pages = [Path("docs/kubernetes.md"), *sorted(Path("docs/kubernetes").glob("*.md"))]
    return [
        (page.stem, text) for page in pages for text in re.findall(r"```yaml values\n(.*?)```", page.read_text(), re.S)
    ]


@pytest.mark.parametrize(("page", "text"), blocks())
def test_values_of_the_documentation_render_valid_objects(page: str, text: str) -> None:
    values = yaml.safe_load(text)
    objects = render(values if "config" in values else {**SMALL, **values})
    assert problems(objects) == [], page
