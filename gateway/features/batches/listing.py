"""Batches of one tenant or of all, over every API, for operators and tenants' admins. Queries block."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, get_args

import msgspec
from sqlalchemy import func, select

from gateway.auth.keys import Principal
from gateway.features.batches.rows import StoredBatch, file_object
from gateway.features.batches.schema import batches, tasks
from gateway.features.batches.sealing import BEGIN
from gateway.features.batches.storage import NoObject, Storage
from gateway.features.batches.store import BatchStore, batch_of
from gateway.features.batches.tasks import EXAMINE, FINISH, shards_in
from gateway.features.journal.lines import MICROS, time_of
from policies.batches.states import ENDED, Status, may_cancel

MOST_ROWS: Final = 100
UNFINISHED: Final = "unfinished"
"""Stands for every state of a batch that has not ended."""
STATES: Final = (UNFINISHED, *get_args(Status))
MOST_FAILURES: Final = 100
"""Failed lines that a batch shows. Its file has all."""
FAILURE_BYTES: Final = 1024**2
"""The beginning of a file that is read for them."""
MOST_TEXT: Final = 1000
BAND = "batch: below all live requests, in the places that they leave"


class BatchSearch(NamedTuple):
    """Batches, newest first. Without a tenant those of all tenants, without a state those of all states."""

    tenant: str | None = None
    state: str | None = None
    after: str | None = None
    """The id of the last batch of the page before."""
    limit: int = 50


def page_of(store: BatchStore, search: BatchSearch) -> list[StoredBatch] | None:
    """One page; None if the batch that it follows does not exist."""
    own = [] if search.tenant is None else [batches.c.tenant == search.tenant]
    query = select(batches).where(*own)
    if search.state is not None:
        states = sorted(set(get_args(Status)) - ENDED) if search.state == UNFINISHED else [search.state]
        query = query.where(batches.c.status.in_(states))
    with store.database.transaction() as connection:
        if search.after is not None:
            last = select(batches.c.number).where(*own, batches.c.id == search.after)
            number = connection.execute(last).scalar()
            if number is None:
                return None
            query = query.where(batches.c.number < number)
        rows = connection.execute(query.order_by(batches.c.number.desc()).limit(search.limit)).all()
        return [batch_of(connection, row) for row in rows]


def one_of(store: BatchStore, id_: str, tenant: str | None) -> StoredBatch | None:
    """One batch, if it is the tenant's."""
    own = [] if tenant is None else [batches.c.tenant == tenant]
    with store.database.transaction() as connection:
        row = connection.execute(select(batches).where(batches.c.id == id_, *own)).one_or_none()
        return None if row is None else batch_of(connection, row)


def cancel(store: BatchStore, id_: str, tenant: str | None, now: float) -> StoredBatch | None:
    """Let no further line of a batch begin. A batch that has ended, or is ending, does not change."""
    batch = one_of(store, id_, tenant)
    return None if batch is None else store.cancel(Principal(batch.spec.tenant, ""), id_, batch.spec.api, now)


def reasons_of(store: BatchStore, batch: StoredBatch) -> list[str]:
    """What the state database knows: held and free tasks, submissions to providers, batches that are due earlier."""
    if batch.progress.status in ENDED:
        return []
    with store.database.transaction() as connection:
        own = tasks.c.batch == batch.spec.id
        rows = connection.execute(select(tasks.c.number, tasks.c.holder).where(own, tasks.c.done == 0)).all()
        earlier = select(func.count(tasks.c.batch.distinct())).where(
            tasks.c.done == 0, tasks.c.expires_at < batch.spec.expires_at
        )
        before = connection.execute(earlier).scalar_one()
        submissions = [each for _, counts in shards_in(connection, batch.spec.id) for each in counts.submissions]
    reasons: list[str] = []
    held = sum(bool(row.holder) for row in rows)
    if any(row.number == EXAMINE for row in rows):
        reasons.append("its lines are being examined" if held else "it waits for a process that examines its lines")
    elif any(row.number == FINISH for row in rows):
        reasons.append("its files are being written" if held else "it waits for a process that writes its files")
    elif rows:
        reasons.append(f"of {len(rows)} open parts, processes hold {held}")
    if before:
        reasons.append(f"{before} batches are due earlier")
    for each in submissions:
        state = f"as {each.batch}" if each.batch else "and has not confirmed them"
        reasons.append(f"the provider of the pool {each.pool} has {len(each.numbers)} lines, {state}")
    return reasons


