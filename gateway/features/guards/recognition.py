"""Names and places of one prompt: recognisers find them before the prompt is masked."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from adapters.errors import DeadlineError, GuardFailed, InferenceError, LimitExceeded, TooLarge
from adapters.requests import ModelRequest
from config.schema.guards import NamedGuardConfig
from gateway.features.guards import prompts
from gateway.features.guards.judges.base import GuardCalls
from gateway.features.guards.judges.recognisers import Recogniser, TooManyTexts
from gateway.features.guards.personal import PersonalTexts
from gateway.features.guards.verdicts import SideGuard
from policies.guards.personal import json_texts
from policies.guards.personal.masking import Recognised

Values = Mapping[str, list[Recognised]]
MANY = 2000
"""Names of one prompt that are learnt in a thread."""


class NamedRecogniser(NamedTuple):
    """A recogniser, its guard, and the place of the guard among those of the request."""

    place: int
    guard: NamedGuardConfig
    recogniser: Recogniser
    passes: bool
    """Whether a prompt passes that it cannot examine."""

    @property
    def kinds(self) -> Iterable[str]:
        """The kinds of its placeholders."""
        return self.recogniser.kinds


class Literals:
    """Collects the texts of a prompt, and the literals of those that are JSON, instead of masking them."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}

    def masked(self, text: str, key: str = "") -> str:
        """Note a text. Returns it."""
        return json_texts.changed(text, self._noted, key)

    def _noted(self, text: str, _: str) -> str:
        self.texts[text] = None
        return text


class Recognition:
    """The recognisers of one request. `guard` is that of its prompt."""

    def __init__(
        self,
        recognisers: Sequence[NamedRecogniser],
        guard: SideGuard,
        personal: PersonalTexts | None,
        calls: GuardCalls,
    ) -> None:
        self._recognisers = recognisers
        self._guard = guard
        self._personal = personal
        self._calls = calls

    async def guarded(self, request: ModelRequest) -> ModelRequest:
        """The request that may be sent. Raises `ContentFiltered`, `Unsupported` and `GuardFailed`, and what the limits
        and the deadline of the client raise."""
        guard, literals = self._guard, Literals()
        guard.personal = literals
        request = await prompts.guarded(request, guard)  # what is masked for ever is not sent to a recogniser
        guard.personal = self._personal
        await self._recognise(literals)
        return request if self._personal is None else await prompts.guarded(request, guard.restoring())

    async def _recognise(self, literals: Literals) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._recognised(each, literals)) for each in self._recognisers]
        learnt: dict[str, list[Recognised]] = {}
        for each, task in zip(self._recognisers, tasks, strict=True):
            recognised = task.result()
            if isinstance(recognised, InferenceError):
                self._failed(each, recognised)
                continue
            for text, values in recognised.items():
                if each.guard.acts:
                    learnt.setdefault(text, []).extend(values)
                else:
                    for value in values:
                        self._guard.report(value.guard)
        if self._personal is not None:
            learn, many = self._personal.learn, sum(map(len, learnt.values())) >= MANY
            await asyncio.to_thread(learn, learnt) if many else learn(learnt)

    async def _recognised(self, each: NamedRecogniser, literals: Literals) -> Values | InferenceError:
        try:
            return await each.recogniser.recognised(literals.texts, each.place, self._calls)
        except TooManyTexts:
            return TooLarge("A guard cannot examine the text of the request: it is too long.")
        except InferenceError as error:
            return error

    def _failed(self, each: NamedRecogniser, error: InferenceError) -> None:
        """Raise the error of a recogniser that must examine the prompt. What the client has caused is its own error."""
        self._guard.failed(each.place)
        if not each.guard.acts:
            return
        if isinstance(error, LimitExceeded | DeadlineError | TooLarge):
            raise error
        if not each.passes:
            failure = GuardFailed("A guard could not examine the content.")
            failure.detail = f"{each.guard.name}: {error.message}"
            raise failure
