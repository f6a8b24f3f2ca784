"""Archives of TorchServe, as `torch-model-archiver` writes them, and handlers that report what they get."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPORTER = '''
import json
from ts.torch_handler.base_handler import BaseHandler

class Reporter(BaseHandler):
    """Follows the options of a request, and otherwise reports what it gets."""

    def initialize(self, context):
        self.settings = context.model_yaml_config or {}
        self.batch_size = context.system_properties["batch_size"]
        with open(context.system_properties["model_dir"] + "/words.json") as file:
            self.words = json.load(file)

    def handle(self, requests, context):
        self.context = context
        return [self.one(index, request) for index, request in enumerate(requests)]

    def one(self, index, request):
        body = request.get("body", request.get("data"))
        options = body if isinstance(body, dict) else {}
        if "fail" in options:
            raise RuntimeError("a secret of the handler's")
        if "odd" in options:
            return {1, 2}
        if "status" in options:
            self.context.set_response_status(options["status"], "odd", index)
        if "type" in options:
            self.context.set_response_content_type(index, options["type"])
            self.context.set_response_header(index, "x-words", self.words["greeting"])
        if "text" in options:
            return options["text"]
        if "bytes" in options:
            return bytes(options["bytes"])
        values = {
            name: [type(value).__name__, value.hex() if isinstance(value, bytearray) else value]
            for name, value in sorted(request.items())
        }
        kinds = {name: self.context.get_request_header(index, name) for name in sorted(request)}
        header = self.context.get_request_header(index, "x-test")
        return {"values": values, "kinds": kinds, "header": header, "setting": self.settings.get("handler")}
'''
FUNCTION = """
import time

def entry(requests, context):
    if requests is None:
        return []
    time.sleep(0.3)
    return [{"rows": len(requests), "version": context.manifest["model"]["modelVersion"]} for _ in requests]
"""
LINEAR = """
import torch

class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 3)

    def forward(self, x):
        return self.linear(x)
"""
TABLE = """
import torch
from ts.torch_handler.base_handler import BaseHandler

class Table(BaseHandler):
    def preprocess(self, requests):
        return torch.tensor([request["body"]["x"] for request in requests], dtype=torch.float32)
"""
RUNTIME = {"runtime": "python", "archiverVersion": "0.12.0", "createdOn": "29/11/2026 01:00:00"}


def archive(
    path: Path,
    name: str,
    handler: str,
    files: Mapping[str, str | bytes],
    version: str = "1.0",
    settings: str = "",
    **model: Any,
) -> Path:
    """Write an archive. `settings` is the text of its `model-config.yaml`."""
    described = {"modelName": name, "handler": handler, "modelVersion": version, **model}
    if settings:
        described["configFile"] = "model-config.yaml"
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("MAR-INF/MANIFEST.json", json.dumps({**RUNTIME, "model": described}))
        for file, content in {**({"model-config.yaml": settings} if settings else {}), **files}.items():
            written.writestr(file, content)
    return path


def reporter(store: Path, name: str = "reporter", **options: Any) -> Path:
    """An archive of `REPORTER`."""
    files = {"reporter.py": REPORTER, "words.json": '{"greeting": "hello"}'}
    return archive(store / f"{name}.mar", name, "reporter.py", files, **options)
