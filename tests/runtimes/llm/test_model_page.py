"""The page of models lists what loads, and every family on it is compared with transformers."""

from pathlib import Path

from runtimes.llm.model.encoders.families import ENCODERS, GEMMA, JINA
from runtimes.llm.model.hugging_face import OTHER_PARTS
from runtimes.llm.weights.gguf_config import ARCHITECTURES
from tests.runtimes.llm.families import FAMILIES
from tests.runtimes.llm.family_rows import ROWS
from tests.runtimes.llm.model_page import classifiers, listed, loadable, missing, page

PAGE = Path("docs/llm-models.md")


def test_the_page_is_the_one_of_this_code() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.runtimes.llm.model_page > docs/llm-models.md`"


def test_the_page_lists_every_family_and_no_other() -> None:
    assert listed() == loadable() | set(OTHER_PARTS)
    assert {row.family for row in ARCHITECTURES.values()} <= loadable()
    assert not missing() & loadable()


def test_every_encoder_of_the_page_ranks() -> None:
    only_embed = {GEMMA, "t5", JINA, "jina_embeddings_v3"}
    assert classifiers() == set(ENCODERS) - only_embed


def test_every_decoder_is_compared_with_transformers() -> None:
    # As gemma3, with a part that sees, and in tests of their own.
    elsewhere = {"gemma3_text", "kimi_k2", "qwen3_vl_moe_text", "phi4mm", "nemotron-nas"}
    compared = {row.partition("-")[0] for row in (*ROWS, *FAMILIES)}
    assert loadable() - set(ENCODERS) <= compared | elsewhere
