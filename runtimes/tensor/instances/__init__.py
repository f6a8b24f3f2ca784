"""Copies of a model, on threads or in processes of their own, that compute one batch at a time.

`placement.start` makes them; a `Copy` watches a worker (`thread.ThreadWorker`, `process.ProcessWorker`) and replaces it
when it is lost; in either, a `Runner` calls the model.
"""
