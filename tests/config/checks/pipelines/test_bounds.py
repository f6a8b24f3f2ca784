"""The bounds of a pipeline's graph."""

from tests.config.checks.changes import document
from tests.config.conftest import Complaints

OTHER = "  - name: other\n    pipeline: {model: whole}\n"


def test_a_graph_is_at_most_16_deep(complaints: Complaints) -> None:
    def chain(length: int) -> str:
        steps = "".join(
            f"        - {{name: s{i}, model: small, in: {{prompt: {f's{i - 1}' if i else 'request'}.text}}}}\n"
            for i in range(length)
        )
        return written(f"  - name: deep\n    pipeline:\n      steps:\n{steps}")

    assert complaints(chain(16)) == []
    assert complaints(chain(17)) == ["16: models[3].pipeline: has 17 steps one after the other: the maximum is 16"]


def test_a_graph_is_at_most_64_wide(complaints: Complaints) -> None:
    def wide(width: int) -> str:
        steps = "".join(f"        - {{name: s{i}, model: small, in: {{prompt: request.text}}}}\n" for i in range(width))
        out = ", ".join(f"o{i}: s{i}.text" for i in range(width))
        return written(f"  - name: wide\n    pipeline:\n      out: {{{out}}}\n      steps:\n{steps}")

    assert complaints(wide(64)) == []
    assert complaints(wide(65)) == ["16: models[3].pipeline: calls 65 models at the same time: the maximum is 64"]


def written(pipeline: str) -> str:
    file: str = document("pipelines/planted")["file"]
    assert OTHER in file
    return file.replace(OTHER, pipeline)


def test_drafts_count_in_the_depth_and_the_width(complaints: Complaints) -> None:
    file, old = document("pipelines/drafts")["file"], '- {name: plain, template: "I do not know."}'
    chain = ", ".join(
        f"{{name: s{i}, model: small{f', in: {{prompt: s{i - 1}.text}}' if i else ''}}}" for i in range(15)
    )
    deep = complaints(file.replace(old, f"- {{name: plain, steps: [{chain}]}}"))
    assert any("has 18 steps one after the other" in each for each in deep), deep
    members = ", ".join(f"{{name: m{i}, model: small}}" for i in range(64))
    wide = complaints(file.replace(old, f"- {{name: plain, ensemble: {{combine: vote, members: [{members}]}}}}"))
    assert any("calls 69 models at the same time" in each for each in wide), wide
