"""The node `call`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field as Bounds
from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.pipelines.parts import LeafConfig, PipelineTensorConfig, Place
from config.schema.section import Section, ShortSection
from config.schema.text import Name, Shape
from config.schema.units import Duration, Size

FunctionName = Annotated[str, Shape(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of a function")]


class CodeFile(Section):
    """A Python file, with the text that it had when the configuration was loaded. In the YAML it is its path."""

    path: str
    """Absolute path."""
    text: str
    """Text that was read."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "minLength": 1, "examples": ["post.py"]}


class CallConfig(ShortSection, LeafConfig):
    """Python code in a process of the bundled tensor runtime. A name alone is short for ``{model: NAME}``."""

    short = "model"
    short_schema: ClassVar[JsonSchemaValue] = {"type": "string", "description": "A model's name."}

    model: Name | None = None
    """Model whose pools all have ``runtime: {kind: tensor}``: a ``model.py`` of its repository."""
    file: CodeFile | None = None
    """Python file with the function, relative to the YAML file's folder, instead of ``model``. The gateway starts a
    process for it, and a new one after each change of the file or of this section."""
    function: FunctionName = "run"
    """With ``file``: the function. Its parameters are the inputs by name, as arrays; it returns the outputs by name."""
    inputs: tuple[PipelineTensorConfig, ...] = ()
    """With ``file``: the inputs."""
    outputs: tuple[PipelineTensorConfig, ...] = ()
    """With ``file``: the outputs."""
    processes: int = Bounds(1, ge=1, le=64)
    """With ``file``: processes that run the function, each for one request at a time."""
    timeout: Duration = 60.0
    """With ``file``: longest time of one run. A process that takes longer is replaced."""
    memory: Size | None = None
    """With ``file``: memory of each process. Unbounded when absent."""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        of_file = "file" in self.model_fields_set  # None if the loader could not read it
        if (self.model is None) != of_file:
            raise ValueError("give one of `model` and `file`")
        if not of_file and (idle := sorted(self.model_fields_set - {"model"})):
            raise ValueError(f"`{idle[0]}` belongs to `file`")
        if of_file and not (self.inputs and self.outputs):
            raise ValueError("`file` needs `inputs` and `outputs`: the names, datatypes and shapes of its tensors")
        return self

    @property
    def receiver(self) -> str:
        """The model that receives the inputs. That of a file begins with `_`, which no model of the YAML does.

        Equal sections have one model.
        """
        if self.file is None:
            assert self.model is not None
            return self.model
        written = self.model_dump_json(exclude={"file": {"text"}}).encode()
        stem = re.sub(r"[^A-Za-z0-9_]", "_", Path(self.file.path).stem)[:40]
        return f"_{stem}_{sha256(written).hexdigest()[:10]}"

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        if self.model is not None:
            yield ("model",), self.model

    def needs_inputs(self) -> bool:
        return True
