"""The objects of the chart: references between them, upgrades, security, stops."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

import pytest
import yaml

from config.loader import read
from tests.deploy.chart_values import SETS, values_of
from tests.support.helm import CHART, Object, identity, of_kind, pods, render

WORKLOADS = ("Deployment", "StatefulSet")
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))


def test_the_configuration_passes_headrace_check(
    rendered: list[list[Object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for objects in [*rendered, *map(render, EXAMPLES)]:
        (container,) = pods(objects)[_gateway(objects)]["spec"]["containers"]
        for variable in container["env"]:
            monkeypatch.setenv(variable["name"], variable.get("value", _secret(variable["name"])))
        path = tmp_path / "headrace.yaml"
        path.write_text(_config(objects)["headrace.yaml"])
        reading = read(path)
        assert (reading.problems, reading.warnings) == ((), ())


def _secret(name: str) -> str:
    values = {"HEADRACE_DATABASE": "postgresql://a@b/c", "HEADRACE_REDIS": "redis://b", "ZONE": "eu-1a"}
    return values.get(name, "0123456789abcdef0123456789abcdef")


def _gateway(objects: Sequence[Object]) -> str:
    (name,) = (
        each["metadata"]["name"]
        for each in of_kind(objects, "Deployment")
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway"
    )
    return str(name)


def _config(objects: Sequence[Object]) -> dict[str, str]:
    own = [each["data"] for each in of_kind(objects, "ConfigMap") if "headrace.yaml" in each["data"]]
    assert all(each == own[0] for each in own), "the job checks another file"
    return dict(own[0])


def test_no_two_objects_share_a_name(rendered: list[list[Object]]) -> None:
    for objects in rendered:
        names = [identity(each) for each in objects]
        assert len(names) == len(set(names))
        assert max(len(name) for _, _, name in names) <= 63


def test_every_reference_leads_to_an_object_or_to_a_name_of_the_values(rendered: list[list[Object]]) -> None:
    for seed, objects in enumerate(rendered):
        names, values = {identity(each) for each in objects}, str(values_of(seed))
        for kind, name in references(objects):
            assert (kind, "models", name) in names or f"'{name}'" in values or name == "default", (seed, kind, name)


def references(objects: Sequence[Object]) -> Iterator[tuple[str, str]]:
    """Kind and name of each object that another object needs."""
    for template in pods(objects).values():
        spec = template["spec"]
        yield "ServiceAccount", spec["serviceAccountName"]
        for volume in spec["volumes"]:
            if "configMap" in volume:
                yield "ConfigMap", volume["configMap"]["name"]
            if "secret" in volume:
                yield "Secret", volume["secret"]["secretName"]
            if "persistentVolumeClaim" in volume:
                yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
        for variable in spec["containers"][0]["env"]:
            if "secretKeyRef" in variable.get("valueFrom", {}):
                yield "Secret", variable["valueFrom"]["secretKeyRef"]["name"]
    for each in of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject"):
        target = each["spec"]["scaleTargetRef"]
        yield target.get("kind", "Deployment"), target["name"]
    for each in of_kind(objects, "HTTPRoute", "GRPCRoute"):
        for backend in each["spec"]["rules"][0]["backendRefs"]:
            yield "Service", backend["name"]
    for each in of_kind(objects, "Ingress"):
        for rule in each["spec"]["rules"]:
            yield "Service", rule["http"]["paths"][0]["backend"]["service"]["name"]


def test_every_selector_matches_pods_of_one_workload(rendered: list[list[Object]]) -> None:
    for objects in rendered:
        labels = {name: template["metadata"]["labels"] for name, template in pods(objects).items()}
        for each in of_kind(objects, "Service", "PodDisruptionBudget", "Deployment", "StatefulSet"):
            selector = each["spec"]["selector"]
            selector = selector.get("matchLabels", selector)
            matched = [name for name, own in labels.items() if selector.items() <= own.items()]
            assert len(matched) == 1, identity(each)
        for each in of_kind(objects, "ServiceMonitor"):
            selector = each["spec"]["selector"]["matchLabels"]
            services = [s for s in of_kind(objects, "Service") if selector.items() <= s["metadata"]["labels"].items()]
            assert services or "runtimes" in each["metadata"]["name"]
            ports = [{port["name"] for port in service["spec"]["ports"]} for service in services]
            assert all(each["spec"]["endpoints"][0]["port"] in names for names in ports)


def test_an_upgrade_drops_no_required_object_and_changes_nothing_that_kubernetes_fixes() -> None:
    upgrades = [render({**values_of(seed), "fullnameOverride": "gateway"}) for seed in range(0, SETS, 3)]
    for before, after in permutations(upgrades, 2):
        assert required(before) <= {identity(each) for each in after}
        fields = {identity(each): fixed_fields(each) for each in after}
        for each in before:
            assert fields.get(identity(each), fixed_fields(each)) == fixed_fields(each), identity(each)
        for claim in of_kind(before, "PersistentVolumeClaim"):
            assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def fixed_fields(each: Object) -> object:
    """The fields that Kubernetes refuses to change in an object of this kind."""
    spec = each.get("spec", {})
    if each["kind"] in WORKLOADS:
        return spec["selector"], spec.get("serviceName")
    return each.get("roleRef"), spec.get("clusterIP") if each["kind"] == "Service" else None


def required(objects: Sequence[Object]) -> set[tuple[str, str, str]]:
    """The objects without which no client is served, whatever the values."""
    names = {
        ("Deployment", "models", "gateway"),
        ("ConfigMap", "models", "gateway"),
        ("Service", "models", "gateway"),
        ("Service", "models", "gateway-admin"),
        ("PodDisruptionBudget", "models", "gateway"),
    }
    assert names <= {identity(each) for each in objects}
    return names


def test_pods_pass_the_restricted_security_standard(rendered: list[list[Object]]) -> None:
    for objects in rendered:
        for name, template in pods(objects).items():
            if _is_foreign(template):
                continue
            spec = template["spec"]
            (container,) = spec["containers"]
            assert spec["securityContext"]["runAsNonRoot"] is True, name
            assert spec["securityContext"]["runAsUser"] == 10001
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


def _is_foreign(template: Object) -> bool:
    return bool(template["spec"]["containers"][0]["image"].startswith("vllm/"))


def test_a_pod_ends_after_its_drain(rendered: list[list[Object]]) -> None:
    for seed, objects in enumerate(rendered):
        config = yaml.safe_load(_config(objects)["headrace.yaml"])
        seconds = {"0s": 0, "500ms": 1, "1.5 min": 90, "2m": 120, "1h": 3600}.get(config.get("drain"), 30)
        spec = pods(objects)[_gateway(objects)]["spec"]
        pause = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert spec["terminationGracePeriodSeconds"] >= pause + seconds + 5, seed


def test_default_deny_covers_every_pod_of_the_release(rendered: list[list[Object]]) -> None:
    for seed, objects in enumerate(rendered):
        policies = of_kind(objects, "NetworkPolicy")
        assert bool(policies) == values_of(seed)["networkPolicy"].get("enabled", True)
        denied = [p["spec"] for p in policies if not p["spec"].keys() & {"ingress", "egress"}]
        for template in pods(objects).values() if policies else ():
            labels = template["metadata"]["labels"]
            assert any(
                spec["podSelector"]["matchLabels"].items() <= labels.items()
                and spec["policyTypes"] == ["Ingress", "Egress"]
                for spec in denied
            )


def test_every_folder_of_an_argument_is_a_mounted_volume(rendered: list[list[Object]]) -> None:
    count = 0
    for objects in rendered:
        for name, template in pods(objects).items():
            (container,) = template["spec"]["containers"]
            volumes = {volume["name"] for volume in template["spec"]["volumes"]}
            templates = [claim for each in objects for claim in each.get("spec", {}).get("volumeClaimTemplates", ())]
            claims = {claim["metadata"]["name"] for claim in templates}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes | claims, name
            places = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(places) == len(set(places)), name
            for argument in container.get("args", ()):
                if argument.startswith("--repository="):
                    repository = Path(argument.partition("=")[2])
                    assert any(repository.is_relative_to(place) for place in places), name
                    count += 1
    assert count
