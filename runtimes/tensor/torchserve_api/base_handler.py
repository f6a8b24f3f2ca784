"""`ts.torch_handler.base_handler`: the steps of a request, for TorchScript, a state dict with its class, or ONNX."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from runtimes.tensor.torchserve_api.context import Context
from runtimes.tensor.torchserve_api.utilities import list_classes_from_module, load_label_mapping


class BaseHandler:
    """Handlers override the steps that differ: `initialize`, `preprocess`, `inference`, `postprocess`, `handle`."""

    def __init__(self) -> None:
        self.model: Any = None
        self.mapping: dict[str, Any] | None = None
        self.device: Any = None
        self.initialized = False
        self.context: Context | None = None
        self.model_pt_path: str | None = None
        self.manifest: Any = None
        self.map_location: str | None = None
        self.explain = False
        self.target = 0
        self.profiler_args: dict[str, Any] = {}
        self.model_yaml_config: Any = {}

    def initialize(self, context: Context) -> None:
        """Load the model's file. Raises RuntimeError without one."""
        self.model_yaml_config = context.model_yaml_config
        if "pt2" in (self.model_yaml_config or {}):
            raise RuntimeError("`pt2` of the model's configuration is not supported: remove it")
        properties = context.system_properties
        gpu = properties.get("gpu_id")
        is_cuda = gpu is not None and torch.cuda.is_available()
        self.map_location = "cuda" if is_cuda else "cpu"
        self.device = torch.device(f"cuda:{gpu}" if is_cuda else "cpu")
        self.manifest = context.manifest
        folder, model = Path(str(properties["model_dir"])), self.manifest["model"]
        if serialized := model.get("serializedFile"):
            self.model_pt_path = str(folder / serialized)
        if source := model.get("modelFile"):
            self.model = self._load_pickled_model(str(folder), source, self.model_pt_path).to(self.device).eval()
        elif (self.model_pt_path or "").endswith(".pt"):
            self.model = torch.jit.load(self.model_pt_path, map_location=self.device).eval()
        elif (self.model_pt_path or "").endswith(".onnx"):
            import onnxruntime

            self.model = onnxruntime.InferenceSession(self.model_pt_path, providers=["CPUExecutionProvider"])
        else:
            raise RuntimeError("No model weights could be loaded")
        self.mapping = load_label_mapping(str(folder / "index_to_name.json"))
        self.initialized = True

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Any:
        """The only class of a file, with the weights of a state dict, which is read without running any code."""
        if not (Path(model_dir) / model_file).is_file():
            raise RuntimeError("Missing the model.py file")
        classes = list_classes_from_module(importlib.import_module(model_file.split(".")[0]))
        if len(classes) != 1:
            raise ValueError(f"Expected only one class as model definition. {classes}")
        model = classes[0]()
        if model_pt_path:
            model.load_state_dict(torch.load(model_pt_path, map_location=self.device, weights_only=True))
        return model

    def preprocess(self, data: Any) -> Any:
        return torch.as_tensor(data, device=self.device)

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode():
            return self.model(data.to(self.device), *args, **kwargs)

    def postprocess(self, data: Any) -> Any:
        return data.tolist()

    def handle(self, data: Any, context: Context) -> Any:
        """The answers of a batch of requests."""
        self.context = context
        return self.postprocess(self.inference(self.preprocess(data)))
