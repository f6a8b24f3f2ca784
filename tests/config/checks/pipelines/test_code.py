"""Mistakes planted in Python files of pipelines and in their sections: each is refused with its line."""

from pathlib import Path

import pytest

from config.code import CODE_POOL, functions_of
from config.extras import extras_of
from config.loader import pack, read, unpack

CODE = """\
from math import sqrt

def run(image, scale=1, **others):
    return {"boxes": image}
"""
YAML = """\
version: 1
pools:
  - {name: triton, protocol: oip-http, endpoints: ["http://10.0.0.6:8000"]}
models:
  - {name: reader, routes: [{to: triton}], signature: {inputs: [{name: boxes, datatype: FP32, shape: [-1, 4]}]}}
  - name: whole
    pipeline:
      inputs: [{name: image, datatype: FP32, shape: [-1, 3]}]
      steps:
        - name: post
          in: {image: request.image}
          call:
            file: post.py
            inputs: [{name: image, datatype: FP32, shape: [-1, 3]}]
            outputs: [{name: boxes, datatype: FP32, shape: [-1, 4]}]
        - {name: read, model: reader, in: {boxes: post.boxes}}
tenants:
  - {name: acme, models: ["*"]}
"""
AT = "models[1].pipeline.steps[0]"


def problems(folder: Path, yaml: str = YAML, code: str | bytes = CODE) -> list[str]:
    path, file = folder / "file.yaml", folder / "post.py"
    path.write_text(yaml)
    file.write_bytes(code if isinstance(code, bytes) else code.encode())
    return [str(problem).removeprefix(f"{path}:").replace(str(folder), "") for problem in read(path).problems]


def test_a_file_is_a_part_of_the_configuration(tmp_path: Path) -> None:
    assert problems(tmp_path) == []
    reading = read(tmp_path / "file.yaml")
    assert reading.config is not None
    assert reading.sources == {tmp_path / "file.yaml", tmp_path / "post.py"}
    assert reading.config.pools[-1].name == CODE_POOL
    assert extras_of(reading.config) == {"tensor"}
    (function,) = functions_of(reading.config)
    assert function.file is not None
    assert function.file.text == CODE
    (tmp_path / "post.py").write_text("raise RuntimeError")
    assert unpack(pack(reading.config)) == reading.config  # the other process has the text that was checked


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def run(image:\n  pass\n", f"13: {AT}.call.file: /post.py, line 1: '(' was never closed"),
        ("def rn(image): ...", f'13: {AT}.call.file: /post.py has no function `run` (did you mean "rn"?)'),
        ("class A:\n  def run(image): ...", f"13: {AT}.call.file: /post.py has no function `run`"),
        (
            "def run(images): ...",
            f"13: {AT}.call.file: /post.py, line 1: `run` has no parameter `image`, which is an input (did you mean "
            '"images"?)',
        ),
        (
            "\ndef run(image, *, scale): ...",
            f"13: {AT}.call.file: /post.py, line 2: `run` needs `scale`, which is not an input",
        ),
        (
            "def run(image, /): ...",
            f"13: {AT}.call.file: /post.py, line 1: `run` has no parameter `image`, which is an input",
        ),
        (
            "async def run(image): ...",
            f"13: {AT}.call.file: /post.py, line 1: `run` is async: it must be a plain function",
        ),
        (b"\xff\xfe", f"13: {AT}.call.file: /post.py is not UTF-8 text"),
        ("a = " + "(" * 300 + ")" * 300, f"13: {AT}.call.file: /post.py, line 1: too many nested parentheses"),
        (b"x = '\0'", f"13: {AT}.call.file: /post.py, line 1: source code string cannot contain null bytes"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, code: str | bytes, problem: str) -> None:
    assert problem in problems(tmp_path, code=code)


@pytest.mark.parametrize(
    "code",
    [
        "def run(image, scale=1, *, other=2): ...",
        "def run(**inputs): ...",
        "from others import run",
        "import numpy.linalg as run",
        "run = print",
        "try:\n  from fast import run\nexcept ImportError:\n  def run(image): ...",
        "if True:\n  run: object = lambda image: image",
        "class run:\n  pass",
        "\N{ZERO WIDTH NO-BREAK SPACE}def run(image): ...",
    ],
)
def test_functions_that_are_there(tmp_path: Path, code: str) -> None:
    assert problems(tmp_path, code=code) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("file: post.py", "file: psot.py", "13: {}.call.file: /psot.py cannot be read: No such file or directory"),
        ("file: post.py", "file: {path: post.py}", "13: {}.call.file: is not the path of a Python file"),
        ("file: post.py", "file:", "13: {}.call.file: is not the path of a Python file"),
        ("file: post.py", "file: post.py\n            model: reader", "12: {}.call: give one of `model` and `file`"),
        ("file: post.py", "processes: 2", "12: {}.call: give one of `model` and `file`"),
        ("file: post.py", "model: reader", "12: {}.call: `inputs` belongs to `file`"),
        ("inputs: [{name: image, datatype: FP32, shape: [-1, 3]}]\n            o",
         "inputs: [{name: image, datatype: FP3, shape: [1]}]\n            o",
         "14: {}.call.inputs[0].datatype: expected BOOL or"),
        ("            outputs:", "            function: other\n            outputs:",
         "15: {}.call.function: /post.py has no function `other`"),
        ("in: {image: request.image}", "in: {img: request.image}",
         '11: {}.in.img: the function `run` has no such input (did you mean "image"?)'),
        ("image: request.image}", "image: request.image, more: request.image}",
         "11: {}.in.more: the function `run` has no such input"),
        ("post.boxes", "post.box",
         '16: models[1].pipeline.steps[1].in.boxes: the step "post" has no output "box" (did you mean "boxes"?)'),
        ("datatype: FP32, shape: [-1, 4]}]\n        -", "datatype: INT8, shape: [-1, 4]}]\n        -",
         "16: models[1].pipeline.steps[1].in.boxes: is INT8, and the input is FP32"),
        ("shape: [-1, 4]}]\n        -", "shape: [-1, 4]}, {name: boxes, datatype: FP32, shape: [1]}]\n        -",
         '15: {}.call.outputs[1].name: "boxes" is given twice'),
    ],
)  # fmt: skip
def test_mistakes_in_a_section(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in YAML
    reported = problems(tmp_path, YAML.replace(old, new))
    assert any(each.startswith(problem.format(AT)) for each in reported), reported


def test_the_model_of_a_file_changes_with_its_section_and_not_with_its_text(tmp_path: Path) -> None:
    names = []
    for yaml, code in (
        (YAML, CODE),
        (YAML, CODE + "\n"),
        (YAML.replace("file: post", "timeout: 5s\n            file: post"), CODE),
    ):
        assert problems(tmp_path, yaml, code) == []
        config = read(tmp_path / "file.yaml").config
        assert config is not None
        names.append(functions_of(config)[0].receiver)
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("_post_")
