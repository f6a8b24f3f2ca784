"""The tensor runtime of the Python files of a configuration's pipelines. No section of the YAML is one."""

from config.runtimes.base import RuntimeConfig
from config.schema.pipelines.call import CallConfig


class CodeRuntime(RuntimeConfig):
    """The functions of all ``call: {file: ...}``, served by Headrace's tensor runtime."""

    serves = frozenset({"tensors"})

    kind: str = "code"
    """Kind of server."""
    start_timeout: float = 60.0
    """Longest time until all functions are loaded."""
    functions: tuple[CallConfig, ...]
    """Each with a ``file``."""
