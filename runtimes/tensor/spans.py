"""The spans of a traced request: one for each inference, with its wait and its batch below it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adapters.spans import Attribute, Span
from adapters.tensors import Inference
from runtimes import spans
from runtimes.spans import phase


def begin(inference: Inference, version: str, now: float) -> Span | None:
    """Start the span of an inference inside of the request or the model that sent it; None if that is not traced."""
    if (around := spans.around.get()) is None:
        return None
    span = around.log.begin(f"infer {inference.model_name}", "internal", around, now)
    span.attributes = {"headrace.model": inference.model_name, "headrace.model_version": version}
    if inference.id:
        span.attributes["headrace.inference_id"] = inference.id[:128]
    return span


@contextmanager
def parent_of_steps(span: Span | None) -> Iterator[None]:
    """Mark the inferences of tasks that begin here as parts of this one."""
    if span is None:
        yield
    else:
        with spans.within(span):
            yield


def end(span: Span, pending: Any, began: float, now: float, error: BaseException | None) -> None:
    """End the span of an inference; `pending` is its place in the schedule, None before it has one."""
    execution = getattr(pending, "execution", None)
    if execution is not None:
        phase(span, "queue", began, execution.started, {})
        ended = execution.started + execution.seconds if execution.seconds else now
        rows: dict[str, Attribute] = {"headrace.batch.rows": execution.rows}
        if own := getattr(pending, "rows", 0):
            rows["headrace.rows"] = own
        phase(span, "batch", execution.started, ended, rows)
    elif pending is not None and error is not None:
        phase(span, "queue", began, now, {})
    span.finish(now, "" if error is None else spans.kind_of(error))
