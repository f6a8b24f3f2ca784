"""The Helm chart: lint, its values, and the schemas of Kubernetes and of other projects."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart_values import CONFIG
from tests.support.helm import CHART, HelmRefused, Object, helm, identity, lint, of_kind, pods, render
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


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"config": ""}, "config: is empty"),
    ({"config": "a: [}"}, "config: is not YAML"),
    ({"config": CONFIG.replace("http: 0.0.0.0:8080, ", "")}, "listen.http is missing"),
    ({"config": CONFIG.replace("0.0.0.0:8082", "127.0.0.1:8082")}, "listen.admin is 127.0.0.1:8082"),
    ({"config": CONFIG.replace(":8080", ":80")}, "port from 1024 on"),
    ({"config": CONFIG.replace("required: true", "metrics: true")}, "auth.admin.required"),
    ({"config": CONFIG + "drain: soon\n"}, "drain is soon"),
    ({"config": CONFIG.replace("10.0.0.5", "${SERVER}")}, "uses ${SERVER}"),
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
        render({"config": CONFIG, **values})
    assert message in " ".join(str(refusal.value).split())


def test_a_change_of_the_configuration_changes_no_pod() -> None:
    before, after = render({"config": CONFIG}), render({"config": CONFIG.replace("10.0.0.5", "10.0.0.6")})
    changed = [identity(a) for a, b in zip(before, after, strict=True) if a != b]
    assert changed == [("ConfigMap", "models", "headrace")]
    (container,) = pods(before)["headrace"]["spec"]["containers"]
    assert not any("subPath" in mount for mount in container["volumeMounts"])


def test_rules_and_dashboards_are_the_repositorys_own() -> None:
    on = {"enabled": True}
    objects = render({"config": CONFIG, "monitoring": {"rules": on, "dashboards": on}})
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
    objects = render({"config": CONFIG, **yaml.safe_load(text)})
    assert problems(objects) == [], page
