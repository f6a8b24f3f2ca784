"""The simulation of several accounts: what answers report saves refusals."""

from loadtests.simulations.accounts import BLIND, Simulation, events


def test_quotas_from_headers_save_refusals() -> None:
    short = events(1, 3.0, 0.9)
    blind, reading = Simulation(BLIND, 1), Simulation("quota", 1)
    without, figures = blind.run(short), reading.run(short)
    assert figures.refused_by_provider < without.refused_by_provider / 4
    assert figures.answered >= without.answered
    assert Simulation("quota", 1).run(short) == figures
    assert sum(figures) <= 2000
