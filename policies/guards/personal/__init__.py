"""Personal data: what finds it, the placeholders that take its place, and how they are replaced by the values again.

checksums.py     the check digits of numbers of persons and accounts
entities.py      the kinds of personal data, and what finds each
placeholders.py  the placeholders of one request, and the values that they stand for
json_texts.py    changes of literals in texts that are JSON
masking.py       a prompt with placeholders
restoring.py     an answer with values in the place of placeholders
"""
