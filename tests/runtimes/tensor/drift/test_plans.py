"""References of every kind are read, bound to tensors, or refused with their line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.tensors import DATATYPES
from runtimes.tensor.configuration.model_config import Drift, ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES, bf16_to_fp32, fp32_to_bf16, rounded
from runtimes.tensor.drift.plans import MAX_FEATURES, TensorPlan, read_plans
from runtimes.tensor.drift.sketches import Labels, Numbers
from runtimes.tensor.interfaces import ModelLoadError

AGE = TensorSpec("age", "FP32", (1,))
CITY = TensorSpec("city", "BYTES", (1,))
CLASS = TensorSpec("class", "INT64", (1,))
TABLE = ModelConfig("m", "onnx", (AGE, CITY), (CLASS,), max_batch_size=8)
MATRIX = ModelConfig("m", "onnx", (TensorSpec("x", "FP32", (3,)),), (CLASS,), max_batch_size=8)
CSV = "city,age,class\nRome,31.5,1\nOslo,,0\nRome,44,1.0\n"


def plans(folder: Path, name: str, content: str, config: ModelConfig = TABLE, **drift: Any) -> list[TensorPlan]:
    (folder / name).write_text(content)
    return read_plans(config, Drift(name, **drift), [folder / "1", folder])


def check_table(made: list[TensorPlan]) -> None:
    age, city, kind = [plan.features[0].sketch for plan in made]
    assert [plan.name for plan in made] == ["age", "city", "class"]
    assert isinstance(age, Numbers)
    assert (age.reference.sum(), age.reference[-1]) == (3, 1)
    assert isinstance(city, Labels)
    assert dict(zip(city.names, city.reference.tolist(), strict=False)) == {b"Rome": 2, b"Oslo": 1}
    assert isinstance(kind, Labels)
    assert list(kind.names) == [b"1", b"0"]


def test_a_table_as_csv(tmp_path: Path) -> None:
    check_table(plans(tmp_path, "t.csv", CSV))


def test_a_table_as_parquet(tmp_path: Path) -> None:
    columns = {"city": ["Rome", "Oslo", "Rome"], "age": [31.5, None, 44], "class": [1, 0, 1]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    check_table(read_plans(TABLE, Drift("t.parquet"), [tmp_path]))


def test_a_table_as_arrays(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"city": ["Rome", "Oslo", "Rome"], "age": [31.5, np.nan, 44], "class": [1, 0, 1]}
    np.savez(tmp_path / "t.npz", **arrays)
    check_table(read_plans(TABLE, Drift("t.npz"), [tmp_path]))


def test_a_table_as_histograms(tmp_path: Path) -> None:
    features = {"age": {"edges": [18, 60], "counts": [0, 5, 1]}, "city": {"counts": {"Rome": 0.7, "Oslo": 0.3}}}
    made = plans(tmp_path, "t.json", json.dumps({"features": features}))
    age, city = [plan.features[0].sketch for plan in made]
    assert age.count(np.array([17.0, 18.0, 30.0, 99.0, np.nan])).tolist() == [2, 1, 1, 1]
    assert city.psi(np.array([70, 30, 0])) == pytest.approx(0)


def test_the_reference_of_a_version_is_before_that_beside_the_versions(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "t.csv").write_text("age\n1\n")
    (plan,) = plans(tmp_path, "t.csv", CSV)
    assert plan.features[0].sketch.bins == 4


@pytest.mark.parametrize("header", ["a,b,c,class", "x[0],x[1],x[2],class"])
def test_columns_are_the_elements_of_the_only_input(tmp_path: Path, header: str) -> None:
    made = plans(tmp_path, "t.csv", f"{header}\n1,2,3,0\n4,5,6,1\n", MATRIX)
    assert [(plan.name, plan.width) for plan in made] == [("x", 3), ("class", 1)]
    assert [(feature.name, feature.place) for feature in made[0].features] == [
        (name, place) for place, name in enumerate(header.split(",")[:3])
    ]


def test_chosen_columns_have_the_places_that_they_have_among_all(tmp_path: Path) -> None:
    made = plans(tmp_path, "t.csv", "a,b,c\n1,2,3\n", MATRIX, features=("c",))
    assert [(plan.width, [(one.name, one.place) for one in plan.features]) for plan in made] == [(3, [("c", 2)])]


def test_the_names_and_the_number_of_features_are_bounded(tmp_path: Path) -> None:
    config = ModelConfig("m", "onnx", (TensorSpec("x", "FP32", (500,)),), max_batch_size=8)
    names = [f"{'x' * 200}{i}" for i in range(500)]
    (plan,) = plans(tmp_path, "t.csv", f"{','.join(names)}\n{','.join(['1'] * 500)}\n", config)
    assert len({feature.name for feature in plan.features}) == MAX_FEATURES
    assert all(len(feature.name) <= 64 for feature in plan.features)


def test_an_output_of_many_whole_numbers_is_a_number(tmp_path: Path) -> None:
    rows = "\n".join(str(i) for i in range(200))
    (plan,) = plans(tmp_path, "t.csv", f"class\n{rows}\n", TABLE)
    assert isinstance(plan.features[0].sketch, Numbers)


def as_requests(values: list[float], datatype: str) -> Any:
    """The numbers of requests that have these values, as a server reads them."""
    with np.errstate(over="ignore"):
        if datatype == "BF16":
            return bf16_to_fp32(fp32_to_bf16(np.array(values, np.float32))).astype(np.float64)
        return np.array(values, DTYPES[datatype]).astype(np.float64)


def numbers_in_datatypes() -> st.SearchStrategy[tuple[str, list[float]]]:
    def values(datatype: str) -> st.SearchStrategy[Any]:
        if datatype == "BOOL":
            return st.booleans().map(float)
        if "INT" in datatype:
            bounds = np.iinfo(DTYPES[datatype])
            return st.integers(int(bounds.min), int(bounds.max))
        tenths = st.integers(-50, 50).map(lambda whole: whole / 10)
        return tenths | st.floats(allow_nan=True, allow_infinity=False)

    datatypes = st.sampled_from([datatype for datatype in DATATYPES if datatype != "BYTES"])
    return datatypes.flatmap(
        lambda datatype: st.tuples(st.just(datatype), st.lists(values(datatype), min_size=1, max_size=60))
    )


@given(given=numbers_in_datatypes(), side=st.sampled_from(["input", "output"]), bins=st.integers(2, 20))
@example(("FP32", [0.1, 0.2, 0.3, 0.4] * 1250), "input", 10)
@example(("FP16", [0.1, 0.2, 0.3, 0.4] * 1250), "output", 10)
@example(("BF16", [0.1, 0.2, 0.3, 0.4] * 1250), "input", 10)
def test_the_reference_itself_as_requests_has_not_drifted(
    tmp_path_factory: pytest.TempPathFactory, given: tuple[str, list[float]], side: str, bins: int
) -> None:
    datatype, values = given
    folder = tmp_path_factory.mktemp("reference")
    spec = TensorSpec("x", datatype, (1,))
    specs = ((spec,), (CLASS,)) if side == "input" else ((AGE,), (spec,))
    text = "\n".join(["x", *map(repr, values)])
    (plan,) = plans(folder, "t.csv", f"{text}\n", ModelConfig("m", "onnx", *specs), bins=bins)
    sketch = plan.features[0].sketch
    if isinstance(sketch, Numbers):
        counts = sketch.count(as_requests(values, datatype))
    else:
        assert isinstance(sketch, Labels)
        counts = sketch.count(np.array(values, DTYPES[datatype]))
    assert counts.tolist() == sketch.reference.tolist()
    assert sketch.psi(counts) == pytest.approx(0, abs=1e-9)
    assert (sketch.ks(counts) or 0) == pytest.approx(0, abs=1e-9)


@given(
    datatype=st.sampled_from(["FP16", "BF16", "FP32", "FP64"]),
    edges=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30, unique=True).map(sorted),
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60),
)
@example("FP32", [0.1, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4] * 10)
@example("FP16", [1.0, 1.0001, 2.0], [1.0, 1.0001, 1.5])
def test_a_value_at_an_edge_of_a_histogram_stays_below_it(
    tmp_path_factory: pytest.TempPathFactory, datatype: str, edges: list[float], values: list[float]
) -> None:
    counts = np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)
    content = json.dumps({"features": {"x": {"edges": edges, "counts": counts.tolist()}}})
    config = ModelConfig("m", "onnx", (TensorSpec("x", datatype, (1,)),), (CLASS,))
    (plan,) = plans(tmp_path_factory.mktemp("reference"), "t.json", content, config)
    sketch = plan.features[0].sketch
    assert isinstance(sketch, Numbers)
    assert np.all(np.diff(sketch.edges) > 0)
    assert sketch.reference.sum() == len(values)
    # A value above an edge may be equal to it once both are rounded; one at an edge or below never rises above it.
    most = np.cumsum(sketch.count(rounded(np.array(values), datatype)))
    assert np.all(most >= np.cumsum(sketch.reference))
    if set(values) <= set(edges):
        assert np.array_equal(most, np.cumsum(sketch.reference))


REFUSED = {
    "rows of other lengths": ("t.csv", "age,city\n1,Rome\n2\n", ":3: has 1 values, and the header 2"),
    "a name twice": ("t.csv", "age,age\n1,2\n", ":1: two columns are named age"),
    "no rows": ("t.csv", "age\n", "has no rows"),
    "an empty file": ("t.csv", "", "has 0 columns|has no rows"),
    "texts for numbers": ("t.csv", "age\nold\n", "column age has texts, and `age` is FP32"),
    "no name of a tensor": ("t.csv", "weight\n1\n", "none of its columns .* age, city, class"),
    "another kind of file": ("t.txt", "age\n1\n", r"expected a file of these kinds: \.csv, \.npz, \.parquet, \.json"),
    "no arrays": ("t.npz", "age", "is not an archive of arrays"),
    "no table": ("t.parquet", "age", "is not Parquet"),
    "no JSON": ("t.json", "{", "truncated"),
    "an unknown field": ("t.json", '{"features": {"age": {"count": []}}}', "count.*age|age.*count|missing|unknown"),
    "falling edges": ("t.json", '{"features": {"age": {"edges": [2, 1], "counts": [1, 1, 1]}}}', "age needs rising"),
    "too few counts": ("t.json", '{"features": {"age": {"edges": [1, 2], "counts": [1, 1]}}}', "age needs rising"),
    "counts below 0": ("t.json", '{"features": {"age": {"edges": [1], "counts": [-1, 2]}}}', "from 0"),
    "no counts": ("t.json", '{"features": {"age": {"counts": []}}}', "some above 0"),
    "labels of a number": ("t.json", '{"features": {"age": {"counts": {"a": 1}}}}', "age must have edges"),
    "edges of a text": ("t.json", '{"features": {"city": {"edges": [1], "counts": [1, 1]}}}', "city must have labels"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_reference_is_refused_with_its_place(tmp_path: Path, case: str) -> None:
    name, content, message = REFUSED[case]
    with pytest.raises(ModelLoadError, match=message) as refused:
        plans(tmp_path, name, content)
    assert str(refused.value).startswith(f"drift.reference: {name}:")
    assert str(tmp_path) not in str(refused.value)


def test_columns_beyond_the_elements_of_a_row_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="has 4 columns for `x`, and a row of it has 3 elements"):
        plans(tmp_path, "t.csv", "a,b,c,d\n1,2,3,4\n", MATRIX)


def test_a_chosen_column_that_is_missing_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no column agee, which drift.features names: age\?"):
        plans(tmp_path, "t.csv", CSV, features=("agee",))
    with pytest.raises(ModelLoadError, match="is neither in the folder"):
        read_plans(TABLE, Drift("none.csv"), [tmp_path])


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", age=np.array([{}], object))
    with pytest.raises(ModelLoadError, match="is not an archive of arrays of numbers or texts"):
        read_plans(TABLE, Drift("t.npz"), [tmp_path])
