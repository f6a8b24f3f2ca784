"""Options of servers of apps."""

import pytest

from .conftest import RIGHT, Complaints

X = "{name: x, datatype: FP32, shape: [-1, 2]}"


def refused(complaints: Complaints, protocol: str) -> list[str]:
    written = RIGHT.replace("name: spare", f"name: spare\n    protocol: {protocol}", 1)
    return [line.partition(": ")[2] for line in complaints(written)]


def test_options_that_are_accepted(complaints: Complaints) -> None:
    for options in ("", ", headers: [x-trace, traceparent], answer_headers: [x-cost]"):
        assert refused(complaints, f"{{name: http{options}}}") == []
        assert refused(complaints, f"{{name: http, inputs: [{X}], outputs: [{X}], path: /sum{options}}}") == []


@pytest.mark.parametrize("name", ["authorization", "host", "x-api-key", "X-Trace", "content-length", "proxy-to"])
def test_a_header_that_is_not_the_clients_to_give(complaints: Complaints, name: str) -> None:
    (line,) = refused(complaints, f"{{name: http, headers: [{name}]}}")
    assert "a header's name in lower case" in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (f"inputs: [{X}]", "inputs and outputs go together"),
        ("path: /sum", "path has no effect"),
        ("layout: instances", "layout has no effect"),
        (f"inputs: [{X}, {X}], outputs: [{X}]", "two tensors have the same name"),
        ("inputs: [{name: x, datatype: FLOAT, shape: [1]}]", "FP32"),
        ("inputs: [{name: x, datatype: FP32, shape: [-2]}]", "-1"),
    ],
)
def test_options_that_are_refused(complaints: Complaints, options: str, words: str) -> None:
    assert any(words in line for line in refused(complaints, f"{{name: http, {options}}}"))


def test_torchserve(complaints: Complaints) -> None:
    for name in ("torchserve", "torchserve-grpc"):
        assert refused(complaints, name) == []
        assert refused(complaints, f"{{name: {name}, management_port: 8081, inputs: [{X}], outputs: [{X}]}}") == []
        (line,) = refused(complaints, f"{{name: {name}, management_key: '${{KEY}}'}}")
        assert "environment variable" in line or "no effect without management_port" in line


def test_ray_serve(complaints: Complaints) -> None:
    assert refused(complaints, "ray-serve") == []
    assert refused(complaints, "{name: ray-serve, application: a, dashboard_port: 8265, multiplexed: true}") == []
    assert refused(complaints, "{name: ray-serve-grpc, application: a}") == []
    (line,) = refused(complaints, "{name: ray-serve, application: a}")
    assert "application has no effect without dashboard_port" in line
