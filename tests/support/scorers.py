"""A tensor model in several versions, each with other scores."""

from pathlib import Path

MODEL = """\
import numpy as np


class Model:
    def infer(self, inputs):
        x = inputs["x"]
        return {{"scores": {scores}}}
"""
SETTINGS = """\
backend: python
versions: all
inputs: [{name: x, datatype: FP32, dims: [-1]}]
outputs: [{name: scores, datatype: FP32, dims: [-1]}]
"""


def repository(folder: Path, *versions: str) -> Path:
    """A model whose versions compute these scores."""
    for number, scores in enumerate(versions, 1):
        version = folder / "scorer" / str(number)
        version.mkdir(parents=True)
        (version / "model.py").write_text(MODEL.format(scores=scores))
    (folder / "scorer" / "model.yaml").write_text(SETTINGS)
    return folder
