"""The node `agree`: the answer on which most of several drafts agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from adapters import offload
from config.schema.pipelines.pipeline import AgreeConfig
from gateway.features.pipelines.drafts.drafts import Drafts, text_of_draft
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope
from policies.pipelines.agreement import agreement, compared_parts

LONG: Final = 2048
"""Characters of all drafts from which a worker process compares them: some alphabets take 2 µs each to normalise."""


class AgreeNode:
    """Writes all drafts at once. A draft that fails agrees with none."""

    def __init__(self, config: AgreeConfig, nodes: Sequence[PipelineNode]) -> None:
        self._drafts = Drafts(config, nodes)
        self._by = config.by

    async def run(self, scope: StepScope) -> Output:
        drafts = await self._drafts.written(scope)
        texts = compared_parts([text_of_draft(draft) for draft in drafts], self._by)
        is_long = sum(map(len, texts)) >= LONG
        consensus = await offload.run(offload.LARGE if is_long else 0, agreement, texts, self._by)
        chosen, share = drafts[consensus.representative], consensus.share * len(drafts) / self._drafts.count
        return Output({**chosen.values, "agreement": share}, chosen.answer)

    def bound(self, estimate: Estimate) -> Bound:
        return self._drafts.bound(estimate)
