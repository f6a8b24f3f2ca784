"""The card of a version: measured, from its folder, and harmless whatever the folder has."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.document import Document
from config.stores import address_of
from runtimes.tensor.configuration import model_yaml
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.models.card import MAX_TEXT, checksum, make_card
from runtimes.tensor.models.repository import Repository, Root, model_at
from tests.runtimes.tensor.workshop import CONFIG, Workshop, managing, put

MLMODEL = """
run_id: 5a1
mlflow_version: 2.19.0
flavors:
  python_function: {python_version: 3.12.3}
  sklearn: {sklearn_version: 1.5.2, pickled_model: model.pkl}
signature: {inputs: '[{"type": "double", "name": "age"}]', outputs: null}
metadata: {team: risk, list: [1, 2]}
"""


def card_of(folder: Path, **fields: object) -> dict[str, str]:
    config = ModelConfig("m", "python", **fields)  # type: ignore[arg-type]
    return make_card(config, model_at(folder, "m"), 1)


def test_the_checksum_is_that_of_the_list_which_sha256sum_writes(tmp_path: Path) -> None:
    folder = put(tmp_path, "m")
    (folder / "data").mkdir()
    (folder / "data" / "a").write_bytes(b"\0" * 3_000_000)
    listed = "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in ("data/a", "model.py")
    )
    assert card_of(tmp_path / "m")["checksum"] == f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}"


def test_an_unchanged_version_is_read_once(tmp_path: Path) -> None:
    put(tmp_path, "m", words="one")
    first = card_of(tmp_path / "m")["checksum"]
    hits = checksum.cache_info().hits
    assert card_of(tmp_path / "m")["checksum"] == first
    assert checksum.cache_info().hits == hits + 1
    put(tmp_path, "m", words="another")
    assert card_of(tmp_path / "m")["checksum"] != first


async def test_a_loaded_version_has_the_card_of_its_owner_and_of_its_files(tmp_path: Path) -> None:
    put(tmp_path, "m", config=f"backend: python\ncard: {{license: MIT, year: 2026}}\n{CONFIG}")
    (tmp_path / "m" / "statistics.json").write_text('{"age": {"mean": 41.5}}')
    async with managing(tmp_path, Workshop(), mode="none") as manager:
        card = manager.table.card("m")
    assert {name: card[name] for name in ("license", "year", "version", "source", "framework")} == {
        "license": "MIT", "year": "2026", "version": "1", "source": "repository:m/1", "framework": "python",
    }  # fmt: skip
    assert json.loads(card["statistics"]) == {"age": {"mean": 41.5}}
    assert str(tmp_path) not in str(card)


def test_the_run_signature_and_libraries_of_mlflow_are_in_the_card(tmp_path: Path) -> None:
    (tmp_path / "MLmodel").write_text(MLMODEL)
    (tmp_path / "model.pkl").write_bytes(b"x")
    card = card_of(tmp_path)
    assert {name: text for name, text in card.items() if name.startswith("mlflow.")} == {
        "mlflow.run_id": "5a1",
        "mlflow.mlflow_version": "2.19.0",
        "mlflow.python_version": "3.12.3",
        "mlflow.sklearn_version": "1.5.2",
        "mlflow.signature": '{"inputs": [{"type": "double", "name": "age"}]}',
        "mlflow.metadata.team": "risk",
    }


HOSTILE = [
    "a: &a [x, x, x]\nrun_id: &b [*a, *a]\nmetadata: {m: [*b, *b]}",
    "run_id: ]",
    "- run_id",
    "flavors: 3\nsignature: [1]\nmetadata: no",
    "signature: {inputs: '[[[', outputs: 3}",
    f"run_id: {'x' * (MAX_TEXT + 1)}",
    'run_id: "\\ud83d"',
    "\xff",
]


@pytest.mark.parametrize("written", HOSTILE)
def test_a_folder_that_another_program_broke_leaves_the_rest_of_the_card(tmp_path: Path, written: str) -> None:
    (tmp_path / "MLmodel").write_text(written, encoding="latin-1")
    card = card_of(tmp_path)
    assert card["checksum"].startswith("sha256:")
    assert all(text.encode() and len(text) <= MAX_TEXT for text in card.values())


@given(st.dictionaries(st.text(min_size=1, max_size=64), st.text(max_size=200), max_size=32))
def test_any_card_that_is_accepted_is_text_of_utf8(card: dict[str, str]) -> None:
    folder = model_at(Path(__file__).parent, "m")
    place = type(folder)("m", folder.path, {1: "s"}, "", {}, 0.0, {1: Path(__file__)})
    made = make_card(ModelConfig("m", "python", card=card), place, 1)
    assert all(name.encode() is not None and text.encode() for name, text in made.items())


def test_a_card_is_also_a_parameter_of_triton(tmp_path: Path) -> None:
    config = ModelConfig("m", "python", card={"license": "MIT"})
    sent = ModelConfig("m", "python", parameters=model_yaml.of(config))
    assert model_yaml.applied(sent, Document("config.pbtxt")).card == {"license": "MIT"}


def test_the_source_of_pulled_files_is_their_address_without_its_signature(tmp_path: Path) -> None:
    put(tmp_path, "m", version=3)
    bucket, archive = [address_of(text).label for text in ("s3://models/shop", "https://h/m.tar.gz?signature=s3cret")]
    several = Repository(Root(tmp_path, bucket, is_pulled=True)).find("m")
    single = Repository(Root(tmp_path / "m", archive, "m", is_pulled=True)).find("m")
    config = ModelConfig("m", "python")
    assert make_card(config, several, 3)["source"] == "s3://models/shop/m/3"
    assert make_card(config, single, 3)["source"] == "https://h/m.tar.gz/3"
