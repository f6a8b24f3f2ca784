"""The rules of a request's way, checked from outside: by the clients' answers, the servers' requests, and the logs."""

import json
from collections import defaultdict
from collections.abc import Iterator

from gateway.telemetry import Record
from tests.simulation.calls import Call, words_of
from tests.simulation.clients import Outcome
from tests.simulation.standing import standing
from tests.simulation.world import SEND_TIMEOUT, World

STATUSES = {200, 400, 401, 404, 413, 429, 502, 503, 504}
# A sweep of connections in use, and a turn or two of the loop.
SWEEP = 0.35
CANCELLED_WITHIN = 0.05
# How often one stream may be carried on.
MOST_RESUMES = 2
# The pause between two pieces that every route of a story allows.
IDLE = 1.0


def judge(world: World, seen: list[Outcome], *, peaceful: bool) -> list[str]:
    """Every violation, one sentence each."""
    records: dict[str, list[Record]] = defaultdict(list)
    for record in world.log.records:
        records[record.request_id].append(record)
    calls: dict[str, list[Call]] = defaultdict(list)
    for server in world.servers:
        for call in server.calls:
            calls[call.request_id].append(call)
    problems = [*world.watch.violations, *world.ledger.oracle.violations, *standing(world, seen)]
    queued = any(pool.queue is not None for config in world.configs for pool in config.pools)
    for one in seen:
        mine = records[one.order.id]
        problems += [f"{one.order.id}: {problem}" for problem in _request(world, one, mine, calls[one.order.id])]
        if peaceful and one.status in (502, 504) and not (queued and b"deadline_exceeded" in one.body):
            problems.append(f"{one.order.id}: {one.status} in peace: {one.body!r}")
    return problems


def _request(world: World, seen: Outcome, records: list[Record], calls: list[Call]) -> Iterator[str]:
    if len(records) != 1:
        yield f"{len(records)} ends instead of one"
        return
    record = records[0]
    if seen.status and seen.status not in STATUSES:
        yield f"status {seen.status}"
    if seen.whole and seen.status != record.status:
        yield f"got {seen.status}, logged {record.status}"
    if not seen.left and not seen.whole and seen.order.leave != "stops_reading":
        yield f"cut off after status {seen.status}"
    if calls and seen.order.id not in world.ledger.reserved:
        yield "reached a server without a reservation"
    yield from _times(world, seen, record, calls)
    yield from _credential(world, seen)
    calls = sorted(calls, key=lambda call: call.began)
    if seen.status == 200:
        yield from _stream(seen, calls) if seen.order.stream else _whole(seen, calls)
    elif seen.whole:
        yield from _error(json.loads(seen.body))


def _times(world: World, seen: Outcome, record: Record, calls: list[Call]) -> Iterator[str]:
    """Every wait ends, and no call outlives its client."""
    config = world.configs[world.generation_at(record.started) - 1]
    totals = [route.timeout.total for model in config.models if model.name == record.model for route in model.routes]
    patience = 2 * SEND_TIMEOUT if seen.order.leave == "stops_reading" else 0.0
    if record.ended - record.started > max(totals, default=0.0) + patience + SWEEP:
        yield f"took {record.ended - record.started:.2f} s"
    carried_on = any(name.startswith("resume") for name, _ in record.trace.events)
    if not (patience or carried_on) and seen.silence > IDLE + SWEEP:
        yield f"kept silent for {seen.silence:.2f} s in the middle of an answer"
    for call in calls:
        # An unreachable server cannot see a disconnect: what counts is that the gateway does not wait.
        if call.ended > record.ended + CANCELLED_WITHIN or (call.end == "running" and call.fate.kind != "good"):
            yield f"{call.id} went on until {call.ended:.2f} after the end at {record.ended:.2f} ({call.end})"
        if seen.first_piece and call.began > seen.first_piece and not call.carries_on:
            yield f"{call.id} was asked after the first chunk"
        beaten = seen.first_piece and not call.carries_on and call.id not in seen.body.decode()
        if beaten and call.ended > seen.first_piece + CANCELLED_WITHIN:
            yield f"{call.id} went on after another had begun to answer"
    oldest = world.generation_at(record.started - 1e-9)
    for attempt in world.watch.attempts:
        if attempt.request_id == seen.order.id and attempt.generation < oldest:
            yield f"decided by configuration {attempt.generation}, and {oldest} was in force"


def _credential(world: World, seen: Outcome) -> Iterator[str]:
    key = seen.order.key
    name = next((n for n in [*world.live_keys, *world.revoked] if key == world.all_keys[n].plaintext), None)
    revoked = world.revoked.get(name, seen.began + 1) if name is not None else -1.0
    if seen.status == 401 and revoked > seen.began:
        yield "a valid key was refused"
    if seen.status not in (0, 401) and revoked < seen.began:
        yield f"a key that is not valid got {seen.status}"


def _whole(seen: Outcome, calls: list[Call]) -> Iterator[str]:
    if not seen.whole:
        if not seen.left and seen.order.leave != "stops_reading":
            yield "a whole answer that broke off"
        return
    text = json.loads(seen.body)["choices"][0]["message"]["content"]
    if not any(call.text == text and call.finished for call in calls):
        yield f"an answer that no server gave: {text!r}"


def _stream(seen: Outcome, calls: list[Call]) -> Iterator[str]:
    """An answer's words in their order; its end if a server sent one, else an error and nothing invented.

    The words are one server's, unless another server continued the same answer.
    """
    events = seen.events
    data = [json.loads(event) for event in events if event != "[DONE]"]
    choices = [choice for chunk in data for choice in chunk.get("choices", ())]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    words = [word.split("/") for word in text.split()]
    total = words_of(seen.order.id)
    speakers = list(dict.fromkeys(speaker for _, speaker, _ in words))
    calls_by_id = {call.id: call for call in calls}
    if [(one, int(index)) for one, _, index in words] != [(seen.order.id, index) for index in range(len(words))]:
        yield f"words that no server said in this order: {text!r}"
    for speaker in speakers[1:]:
        if calls_by_id[speaker].first != next(int(index) for _, by, index in words if by == speaker):
            yield f"{speaker} went on with an answer that it was not asked to carry on: {text!r}"
    if len(speakers) > 1 + MOST_RESUMES:
        yield f"carried on too often: {text!r}"
    errors = [chunk for chunk in data if "error" in chunk]
    ended = "[DONE]" in events
    if any(choice["finish_reason"] for choice in choices) and len(words) < total:
        yield "a finish_reason that no server gave"
    finished = any(call.finished for call in calls)
    if ended and (not finished or events[-1] != "[DONE]" or len(words) < total or errors):
        yield f"a [DONE] that is not true: {events}"
    if not seen.left and seen.order.leave != "stops_reading" and ended == bool(errors):
        yield f"the end of a stream is either [DONE] or one error: {events[-2:]}"
    if errors:
        if len(errors) > 1 or "error" not in data[-1]:
            yield "an error that is not the last event"
        yield from _error(errors[0])


def _error(body: dict[str, dict[str, object]]) -> Iterator[str]:
    if list(body) != ["error"] or set(body["error"]) != {"message", "type", "param", "code"}:
        yield f"an error of another shape: {body}"
    elif not body["error"]["code"] or "Traceback" in str(body) or "10.0.0" in str(body):
        yield f"an error that says too little or too much: {body}"
