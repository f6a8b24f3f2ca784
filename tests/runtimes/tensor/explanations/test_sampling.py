"""Shapley values of coalitions: exact for all of them, and sums that add up for some of them."""

import itertools
from collections.abc import Callable
from math import factorial

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.tensor.explanations import sampling
from runtimes.tensor.explanations.estimates import ValueMethod
from runtimes.tensor.explanations.sampled import METHODS
from runtimes.tensor.explanations.sampling import Mixer

Floats = npt.NDArray[np.float64]
Game = Callable[[npt.NDArray[np.bool_]], Floats]
"""The value of each coalition: [coalitions, targets]."""


def random_game(features: int, targets: int, seed: int) -> Game:
    """Any number for each coalition."""
    values = np.random.default_rng(seed).normal(size=(2**features, targets))
    return lambda masks: values[masks @ (1 << np.arange(features))]


def ends(game: Game, features: int) -> tuple[Floats, Floats]:
    return game(np.zeros((1, features), bool))[0], game(np.ones((1, features), bool))[0]


def by_definition(game: Game, features: int) -> Floats:
    """The mean gain of each feature over all orders in which features join."""
    parts = np.zeros((features, game(np.zeros((1, features), bool)).shape[1]))
    for order in itertools.permutations(range(features)):
        masks = np.array([[feature in order[:step] for feature in range(features)] for step in range(features + 1)])
        gains = np.empty_like(parts)
        gains[list(order)] = np.diff(game(masks), axis=0)
        parts += gains / factorial(features)
    return parts.T


GAMES = st.tuples(st.integers(2, 6), st.integers(1, 3), st.integers(0, 2**16))


@given(GAMES)
@settings(deadline=None)
def test_all_coalitions_give_the_values_of_the_definition(drawn: tuple[int, int, int]) -> None:
    features = drawn[0]
    game = random_game(*drawn)
    got = sampling.exact_values(game(sampling.all_coalitions(features)), *ends(game, features))
    np.testing.assert_allclose(got, by_definition(game, features), atol=1e-9)


@given(GAMES)
@settings(deadline=None)
def test_the_values_of_one_permutation_add_up(drawn: tuple[int, int, int]) -> None:
    features, _, seed = drawn
    game = random_game(*drawn)
    order = np.random.default_rng(seed).permutation(features)
    base, full = ends(game, features)
    got = sampling.path_values(order, game(sampling.path(order)), base, full)
    np.testing.assert_allclose(base + got.sum(axis=1), full, atol=1e-9)


@given(GAMES)
@settings(deadline=None)
def test_one_permutation_and_its_reverse_are_exact_if_features_act_in_pairs(drawn: tuple[int, int, int]) -> None:
    features, targets, seed = drawn
    random = np.random.default_rng(seed)
    single, pairs = random.normal(size=(targets, features)), random.normal(size=(targets, features, features))

    def game(masks: npt.NDArray[np.bool_]) -> Floats:
        present = masks.astype(np.float64)
        return np.asarray(present @ single.T + np.einsum("ci,tij,cj->ct", present, pairs, present))

    order = random.permutation(features)
    got = sampling.path_values(order, game(sampling.path(order)), *ends(game, features))
    np.testing.assert_allclose(got, by_definition(game, features), atol=1e-9)


@given(
    method=st.sampled_from(list(METHODS.values())), rows=st.integers(1, 4), features=st.integers(0, 20),
    spare=st.integers(0, 3000), seed=st.integers(0, 99),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_an_estimate_requests_no_more_coalitions_than_the_most(
    method: ValueMethod, rows: int, features: int, spare: int, seed: int
) -> None:
    most = method.least(features) + spare
    estimate = method.begin(rows, features, most, seed)
    random, requested = np.random.default_rng(seed), 0
    base, full = np.zeros((rows, 2)), np.ones((rows, 2))
    while (masks := estimate.round()) is not None:
        assert masks.shape[1] == features
        assert len(masks) % rows == 0
        requested += len(masks)
        estimate.add(random.normal(size=(rows, len(masks) // rows, 2)), base, full)
    assert rows * method.least(features) <= requested <= rows * most
    values = estimate.values(base, full)
    assert values.shape == (rows, 2, features)
    if method.is_additive and features:
        np.testing.assert_allclose(values.sum(axis=2), 1, atol=1e-9)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 999), st.data())
def test_a_mixture_has_the_present_features_of_its_row(
    count: int, background: int, seed: int, data: st.DataObject
) -> None:
    random = np.random.default_rng(seed)
    rows = {"a": random.normal(size=(count, 2)), "text": np.array([[b"own"]] * count, object), "more": np.ones(count)}
    behind = {"a": random.normal(size=(background, 2)), "text": np.array([[b"other"]] * background, object)}
    places, features = sampling.places_of([("a", (2,)), ("text", (1,))])
    assert features == 3
    masks = random.random((4 * count, 3)) < 0.5
    of = np.repeat(np.arange(count), 4)
    begin = data.draw(st.integers(0, 4 * count * background - 1))
    end = data.draw(st.integers(begin + 1, 4 * count * background))
    got = Mixer(behind, places).mixed(rows, of, masks, begin, end)
    for at, number in enumerate(range(begin, end)):
        coalition, other = divmod(number, background)
        for place, (name, column) in enumerate([("a", 0), ("a", 1), ("text", 0)]):
            source = rows[name][of[coalition]] if masks[coalition, place] else behind[name][other]
            assert got[name][at, column] == source[column]
        assert got["more"][at] == 1
