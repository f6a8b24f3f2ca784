"""Ids of stored responses with a sealed part."""

import pytest

from gateway.request.sealed_ids import joined_id, split_id

SEALED = "A_pz-" * 12


@pytest.mark.parametrize("id_", ["resp_0a", "resp_px9", "resp_" + "p" * 60, "resp_", "pt_" + "p" * 60])
def test_an_id_without_a_sealed_part_is_whole(id_: str) -> None:
    assert split_id(id_) == (id_, "")


@pytest.mark.parametrize("id_", ["resp_0a", "resp_px9", "resp_" + "p" * 60])
def test_a_joined_id_is_split_again(id_: str) -> None:
    assert split_id(joined_id(id_, SEALED)) == (id_, SEALED)
