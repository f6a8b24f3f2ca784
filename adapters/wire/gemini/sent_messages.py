"""The messages of a chat, as the translation into Gemini's contents decodes them."""

from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.wire.anthropic.blocks import INVALID
from adapters.wire.anthropic.chat_turns import arguments
from adapters.wire.gemini import signatures
from adapters.wire.gemini.parts import MessageContent
from adapters.wire.openai.known_fields import DefinedFields

ABSENT = Raw(b"")


class SentFunction(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str
    provider_specific_fields: Raw = ABSENT


class SentCall(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    function: SentFunction
    type: Literal["function"] = "function"
    extra_content: Raw = ABSENT
    provider_specific_fields: Raw = ABSENT

    def own(self) -> tuple[str, str | None]:
        """Its id and its signature."""
        extra, provider, of_function = (
            self.extra_content,
            self.provider_specific_fields,
            self.function.provider_specific_fields,
        )
        if extra is provider is of_function is ABSENT and signatures.IN_ID not in self.id:
            return self.id, None  # most calls
        return signatures.of_call(self.id, extra, provider, of_function)


class SentMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A chat message. `name` and reasoning have no equivalent; the last field must be null."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: MessageContent = None
    tool_call_id: str | None = None
    tool_calls: list[SentCall] | None = None
    thinking_blocks: list[Raw] | None = None
    extra_content: Raw = ABSENT
    cache_control: Any = None
    refusal: str | None = None
    name: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None
    annotations: Any = None
    images: Any = None
    native_finish_reason: Any = None
    function_call: None = None


MESSAGES = DefinedFields[list[SentMessage]](list[SentMessage])


def args_of(text: str) -> Any:
    """The arguments as they are; malformed ones as an object that holds the text."""
    decoded = arguments(text)
    return Raw(text.encode()) if text and INVALID not in decoded else decoded
