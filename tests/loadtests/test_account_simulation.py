"""The simulation of several accounts: what is learned from answers saves refusals, and nothing stays reserved."""

from gateway.traffic.accounts.endpoint import AccountEndpoint
from loadtests.simulations.accounts import BLIND, Simulation, events


def test_learned_quotas_save_refusals() -> None:
    short = events(1, 3.0, 0.9)
    blind, learned = Simulation(BLIND, 1), Simulation("quota", 1)
    without, figures = blind.run(short), learned.run(short)
    assert figures.refused_by_provider < without.refused_by_provider / 4
    assert figures.answered >= without.answered
    assert Simulation("quota", 1).run(short) == figures
    for endpoint in learned.pool.endpoints:
        assert isinstance(endpoint, AccountEndpoint)
