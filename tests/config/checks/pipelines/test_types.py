"""Datatypes and shapes of pipelines of tensors that no check can know."""

from pathlib import Path

from config.loader import read
from tests.config.checks.changes import document

RIGHT: str = document("pipelines/types")["file"]


def test_the_file_is_wholly_checked() -> None:
    assert read(Path("headrace.yaml"), RIGHT).unchecked == ()


def test_undeclared_tensors_are_listed() -> None:
    text = RIGHT.replace("model: rec", "model: other").replace(
        "      inputs: [{name: image, datatype: UINT8, shape: [-1, 224, 224, 3]}]\n      steps", "      steps"
    )
    listed = [str(problem).partition(": ")[2] for problem in read(Path("headrace.yaml"), text).unchecked]
    assert listed == [
        "models[3].pipeline.steps[0].in.image: not checked: the type of request.image is not declared",
        'models[3].pipeline.steps[1].in.box: not checked: the model "other" has no `signature`',
    ]
