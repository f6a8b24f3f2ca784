"""A service of BentoML with a method for each kind of argument and answer."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any

import bentoml
import numpy as np
import pandas as pd
from bentoml.exceptions import InvalidArgument, NotFound
from bentoml.validators import DataframeSchema, DType, Shape
from pydantic import BaseModel

Rows = Annotated[np.ndarray, DType("int32"), Shape((-1, 16))]
Floats = Annotated[np.ndarray, DType("float32"), Shape((-1, 4))]
Frame = Annotated[pd.DataFrame, DataframeSchema(columns=("height", "weight"))]


class Both(bentoml.IODescriptor):
    OUTPUT0: Annotated[np.ndarray, DType("int32")]
    OUTPUT1: Annotated[np.ndarray, DType("int32")]


class Point(BaseModel):
    x: float
    y: float = 1.0


@bentoml.service(workers=1, traffic={"timeout": 4, "max_concurrency": 4})
class Zoo:
    @bentoml.api
    def add_sub(self, INPUT0: Rows, INPUT1: Rows) -> Both:  # noqa: N803 - its clients' names
        return Both(OUTPUT0=INPUT0 + INPUT1, OUTPUT1=INPUT0 - INPUT1)

    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=2000)
    def double(self, rows: Floats) -> Floats:
        return rows * 2

    @bentoml.api
    def scale(self, rows: np.ndarray, factor: float = 2.0) -> np.ndarray:
        return rows * factor

    @bentoml.api
    def negate(self, rows: Annotated[np.ndarray, DType("float32")], /) -> np.ndarray:
        return -rows

    @bentoml.api
    def ratio(self, people: Frame) -> pd.DataFrame:
        return pd.DataFrame({"ratio": people["height"] / people["weight"], "row": range(len(people))})

    @bentoml.api
    def greet(self, name: str, times: int = 1, loud: bool = False) -> str:
        greeting = " ".join([f"hello {name}"] * times)
        return greeting.upper() if loud else greeting

    @bentoml.api
    def mirror(self, point: Point) -> dict[str, Any]:
        return {"point": {"x": point.y, "y": point.x}, "sum": point.x + point.y}

    @bentoml.api(route="/text/length")
    def length(self, text: str) -> int:
        return len(text)

    @bentoml.api
    def size(self, file: Path, extra: int = 0) -> int:
        return len(file.read_bytes()) + extra

    @bentoml.api
    async def count(self, upto: int = 3, pause: float = 0.05) -> AsyncGenerator[str, None]:
        for number in range(upto):
            yield f"{number} "
            await asyncio.sleep(pause)

    @bentoml.api
    async def events(self, upto: int = 3) -> AsyncGenerator[str, None]:
        for number in range(upto):
            yield f"data: {number}\n\n"
            await asyncio.sleep(0.05)

    @bentoml.task
    async def later(self, number: int, seconds: float = 0.1) -> int:
        await asyncio.sleep(seconds)
        if number < 0:
            raise InvalidArgument("numbers begin at zero")
        return number * 2

    @bentoml.api
    async def sleep(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    @bentoml.api
    def fail(self, text: str) -> str:
        raise RuntimeError(text)

    @bentoml.api
    def refuse(self, text: str) -> str:
        raise InvalidArgument(f"no {text}")

    @bentoml.api
    def find(self, text: str) -> str:
        raise NotFound(f"{text} was not found")
