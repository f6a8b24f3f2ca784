"""The next pool, when one cannot answer."""

from collections.abc import Mapping, Sequence

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


class ElsewhereFirst:
    """An `Upstream` that waits nowhere while another pool of its plan can answer at once.

    Only when none of them could does it wait, in the first of those that were full; nothing is asked twice.
    """

    def __init__(self, plan: Upstream, branches: Mapping[str, Upstream]) -> None:
        self._plan = plan
        self._branches = branches

    async def call(self, request: GenerateRequest, deadline: Deadline) -> Answer:
        full: list[str] = []
        request.passed_by = full
        try:
            return await self._plan.call(request, deadline)
        except InferenceError as error:
            if not (full and error.retryable):
                raise
        finally:
            request.passed_by = None
        return await self._branches[full[0]].call(request, deadline)
