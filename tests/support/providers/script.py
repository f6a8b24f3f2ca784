"""What a stub of any provider plays, and what it has received, in words of no provider."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Failure = Literal["no credit", "moderation", "bad key", "rate", "in the stream"]
"""How a stub fails in its provider's own form; `in the stream` after the first text."""


class ToolCall(NamedTuple):
    id: str
    name: str
    arguments: str


class Turn(NamedTuple):
    """A turn of a conversation, as a provider received it."""

    role: str
    text: str = ""
    thoughts: str | None = None
    """None without any; empty where a provider demands the field."""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """Of a result."""
    images: int = 0


class Received(NamedTuple):
    """A request."""

    turns: tuple[Turn, ...]
    tools: tuple[str, ...] = ()
    demand: str = ""
    """Whether the model has to call a tool: `required`, `none`, the name of one, or nothing."""
    schema: Any = None
    thinks: bool | None = None
    length: int | None = None
    stream: bool = False
    functions: tuple[Mapping[str, Any], ...] = ()
    """The tools with their `name` and `parameters`."""


class Counts(NamedTuple):
    """Tokens. `cached` are a part of the prompt, `reasoning` of the completion."""

    prompt: int = 20
    cached: int = 0
    completion: int = 9
    reasoning: int = 0


class Reply(NamedTuple):
    """An answer."""

    text: str = "hello"
    thoughts: str = ""
    calls: tuple[ToolCall, ...] = ()
    counts: Counts = Counts()
    finish: str = ""
    """The provider's own word for the end; empty for the usual one."""


@dataclass(slots=True)
class Script:
    """The answers of a stub in turn, and the requests that it has accepted."""

    replies: deque[Reply | Failure] = field(default_factory=deque)
    received: list[Received] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """The faults of the requests that it has refused."""

    def next(self, received: Received) -> Reply | Failure:
        self.received.append(received)
        return self.replies.popleft() if self.replies else Reply()


@dataclass(frozen=True, slots=True)
class Provider:
    """One row of the table of abilities.

    `pool` makes the fields of a pool for the URL of a stub, as in a configuration; `serve` runs a stub that plays a
    script, and yields its URL; `lacks` are the abilities that the provider has for no model, each with its reason.
    """

    system: str
    pool: Callable[[str], Mapping[str, Any]]
    serve: Callable[[Script], AbstractAsyncContextManager[str]]
    lacks: Mapping[str, str] = field(default_factory=dict)
    model: str = "m"
    has_thoughts: bool = True
    """Whether its answers have thoughts."""
    replays_thoughts: bool = False
    """Whether it wants them back within a loop of tools."""
    filters: bool = False
    """Whether refused content is an answer with `content_filter`, and no error."""
