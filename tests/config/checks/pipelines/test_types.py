"""Datatypes and shapes of pipelines of tensors, where the file declares them."""

from pathlib import Path

import pytest

from config.loader import read
from tests.config.conftest import Complaints

RIGHT = """\
version: 1
pools:
  - {name: gpu, protocol: oip-http, endpoints: ["http://10.0.0.5:8000"]}
models:
  - name: det
    routes: [{to: gpu}]
    signature:
      inputs: [{name: image, datatype: UINT8, shape: [-1, 224, 224, 3]}]
      outputs: [{name: boxes, datatype: FP32, shape: [-1, 4]}, {name: count, datatype: INT64, shape: [1]}]
  - name: rec
    routes: [{to: gpu}]
    signature:
      inputs: [{name: box, datatype: FP32, shape: [1, 4]}]
      outputs: [{name: text, datatype: BYTES, shape: [1]}]
  - {name: other, routes: [{to: gpu}]}
  - name: ocr
    pipeline:
      inputs: [{name: image, datatype: UINT8, shape: [-1, 224, 224, 3]}]
      steps:
        - {name: find, model: det, in: {image: request.image}}
        - {name: read, model: rec, in: {box: find.boxes}, each: true}
      out: {text: read.text, boxes: find.boxes}
  - name: both
    pipeline:
      ensemble: {members: [det, {name: again, model: det}], combine: first, need: 2}
tenants:
  - {name: acme, models: ["*"]}
"""


def test_the_file_is_right_and_wholly_checked(complaints: Complaints, tmp_path: Path) -> None:
    assert complaints(RIGHT) == []
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT)
    assert read(path).unchecked == ()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "in: {box: find.boxes}",
            "in: {bx: find.boxes}",
            '21: models[3].pipeline.steps[1].in.bx: the model "rec" has no such input (did you mean "box"?)',
        ),
        (
            "in: {box: find.boxes}",
            "in: {bx: find.boxes}",
            '21: models[3].pipeline.steps[1].in: leaves out box, which the model "rec" needs',
        ),
        (
            "in: {box: find.boxes}",
            "in: {box: find.box}",
            '21: models[3].pipeline.steps[1].in.box: the step "find" has no output "box" (did you mean "boxes"?)',
        ),
        (
            "boxes: find.boxes}",
            "boxes: find.boxs}",
            '22: models[3].pipeline.out.boxes: the step "find" has no output "boxs" (did you mean "boxes"?)',
        ),
        (
            "in: {box: find.boxes}, each: true",
            "in: {box: find.count}",
            "21: models[3].pipeline.steps[1].in.box: is INT64, and the input is FP32",
        ),
        (
            "in: {box: find.boxes}, each: true",
            "in: {box: find.count}",
            "21: models[3].pipeline.steps[1].in.box: has the shape [1], and the input has [1, 4]",
        ),
        (
            "combine: first",
            "combine: mean",
            "25: models[4].pipeline.ensemble.members[0]: a mean needs floating-point outputs, and `count` is INT64",
        ),
        (
            "members: [det, {name: again, model: det}], combine: first, need: 2",
            "members: [det, {name: again, model: det}], combine: first, need: 3",
            "25: models[4].pipeline.ensemble.need: needs 3 answers, and there are 2 members",
        ),
        (
            "  - {name: other, routes: [{to: gpu}]}",
            "  - {name: other, pipeline: {model: det}, signature: {}}",
            "15: models[2]: `signature` belongs to a model with routes: a pipeline has `inputs` and `outputs`",
        ),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert old in RIGHT
    reported = complaints(RIGHT.replace(old, new, 1))
    assert problem in reported, reported


def test_undeclared_tensors_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(
        RIGHT.replace("model: rec", "model: other").replace(
            "      inputs: [{name: image, datatype: UINT8, shape: [-1, 224, 224, 3]}]\n      steps", "      steps"
        )
    )
    listed = [str(problem).partition(": ")[2] for problem in read(path).unchecked]
    assert listed == [
        "models[3].pipeline.steps[0].in.image: not checked: the type of request.image is not declared",
        'models[3].pipeline.steps[1].in.box: not checked: the model "other" has no `signature`',
    ]
