"""The file of background rows: its forms, and what is wrong with it."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.explanations import background
from runtimes.tensor.interfaces import ModelLoadError

ROWS = np.array([[1.5, 2, 3], [4, 5, 6]])
ONE = ModelConfig("m", inputs=(TensorSpec("x", "FP32", (3,)),))
NAMED = ModelConfig(
    "m",
    inputs=(
        TensorSpec("age", "FP64", (1,)),
        TensorSpec("size", "INT64", (1,)),
        TensorSpec("town", "BYTES", (1,)),
        TensorSpec("hint", "FP32", (1,), optional=True),
    ),
)


def a_file(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, np.asarray(content))
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("b.npy", ROWS),
        ("b.npz", {"x": ROWS}),
        ("b.csv", "1.5,2,3\n4,5,6\n"),
        ("b.csv", "length,width,height\n1.5,2,3\n\n4,5,6\n"),
    ],
)
def test_each_form_has_the_rows(tmp_path: Path, name: str, content: object) -> None:
    rows = background.read(a_file(tmp_path, name, content), ONE)
    assert rows["x"].dtype == np.float32
    np.testing.assert_array_equal(rows["x"], ROWS)


def test_columns_with_the_names_of_the_inputs_are_in_any_order(tmp_path: Path) -> None:
    rows = background.read(a_file(tmp_path, "b.csv", "town,age,size\nBern,1.5,7\nOslo,2.5,8\n"), NAMED)
    assert {name: array.ravel().tolist() for name, array in rows.items()} == {
        "age": [1.5, 2.5], "size": [7, 8], "town": [b"Bern", b"Oslo"],
    }  # fmt: skip


@pytest.mark.parametrize("texts", [[b"red", b"r\xc3\xb6t"], ["red", "röt"]])
def test_categories_are_the_same_as_bytes_and_as_texts(tmp_path: Path, texts: list[bytes] | list[str]) -> None:
    config = ModelConfig("m", inputs=(TensorSpec("colour", "BYTES", (1,)),))
    rows = background.read(a_file(tmp_path, "b.npz", {"colour": np.array(texts)[:, None]}), config)
    assert rows["colour"].ravel().tolist() == [b"red", "röt".encode()]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.npy", ROWS[:, :2], "b.npy has 2 columns, and the model has 3 features"),
        ("b.npy", ROWS[0], r"has the shape \[3\] columns"),
        ("b.npz", {"x": ROWS[:, :2]}, r"has rows of \[2\] for the input `x`, which takes \[3\]"),
        ("b.npz", {"y": ROWS}, "b.npz cannot be read"),
        ("b.csv", "1,2\n3\n", "lines of different lengths"),
        ("b.csv", "", "is empty"),
        ("b.csv", "1,2,3\n1,2,three\n", "cannot be read"),
        ("b.csv", "a,b,c\n", "must have 1 to 1000 rows, and has 0"),
        ("b.npy", np.zeros((1001, 3)), "must have 1 to 1000 rows, and has 1001"),
        ("b.txt", "1,2,3\n", "is no file of .npy, .npz or .csv"),
        ("b.npy", "not an array", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, name: str, content: object, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        background.read(a_file(tmp_path, name, content), ONE)


TEXTS = ModelConfig("m", inputs=(TensorSpec("colour", "BYTES", (1,)), TensorSpec("town", "BYTES", (1,))))
WORDS = ModelConfig("m", inputs=(TensorSpec("words", "BYTES", (2,)),))
SINGLE = ModelConfig("m", inputs=(TensorSpec("x", "FP64", (1,)),))


@pytest.mark.parametrize(
    ("config", "content", "message"),
    [
        (TEXTS, "red,Bern\nblue,Oslo\n", "all columns are texts: let it be `colour,town`"),
        (TEXTS, "Colour,Town\nblue,Oslo\n", "all columns are texts: let it be `colour,town`"),
        (WORDS, "red,Bern\nblue,Oslo\n", "all columns are texts: write a .npz instead"),
        (ONE, "0,1,2\n1.5,2,3\n", "counts from 0: give the columns names, or write the row's numbers as 0.0"),
        (SINGLE, "0\n1.5\n", "counts from 0"),
        (NAMED, "0,1,2\n1.5,2,Bern\n", "counts from 0"),
    ],
)
def test_a_first_line_in_doubt_is_refused(tmp_path: Path, config: ModelConfig, content: str, message: str) -> None:
    with pytest.raises(ModelLoadError, match=f"the first line of the background b.csv may be .*{message}"):
        background.read(a_file(tmp_path, "b.csv", content), config)


@pytest.mark.parametrize(
    ("config", "content", "rows"),
    [
        (TEXTS, "town,colour\nOslo,blue\n", {"colour": [b"blue"], "town": [b"Oslo"]}),
        (SINGLE, "0.0\n1.5\n", {"x": [0, 1.5]}),
        (SINGLE, "nan\n1.5\n", {"x": [np.nan, 1.5]}),
        (SINGLE, "length\n0\n", {"x": [0]}),
        (NAMED, "1.5,2,Bern\n", {"age": [1.5], "size": [2], "town": [b"Bern"]}),
        (NAMED, "years,metres,2020\n1.5,2,Bern\n", {"age": [1.5], "size": [2], "town": [b"Bern"]}),
    ],
)
def test_a_first_line_beyond_doubt_is_names_or_a_row(
    tmp_path: Path, config: ModelConfig, content: str, rows: dict[str, list[object]]
) -> None:
    read = background.read(a_file(tmp_path, "b.csv", content), config)
    for name, expected in rows.items():
        np.testing.assert_array_equal(read[name].ravel(), np.array(expected, read[name].dtype))


def test_a_first_row_without_a_number_is_not_lost_as_names(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="cannot be read"):
        background.read(a_file(tmp_path, "b.csv", "NA,NA,NA\n1.5,2,3\n"), ONE)


def test_an_input_without_a_fixed_length_has_no_background(tmp_path: Path) -> None:
    config = ModelConfig("m", inputs=(TensorSpec("x", "FP32", (-1,)),))
    with pytest.raises(ModelLoadError, match="`x` has dimensions of any length"):
        background.read(a_file(tmp_path, "b.npy", ROWS), config)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(-9, 9), st.text("abc, é\"'\n", min_size=1)), min_size=1))
def test_a_table_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, int, str]]
) -> None:
    path = tmp_path_factory.mktemp("table") / "b.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("age", "size", "town"), *rows])
    read = background.read(path, NAMED)
    columns = zip(*[read[name].ravel().tolist() for name in ("age", "size", "town")], strict=True)
    assert [(age, size, town.decode()) for age, size, town in columns] == rows
