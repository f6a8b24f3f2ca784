"""Guards of tenants, models and routes: texts that requests and answers must not contain.

table.py      the guards of a configuration, compiled; which of them a request meets
observer.py   the guards of one request on its path
verdicts.py   what the guards of one request have found
texts.py      the texts of bodies of JSON
personal.py   personal data that is masked in the prompt, and given back in the answer
recognition.py names and places that recognisers find in a prompt
prompts.py    requests of every door
files.py      encoded files in bodies, of which those that are texts are examined
answers.py    whole answers of every server
streams.py    the texts of streams
natives.py    the texts of streams in the formats of their servers, for guards that only count
judged.py     the text of a stream in windows that are judged
replaced.py   answers that a guard writes instead of a model's
judges/       guards that judge whole texts: by models, schemas, languages and hosted services
"""