def summary(batch: StoredBatch) -> dict[str, Any]:
    """One row of a list. Empty fields are omitted."""
    spec, progress = batch.spec, batch.progress
    made: dict[str, Any] = {"id": spec.id, "tenant": spec.tenant, "key": spec.holder.key_id, "api": spec.api}
    made |= {"endpoint": spec.endpoint, "status": progress.status, "created_at": _time(spec.created_at)}
    made["expires_at"] = _time(spec.expires_at)
    if progress.status in ENDED:
        made["ended_at"] = _time(progress.times[progress.status])
    counts = ("total", "succeeded", "failed", "unfinished")
    made["lines"] = {name: getattr(progress, name) for name in counts}
    return made | {"prompt_tokens": progress.prompt_tokens, "completion_tokens": progress.completion_tokens}


def described(batch: StoredBatch, waits: Sequence[str] = ()) -> dict[str, Any]:
    """One batch with its files, times and problems, and the reasons why it waits."""
    spec, progress = batch.spec, batch.progress
    has_results = progress.status in ENDED - {"failed"}
    made = summary(batch) | {
        "window": spec.window,
        "input_file": spec.input_file,
        "times": {name: _time(at) for name, at in progress.times.items()},
        "problems": msgspec.to_builtins(progress.problems),
        "metadata": spec.metadata or {},
        "may_cancel": may_cancel(progress.status) and progress.status != "cancelling",
    }
    if progress.status not in ENDED:
        made |= {"band": BAND, "waits": list(waits)}
    if has_results and progress.succeeded:
        made["output_file"] = spec.output_file
    if has_results and progress.failed + progress.unfinished:
        made["error_file"] = spec.error_file
    return made


class _LineError(msgspec.Struct):
    code: str | None = None
    type: str | None = None
    message: str = ""
    error: "_LineError | None" = None
    """Anthropic's body of an error has another one inside."""


class _LineBody(msgspec.Struct):
    error: _LineError | None = None


class _LineResponse(msgspec.Struct):
    status_code: int = 0
    body: _LineBody | None = None


class _LineOutcome(msgspec.Struct):
    type: str = ""
    error: _LineError | None = None


class _FailedLine(msgspec.Struct):
    """A line of an error file, or of Anthropic's file of results."""

    custom_id: Any = None
    response: _LineResponse | None = None
    error: _LineError | None = None
    result: _LineOutcome | None = None


_failed_line = msgspec.json.Decoder(_FailedLine)


def failures_file(batch: StoredBatch) -> str | None:
    """The file with the failed lines of a batch; None while there is none."""
    spec, progress = batch.spec, batch.progress
    if progress.status not in ENDED - {"failed"} or not progress.failed + progress.unfinished:
        return None
    return spec.output_file if spec.api == "anthropic" else spec.error_file


def failures_of(storage: Storage, file: str) -> list[dict[str, Any]]:
    """The first failed lines in a file, at most `MOST_FAILURES`: how the client named each, and the reason."""
    try:
        data = storage.read(file_object(file), 0, FAILURE_BYTES)
    except NoObject:
        return []
    failures: list[dict[str, Any]] = []
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        if (failure := _failure(line)) is not None and len(failures) < MOST_FAILURES:
            failures.append(failure)
    return failures


def _failure(line: bytes) -> dict[str, Any] | None:
    if line.startswith(BEGIN):
        return None  # an answer, not an error of the gateway
    try:
        read = _failed_line.decode(line)
    except msgspec.DecodeError:
        return None
    if read.result is not None and read.result.type == "succeeded":
        return None
    error, status = read.error, 0
    if read.result is not None:
        error = read.result.error or _LineError(code=read.result.type)
    elif read.response is not None:
        status, body = read.response.status_code, read.response.body
        error = error or (body.error if body is not None else None)
    while error is not None and error.error is not None:
        error = error.error
    made = {"custom_id": str(read.custom_id or "")[:MOST_TEXT], "status": status}
    if error is not None:
        made |= {"code": error.code or error.type or "", "message": error.message[:MOST_TEXT]}
    return {name: value for name, value in made.items() if value}


def _time(seconds: float) -> str:
    return time_of(int(seconds * MICROS))
