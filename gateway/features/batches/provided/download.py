"""Downloads the results of a submission, until each line has one or the provider has no more."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from adapters.errors import InferenceError
from adapters.upstreams.deferral import ProvidedResult
from adapters.upstreams.provided.provider import UNREADABLE, ProviderBatches
from policies.batches.states import Submission

if TYPE_CHECKING:
    from gateway.features.batches.provided.submissions import Submissions

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 600.0
MOST_REFUSALS = 5
"""Downloads that the provider refuses, such as those of a file that it does not have."""
PATIENCE = 900.0
"""Seconds after the end or the cancellation of the batch in which downloads that fail are repeated."""


class LineOfResults(NamedTuple):
    """A result of a line. `key` is that of its request."""

    number: int
    key: str
    result: ProvidedResult


class Download:
    """The results of one submission. A download that breaks is repeated, without the results that have passed."""

    def __init__(self, submissions: "Submissions", submission: Submission, provider: ProviderBatches) -> None:
        self._submissions = submissions
        self._submission = submission
        self._provider = provider
        self._numbers = {f"{submission.id}-{number}": number for number in submission.numbers}
        self.missing = set(submission.numbers)
        """The lines of which the provider has said nothing, not even that it did not run them."""
        self.problem = ""
        """The reason why the missing lines have no result and never will; empty if the provider has none."""

    async def results(self) -> AsyncIterator[LineOfResults]:
        """Each result once. Ends when the results are complete, cannot be read, or the process ends."""
        pause, refusals, unit = FIRST_PAUSE, 0, self._submissions.unit
        clock, stopped_at = asyncio.get_running_loop().time, math.inf
        while not unit.closing:
            left, unused = len(self.missing), {"unreadable": 0, "foreign": 0}
            try:
                async for each in self._provider.results(self._submission.batch):
                    prefix, _, key = each.custom_id.rpartition("-")
                    number = self._numbers.get(prefix)
                    if number is None:
                        unused["unreadable" if each is UNREADABLE else "foreign"] += 1
                    elif number in self.missing:
                        self.missing.discard(number)
                        if each.result is not None:
                            yield LineOfResults(number, key, each.result)
            except InferenceError as error:
                self._submissions.report(self._submission, error)
                refusals += error.kind == "caller"
                stopped_at = min(stopped_at, clock()) if unit.stops else math.inf
                if refusals >= MOST_REFUSALS or clock() - stopped_at >= PATIENCE:
                    self.problem = f"The results of the provider cannot be read: {error.message}"
                    return
                pause = FIRST_PAUSE if len(self.missing) < left else min(LONGEST_PAUSE, 2 * pause)
                await self._submissions.park(pause)
            else:
                self._count(unused)
                return

    def _count(self, unused: dict[str, int]) -> None:
        """Count results without a line. Those that cannot be read are taken for those of the missing lines: the
        provider has run them, and charges for them."""
        if unused["unreadable"]:
            self.problem = "The provider's result cannot be read."
        for reason, count in unused.items():
            if count:
                self._submissions.count_unused(self._submission, reason, count)
