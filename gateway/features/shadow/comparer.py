"""Comparisons of answers: small ones at once, large ones in a worker process of their own."""

from typing import Any

from adapters import offload
from adapters.offload.jobs import CodecCall, CodecJob
from adapters.offload.worker_queue import WorkerQueue
from adapters.requests import ModelRequest
from config.schema.config import CompareConfig
from gateway.features.recording.contents import source_of
from gateway.features.shadow.answers import Comparison, WholeAnswer, compared
from gateway.features.shadow.samples import SampledTexts, sampled_texts

INLINE = 8 * 1024
"""Bytes of two answers that are compared at once."""
INLINE_EDITS = 2048
"""The same if the edits between two texts are counted, which takes a time in proportion to the square."""
MEMORY = 512 * 1024 * 1024
"""Bytes of the worker process."""


class AnswerComparer:
    """Compares two answers. The worker process serves nothing else, so that clients' bodies do not wait for it."""

    def __init__(self) -> None:
        self._queue = WorkerQueue(MEMORY)

    async def compare(self, config: CompareConfig, first: WholeAnswer, second: WholeAnswer) -> Comparison:
        """Compare two answers. Raises `InferenceError` if too many comparisons wait, or one
        takes too much memory."""
        if first.data == second.data and first.status == second.status and first.content_type == second.content_type:
            return Comparison({})
        size = len(first.data) + len(second.data)
        edits = any(test.edit is not None for test in config.text)
        if size < (INLINE_EDITS if edits else INLINE) and not first.form.encoding:
            return compared(first, second, config)
        comparison: Comparison = await self._run(CodecCall(compared, (first, second, config), {}))
        return comparison

    async def sample(
        self, request: ModelRequest, first: WholeAnswer, second: WholeAnswer, redact: tuple[str, ...]
    ) -> SampledTexts:
        """The redacted texts of a request and its answers. Raises `InferenceError` as `compare` does."""
        texts: SampledTexts = await self._run(CodecCall(sampled_texts, (source_of(request), first, second, redact), {}))
        return texts

    async def _run(self, call: CodecCall) -> Any:
        return await self._queue.run(CodecJob(call, offload.TENANT.get()))
