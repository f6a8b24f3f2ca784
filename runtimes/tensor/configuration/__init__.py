"""The configuration of a model: a frozen dataclass, the two files that it is read from, and Triton's form of it.

model_config.py    the dataclasses; each field is declared once, with its place in both files and its bounds
table.py           the rows of that table, and values of Triton's message that are not written as they are
checks.py          constraints on the values, from whichever file; ensemble_checks.py: those of ensembles
complaint.py       one violated constraint
message.py         Triton's message, read and written by the table, and its fields that are not served
triton.py          names of backends, and the parts of Triton's message that no row has
pbtxt.py           the text of a `config.pbtxt`, with the line of each part
model_yaml.py      a `model.yaml`, by the table, and its fields in a `config.pbtxt`
foreign.py         folders of MLflow, MLServer and KServe; foreign_files.py: how their files are read
bentoml_store.py   those of BentoML; bentoml_modules.py: its modules
hugging_face.py    folders of Hugging Face; foreign_pipelines.py: such models in folders of MLflow and MLServer
model_lists.py     repositories with a list of models: tfserving_list.py, ovms_list.py,
                   torchserve_store.py; listed.py: what they share
reading.py         a model's folder, with the files that its configuration names
"""
