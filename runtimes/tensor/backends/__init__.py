"""One module for each framework. Importing this package imports no framework.

registry.py        backends by name, each imported when a model first needs it
files.py           a model's file, and the class of a model written in Python
signature.py       the tensors of a model's file, compared with its configuration, or declared by that alone
onnx.py            ONNX Runtime
torch.py           PyTorch: TorchScript, torch.export, and weights with a module; torch_compiled.py: AOTInductor
openvino.py        OpenVINO; openvino_shapes.py: shapes and layouts that are set before a model is compiled
tensorflow.py      TensorFlow's SavedModels; tensorflow_warmup.py: the requests that warm them up
torchserve.py      archives of TorchServe: handlers of requests
transformers.py    pipelines of Hugging Face
python.py          models written in Python
function.py        functions of the gateway's pipelines, as such models
tabular.py         the common part of the four below; trees.py: the parameters of forests
contributions.py   copies of trees that explain answers; gradients.py: those of networks
sklearn.py         scikit-learn
xgboost.py         XGBoost
lightgbm.py        LightGBM
catboost.py        CatBoost
"""
