"""The next pool, when one cannot answer."""

from collections.abc import Sequence

from adapters.base import Answer, Upstream
from adapters.errors import InferenceError
from adapters.types import Deadline, GenerateRequest


class Fallback:
    """An `Upstream` that tries others in order while they fail with what another may not fail with."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self._upstreams = upstreams

    async def call(self, request: GenerateRequest, deadline: Deadline) -> Answer:
        for upstream in self._upstreams[:-1]:
            try:
                return await upstream.call(request, deadline)
            except InferenceError as error:
                if not error.retryable:
                    raise
        return await self._upstreams[-1].call(request, deadline)
