"""The comparison of guards: its streams, its stub, and what counts as a leak."""

import json
from pathlib import Path
from typing import cast

import pytest
import yaml

from config.loader import load
from loadtests.guards import __main__ as program
from loadtests.guards import products
from loadtests.guards.corpus import HARMLESS, PATTERNS, PLACES, SPANS, Case, cases
from loadtests.guards.reading import Received, ask, request_body, texts_of
from loadtests.guards.stub import events, serving, whole
from loadtests.servers import Gateway, Site, Target

pytestmark = pytest.mark.plain


def direct(port: int) -> Target:
    return Target(cast(Gateway, None), port, 0, "")


def test_each_span_is_cut_at_every_place_of_every_part() -> None:
    for kind, span in [*SPANS.items(), ("", HARMLESS)]:
        for place in PLACES:
            chosen = [case for case in cases() if (case.kind, case.place) == (kind, place)]
            assert len(chosen) == len({case.chunks for case in chosen}) == len(span) + 1
            assert len({case.text for case in chosen}) == 1
            assert span in chosen[0].text
            if place == "arguments":
                assert span in json.loads(chosen[0].text)["note"]
            assert {len(case.chunks) for case in chosen} == {1, 2, len(chosen[-1].chunks)}


@pytest.mark.parametrize("place", PLACES)
def test_a_client_of_the_stub_receives_the_whole_text(place: str) -> None:
    for case in (case for case in cases() if case.place == place):
        for data in (b"".join(events(case)), whole(case)):
            assert Received(200, texts_of(data)).has(case.span or HARMLESS)


def test_a_report_of_a_filter_is_no_leak() -> None:
    reports = [{"error": {"message": "bluebird"}}, {"hook_results": {"text": "bluebird"}}, {"detail": "bluebird"}]
    for report in reports:
        assert not Received(400, texts_of(json.dumps(report).encode())).has("bluebird")
    assert Received(
        200, texts_of(b'data: {"choices": [{"text": "blue"}]}\n\ndata: {"choices": [{"text": "bird"}]}')
    ).has("bluebird")


def test_everything_leaks_without_a_guard(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = [case for case in cases() if len(case.chunks) < 3 and case.kind in ("word", "")]
    with serving(chosen) as port:
        for stream in (True, False):
            counts = program.count(direct(port), products.Mode("none"), "chat", chosen, stream=stream)
            assert counts.leaked == counts.total
            assert (sum(counts.total.values()), counts.missing, counts.failed) == (24 if stream else 3, 0, 0)
        program.print_table({program.Row("none", "none", "chat", "whole"): counts})
        assert "1 of 1" in capsys.readouterr().out
        assert program.count(direct(port), products.Mode("none"), "responses", chosen, stream=False).failed == 3


def test_a_request_names_its_case_in_each_api() -> None:
    with serving([Case("", "text", ("first",)), Case("", "text", ("second",))]) as port:
        assert ask(direct(port), "chat", request_body("chat", "case 1", stream=True)).has("second")
    for door in ("messages", "responses"):
        assert "case 1" in json.dumps(request_body(door, "case 1", stream=True))


def test_each_product_has_the_same_words_and_patterns(tmp_path: Path) -> None:
    site = Site(tmp_path, 8080, 9000)
    file = tmp_path / "headrace.yaml"
    file.write_text(yaml.safe_dump(products.headrace_config(site, 8082)))
    settings = load(file)
    assert {model.name: len(model.guards) for model in settings.models} == {"mock": 0, "masks": 2, "blocks": 2}
    ours = json.dumps(products.headrace_config(site, 8082))
    others = json.dumps([products.litellm_config(site), products.portkey_masks()])
    more = json.dumps([products.litellm_config(site), products.portkey_blocks()])
    for span in [*products.WORDS, *(json.dumps(pattern)[1:-1] for pattern in PATTERNS.values())]:
        assert span in ours
        assert span in others
        assert span in more


def test_the_comparison_has_a_product_for_each_name() -> None:
    names = program.parse([]).products.split(",")
    assert [product.gateway.name for product in products.products(9000)] == names
