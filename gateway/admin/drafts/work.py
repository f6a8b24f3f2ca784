"""The work of each order: shows the file, checks a draft, replays recorded traffic under a draft."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

import msgspec

from config.cases import Cases, load_cases
from config.loader import Reading, read
from config.problem import ConfigError, Problem, hidden
from config.schema.config import Config
from gateway.admin.drafts.orders import MOST_TEXT, DraftBody, DraftOrder, DraftResult, RecordedSource
from gateway.admin.drafts.placeholders import Placeholders
from gateway.auth.table import written_keys
from gateway.features.explain import cases
from gateway.features.explain.why import Policy
from gateway.features.pipelines import resources
from gateway.features.recording.segments import RecordError, RecordKey
from gateway.features.replay.policies import replay_policies
from gateway.features.replay.records import RecordedRequest, Records
from gateway.state.errors import StateConfigError
from gateway.traffic.fleet.member import FleetError

MOST_LINES = 20_000
CONTEXT = 3
MOST_PROBLEMS = 200
MOST_FAILURES = 50


def difference(old: str, new: str) -> str | None:
    """The changed lines in the unified format; None for texts that are too long to compare."""
    before, after = old.splitlines(), new.splitlines()
    if old == new:
        return ""
    if max(len(before), len(after)) > MOST_LINES:
        return None
    lines = unified_diff(before, after, "in force", "draft", lineterm="", n=CONTEXT)
    return "\n".join(lines)


def done(order: DraftOrder) -> DraftResult:
    """The result of an order."""
    disk = order.on_disk.decode("utf-8-sig", "replace")
    placeholders = Placeholders(order.placeholder_key, (order.in_force, disk))
    if order.task == "show":
        return _json(200, {"text": placeholders.redact(disk if order.text is None else order.text)})
    try:
        draft = order.text if order.text is not None else msgspec.json.decode(order.body, type=DraftBody).text
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _refused(400, "invalid_request", f"the body is not an object with `text`: {error}")
    if len(draft.encode()) > MOST_TEXT:
        return _refused(413, "draft_too_large", f"the draft is larger than {MOST_TEXT // 1024**2} MiB")
    text, problems = placeholders.restore(draft, order.path)
    # A version of the history was in force.
    reading = _read(Path(order.path), text, (order.in_force, disk, order.text or ""), problems)
    if order.task == "replay":
        return _replayed(order, reading, placeholders)
    return _checked(order, text, reading, placeholders)


def _read(path: Path, text: str, trusted: Sequence[str], problems: list[Problem]) -> Reading:
    """Read a draft as `headrace check` reads a file, but expand only the variables of trusted texts."""
    reading = read(path, text, trusted)
    config = reading.config
    more = list(problems)
    if config is not None:
        try:
            written_keys(config)
            resources.check(config)
        except (StateConfigError, FleetError) as error:
            more.append(Problem(str(path), None, "", str(error)))
    if not more:
        return reading
    return replace(reading, config=None, problems=(*more, *reading.problems))


def _checked(order: DraftOrder, text: str, reading: Reading, placeholders: Placeholders) -> DraftResult:
    tests = _tested(Path(order.path), reading.config)
    body = {
        "valid": reading.config is not None,
        "problems": _described(reading.problems),
        "warnings": _described((*reading.warnings, *reading.unchecked)),
        "tests": tests,
    }
    body = _hidden(body, reading, placeholders)
    body["diff"] = difference(placeholders.redact(order.in_force), placeholders.redact(text))
    failed = len(tests["failures"]) if tests is not None else 0
    encoded = msgspec.json.encode(body)
    return DraftResult(encoded, text=text if reading.config is not None else "", tests_failed=failed)


def _described(problems: tuple[Problem, ...]) -> list[dict[str, Any]]:
    """Problems for a client, without more than can be read."""
    fields = ("line", "path", "message", "suggestion")
    return [{name: getattr(problem, name) for name in fields} for problem in problems[:MOST_PROBLEMS]]


def _hidden(value: Any, reading: Reading, placeholders: Placeholders) -> Any:
    """A result without secrets of the file and values of variables."""
    if isinstance(value, str):
        return placeholders.hide(hidden(value, reading.variables))
    if isinstance(value, list | tuple):
        return [_hidden(item, reading, placeholders) for item in value]
    if isinstance(value, dict):
        return {name: _hidden(item, reading, placeholders) for name, item in value.items()}
    return value


def _tested(path: Path, config: Config | None) -> dict[str, Any] | None:
    """The result of the tests of the policy beside the file; None if there are no tests, or no valid draft."""
    beside = path.with_name(f"{path.stem}.tests{path.suffix}")
    if config is None or not beside.exists():
        return None
    try:
        loaded: Cases = load_cases(beside)
    except ConfigError as error:
        return {"file": beside.name, "passed": 0, "failures": [str(problem) for problem in error.problems]}
    failures = cases.run(Policy.of(config), loaded)
    shown = [str(failure).replace(f"{beside}:", f"{beside.name}:") for failure in failures[:MOST_FAILURES]]
    return {"file": beside.name, "passed": len(loaded.tests) - len(failures), "failures": shown}


def _replayed(order: DraftOrder, reading: Reading, placeholders: Placeholders) -> DraftResult:
    if reading.config is None:
        problems = _hidden(_described(reading.problems), reading, placeholders)
        return _json(
            422, {"error": {"code": "invalid_config", "message": "the draft is not valid"}, "problems": problems}
        )
    assert order.record is not None
    try:
        report = replay_policies(_recent(order.record, contents=bool(reading.config.guards)), reading.config)
    except RecordError as error:
        return _refused(409, "no_record", str(error))
    except FleetError as error:  # a guard whose engine or file is not here
        return _refused(422, "invalid_config", str(error))
    return _json(200, {**_hidden(report.as_json(), reading, placeholders), "since": order.record.since})


def _recent(source: RecordedSource, *, contents: bool) -> Iterator[RecordedRequest]:
    """The recorded requests since a time. Segments that ended before it are not read."""
    records = Records(Path(source.folder), RecordKey(source.key), contents=contents)
    since = source.since * 1e9
    for path in records.paths:
        if path.stat().st_mtime >= source.since:
            yield from (recorded for recorded in records.segment(path) if recorded.entry.arrival >= since)


def _refused(status: int, code: str, message: str) -> DraftResult:
    return _json(status, {"error": {"code": code, "message": message, "param": None}})


def _json(status: int, body: dict[str, Any]) -> DraftResult:
    return DraftResult(msgspec.json.encode(body), status)
