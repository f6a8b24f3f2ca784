"""Where the cached beginning of a prompt may end, and the two halves of a request that such an end makes.

Gemini has no marks inside of a prompt. It keeps a beginning as a resource, `cachedContents`: the system instruction
and the tools together, and the first turns. A request names the resource and has the other turns only.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from adapters.types import BYTES_PER_TOKEN
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.prompt_cache import BEFORE, TTLS, Breakpoints

Object = dict[str, Any]

HEAD = ("systemInstruction", "tools", "toolConfig")
"""The fields before the turns. A request that names a cache may have none of them."""
_encode = msgspec.json.Encoder().encode


class CachePlace(NamedTuple):
    """The place of a mark: after so many parts of a turn. The turn is `BEFORE` for the end of the first fields."""

    turn: int
    parts: int
    ttl: int
    """Seconds."""


class CacheableEnd(NamedTuple):
    """A place where a cached beginning may end: after whole turns, and so many parts of the next one."""

    turns: int
    parts: int
    digest: bytes
    """Equal for equal beginnings of one owner."""
    tokens: int
    """An estimate."""


class _Turn(msgspec.Struct, forbid_unknown_fields=True):
    """A turn. One with further fields is not read, because its halves would lack them."""

    parts: list[Raw]
    role: str = "user"


class _Kind(msgspec.Struct):
    functionResponse: Raw = Raw(b"")  # noqa: N815 - the wire's own name


_turns = msgspec.json.Decoder(list[_Turn]).decode
_kind = msgspec.json.Decoder(_Kind).decode


class CacheablePrompt:
    """The prompt of a request of `generateContent`, in pieces."""

    def __init__(self, fields: Object) -> None:
        """`fields` are those of the request, decoded or not. Raises msgspec's errors."""
        self._fields = fields
        contents = fields["contents"]
        self._turns = _turns(contents if isinstance(contents, Raw) else _encode(contents))
        self._head = {name: fields[name] for name in HEAD if name in fields}

    @classmethod
    def of(cls, fields: Object) -> "CacheablePrompt | None":
        """The prompt; None for a form that it does not read, such as one content in the place of a list."""
        try:
            return cls(fields)
        except MALFORMED_JSON:
            return None

    def places(self, points: Breakpoints) -> list[CachePlace]:
        """The places of a pool's own breakpoints."""
        ttl = TTLS[points.ttl]
        places = [CachePlace(BEFORE, 0, ttl)] if self._head and (points.system or points.tools) else []
        users = [number for number, turn in enumerate(self._turns) if turn.role != "model"]
        last = users[-points.turns :] if points.turns else []
        return places + [CachePlace(number, len(self._turns[number].parts), ttl) for number in last]

    def ends(self, owner: bytes, last: CachePlace) -> tuple[list[CacheableEnd], int]:
        """The possible ends up to a mark, the shortest first, and the estimated tokens up to the mark.

        What follows an end begins with a part of the user, because the API takes no other first turn. The results of
        one turn of tools stay together.
        """
        head, turns, ends = _encode(self._head), self._turns, list[CacheableEnd]()
        hashed = blake2b(b"%d:%b%d:%b" % (len(owner), owner, len(head), head), digest_size=16)
        size = len(head) if self._head else 0

        def end(whole: int, parts: int) -> None:
            ends.append(CacheableEnd(whole, parts, hashed.digest(), size // BYTES_PER_TOKEN))

        if turns and turns[0].role != "model":
            end(0, 0)
        for number, turn in enumerate(turns[: last.turn + 1]):
            hashed.update(b"%d:%b" % (len(turn.role), turn.role.encode()))
            is_splittable = len(turn.parts) > 1 and turn.role != "model" and not any(map(_is_result, turn.parts))
            follows_user = number + 1 < len(turns) and turns[number + 1].role != "model"
            for count, part in enumerate(turn.parts, 1):
                if number == last.turn and count > last.parts:
                    break
                raw = memoryview(part)
                hashed.update(b"%d:" % len(raw))
                hashed.update(raw)
                size += len(raw)
                if count == len(turn.parts):
                    if follows_user:
                        end(number + 1, 0)
                elif is_splittable:
                    end(number, count)
        return ends, size // BYTES_PER_TOKEN

    def at(self, place: CachePlace, ends: Iterable[CacheableEnd]) -> CacheableEnd | None:
        """The last of the ends that is not behind a mark."""
        whole, parts = (0, 0) if place.turn == BEFORE else place[:2]
        if place.turn != BEFORE and place.turn < len(self._turns) and parts >= len(self._turns[place.turn].parts):
            whole, parts = place.turn + 1, 0
        return max((each for each in ends if each[:2] <= (whole, parts)), default=None)

    def beginning(self, end: CacheableEnd) -> Object:
        """The fields of the cache up to an end."""
        turns = self._turns[: end.turns]
        if end.parts:
            cut = self._turns[end.turns]
            turns = [*turns, _Turn(cut.parts[: end.parts], cut.role)]
        return {**self._head, **({"contents": turns} if turns else {})}

    def rest(self, end: CacheableEnd, name: str) -> Object:
        """The fields of the request that names the cache of a beginning."""
        cut, *turns = self._turns[end.turns :]
        fields = {name: value for name, value in self._fields.items() if name not in HEAD}
        return {**fields, "cachedContent": name, "contents": [_Turn(cut.parts[end.parts :], cut.role), *turns]}


def _is_result(part: Raw) -> bool:
    try:
        return bool(_kind(part).functionResponse)
    except MALFORMED_JSON:
        return True
