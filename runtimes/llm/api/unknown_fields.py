"""Fields that this runtime does not have: left out and listed, or refused where the answer would be another one.

A client that is newer than this runtime adds fields at every level, and its requests must not fail. So an unknown field
is ignored, with two exceptions: those that are known to change the answer, and the names of fields in another case.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import CHANGED, IgnoredFields, is_misspelled, requests_nothing

_PROMPT = "the prompt would be another one without it"
_CONTINUES = "an answer is continued by `continue_final_message`"
_ADAPTER = "an adapter is chosen by the name of the model"
_SAMPLING = "the answer would have other tokens without it"
_ADAPTERS = (
    "adapter", "adapter_id", "adapter_source", "adapters", "lora", "lora_adapter", "lora_path", "lora_request",
)  # fmt: skip
GENERATING: Mapping[str, str] = {
    **dict.fromkeys((
        "add_special_tokens", "audio_data", "chat_template", "context", "documents", "image", "image_data", "image_url",
        "images", "input", "input_embeds", "input_extra", "input_ids", "input_prefix", "input_suffix", "instructions",
        "messages", "prompt", "prompt_embeds", "query", "safe_prompt", "system", "system_prompt", "template",
        "tool_responses", "tools", "truncate_prompt_tokens", "video_data", "videos",
    ), _PROMPT),
    "format": "the answer would have another form without it",
    **dict.fromkeys(("partial", "prefix"), _CONTINUES),
    **dict.fromkeys(_ADAPTERS, _ADAPTER),
    **dict.fromkeys((
        "allowed_token_ids", "custom_logit_processor", "extra_body", "logits_processors", "response_schema",
        "sampling_params", "stop_regex", "structural_tag",
    ), _SAMPLING),
}  # fmt: skip
"""Fields that change a generated answer, and the reason of their refusal. Those of `CHANGED` are refused too."""
EMBEDDING: Mapping[str, str] = {
    **dict.fromkeys((
        "add_special_tokens", "dimension", "embed_dtype", "embedding_types", "image", "images", "input_type",
        "instruction", "late_chunking", "messages", "normalize", "output_dimension", "output_dtype", "pooling",
        "prompt", "prompt_name", "prompt_template", "prompt_type", "task", "task_type",
    ), "the vectors would be other ones without it"),
    **dict.fromkeys(_ADAPTERS, _ADAPTER),
}  # fmt: skip
RANKING: Mapping[str, str] = {
    **dict.fromkeys((
        "activation", "chat_template", "image", "images", "messages", "normalize", "softmax", "use_activation",
    ), "the scores would be other ones without it"),
    **dict.fromkeys(_ADAPTERS, _ADAPTER),
}  # fmt: skip
SWITCHES: Mapping[str, frozenset[bytes]] = {
    **dict.fromkeys(("activation", "normalize", "softmax", "use_activation"), frozenset[bytes]()),
    "add_special_tokens": frozenset((b"true",)),
}
"""Fields of which false is a change, and the values that are none."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class UnknownFields:
    """The unknown fields of one request, of which those in `refused` change the answer."""

    refused: Mapping[str, str]
    hints: IgnoredFields

    def ignore(self, name: str) -> None:
        """Leave a field out. Raises `CallerError` for one that changes the answer, and on a strict route."""
        if (reason := self.refused.get(name)) is not None:
            raise _unsupported(name, reason)
        self.hints.ignore(name)

    def ignore_given(self, fields: Mapping[str, Any]) -> None:
        """Leave out those of a body. One whose value requests nothing is not listed. Raises `CallerError`."""
        for name, value in fields.items():
            if is_misspelled(name):
                message = f"`{name}` is not a field. Write `{name.casefold()}`."
                raise CallerError(message, param=name, code="unknown_parameter")
            raw = value if isinstance(value, Raw) else Raw(_encode(value))
            if _changes_nothing(name, raw) if name in SWITCHES else requests_nothing(name, raw):
                continue
            if name in CHANGED and name not in self.refused:
                raise _unsupported(name, CHANGED[name][0])
            self.ignore(name)


def _changes_nothing(name: str, raw: Raw) -> bool:
    return bytes(raw) == b"null" or bytes(raw) in SWITCHES[name]


def _unsupported(name: str, reason: str) -> CallerError:
    return CallerError(f"`{name}` is not possible with this model: {reason}.", param=name, code="unsupported_parameter")
