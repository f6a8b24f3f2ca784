"""One module for each framework. Importing this package imports no framework.

base.py            the interfaces of backends, models and instances
registry.py        backends by name, each imported when a model first needs it
files.py           a model's file, and the class of a model written in Python
sources.py         the import of models' Python files, without cached bytecode
signature.py       the tensors of a model's file, compared with its configuration
declared.py        models whose files do not describe their tensors
onnx.py            ONNX Runtime; onnx_quantize.py: ONNX models with smaller weights
torch.py           PyTorch; torch_files.py: TorchScript, torch.export, and weights with a module
openvino.py        OpenVINO
tensorflow.py      TensorFlow's SavedModels
python.py          models written in Python
function.py        functions of the gateway's pipelines, as such models
tabular.py         the common part of the three below
sklearn.py         scikit-learn
xgboost.py         XGBoost
lightgbm.py        LightGBM
"""
