"""The facts of hosted models by name: context, longest answer, prices, abilities, deprecation.

models.json   the facts, with their date and their sources
reading.py    finds a model in them
entries.py    one model's facts, from the data and to a `price:`
published.py  the facts of a configuration's models
build.py      writes models.json anew from two published packages

`serve` reads no facts unless the file has `catalogue`.
"""
