"""Settings of batches that would have no effect."""

import pytest

from tests.config.conftest import RIGHT, Complaints

SPARE = "    endpoints: [http://10.0.0.7:8000]\n"
PROVIDER = f"{SPARE}    provider_batches: {{poll: 10s}}\n"
BOUNDS = "models: [chat]\n    batches: {active: 2}"


@pytest.mark.parametrize(("old", "new", "at"), [(SPARE, PROVIDER, "pools[1].provider_batches"),
                                                ("models: [chat]", BOUNDS, "tenants[0].batches")])  # fmt: skip
def test_settings_of_batches_need_the_section(complaints: Complaints, old: str, new: str, at: str) -> None:
    assert RIGHT.count(old) == 1
    text = RIGHT.replace(old, new)
    (problem,) = complaints(text)
    assert f"{at}: has no effect: the file has no section `batches`" in problem
    assert complaints(f"{text}batches: {{}}\n") == []
