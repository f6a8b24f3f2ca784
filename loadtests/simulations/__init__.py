"""Policies of the gateway on simulated servers and virtual time.

``balancing``     balancing policies among servers of the ``fleet``: `python -m loadtests.simulations.balancing`
``fleet``         simulated servers, and their clock
``rollouts``      false alarms and power of the tests of rollouts: `python -m loadtests.simulations.rollouts`
``experiments``   false winners and power of experiments: `python -m loadtests.simulations.experiments`
``experiment_runs``  many experiments in numpy
``rollout_runs``  many rollouts in numpy; ``exact_power``: the power of the test without draws
"""
