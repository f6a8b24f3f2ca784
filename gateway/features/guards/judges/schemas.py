"""The form of an answer, by a JSON Schema of draft 2020-12."""

import asyncio

import msgspec
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from adapters.wire import decoding
from config.schema.guards import SchemaGuardConfig
from gateway.features.guards.judges.base import GuardCalls, Judge

LARGE = 1024
"""Characters of an answer that is validated in a thread: `uniqueItems` compares each entry with each other one."""


class SchemaJudge(Judge):
    """Finds answers that are no JSON, or that the schema does not allow. Nothing is loaded from other addresses."""

    whole = True

    def __init__(self, config: SchemaGuardConfig) -> None:
        super().__init__(config)
        self._validator = Draft202012Validator(config.json_schema, registry=Registry())

    async def finds(self, text: str, calls: GuardCalls) -> bool:
        return await asyncio.to_thread(self._is_other, text) if len(text) > LARGE else self._is_other(text)

    def windows(self, texts: list[str]) -> list[str]:  # type: ignore[override]
        return list(texts)

    def _is_other(self, text: str) -> bool:
        try:
            return not self._validator.is_valid(msgspec.json.decode(text))
        except (*decoding.MALFORMED_JSON, RecursionError, OverflowError, Unresolvable):
            return True
