"""PyTorch models: TorchScript, torch.export, AOTInductor (`torch_compiled`), or a plain module with its weights.

A module is the class `Model` of `model.py`, or the class that the parameter `class` names; its weights are safetensors
or a state dict, which is read without running anything. Inputs go to `forward` by name, or in order where it has other
names (`INPUT__0`, `INPUT__1` …, as Triton counts them). Outputs in a tuple are counted in the same way.

Parameters: `INFERENCE_MODE: false` for models that differentiate, `import` for packages that have a script's operators.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import torch.export
import torch.utils._pytree as pytree
from safetensors.torch import load_file
from torch.export.graph_signature import InputKind, OutputKind, SymIntArgument, TensorArgument

from runtimes.tensor.backends.files import forget, input_names, model_class, model_file, output_names
from runtimes.tensor.backends.signature import (
    TORCH_FILENAMES,
    ModelTensor,
    completed,
    declared,
    has_native_code,
    is_compiled,
    is_declared,
)
from runtimes.tensor.backends.torch_compiled import CompiledCall
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Array, Device, Model, ModelFailed, ModelLoadError, Tensors

_DATATYPES: Final = {
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.uint16: "UINT16",
    torch.uint32: "UINT32",
    torch.uint64: "UINT64",
    torch.int8: "INT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.float16: "FP16",
    torch.float32: "FP32",
    torch.float64: "FP64",
    torch.bfloat16: "BF16",
}
TYPES: Final = {datatype: dtype for dtype, datatype in _DATATYPES.items()}
_LOADING: Final = threading.Lock()
"""Held by what changes state of the whole process: torch.export.load, torch.jit.load, filters of warnings."""
UNBOUNDED: Final = 1 << 31
"""Torch's largest lengths are bounds that nobody wrote."""
Call = Callable[[dict[str, torch.Tensor]], Any]


def loaded(config: ModelConfig, folder: Path, device: torch.device) -> tuple[str, Call]:
    """The callable of a file, and the name of the module that has its code."""
    path = model_file(config, folder, *TORCH_FILENAMES)
    names = input_names(config)
    _import(config.parameters.get("import", ""))
    if path.suffix == ".pt2" and is_compiled(path):
        return "", CompiledCall(path, config, device, names, _order)
    if path.suffix == ".pt2":
        program = exported(path)
        module = lowered(program.module(), config, "exported")
        return "", _exported_call(program, module.to(device), names)
    if _is_script(path):
        with _LOADING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated, but widely used
            script = torch.jit.load(str(path), map_location=device).eval()
            script = lowered(script, config, "scripted")
        return "", _script_call(script, names)
    module = _plain(config, folder, path)
    code = type(module).__module__
    module = lowered(module.eval(), config, "plain").to(device)
    parameters = inspect.signature(module.forward).parameters.values()
    return code, _bound(module, {one.name: one.default is one.empty for one in parameters}, names)


