"""Every draft has a result: problems with lines, or a valid configuration."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import default_path
from gateway.admin.drafts.orders import DraftOrder, DraftResult, DraftTask, RecordedSource
from gateway.admin.drafts.work import MOST_PROBLEMS, difference, done
from tests.support.gateways import chat
from tests.support.recorded import SECRET, recorder_of, recorder_rig

PASSWORD = "Correct-Horse-9"
FILE = f"""version: 1
state: {{database: "sqlite:///x.db"}}  # before: postgresql://head:{PASSWORD}@db/x
pools:
  - {{name: up, endpoints: ["http://127.0.0.1:9"]}}
models:
  - {{name: chat, routes: [{{to: up}}]}}
tenants:
  - {{name: acme, models: ["*"]}}
"""
SOURCES = [FILE, *(path.read_text() for path in sorted((default_path().parent / "examples").glob("*.yaml")))]
SIGNS = st.sampled_from([*"{}[]:-\t\n |>'\"#%@\0水", "&a", "*a", "!x", "<<"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A file in which signs are inserted, and spans are cut, repeated or moved."""
    text = draw(st.sampled_from(SOURCES))
    for _ in range(draw(st.integers(0, 4))):
        at, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        end = min(end, at + 60)
        change = draw(st.sampled_from(["insert", "cut", "repeat", "sign"]))
        middle = {"insert": draw(st.text(max_size=12)), "cut": "", "repeat": text[at:end] * 2, "sign": draw(SIGNS)}
        text = text[:at] + middle[change] + text[at if change in ("insert", "sign") else end :]
    return text


@st.composite
def restructured(draw: st.DrawFn) -> str:
    """A file in which a value at any place is another one."""
    data = yaml.safe_load(draw(st.sampled_from(SOURCES)))
    node = data
    for _ in range(draw(st.integers(0, 5))):
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if not isinstance(node[key], dict | list) or draw(st.booleans()):
            node[key] = draw(values)
            break
        node = node[key]
    return yaml.safe_dump(data, allow_unicode=True)


def order(folder: Path, text: str, **fields: object) -> DraftOrder:
    path = folder / "headrace.yaml"
    body = msgspec.json.encode({"text": text})
    return DraftOrder("check", str(path), b"k" * 32, FILE, FILE.encode(), body, **fields)  # type: ignore[arg-type]


def checked(folder: Path, text: str) -> dict[str, Any]:
    result = done(order(folder, text))
    assert result.status == 200
    assert PASSWORD.encode() not in result.body
    return dict(msgspec.json.decode(result.body))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(mutated(), restructured(), st.text(max_size=200)))
def test_every_draft_has_a_result(tmp_path: Path, text: str) -> None:
    body = checked(tmp_path, text)
    assert body["valid"] != bool(body["problems"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.one_of(st.binary(max_size=200), values.map(lambda value: msgspec.json.encode(repr(value)))))
def test_every_body_has_a_result(tmp_path: Path, body: bytes) -> None:
    result = done(msgspec.structs.replace(order(tmp_path, ""), body=body))
    assert isinstance(result, DraftResult)
    assert result.status == 400


def test_problems_have_lines_and_suggestions(tmp_path: Path) -> None:
    body = checked(tmp_path, FILE.replace("routes", "rotues").strip())
    assert body["valid"] is False
    problem = body["problems"][0]
    assert (problem["line"], problem["path"], problem["suggestion"]) == (6, "models[0].rotues", "routes")


def test_a_check_reports_tests_and_the_difference(tmp_path: Path) -> None:
    (tmp_path / "headrace.tests.yaml").write_text(
        "tests:\n"
        "  - {request: {tenant: acme, model: chat}, expect: {pool: up}}\n"
        "  - {name: no other, request: {tenant: acme, model: other}, expect: {refused: model_not_found}}\n"
    )
    body = checked(tmp_path, FILE)
    assert body["tests"] == {"file": "headrace.tests.yaml", "passed": 2, "failures": []}
    assert body["diff"] == ""
    body = checked(tmp_path, FILE.replace("name: chat", "name: other"))
    assert body["valid"] is True
    tests, diff = body["tests"], body["diff"]
    assert isinstance(tests, dict)
    assert isinstance(diff, str)
    assert tests["passed"] == 0
    assert len(tests["failures"]) == 2
    assert str(tmp_path) not in str(tests)
    assert "-  - {name: chat, routes: [{to: up}]}\n+  - {name: other, routes: [{to: up}]}" in diff


def test_a_draft_with_placeholders_has_its_secrets_again(tmp_path: Path) -> None:
    show = msgspec.structs.replace(order(tmp_path, ""), task="show")
    redacted = msgspec.json.decode(done(show).body)["text"]
    assert PASSWORD not in redacted
    result = done(order(tmp_path, redacted.replace("chat", "talk")))
    assert result.text == FILE.replace("chat", "talk")


VALUE = "Zqx7 == (wvk9) | {{ jkq3 }}/hjp8.u"
"""A variable's value whose parts would show in messages of every parser."""
USES = ["{}", "a-{}", "{{{{ {} }}}}", "file:{}/x", "request.user == {}", "http://u:{}@h:1", "sqlite:///{}"]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTHER", "POOL"):
        monkeypatch.setenv(name, VALUE if name == "OTHER" else "pool-of-the-file")


def places(data: Any) -> list[tuple[Any, Any]]:
    """The scalars of a file: each with the list or the mapping that has it."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for key, value in items for place in places(value) or [(data, key)]]


@st.composite
def with_variable(draw: st.DrawFn) -> str:
    """A file with a variable at any place, perhaps under another field's name or in a list."""
    data = yaml.safe_load(draw(st.sampled_from(SOURCES)))
    reference = draw(st.sampled_from(["${OTHER}", "${OTHER:-x}"]))
    for node, key in draw(st.lists(st.sampled_from(places(data)), min_size=1, max_size=3)):
        use = draw(st.sampled_from(USES)).format(reference)
        node[key] = draw(st.sampled_from([use, [use], {"name": use}, {use: use}]))
    return yaml.safe_dump(data, allow_unicode=True)


@pytest.mark.usefixtures("variables")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=with_variable(), task=st.sampled_from(["check", "replay"]))
def test_no_draft_shows_a_variable(tmp_path: Path, text: str, task: DraftTask) -> None:
    source = RecordedSource(str(tmp_path), "k" * 32, 0.0)
    body = done(msgspec.structs.replace(order(tmp_path, text), task=task, record=source)).body.decode()
    assert not [part for part in ("Zqx7", "wvk9", "jkq3", "hjp8") if part in body]


