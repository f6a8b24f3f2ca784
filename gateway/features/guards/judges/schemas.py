"""The form of an answer, by a JSON Schema of draft 2020-12."""

import asyncio
from math import inf

import msgspec
from referencing.exceptions import Unresolvable

from adapters.wire import decoding
from config.schema.guards import SchemaGuardConfig
from gateway.features.guards.judges.base import MOST_WHOLE, GuardCalls, Judge
from gateway.features.guards.judges.bounded_schema import BoundedSchema, TooMuchWorkError

LARGE = 1024
"""Characters of an answer that is validated in a thread."""
QUICK = 1000
"""Keywords that are applied to a smaller answer before it is validated in a thread, too."""

MOST_STEPS = 4_000_000
"""Keywords that are applied to an answer."""


class SchemaJudge(Judge):
    """Finds answers that are no JSON, that the schema does not allow, or whose validation takes too long. Nothing is
    loaded from other addresses."""

    whole = True

    def __init__(self, config: SchemaGuardConfig) -> None:
        super().__init__(config)
        self._schema = BoundedSchema(config.json_schema)

    async def finds(self, text: str, calls: GuardCalls) -> bool:
        if len(text) > MOST_WHOLE:
            return True
        try:
            if len(text) <= LARGE:
                return self._is_other(text, steps=QUICK)
        except TooMuchWorkError:
            pass
        try:
            return await asyncio.to_thread(self._is_other, text, steps=MOST_STEPS, seconds=self.timeout)
        except TooMuchWorkError:
            return True

    def windows(self, texts: list[str]) -> list[str]:  # type: ignore[override]
        return list(texts)

    def _is_other(self, text: str, *, steps: float, seconds: float = inf) -> bool:
        """Raises `TooMuchWorkError`. A thread cannot be stopped, so the validation ends by itself."""
        try:
            return not self._schema.allows(msgspec.json.decode(text), steps=steps, seconds=seconds)
        except (*decoding.MALFORMED_JSON, RecursionError, OverflowError, Unresolvable):
            return True
