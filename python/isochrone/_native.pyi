"""The native half, made by crates/python."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__version__: str

@final
class Plan:
    @staticmethod
    def of(rows: tuple[Any, ...], threads: int) -> Plan: ...
    @staticmethod
    def load(path: str) -> Plan: ...
    @staticmethod
    def from_bytes(data: bytes) -> Plan: ...
    @property
    def n_samples(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_entries(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def check(self, rows: tuple[Any, ...]) -> None: ...
    def statistics(self, rows: tuple[Any, ...], threads: int) -> dict[str, Any]: ...
    def save(self, path: str) -> None: ...
    def to_bytes(self) -> bytes: ...
    def equals(self, other: Plan) -> bool: ...

@final
class Moved:
    def is_finite(self) -> bool: ...
    def put(self, coef: NDArray[np.float64], before: dict[str, Any], after: dict[str, Any]) -> bool: ...

_Handed = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[Any], int, NDArray[np.float64], NDArray[np.float64] | None]

@final
class Reader:
    def __new__(
        cls,
        path: str,
        format: str,
        zero_based: bool | None,
        width: int | None,
        double: bool,
        skip_errors: int,
        bits: int,
    ) -> Reader: ...
    def batch(self, rows: int) -> _Handed | None: ...
    def all(self) -> _Handed: ...
    def all_planned(self) -> tuple[_Handed, Plan]: ...
    def skipped(self) -> tuple[int, list[str]]: ...

@final
class Collector:
    def __new__(
        cls,
        source: int,
        settings: dict[str, Any],
        features: int,
        batch_size: int,
        batch_time: float,
        seq: int,
        sample: int,
    ) -> Collector: ...
    def push(
        self,
        rows: tuple[Any, ...],
        labels: NDArray[np.float64],
        importances: NDArray[np.float64] | None,
        now: float,
    ) -> list[tuple[bytes, tuple[int, int]]]: ...
    def flush(self) -> tuple[bytes, tuple[int, int]] | None: ...

@final
class Center:
    def __new__(
        cls,
        folder: str,
        settings: dict[str, Any],
        features: int,
        checkpoint_every: int,
        classes: list[tuple[float, float, float]] | None = None,
        labels: str = ...,
    ) -> Center: ...
    def ingest(self, batch: bytes) -> tuple[str, int, int]: ...
    def work(self) -> int: ...
    def models(self) -> tuple[NDArray[np.float64], list[float]]: ...
    def checkpoint(self) -> None: ...
    def next(self, source: int) -> tuple[int, int]: ...
    def counts(self) -> dict[str, int]: ...

def replay(
    folder: str, settings: dict[str, Any], features: int, classes: list[tuple[float, float, float]] | None = None
) -> tuple[NDArray[np.float64], list[float]]: ...
def order(folder: str, settings: dict[str, Any], features: int) -> list[tuple[int, int, int, int]]: ...
def generate(
    name: str, scale: int, samples: int | None, seed: int, threads: int
) -> tuple[_Handed, float]: ...
def check(rows: tuple[Any, ...]) -> None: ...
def slope(loss: str, prediction: float, label: float) -> float: ...
def decide(
    rows: tuple[Any, ...], coef: NDArray[np.float64], intercept: NDArray[np.float64]
) -> NDArray[np.float64]: ...
def train(
    rows: tuple[Any, ...],
    labels: NDArray[np.float64],
    importances: NDArray[np.float64] | None,
    positives: list[float] | None,
    sides: list[tuple[float, float]] | None,
    coef: NDArray[np.float64] | None,
    intercept: NDArray[np.float64],
    settings: dict[str, Any],
    plan: Plan | None,
    held: tuple[tuple[Any, ...], NDArray[np.float64], NDArray[np.float64] | None] | None,
    after: Callable[[int, int, float, float | None], None] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, Any]]: ...
def train_on(
    rows: tuple[Any, ...],
    labels: NDArray[np.float64],
    importances: NDArray[np.float64] | None,
    positives: list[float] | None,
    sides: list[tuple[float, float]] | None,
    coef: NDArray[np.float64] | None,
    intercept: NDArray[np.float64],
    settings: dict[str, Any],
    plan: Plan | None,
    after: Callable[[int, int, float, float | None], None] | None,
) -> tuple[Moved, NDArray[np.float64], dict[str, Any]]: ...
def factorise(
    rows: tuple[Any, ...],
    labels: NDArray[np.float64],
    importances: NDArray[np.float64] | None,
    rank: int,
    vectors: NDArray[np.float64] | None,
    seed: int,
    intercept: float,
    settings: dict[str, Any],
    held: tuple[tuple[Any, ...], NDArray[np.float64], NDArray[np.float64] | None] | None,
    after: Callable[[int, int, float, float | None], None] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, Any]]: ...
