"""Guards that ask models and services: whether a text is one that they are to find, or which names it has.

base.py       a judge, and the calls of models by the guards of one request
build.py      the judge of a guard of the file
models.py     models of tensors, of labels and of chats
topics.py     embeddings
languages.py  the language of a text
schemas.py    the form of an answer (bounded_schema.py: JSON Schema whose validation ends)
hosted.py     hosted services
services.py   the contracts of hosted services, one row for each
recognisers.py servers that find names and places
panel.py      the judges of one side of a request: in parallel, each with its deadline and its breaker
"""
