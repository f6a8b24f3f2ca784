from pathlib import Path

import pytest

from config.loader import ConfigError, Problem, load, pack, unpack
from config.schema.config import Config
from config.schema.pool import PoolConfig
from config.schema.protocols.language import OpenAIProtocol
from config.schema.runtimes.bundled import LlmRuntime, TensorRuntime
from config.schema.section import Section

from .checks.changes import document
from .conftest import RIGHT, Complaints, fields_of


def test_a_right_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT)
    config = load(path)
    assert isinstance(config, Config)
    assert [endpoint.url for endpoint in config.pools[0].endpoints] == ["http://10.0.0.5:8000", "http://10.0.0.6:8000"]
    assert config.models[0].routes[0].pools() == ("vllm", "spare")


SPARE = "endpoints: [http://10.0.0.7:8000]"
OPENAI = "protocol: {name: openai, binary: false}"
TENSOR = "runtime: {kind: tensor, repository: models"
LLM = "runtime: {kind: llm, model: m"
UNKNOWN = "unknown field: the fields here are {}"


@pytest.mark.parametrize(
    ("old", "new", "problem", "section"),
    [
        ("name: spare", "name: spare\n    qqq: 1", f"6: pools[1].qqq: {UNKNOWN}", PoolConfig),
        ("name: spare", f"name: spare\n    {OPENAI}", f"6: pools[1].protocol.binary: {UNKNOWN}", OpenAIProtocol),
        (SPARE, f"{TENSOR}, max_num_seqs: 4}}", f"6: pools[1].runtime.max_num_seqs: {UNKNOWN}", TensorRuntime),
        (SPARE, f"{LLM}, repository: models}}", f"6: pools[1].runtime.repository: {UNKNOWN}", LlmRuntime),
        (SPARE, "runtime: llm", "6: pools[1].runtime: expected fields ({})", LlmRuntime),
    ],
)
def test_the_fields_that_are_listed_are_those_of_the_section(
    complaints: Complaints, old: str, new: str, problem: str, section: type[Section]
) -> None:
    assert complaints(RIGHT.replace(old, new)) == [problem.format(fields_of(section))]


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


def test_how_many_an_endpoint_has_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(
        """\
version: 1
pools:
  - {name: plain, endpoints: [http://10.0.0.1:8000], max_connections: 20}
  - {name: queued, endpoints: [http://10.0.0.1:8000], max_connections: 20, queue: {}}
  - {name: capped, endpoints: [http://10.0.0.1:8000], queue: {max_in_flight: 8}}
  - {name: bundled, runtime: {kind: llm, model: m, max_num_seqs: 4}}
  - {name: runtime, runtime: {kind: llm, model: m, max_num_seqs: 4}, queue: {}}
models:
  - {name: chat, routes: [{to: plain}]}
tenants:
  - {name: acme, models: [chat]}
"""
    )
    assert [pool.max_in_flight for pool in load(path).pools] == [20, 20, 8, 256, 4]


def test_the_near_zones_are_those_of_the_own_region(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    base = document("regions")["file"]
    path.write_text(base)
    assert load(path).near_zones == {"eu-1a", "eu-1b"}
    path.write_text(base.replace("zone: eu-1a\nregions", "zone: far\nregions"))
    assert load(path).near_zones == {"far"}


def test_secrets_and_files_are_resolved_where_it_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-1")
    path = tmp_path / "headrace.yaml"
    path.write_text(
        "version: 1\nworkers: 2\nauth: {pepper: file:pepper.txt}\n"
        "pools: [{name: a, endpoints: [http://127.0.0.1:9], key: '${UPSTREAM_KEY}'}]\n"
        "models: [{name: chat, routes: [{to: a}]}]\n"
        "tenants: [{name: acme, models: ['*'], limits: [{requests: 10/min}, {tokens: 5/s, per: key}]}]\n"
    )
    (tmp_path / "pepper.txt").write_text("p" * 32)
    packed = pack(load(path))
    monkeypatch.delenv("UPSTREAM_KEY")
    path.unlink()
    (tmp_path / "pepper.txt").unlink()
    config = unpack(packed)
    assert config.pools[0].key is not None
    assert config.pools[0].key.get_secret_value() == "sk-1"
    assert config.auth.pepper is not None
    assert config.auth.pepper.get_secret_value() == "p" * 32
    assert [str(limit.requests) for limit in config.tenants[0].limit_list()] == ["10/min", "None"]


def test_fields_of_another_version_are_an_error() -> None:
    with pytest.raises(ValueError, match="extra"):
        unpack('{"source": {"version": 1, "colour": "blue"}, "lines": []}')
