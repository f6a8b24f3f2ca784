"""The fronts of files and batches.

form.py       an uploaded form, parsed as it arrives
files.py      `/v1/files`
openai.py     `/v1/batches`
content.py    the content of a file as a stream
pages.py      pages of lists
"""
