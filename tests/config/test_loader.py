from pathlib import Path

import pytest

from config.loader import ConfigError, Problem, load
from config.schema.config import Config
from config.schema.pool import PoolConfig

from .conftest import RIGHT, Complaints, fields_of


def test_a_right_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT)
    config = load(path)
    assert isinstance(config, Config)
    assert [endpoint.url for endpoint in config.pools[0].endpoints] == ["http://10.0.0.5:8000", "http://10.0.0.6:8000"]
    assert config.models[0].routes[0].pools() == ("vllm", "spare")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("version: 1", "version: 2", "1: version: expected 1, got 2"),
        ("version: 1\n", "", "1: version: is required"),
        ("pools:", "polls:", '2: polls: unknown field (did you mean "pools"?)'),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "Endpoints: [x]",
            '6: pools[1].Endpoints: unknown field (did you mean "endpoints"?)',
        ),
        (
            "name: spare",
            "name: spare\n    qqq: 1",
            f"6: pools[1].qqq: unknown field: the fields here are {fields_of(PoolConfig)}",
        ),
        (
            "name: spare",
            "name: spare\n    probe: 5",
            "6: pools[1].probe: expected fields (path, interval, timeout, unhealthy_after, healthy_after, ask), "
            "such as `probe: {interval: 5s}`, got 5",
        ),
        ("name: spare", "name: spare\n    probe: {path: x}", "6: pools[1].probe.path: expected a path such as /health"),
        (
            "name: spare",
            "name: spare\n    probe:\n      interval: 10",
            "7: pools[1].probe.interval: expected a duration such as 250ms, 10s, 5m or 1h, got 10",
        ),
        ("name: spare", "name: spare\n    connect_timeout: 0s", "6: pools[1].connect_timeout: must be more than 0"),
        (
            "name: spare",
            "name: spare\n    max_connections: '8'",
            "6: pools[1].max_connections: expected a whole number",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {by: hash}",
            "6: pools[1].balance: hash needs a key: user, key, tenant or header:NAME",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {by: hash, key: cookie}",
            "6: pools[1].balance.key: expected user, key, tenant or header:NAME",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {by: prefix_affinity, bound: 100%}",
            "6: pools[1].balance: a bound is above 100%, which is an even load",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {panic: 101%}",
            "6: pools[1].balance: a panic threshold is at most 100%",
        ),
        (
            "name: spare",
            "name: spare\n    max_connections: 0",
            "6: pools[1].max_connections: must be at least 1, got 0",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {by: round_robbin}",
            "6: pools[1].balance.by: expected round_robin or random or least_request or peak_ewma or load or hash or "
            'prefix_affinity (did you mean "round_robin"?)',
        ),
        ("name: spare", "name: 12", "5: pools[1].name: expected text: put a number, true or false in quotes, got 12"),
        (
            "name: spare",
            "name: yes or no",
            "5: pools[1].name: expected a name: up to 128 letters, digits and . _ : / - (not first)",
        ),
        ("[http://10.0.0.7:8000]", "http://x", "6: pools[1].endpoints: expected a list"),
        (
            "[http://10.0.0.7:8000]",
            "[10.0.0.7:8000]",
            "6: pools[1].endpoints[0].url: expected http://HOST:PORT, https://HOST:PORT or unix:/PATH, "
            "without a user, a query or a fragment",
        ),
        (
            "[http://10.0.0.7:8000]",
            "[{weight: -1, url: 'http://a'}]",
            "6: pools[1].endpoints[0].weight: must be more than 0, got -1",
        ),
        (
            "[http://10.0.0.7:8000]",
            "[{weight: many, url: 'http://a'}]",
            "6: pools[1].endpoints[0].weight: expected a number",
        ),
        ("[http://10.0.0.7:8000]", "[{weight: 1}]", "6: pools[1].endpoints[0].url: is required"),
        (
            "[http://10.0.0.7:8000]",
            "[]",
            "5: pools[1]: a pool has either endpoints, written or to discover, or a runtime: give one of the two",
        ),
        (
            "to: vllm",
            "to: vllm\n        when: {stream: yes}",
            "11: models[0].routes[0].when.stream: expected true or false",
        ),
        (
            "to: vllm",
            "to: vllm\n        when: {prompt_tokens: 5}",
            "11: models[0].routes[0].when.prompt_tokens: expected text: put a number, true or false in quotes, got 5",
        ),
        (
            "to: vllm",
            "to: vllm\n        when: {prompt_tokens: '=5'}",
            "11: models[0].routes[0].when.prompt_tokens: expected a comparison such as >4000 or <=512",
        ),
        (
            "to: vllm",
            "to: vllm\n        when: {header: {'a b': c}}",
            "11: models[0].routes[0].when.header.a b: expected an HTTP header's name",
        ),
        (
            "to: vllm",
            "to: vllm\n        retry: {attempts: 11}",
            "11: models[0].routes[0].retry.attempts: must be at most 10, got 11",
        ),
        (
            "to: vllm",
            "to: vllm\n        retry: {attempts: true}",
            "11: models[0].routes[0].retry.attempts: expected a whole number, got true",
        ),
        (
            "to: vllm",
            "to: vllm\n        split: {arms: [{pool: vllm, weight: 1}, {pool: spare, weight: 1}]}",
            "10: models[0].routes[0]: a route has one target: give `to`, `split`, `rollout` or `experiment`",
        ),
        (
            "to: vllm",
            "split: {sticky: me, arms: [{pool: vllm, weight: 1}]}",
            "10: models[0].routes[0].split.sticky: expected user, key, tenant, request or header:NAME",
        ),
        (
            "to: vllm",
            "split: {arms: [{pool: vllm, weight: 1}]}",
            "10: models[0].routes[0].split.arms: needs 2 or more entries",
        ),
        (
            "to: vllm",
            "split: {arms: [{pool: vllm, weight: 0}, {pool: spare, weight: 0}]}",
            "10: models[0].routes[0].split: all weights are 0: give at least one arm a share",
        ),
        ("models: [chat]", "models: []", "14: tenants[0].models: needs 1 or more entries"),
        (
            "models: [chat]",
            "models: [chat]\n    limits: {requests: 0.5/s}",
            "15: tenants[0].limits.requests: a rate grants at least 1 per period: write 30/min for 0.5/s",
        ),
        (
            "models: [chat]",
            f"models: [chat]\n    keys: [{{id: a, hash: {'a' * 64}, expires: 2027-02-30}}]",
            "15: tenants[0].keys[0].expires: there is no such day in the calendar",
        ),
        (
            "models: [chat]",
            "models: [chat]\n    keys: [{id: a, hash: abc}]",
            "15: tenants[0].keys[0].hash: expected the 64 hex digits that `headrace keys create --yaml` prints",
        ),
        (
            "version: 1",
            "version: 1\naccess_log: {to: stderr}",
            "2: access_log.to: expected stdout or a file's path with a / or a dot in it, such as ./access.log",
        ),
        (
            "version: 1",
            "version: 1\nstate: {database: state.db}",
            "2: state.database: expected a database URL such as sqlite:///.headrace/state.db or postgresql://HOST/NAME",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {http: 'example.com:80'}",
            "2: listen.http: a listening host is an IP address (0.0.0.0 for all) or localhost",
        ),
        ("version: 1", "version: 1\nhttp: {max_body: 0B}", "2: http.max_body: must be more than 0"),
    ],
)
def test_a_mistake_is_reported_by_its_line(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert RIGHT.count(old) >= 1
    assert problem in complaints(RIGHT.replace(old, new, 1))


def test_every_mistake_is_reported_at_once_in_the_files_order(complaints: Complaints) -> None:
    reported = complaints("""\
version: 1
lisen: {http: 127.0.0.1:80}
auth: {pepper: inline}
http: {max_body: 10, max_body: 5MiB}
pools:
  - name: vllm
    endponts: [http://x]
    key: ${HEADRACE_NOT_SET}
models:
  - name: chat
    routes:
      - to: vlm
        retry: {attempts: 1, budget: 10%}
tenants:
  - name: acme
    models: [chatt, chat]
""")
    assert [line.split(": ")[:2] for line in reported] == [
        ["2", "lisen"],
        ["3", "auth.pepper"],
        ["4", "http.max_body"],
        ["4", "http.max_body"],
        ["7", "pools[0].endponts"],
        ["8", "pools[0].key"],
        ["12", "models[0].routes[0].to"],
        ["13", "models[0].routes[0].retry.budget"],
        ["16", "tenants[0].models[0]"],
    ]


def test_a_list_of_mistakes_is_not_also_called_too_short(complaints: Complaints) -> None:
    reported = complaints(RIGHT.replace("models: [chat]", "models: [chat]\n    limit: 5"))
    assert reported == ['15: tenants[0].limit: unknown field (did you mean "limits"?)']


def test_a_problem_names_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT.replace("to: vllm", "to: vlm"))
    with pytest.raises(ConfigError) as caught:
        load(path)
    problem = Problem(str(path), 10, "models[0].routes[0].to", 'no pool is named "vlm"', "vllm")
    assert caught.value.problems == [problem]
    assert str(caught.value) == f'{path}:10: models[0].routes[0].to: no pool is named "vlm" (did you mean "vllm"?)'


def test_no_sentence_is_pydantics(complaints: Complaints) -> None:
    reported = complaints(
        "version: x\npools: 1\nmodels: [1]\ntenants: [{name: [], models: {}}]\nlisten: 3\ndrain: [1]\n"
    )
    assert len(reported) >= 7
    assert not any(word in line for line in reported for word in ("pydantic", "Input", "type=", "input_value", "tuple"))
