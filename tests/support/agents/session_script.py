"""A script that plays the model in an agent's session, for the stub of any provider: it looks at a picture, reads a
file, copies it, and prints the word of the file."""

import json
import re
from pathlib import Path

from tests.support.agents.model import COPY, FACTS, PICTURE, SECRET
from tests.support.agents.offered import Offered
from tests.support.providers.script import Failure, Received, Reply, Script, ToolCall, Turn

_FOLDER = re.compile(r"Find the secret word in the folder (\S+):")


class SessionScript(Script):
    """Three turns with tools, then the last answer. Requests for titles and the like are not part of the session."""

    turns: int = 0

    def next(self, received: Received) -> Reply | Failure:
        self.received.append(received)
        history = _session(received)
        if history is None:
            return Reply("A short title")
        self.turns += 1
        folder, turns = history
        offered = Offered({tool["name"].lower(): dict(tool) for tool in received.functions})
        step = sum(turn.role == "tool" for turn in turns)
        if step == 3:
            return Reply(_report(turns))
        call = (
            offered.view(folder / PICTURE),
            offered.read(folder / FACTS),
            offered.run(f"cp {folder / FACTS} {folder / COPY}"),
        )[step]
        arguments = json.dumps(json.loads(call["arguments"]), separators=(",", ":"))
        return Reply("I go on.", calls=(ToolCall(f"call_{step}_{len(self.received)}", call["name"], arguments),))


def _session(received: Received) -> tuple[Path, tuple[Turn, ...]] | None:
    for i, turn in enumerate(received.turns):
        match = _FOLDER.search(turn.text) if turn.role == "user" else None
        if match and received.functions:
            return Path(match[1]), received.turns[i:]
    return None


def _report(turns: tuple[Turn, ...]) -> str:
    words = [match[1] for match in (SECRET.search(turn.text) for turn in turns if turn.role == "tool") if match]
    if not any(turn.images for turn in turns):
        return f"No picture has come: {turns}"
    return f"The word is {words[0]}." if words else f"No result has the word: {turns}"
