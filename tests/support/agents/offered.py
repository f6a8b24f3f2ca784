"""The tools that an agent offers, and calls of them. Each agent has its own names for the same things."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]
READERS = ("read", "read_file", "view_image")
SHELLS = ("bash", "shell", "shell_command", "exec_command", "run_shell_command", "local_shell", "run_commands")
PATHS = ("file_path", "filePath", "filepath", "absolute_path", "path")
COMMANDS = ("command", "cmd", "commands")


@dataclass(frozen=True)
class Offered:
    """The tools of one request, by name in lower case."""

    tools: Mapping[str, Object]

    @classmethod
    def of(cls, body: Object) -> "Offered":
        """Those of a chat's body."""
        functions = [tool["function"] for tool in body.get("tools") or () if tool["type"] == "function"]
        return cls({function["name"].lower(): function for function in functions})

    def read(self, path: Path) -> Object:
        """A call that reads a file, by the shell where there is no tool for it. AssertionError without either."""
        reader = self._first(READERS[:2])
        return self.run(f"cat {path}") if reader is None else self._call(reader, PATHS, str(path))

    def view(self, path: Path) -> Object:
        """A call that looks at a picture."""
        viewer = self._first(reversed(READERS))
        assert viewer is not None, f"no tool for pictures among {list(self.tools)}"
        return self._call(viewer, PATHS, str(path))

    def run(self, command: str) -> Object:
        """A call of the shell, or of the program by which Codex calls its tools."""
        if "exec" in self.tools:
            program = f"text(await tools.exec_command({json.dumps({'cmd': command})}))"
            return self._call(self.tools["exec"], ("input",), program)
        shell = self._first(SHELLS)
        assert shell is not None, f"no shell among {list(self.tools)}"
        return self._call(shell, COMMANDS, command)

    def _first(self, names: Any) -> Object | None:
        return next((self.tools[name] for name in names if name in self.tools), None)

    def _call(self, tool: Object, names: Sequence[str], value: str) -> Object:
        """The function of a call: `value` in the first of these parameters that it has, and all required ones."""
        schema = tool["parameters"]
        name = next((name for name in names if name in schema["properties"]), None)
        assert name is not None, f"{tool['name']} has none of {names}: {schema}"
        is_list = schema["properties"][name].get("type") == "array"
        arguments = {name: [value] if is_list else value}
        for other in schema.get("required", ()):
            arguments.setdefault(other, _some(schema["properties"][other]))
        return {"name": tool["name"], "arguments": json.dumps(arguments)}


def _some(schema: Object) -> Any:
    """A value of a parameter that the task does not care about."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    return {"boolean": False, "integer": 60000, "number": 60000, "array": [], "object": {}}.get(str(kind), "a step")
