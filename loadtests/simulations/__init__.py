"""Policies of the gateway on simulated servers and virtual time.

``balancing``        balancing policies among servers of the ``fleet``: `python -m loadtests.simulations.balancing`
``accounts``         several keys of one provider: `python -m loadtests.simulations.accounts`
``fleet``            simulated servers, and their clock
``rollouts``         false alarms and power of the tests of rollouts: `python -m loadtests.simulations.rollouts`
``experiments``      false winners and power of experiments: `python -m loadtests.simulations.experiments`
``experiment_runs``  many experiments in numpy
``rollout_runs``     many rollouts in numpy; ``exact_power``: the power of the test without draws
``scaling``          rules for the number of replicas: `python -m loadtests.simulations.scaling`
``scaling_days``     the requests of a day, from ServeGen or invented
``scaling_pool``     a pool whose replicas a rule adds and removes
``scaling_rules``    our rule, Knative's and Ray Serve's
``internet``         scaling and balancing together, at the size of an internet service:
                     `python -m loadtests.simulations.internet`
``regions``          a pool behind many gateways; ``placements``: how they choose a replica, ours and the peers'
"""
