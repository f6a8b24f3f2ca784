"""The facts of hosted models by name: context, longest answer, prices, abilities, deprecation.

models.json   the facts, with their date and their sources
reading.py    finds a model in them
entries.py    one model's facts, from the data and to a `price:`
listing.py    LiteLLM's list of prices, as a catalogue
build.py      writes models.json anew from two published packages

Nothing here is imported by `serve` before somebody asks for a model's facts.
"""
