"""Translates the messages of a chat into Gemini's contents."""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire.anthropic.chat_turns import NO_TEXT
from adapters.wire.body import field
from adapters.wire.gemini import signatures
from adapters.wire.gemini.cache_points import CachePlace
from adapters.wire.gemini.generations import ModelGeneration
from adapters.wire.gemini.parts import parts_of
from adapters.wire.gemini.plain_turns import plain_turns
from adapters.wire.gemini.sent_messages import ABSENT, MESSAGES, SentCall, SentMessage, args_of
from adapters.wire.gemini.tools import own_name
from adapters.wire.openai.known_fields import LeftOut
from adapters.wire.prompt_cache import BEFORE, ChatMark, ttl_of

Object = dict[str, Any]


class ContentTurns(NamedTuple):
    """The system instruction's parts, and the contents, which begin with the user's."""

    system: list[Object]
    contents: list[Object]
    places: list[CachePlace]
    """The marks of caches."""


class _Calls:
    """The calls of one conversation that wait for results, each with its name and place."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, int]] = {}
        self._others: dict[str, list[tuple[str, int]]] = {}
        """Further calls with the id of one that waits, in order."""
        self._closed: dict[str, tuple[str, int]] = {}

    def add(self, id_: str, name: str, place: int) -> None:
        if id_ in self._open:
            self._others.setdefault(id_, []).append((name, place))
        else:
            self._open[id_] = name, place

    def of_result(self, id_: str) -> tuple[str, int]:
        """The function's name and the place of its call in the turn. Raises `ValueError`."""
        call = self._open.pop(id_, None)
        if call is not None:
            self._closed[id_] = call
            if self._others and (waiting := self._others.get(id_)):
                self._open[id_] = waiting.pop(0)
        elif (call := self._closed.get(id_)) is None:
            raise ValueError("has a `tool_call_id` that no call before it has: Gemini needs the name of the function.")
        return call


def turns_of(
    fields: Fields,
    generation: ModelGeneration,
    ignored: IgnoredFields,
    *,
    has_ids: bool,
    marks: Sequence[ChatMark] = (),
) -> ContentTurns:
    """Translate the messages. `has_ids`: the API accepts the ids of calls. `marks`: those of caches beside the
    messages' own. Raises `CallerError`."""
    messages = field(fields, "messages", MESSAGES.reporting(ignored), required=True) or []
    if not marks:
        unsigned = signatures.SKIPPED if generation.signed else None
        plain = plain_turns(messages, has_ids=has_ids, unsigned=unsigned)
        if plain is not None and (generation.has_system or not plain[0]):
            return ContentTurns(*plain, [])
    return whole_turns(messages, generation, has_ids=has_ids, marks=marks)


def whole_turns(
    messages: Sequence[SentMessage], generation: ModelGeneration, *, has_ids: bool, marks: Sequence[ChatMark] = ()
) -> ContentTurns:
    """Translate messages of any kind. Raises `CallerError`."""
    translation = _Translation(generation, has_ids=has_ids)
    for i, message in enumerate(messages):
        try:
            translation.add(message)
        except ValueError as error:
            raise CallerError(f"`messages[{i}]` {error}", param="messages") from None
        for parts, ttl in _marks_in(message):
            translation.mark(message, parts, ttl)
        for mark in marks:
            if mark.message == i:
                translation.mark(message, mark.parts, mark.ttl)
    return translation.turns()


def _marks_in(message: SentMessage) -> Iterable[tuple[int | None, int]]:
    """The parts before each mark of a message, or None for all of them, and the seconds of the mark."""
    if isinstance(message.content, list):
        for count, part in enumerate(message.content, 1):
            if not isinstance(part, LeftOut) and (ttl := ttl_of(part.cache_control)) is not None:
                yield count, ttl
    if (ttl := ttl_of(message.cache_control)) is not None:
        yield None, ttl


