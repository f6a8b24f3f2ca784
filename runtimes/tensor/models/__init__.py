"""Versions of models in service, and the repository that they are loaded from.

manager.py         loads, swaps, drains and unloads
records.py         the state of each model and version, and the models as requests see them
rotation.py        versions that enter and leave service
loading.py         one version: its configuration and files, verified, loaded; warmup.py: the requests of the warm-up
probe.py           a request that a completed model must answer, and whether its rows are independent
residency.py       room for versions in the memory budget
card.py            what a version is: framework, checksum, source, training
served_model.py    one version in service, its users, and the interface of its scheduler
members.py         the models of an ensemble's steps; dependents.py: ensembles that models are part of
archives.py        archives of models, unpacked within bounds
manifest.py        the digests that a version's files must have
repository.py      the folders and their digests; poller.py: follows changes
placed.py          models whose folder below the repository a request names
overrides.py       the files of a load request
"""
