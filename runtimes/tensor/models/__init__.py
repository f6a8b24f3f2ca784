"""Versions of models in service, and the repository that they are loaded from.

manager.py         loads, swaps, drains and unloads; table.py: the models as requests see them
records.py         the state of each model and version
rotation.py        versions that enter and leave service
loading.py         one version: verified, completed, loaded, warmed up; warmup.py: the requests of the warm-up
residency.py       room for versions in the memory budget
served_model.py    one version in service, and its users
members.py         the models of an ensemble's steps; dependents.py: ensembles that models are part of
repository.py      the folders, and the files of a load request; manifest.py: `SHA256SUMS`; poller.py: follows changes
sources.py         where the files and the configuration of a model come from
"""
