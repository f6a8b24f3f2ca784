"""Several drafts of an answer, written at once."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from adapters.errors import ClientGone, InferenceError
from config.schema.pipelines.pipeline import DraftsConfig
from gateway.features.pipelines.each import for_each
from gateway.features.pipelines.part import run_part
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope


class Drafts:
    """The nodes that write the drafts. Each draft is recorded like a step."""

    def __init__(self, config: DraftsConfig, nodes: Sequence[PipelineNode]) -> None:
        many = config.n > 1
        self._nodes = [
            (f"{draft.label}_{index + 1}" if many else draft.label, node)
            for draft, node in zip(config.of, nodes, strict=True)
            for index in range(config.n)
        ]

    @property
    def count(self) -> int:
        """The number of drafts."""
        return len(self._nodes)

    async def written(self, scope: StepScope) -> list[Output]:
        """The drafts in the order of the file, without those that failed. Raises the first failure if all failed."""
        return succeeded(await ends_of(run_part(node, scope, name, is_read=True) for name, node in self._nodes))

    def bound(self, estimate: Estimate) -> Bound:
        """The sum of all drafts."""
        bound = Bound()
        for _, node in self._nodes:
            bound += node.bound(estimate)
        return bound


async def ends_of(parts: Iterable[Coroutine[Any, Any, Output]]) -> list[Output | InferenceError]:
    """The outputs or the failures of parts that run at once. A cancellation, or another error, ends all of them."""

    async def one(part: Coroutine[Any, Any, Output]) -> Output | InferenceError:
        try:
            return await part
        except ClientGone:
            raise
        except InferenceError as error:
            return error

    waiting = list(parts)
    return await for_each(waiting, one, len(waiting))


def succeeded(ends: Sequence[Output | InferenceError]) -> list[Output]:
    """The outputs. Raises the first failure if there is none."""
    outputs = [end for end in ends if isinstance(end, Output)]
    if not outputs:
        raise next(end for end in ends if isinstance(end, InferenceError))
    return outputs


def text_of_draft(draft: Output) -> str:
    """The text of a draft; empty for one without text, such as tool calls."""
    text = draft.values.get("text")
    return text if isinstance(text, str) else ""