class _Translation:
    def __init__(self, generation: ModelGeneration, *, has_ids: bool) -> None:
        self._generation = generation
        self._has_ids = has_ids
        self._unsigned = signatures.SKIPPED if generation.signed else None
        """The signature of a call without one."""
        self._system = list[Object]()
        self._contents = list[Object]()
        self._role = ""
        """The role of the last turn; empty if nothing may be added to it."""
        self._results: list[tuple[int, Object]] | None = None
        """The results of the open turn of tools, each with the place of its call."""
        self._files = list[Object]()
        """Pictures of tools, which follow their results."""
        self._calls = _Calls()
        self._names: dict[str, str] = {}
        """Gemini's names of functions."""
        self._places = list[CachePlace]()

    def add(self, message: SentMessage) -> None:
        """Append a message's turn, or extend the one before. Raises `ValueError`.

        Results of tools are alone in their turn: the models read a mixture as another role's."""
        role, content = message.role, message.content
        if role == "tool":
            self._add_result(message)
            return
        if self._results is not None:
            self._close_results(self._results)
        if role == "assistant":
            turn, parts = "model", self._answer(message)
        elif content is None:
            raise ValueError("has no `content`.")
        else:
            turn = "user"
            parts = [{"text": content}] if content and isinstance(content, str) else parts_of(content)
            if role in ("system", "developer") and not self._contents:
                if any("text" not in part for part in parts):
                    raise ValueError("has a picture or a file, and a system instruction is text only.")
                self._system += parts
                return
        if turn == self._role:
            self._contents[-1]["parts"] += parts
        elif parts:
            self._contents.append({"role": turn, "parts": parts})
            self._role = turn

    def mark(self, message: SentMessage, parts: int | None, ttl: int) -> None:
        """Note the mark of a cache in the message that was added last: after so many of its parts."""
        if self._results is not None:
            turn, end = len(self._contents), len(self._results)
        elif self._contents:
            turn, end = len(self._contents) - 1, len(self._contents[-1]["parts"])
        else:
            turn, end = BEFORE, 0
        if parts is not None and message.role == "user" and isinstance(message.content, list):
            end -= len(parts_of(message.content[parts:]))
        self._places.append(CachePlace(turn, end, ttl))

    def turns(self) -> ContentTurns:
        if self._results is not None:
            self._close_results(self._results)
        system, contents = self._system, self._contents
        if system and not self._generation.has_system:
            contents = [{"role": "user", "parts": system}, *contents]
            if len(contents) > 1 and contents[1]["role"] == "user":
                contents[:2] = [{"role": "user", "parts": [*system, *contents[1]["parts"]]}]
            system = []
        if not contents and system:
            contents, system = [{"role": "user", "parts": system}], []
        if not contents or contents[0]["role"] == "model":
            contents = [{"role": "user", "parts": [{"text": NO_TEXT}]}, *contents]
        places = self._places
        if places and (added := len(contents) - len(self._contents)):
            places = [each._replace(turn=each.turn + added) if each.turn != BEFORE else each for each in places]
        return ContentTurns(system, contents, places)

    # ── the model's turns ─────────────────────────────────────────────────────────────────────────────

    def _answer(self, message: SentMessage) -> list[Object]:
        content = message.content if message.content is not None else message.refusal
        if not content:
            parts = list[Object]()
        else:
            parts = [{"text": content}] if isinstance(content, str) else parts_of(content)
        own = others = None
        if message.thinking_blocks:
            own, others = signatures.of_blocks(message.thinking_blocks)
        if message.extra_content:
            own = signatures.in_extra(message.extra_content) or own
        if own is not None:
            if parts and "text" in parts[-1]:
                parts[-1]["thoughtSignature"] = own
            else:
                parts.append({"text": "", "thoughtSignature": own})
        if calls := message.tool_calls:
            if others is not None and not signatures.is_googles(call.id for call in calls):
                others = None
            for place, call in enumerate(calls):
                parts.append(self._call(call, place, others))
        return parts

    def _call(self, call: SentCall, place: int, in_blocks: str | None) -> Object:
        """A call. Only the first of a step has a signature, unless the server has signed others too."""
        id_, signature = call.own()
        given = call.function
        if (name := self._names.get(given.name)) is None:
            name = self._names[given.name] = own_name(given.name)
        self._calls.add(call.id, name, place)
        args = args_of(given.arguments)
        function = {"name": name, "args": args, "id": id_} if self._has_ids else {"name": name, "args": args}
        if place == 0 and signature is None:
            signature = in_blocks or self._unsigned
        return {"functionCall": function, "thoughtSignature": signature} if signature else {"functionCall": function}

    # ── results of tools ──────────────────────────────────────────────────────────────────────────────

    def _add_result(self, message: SentMessage) -> None:
        if message.tool_call_id is None:
            raise ValueError("has no `tool_call_id`.")
        name, place = self._calls.of_result(message.tool_call_id)
        function: Object = {"name": name}
        if isinstance(message.content, str):
            function["response"] = {"output": message.content}
        else:
            parts = parts_of(message.content)
            function["response"] = {"output": "\n".join([part["text"] for part in parts if "text" in part])}
            files = [part for part in parts if "text" not in part]
            if files and self._generation.files_in_results:
                function["parts"] = files
            else:
                self._files += files
        if self._has_ids:
            id_ = message.tool_call_id
            function["id"] = signatures.of_call(id_, ABSENT)[0] if signatures.IN_ID in id_ else id_
        if self._results is None:
            self._results = []
        self._results.append((place, {"functionResponse": function}))

    def _close_results(self, results: list[tuple[int, Object]]) -> None:
        """End the turn of tools: its results in the order of their calls, because Vertex AI joins them by place."""
        if len(results) == 1:
            parts = [results[0][1]]
        else:
            results.sort(key=_place)
            parts = [part for _, part in results]
        self._contents.append({"role": "user", "parts": parts})
        self._results, self._role = None, ""
        if self._files:
            self._contents.append({"role": "user", "parts": self._files})
            self._files, self._role = [], "user"


_place = itemgetter(0)