def _import(modules: str) -> None:
    """Import the packages that have a script's operators, such as torchvision."""
    for name in filter(None, map(str.strip, modules.split(","))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ModelLoadError(f"parameter `import` names {name}, which cannot be imported: {error}") from None


def lowered(module: Any, config: ModelConfig, kind: str) -> Any:
    """The module converted to the datatype of `quantize`."""
    if config.quantize == "int8":
        if kind != "plain":
            raise ModelLoadError(f"`quantize: int8` is for a plain module with its weights; this one is {kind}")
        with _LOADING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kinds = {torch.nn.Linear, torch.nn.LSTM, torch.nn.GRU}
            return torch.ao.quantization.quantize_dynamic(module, kinds, dtype=torch.qint8)
    return module.to(TYPES[config.quantize.upper()]) if config.quantize else module


def _is_script(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def _plain(config: ModelConfig, folder: Path, path: Path) -> Any:
    """A module with its weights."""
    kind = model_class(config, folder / "model.py")
    if not issubclass(kind, torch.nn.Module):
        raise ModelLoadError(f"class `{kind.__name__}` is no torch.nn.Module")
    module = kind()
    if path.suffix == ".safetensors":
        weights = load_file(str(path))
    else:
        try:
            weights = torch.load(str(path), map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            raise ModelLoadError(
                f"{path.name} is no state dict of plain tensors, and nothing else is unpickled:"
                " save `module.state_dict()`, or as safetensors"
            ) from None
    if not isinstance(weights, Mapping):
        raise ModelLoadError(f"{path.name} is no state dict: it holds a {type(weights).__name__}")
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelLoadError(f"{path.name} does not fit class `{kind.__name__}`: {error}") from None
    return module


def exported(path: Path) -> Any:
    """The program of a file of torch.export. Raises `ModelLoadError` for one that would run code as it is read."""
    if has_native_code(path):
        raise ModelLoadError(f"{path.name} has native code beside its program: keep one of both")
    with _LOADING, _data_only():
        try:
            return torch.export.load(str(path))
        except pickle.UnpicklingError:
            raise ModelLoadError(f"{path.name} has pickled objects that are no tensors, which are not read") from None


@contextmanager
def _data_only() -> Iterator[None]:
    """Have torch.load read data only. torch.export.load has no such option, and passes `weights_only=False` itself.

    PyTorch's variable of the environment for it would reach the processes that are started meanwhile.
    """
    names = vars(torch)
    own = names["load"]
    names["load"] = lambda *given, **more: own(*given, **{**more, "weights_only": True})
    try:
        yield
    finally:
        names["load"] = own


def exported_signature(program: Any) -> tuple[list[ModelTensor], list[ModelTensor]]:
    """The tensors in the trees of a program's arguments and results. Raises `ModelLoadError`."""
    nodes = {node.name: node for node in program.graph.nodes}
    signature = program.graph_signature
    bounds = {str(symbol): span.upper for symbol, span in program.range_constraints.items()}
    inputs = [_tensor(one.name, nodes[one.name], bounds) for one in _leaves(signature.input_specs) if _is_tensor(one)]
    if any(isinstance(one, SymIntArgument) for one in _leaves(signature.input_specs)):
        raise ModelLoadError("the model takes a number that varies: export it with a tensor in its place")
    outputs = [
        _tensor(one.name, nodes[one.name], bounds)._replace(name=name)
        for one, name in zip(_leaves(signature.output_specs), _answer_names(program), strict=True)
        if _is_tensor(one)
    ]
    return inputs, outputs


def _leaves(specs: Any) -> list[Any]:
    """The user's arguments or results: tensors, constants and numbers."""
    return [spec.arg for spec in specs if spec.kind in (InputKind.USER_INPUT, OutputKind.USER_OUTPUT)]


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, TensorArgument)


def _answer_names(program: Any) -> list[str]:
    """The names of the results: the keys of a dict, with points between those of dicts within; else the graph's."""
    leaves = _leaves(program.graph_signature.output_specs)
    tree = pytree.tree_unflatten(list(range(len(leaves))), program.call_spec.out_spec)
    paths = [path for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    names: list[str] = []
    for leaf, path in zip(leaves, paths, strict=True):
        is_named = path and isinstance(path[0], pytree.MappingKey)
        name = ".".join(str(getattr(step, "key", getattr(step, "idx", step))) for step in path) if is_named else ""
        name = name or (leaf.name if _is_tensor(leaf) else "")
        names.append(f"{name}_{names.count(name)}" if name and name in names else name)
    return names


def _tensor(name: str, node: Any, bounds: Mapping[str, Any]) -> ModelTensor:
    value = node.meta["val"]
    if (datatype := _DATATYPES.get(value.dtype)) is None:
        raise ModelLoadError(f"`{name}` is a {value.dtype}, which the protocol has no datatype for")
    dims = tuple(length if isinstance(length, int) else -1 for length in value.shape)
    most = bounds.get(str(value.shape[0])) if dims and dims[0] == -1 else None
    return ModelTensor(name, datatype, dims, most=int(most) if most is not None and most < UNBOUNDED else None)


def _exported_call(program: Any, module: Any, names: list[str]) -> Call:
    """Calls the program with the trees of its arguments, and answers the tensors of its results by name."""
    arguments = _leaves(program.graph_signature.input_specs)
    given = [one.name for one in arguments if _is_tensor(one)]
    order = iter(_order(given, names))
    places = [next(order) if _is_tensor(one) else None for one in arguments]
    constants = [getattr(one, "value", None) for one in arguments]
    answers = _answer_names(program)
    is_answer = [_is_tensor(one) for one in _leaves(program.graph_signature.output_specs)]

    def call(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        leaves = [constants[i] if name is None else inputs[name] for i, name in enumerate(places)]
        positional, keyword = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
        results = pytree.tree_leaves(module(*positional, **keyword))
        return {name: value for name, value, is_one in zip(answers, results, is_answer, strict=True) if is_one}

    return call


def _script_call(script: Any, names: list[str]) -> Call:
    arguments = script.forward.schema.arguments[1:]
    if len(arguments) == 1 and str(arguments[0].type).startswith("Dict"):
        return lambda inputs: script(inputs)
    return _bound(script, {one.name: not one.has_default_value() for one in arguments}, names)


def _bound(module: Any, parameters: Mapping[str, bool], names: list[str]) -> Call:
    """Inputs as the arguments of `forward`: its parameters, and whether each must be given."""
    needed = [name for name, must in parameters.items() if must]
    if set(needed) <= set(names) <= set(parameters):
        return lambda inputs: module(**inputs)
    taken = needed if len(needed) > len(names) else list(parameters)[: len(names)]
    order = _order(taken, names)
    return lambda inputs: module(*[inputs[name] for name in order])


def _order(parameters: list[str], names: list[str]) -> list[str]:
    """The inputs in the order of the parameters: by name, by Triton's numbers, or in the order of the configuration."""
    if len(parameters) != len(names):
        raise ModelLoadError(f"the model takes {len(parameters)} inputs ({', '.join(parameters)}), not {len(names)}")
    if set(parameters) == set(names):
        return parameters
    numbered = {name.rpartition("__")[2]: name for name in names}
    if set(numbered) == {str(number) for number in range(len(names))}:
        return [numbered[str(number)] for number in range(len(names))]
    return names


def _places(outputs: Sequence[str]) -> dict[str, int]:
    """The place of each output in a tuple: the number in `NAME__NUMBER`, if all have one, else that in `outputs`."""
    numbers = [name.rpartition("__")[2] for name in outputs if "__" in name]
    if len(numbers) == len(outputs) and all(number.isdecimal() for number in numbers):
        return dict(zip(outputs, map(int, numbers), strict=True))
    return {name: place for place, name in enumerate(outputs)}


_FLOATS: Final = frozenset({"FP16", "FP32", "FP64", "BF16"})


class TorchBackend:
    """A compiled model computes outside of Python's lock; a module of Python code computes faster in a process."""

    name = "torch"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        path = model_file(config, folder, *TORCH_FILENAMES)
        if is_declared(self.name, config, folder):
            return declared(self.name, config)
        return completed(config, *exported_signature(exported(path)))

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        return TorchModel(config, folder, device)

    def explainer(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        """See `ExplainingBackend`."""
        from runtimes.tensor.backends.gradients import GradientModel, compute_of

        if is_compiled(model_file(config, folder, *TORCH_FILENAMES)):
            raise ModelLoadError("compiled code has no gradients: use `method: permutation`")
        own = dataclasses.replace(config, outputs=config.explains, explains=())
        model = TorchModel(own, folder, device)
        return GradientModel(config, compute_of(own, model.call, model.named), model.tensor, model.close)


class TorchModel:
    def __init__(self, config: ModelConfig, folder: Path, device: Device) -> None:
        if device.threads:
            torch.set_num_threads(device.threads)  # of this thread
        self._device = torch.device("cpu" if device.gpu is None else f"cuda:{device.gpu}")
        self._module, self.call = loaded(config, folder, self._device)
        self._mode = torch.enable_grad if config.parameters.get("INFERENCE_MODE") == "false" else torch.inference_mode
        self._outputs = output_names(config)
        self._places = _places(self._outputs)
        self._halves = {spec.name for spec in config.inputs if spec.datatype == "BF16"}
        self._computes = TYPES[config.quantize.upper()] if config.quantize in ("fp16", "bf16") else None
        self._floats = {spec.name: TYPES[spec.datatype] for spec in config.outputs if spec.datatype in _FLOATS}

    def infer(self, inputs: Tensors) -> Tensors:
        with self._mode():
            return self._arrays(self.call({name: self.tensor(name, array) for name, array in inputs.items()}))

    def close(self) -> None:
        forget(self._module)
        del self.call

    def tensor(self, name: str, array: Array) -> torch.Tensor:
        # The model must not write to the server's buffers.
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        if name in self._halves:
            tensor = tensor.view(torch.bfloat16)
        if self._computes is not None and tensor.is_floating_point():
            return tensor.to(self._device, self._computes)
        return tensor if self._device.type == "cpu" else tensor.to(self._device)

    def _arrays(self, answer: Any) -> dict[str, Array]:
        return {name: self._array(name, value) for name, value in self.named(answer).items()}

    def named(self, answer: Any) -> dict[str, Any]:
        """The outputs in an answer, by name. Raises `ModelFailed`."""
        if isinstance(answer, torch.Tensor):
            answer = (answer,)
        if isinstance(answer, Mapping):
            keys = {name: name if name in answer else name.rpartition("__")[0] for name in self._outputs}
            named = {name: answer[key] for name, key in keys.items() if key in answer}
        elif isinstance(answer, Sequence):
            named = {name: answer[place] for name, place in self._places.items() if place < len(answer)}
        else:
            raise ModelFailed(f"the model returned a {type(answer).__name__}, not tensors")
        return named

    def _array(self, name: str, value: Any) -> Array:
        if not isinstance(value, torch.Tensor):
            raise ModelFailed(f"output `{name}` is a {type(value).__name__}, not a tensor")
        if self._computes is not None and name in self._floats:
            value = value.to(self._floats[name])
        value = value.detach().cpu().resolve_conj().resolve_neg()
        array: Array = (value.view(torch.uint16) if value.dtype is torch.bfloat16 else value).numpy()
        return array


BACKEND = TorchBackend()
