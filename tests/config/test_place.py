import pytest

from config.document import Document
from config.place import Place, fields_at, type_at, written
from config.schema.config import EndpointConfig, RouteConfig
from config.schema.text import HeaderName, PemFile, Secret


def test_written() -> None:
    assert written(("pools", 1, "endpoints", 0, "url")) == "pools[1].endpoints[0].url"
    assert written(()) == ""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("pools", 0, "key"), Secret),
        (("auth", "pepper"), Secret),
        (("pools", 0, "tls", "ca"), PemFile),
        (("listen", "tls", "cert"), PemFile),
        (("pools", 3, "endpoints", 0), EndpointConfig),
        (("models", 0, "routes", 9), RouteConfig),
        (("models", 0, "routes", 0, "when", "header", "x"), str),
        (("models", 0, "nothing", 0), None),
        (("version", "deeper"), None),
    ],
)
def test_type_at(place: Place, expected: object) -> None:
    assert type_at(place) == expected
    assert type_at(place) != HeaderName


def test_fields_at() -> None:
    assert fields_at(("pools", 0, "balance")) == (
        "by", "key", "bound", "signals", "slow_start", "panic", "locality", "zone_traffic",
    )  # fmt: skip
    assert fields_at(("pools", 0, "name")) == ()


def test_a_place_that_is_not_written_is_on_its_sections_line() -> None:
    assert Document("f").line(("pools", 0, "name")) == 1
