"""Writes a pipeline of spaCy that finds a few names by rules, into the folder of its argument."""

import sys

import spacy

pipeline = spacy.blank("en")
ruler = pipeline.add_pipe("entity_ruler")
ruler.add_patterns(
    [
        {"label": "PERSON", "pattern": "Anna Schmidt"},
        {"label": "PERSON", "pattern": [{"LOWER": "zoë"}]},
        {"label": "GPE", "pattern": "Görlitz"},
    ]
)
pipeline.to_disk(sys.argv[1])
