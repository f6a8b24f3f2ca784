"""The protocol of a pool's endpoints, in each form of the file."""

import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from config import jsonschema
from config.schema.protocols import BUILT_IN, ProtocolConfig, serves
from config.schema.protocols.catalogue import InstalledProtocol, installed, load
from config.schema.protocols.tensors import OipHttpProtocol

from .conftest import RIGHT, Complaints


class EchoOptions(ProtocolConfig):
    """The options of the protocol that the test installs."""

    serves = frozenset({"app"})

    name: Literal["echo"]
    """Its name."""
    times: int = 1
    """How often."""


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution that brings a protocol, and one whose module is broken."""
    info = tmp_path / "echo-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[headrace.protocols]\necho = brings_echo:protocol\nbroken = brings_nothing:protocol\nodd = brings_echo:odd\n"
    )
    (tmp_path / "brings_echo.py").write_text(
        f"from {__name__} import EchoOptions\nclass protocol:\n    options = EchoOptions\n    make = print\nodd = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    load.cache_clear()
    monkeypatch.delitem(sys.modules, "brings_echo", raising=False)


def written(protocol: str) -> str:
    return RIGHT.replace("name: spare", f"name: spare\n    protocol: {protocol}", 1)


def refused(complaints: Complaints, protocol: str) -> list[str]:
    return [line.partition(": ")[2] for line in complaints(written(protocol))]


def test_a_name_alone_is_short_for_a_section() -> None:
    for name in BUILT_IN:
        section = BUILT_IN[name]
        if all(not field.is_required() for field_name, field in section.model_fields.items() if field_name != "name"):
            assert section.model_validate(name, strict=True) == section.model_validate({"name": name}, strict=True)


def test_an_installed_protocol_has_options_of_its_own(echo: None, complaints: Complaints) -> None:
    assert "echo" in installed()
    assert serves("echo") == {"app"}
    assert complaints(written("echo")) == []
    section = InstalledProtocol.model_validate({"name": "echo", "times": 3}, strict=True)
    assert section.options == EchoOptions(name="echo", times=3)
    (problem,) = refused(complaints, "{name: echo, times: x}")
    assert "times: " in problem
    (problem,) = refused(complaints, "{name: echo, tims: 2}")
    assert "tims: " in problem


@pytest.mark.parametrize(
    ("name", "why"), [("broken", "No module named 'brings_nothing'"), ("odd", "it needs `options` and `make`")]
)
def test_the_error_of_an_unusable_protocol_has_the_reason(
    echo: None, complaints: Complaints, name: str, why: str
) -> None:
    (problem,) = refused(complaints, name)
    assert why in problem
    assert serves(name) == frozenset()


def test_the_schema_lists_each_of_them() -> None:
    schema: dict[str, Any] = jsonschema.json_schema()
    forms = [
        form["$ref"].rpartition("/")[2] for form in schema["$defs"]["PoolConfig"]["properties"]["protocol"]["anyOf"]
    ]
    assert [schema["$defs"][form]["anyOf"][0]["const"] for form in forms] == list(BUILT_IN)
    assert "binary" in schema["$defs"][OipHttpProtocol.__name__]["anyOf"][1]["properties"]
