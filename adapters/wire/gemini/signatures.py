"""The signatures of thoughts, which Gemini writes beside its calls and texts and demands back.

A client carries them through a chat in several forms, by the library that it uses. This gateway writes
`extra_content.google.thought_signature`, as Google's own API in OpenAI's form does. The doors of Messages and Responses
have an opaque block for that field (`kept_signatures`).
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.openai import kept_signatures

SKIPPED = "skip_thought_signature_validator"
"""Google's own value for a call of another model."""
IN_ID = "__thought__"
"""Separates a call's id from its signature, in the ids that some gateways write."""
OF_CLAUDE = "toolu_"
"""Begins the ids of calls whose signatures are another provider's."""

Object = dict[str, Any]
_ABSENT = Raw(b"")

_encode = msgspec.json.Encoder().encode


class _Google(msgspec.Struct):
    thought_signature: str | None = None


class _Extra(msgspec.Struct):
    google: _Google | None = None


class _Block(msgspec.Struct):
    type: str = ""
    signature: str | None = None
    data: str = ""


_extra = msgspec.json.Decoder(_Extra | None).decode
_provider = msgspec.json.Decoder(_Google | None).decode
_block = msgspec.json.Decoder(_Block).decode


def extra_of(signature: str) -> Object:
    """The `extra_content` of a call or of a message."""
    return {"google": {"thought_signature": signature}}


def block_of(signature: str) -> Object | None:
    """The block of thoughts that carries the signature of a text; None for one that is too long."""
    return kept_signatures.block("", Raw(_encode(extra_of(signature))))


def in_extra(raw: Raw) -> str | None:
    """The signature in an `extra_content`."""
    return _in(_extra, raw)


def of_call(id_: str, extra: Raw, *provider: Raw) -> tuple[str, str | None]:
    """The id of a call without a signature in it, and the call's signature."""
    plain, _, in_id = id_.partition(IN_ID)
    given = _in(_extra, extra) if extra else None
    for raw in provider:
        if given is None and raw and (own := _read(_provider, raw)) is not None:
            given = own.thought_signature
    return plain or id_, given or in_id or None


def of_blocks(blocks: Iterable[Raw]) -> tuple[str | None, str | None]:
    """The signature of a text that this gateway carries in blocks of thoughts, and the first that another has."""
    own = others = None
    for raw in blocks:
        block = _read(_block, raw)
        if block is None:
            continue
        for text in (block.data, block.signature or ""):
            if (own_extra := kept_signatures.decode(text)) is not None and not own_extra.call_id:
                own = own or in_extra(own_extra.extra)
        if block.type == "thinking" and block.signature and not kept_signatures.is_own(block.signature):
            others = others or block.signature
    return own, others


def is_googles(ids: Iterable[str]) -> bool:
    """Whether the calls of a turn may be Gemini's, so that its blocks of thoughts have Gemini's signatures."""
    return not any(id_.startswith(OF_CLAUDE) for id_ in ids)


def _in(decoder: Any, raw: Raw) -> str | None:
    extra = _read(decoder, raw)
    return extra.google.thought_signature if extra is not None and extra.google is not None else None


def _read(decoder: Any, raw: Raw | Mapping[str, Any]) -> Any:
    with suppress(*MALFORMED_JSON):
        return decoder(raw)
    return None
