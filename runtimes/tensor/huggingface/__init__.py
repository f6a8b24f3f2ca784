"""Pipelines of Hugging Face: a model of `transformers` with its tokenizer or processor, which answers texts, pictures
and sound.

folder.py      what a folder has, what is refused in it, and the settings of `parameters`
tensors.py     the inputs and outputs of each task; no framework is imported for them
loading.py     the model, its tokenizer or processor, and the pipeline of its task
model.py       a loaded pipeline: rows that are refused alone, rows that may share a batch, and the trial of both
rows.py        what all tasks have in common
texts.py       classification of texts and of tokens, masks, and features
zero_shot.py   classification by the labels of a request
questions.py   answers to questions, as spans of a text
pictures.py    classification of pictures, and objects in them
sound.py       speech
"""