OF_THE_FILE = FILE.replace("name: up,", 'name: "${POOL}",').replace("to: up", 'to: "${POOL}"')
MOVED = {
    "another field": OF_THE_FILE.replace("name: chat", 'name: "${POOL}"'),
    "another text": OF_THE_FILE.replace('to: "${POOL}"', 'to: "x${POOL}"'),
    "another variable": OF_THE_FILE.replace('to: "${POOL}"', 'to: "${OTHER}"'),
}


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize("change", MOVED)
def test_a_variable_stays_where_the_file_has_it(tmp_path: Path, change: str) -> None:
    draft = msgspec.structs.replace(order(tmp_path, MOVED[change]), in_force=OF_THE_FILE)
    problems = msgspec.json.decode(done(draft).body)["problems"]
    name = "OTHER" if "OTHER" in MOVED[change] else "POOL"
    assert f"may use the environment variable {name} only in a field for secrets" in problems[0]["message"]
    permitted = msgspec.structs.replace(draft, on_disk=MOVED[change].encode())
    assert "may use" not in done(permitted).body.decode()
    of_the_history = msgspec.structs.replace(draft, text=MOVED[change])
    assert "may use" not in done(of_the_history).body.decode()


@pytest.mark.usefixtures("variables")
def test_a_draft_may_repeat_a_use_and_name_secrets(tmp_path: Path) -> None:
    text = OF_THE_FILE.replace(
        "models:\n", 'models:\n  - {name: talk, routes: [{name: a, to: main}, {to: "${POOL}"}]}\n'
    )
    text = text.replace("\nmodels:", '\n  - {name: main, endpoints: ["http://127.0.0.1:8"], key: "${OTHER}"}\nmodels:')
    draft = msgspec.structs.replace(order(tmp_path, text), in_force=OF_THE_FILE)
    assert msgspec.json.decode(done(draft).body)["problems"] == []
    near = msgspec.structs.replace(
        draft, body=msgspec.json.encode({"text": text.replace("to: main", "to: pool-of-fil")})
    )
    (problem,) = msgspec.json.decode(done(near).body)["problems"]
    assert problem["suggestion"] == "${POOL}"


@pytest.mark.usefixtures("variables")
async def test_a_replay_names_the_variables(tmp_path: Path) -> None:
    rig = recorder_rig(tmp_path / "traffic")
    async with recorder_of(rig):
        await rig.send(chat())
    draft = msgspec.structs.replace(order(tmp_path, OF_THE_FILE), in_force=OF_THE_FILE, task="replay")
    source = RecordedSource(str(tmp_path / "traffic"), SECRET, 0.0)
    moves = msgspec.json.decode(done(msgspec.structs.replace(draft, record=source)).body)["moves"]
    assert {(move["from"], move["to"]) for move in moves if move["change"] == "pool"} == {("main", "${POOL}")}, moves


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "k0: &k0 [1, 1]\n" + "".join(f"k{i + 1}: &k{i + 1} [*k{i}, *k{i}, *k{i}, *k{i}]\n" for i in range(12)),
        "pools:\n" + "  - {name: 1}\n" * 5000,
        "x: " + "a" * 2_000_000,
    ],
    ids=["deep", "aliases", "many problems", "long"],
)
def test_results_of_large_drafts_are_bounded(tmp_path: Path, text: str) -> None:
    body = checked(tmp_path, text)
    problems = body["problems"]
    assert isinstance(problems, list)
    assert 0 < len(problems) <= MOST_PROBLEMS


def test_long_texts_are_not_compared() -> None:
    assert difference("a\n" * 20_001, "b") is None
    assert difference("a", "a") == ""
