"""The node `agree`: the answer on which most of several drafts agree."""

from __future__ import annotations

from config.schema.pipelines.agree import AgreeConfig
from gateway.pipelines.leaves.drafts import Drafts, text_of_draft
from gateway.pipelines.scope import Bound, Estimate, Output, StepScope
from policies.pipelines.agreement import agreement


class AgreeNode:
    """Writes all drafts at once. A draft that fails agrees with none."""

    def __init__(self, config: AgreeConfig) -> None:
        if config.by == "edit":
            import rapidfuzz.distance  # noqa: F401 - an extra, which is required when the configuration is loaded

        self._drafts = Drafts(config)
        self._by = config.by
        self._count = len(config.of) * config.n

    async def run(self, scope: StepScope) -> Output:
        drafts = await self._drafts.written(scope)
        consensus = agreement([text_of_draft(draft) for draft in drafts], self._by)
        chosen, share = drafts[consensus.representative], consensus.share * len(drafts) / self._count
        return Output({**chosen.values, "agreement": share}, chosen.answer)

    def bound(self, estimate: Estimate) -> Bound:
        return self._drafts.bound(estimate)
