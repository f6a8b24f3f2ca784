"""The logs of a shard as its next holder reads them."""

from typing import Any, NamedTuple

from gateway.features.batches.records import Charges, LineResult, read_log
from gateway.features.batches.rows import log_object
from gateway.features.batches.storage import Storage, StorageError
from gateway.features.batches.tasks import Claim
from gateway.features.usage.rows import hour_values
from policies.batches.states import LogPart, ShardCounts


class RecoveredShard(NamedTuple):
    """The lines that have a result, and the rows of their charges."""

    ended: set[int]
    rows: list[dict[str, Any]]


def recover(storage: Storage, claim: Claim) -> RecoveredShard:
    """Read the logs of earlier holders, set the counts, and begin this holder's own log. Blocks.

    Only the last holder may have records that its last transaction did not name. They count too, up to the first torn
    one; a record that a replaced holder writes later is never read. Raises `StorageError`.
    """
    counts, ended, rows = claim.counts, set[int](), list[dict[str, Any]]()
    counts.succeeded = counts.failed = counts.prompt_tokens = counts.completion_tokens = 0
    for part in counts.logs:
        results = durable_results(storage, claim, part, is_last=part is counts.logs[-1])
        charges = Charges()
        for result in results:
            if result.number not in ended:
                ended.add(result.number)
                add_result(counts, result)
                charges.add(result)
        rows += usage_rows(claim, part.token, charges)
    counts.logs.append(LogPart(claim.token, 0))
    return RecoveredShard(ended, rows)


def durable_results(storage: Storage, claim: Claim, part: LogPart, *, is_last: bool) -> list[LineResult]:
    """The results in the durable part of a log; `is_last` extends it to all whole records. Raises `StorageError`."""
    name = log_object(claim.spec.id, claim.number, part.token)
    data = storage.log(name)
    if len(data) < part.size:
        raise StorageError(f"{name}: {len(data)} of {part.size} bytes are there")
    log = read_log(data if is_last else data[: part.size])
    if log.size < part.size:
        raise StorageError(f"{name}: the record at byte {log.size} is damaged")
    part.size = log.size
    return log.results


def add_result(counts: ShardCounts, result: LineResult) -> None:
    """Count a result."""
    if result.succeeded:
        counts.succeeded += 1
    else:
        counts.failed += 1
    counts.prompt_tokens += result.prompt_tokens
    counts.completion_tokens += result.completion_tokens


def usage_rows(claim: Claim, token: int, charges: Charges) -> list[dict[str, Any]]:
    """The rows of usage of one log. The same log has the same rows, so that no line is charged twice."""
    source = f"{claim.spec.id}.{claim.number}.{token}"
    return [hour_values(source, hour, row) for hour, row in charges.rows()]
