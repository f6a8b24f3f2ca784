"""Few bits cost a known little: a short reading of `make accuracy-llm`, with bounds about twice what it found."""

from pathlib import Path

import pytest

from loadtests.accuracy_llm import REFERENCE, Format, readings, windows
from runtimes.llm.perplexity import Reading

pytestmark = pytest.mark.timeout(1800)

BOUNDS = {
    # How much less likely the text may be found, and how seldom the same token must be liked best.
    Format("unquantized", "float32", "int8"): (0.02, 0.94),
    Format("stored", "float32"): (0.001, 0.99),
    Format("int8", "float32"): (0.02, 0.94),
    Format("int4", "float32", anew=True): (0.45, 0.55),
    Format("int4", "bfloat16", "int8"): (0.05, 0.90),
}


@pytest.fixture(scope="module")
def read(bundled_model: Path) -> dict[Format, Reading]:
    return dict(readings(bundled_model, (REFERENCE, *BOUNDS), windows(bundled_model, 2, 128)))


@pytest.mark.parametrize("one", BOUNDS, ids=str)
def test_text_is_read_as_with_float32(read: dict[Format, Reading], one: Format) -> None:
    change, agreement = BOUNDS[one]
    reference, reading = read[REFERENCE], read[one]
    assert abs(reading.perplexity / reference.perplexity - 1) < change
    assert reading.agreement(reference) >= agreement


def test_the_text_is_english_that_the_model_understands(read: dict[Format, Reading]) -> None:
    """A model that generates only noise would agree with itself too: by chance perplexity is 49,152."""
    assert read[REFERENCE].perplexity < 300
