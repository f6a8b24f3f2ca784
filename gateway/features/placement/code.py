"""The repository of the Python files that pipelines call: a folder for the tensor runtime, with a model for each."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from config.schema.pipelines.call import CallConfig
from config.schema.pipelines.parts import PipelineTensorConfig

WRAPPER = "runtimes.tensor.backends.function:FunctionModel"
SOURCE = "function.py"


def write(folder: Path, functions: Iterable[CallConfig]) -> None:
    """Write the repository: the text of each file as it was loaded, and its configuration."""
    for function in functions:
        version = folder / function.receiver / "1"
        version.mkdir(parents=True)
        assert function.file is not None
        (version / SOURCE).write_text(function.file.text)
        # JSON is YAML
        (version.parent / "model.yaml").write_bytes(msgspec.json.encode(_configuration(function, function.file.path)))


def _configuration(function: CallConfig, path: str) -> dict[str, Any]:
    parameters = {"class": WRAPPER, "function": function.function, "path": path}
    if function.memory is not None:
        parameters["memory_limit"] = str(function.memory)
    return {
        "backend": "python",
        "inputs": [_tensor(each) for each in function.inputs],
        "outputs": [_tensor(each) for each in function.outputs],
        "instances": [{"count": function.processes, "placement": "process"}],
        "execution_timeout": f"{function.timeout}s",
        "parameters": parameters,
    }


def _tensor(tensor: PipelineTensorConfig) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "dims": tensor.shape}
