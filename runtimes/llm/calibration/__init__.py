"""Weights of 8 or 4 bits that calibration texts have a say in: GPTQ and AWQ, a layer at a time.

| module | content |
|---|---|
| texts.py | the texts, as tokens |
| layer_run.py | the model's layers one after the other, and what their matrices multiply |
| gptq.py, awq.py | the two methods |
| writer.py | the folder |
"""
