"""Batches as JSON for operators and tenants' admins."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.features.batches.rows import StoredBatch
from gateway.features.batches.waiting import BAND
from gateway.features.journal.lines import MICROS, time_of
from policies.batches.states import ENDED, may_cancel


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


def _time(seconds: float) -> str:
    return time_of(int(seconds * MICROS))
