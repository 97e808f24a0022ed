"""Learning from samples that are born in several places, at one centre, exactly once: on a Ray cluster.

In each place a *collector* (a Ray actor) gathers samples into batches, plans their conflicts, and ships them. The *centre*
(another actor) puts the batches into one order, writes that to a durable log, stitches the plans together, and learns.
Whatever is killed and restarted, each sample is learnt from exactly once, and the model is bit for bit that of one thread
over the log. Needs `pip install isochrone[ray]`.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils import check_array, column_or_1d

from isochrone import _native
from isochrone.learn._data import FEATURES_MAX, Rows, check_finite, laid, rows_of, whole
from isochrone.learn._linear import GROWN, CopClassifier, CopRegressor, class_sides, classes_of, known_strings, positives
from isochrone.learn._plan import threads_of

try:
    import ray
except ImportError as missing:
    raise ImportError("isochrone.learn.ray needs Ray: pip install 'isochrone[ray]'") from missing

Source = Callable[[int], Iterable[tuple[Any, ...]]]
"""A source of samples: `source(start)` gives pairs of `X` of shape (any number, n_features) and `y`, or triples of these and a
`sample_weight`, from sample number `start` (0 for the first) on, always the same ones. It is called again after a restart, so it
must be able to go back."""

__all__ = ["Source", "learn", "order", "replay"]

# Batches that a collector has under way, while it gathers the next one.
_WINDOW = 2


def learn(
    model: CopClassifier | CopRegressor,
    sources: Sequence[Source],
    *,
    folder: str | os.PathLike[str],
    n_features: int,
    classes: Sequence[Any] | None = None,
    n_samples: int = 1,
    batch_size: int = 65536,
    batch_time: float = 5.0,
    checkpoint_every: int = 64,
    collector_options: Sequence[dict[str, Any]] | None = None,
    center_options: dict[str, Any] | None = None,
) -> CopClassifier | CopRegressor:
    """Learns from all sources until they end.

    Parameters
    ----------
    model : CopClassifier or CopRegressor
        What to learn; `n_jobs` are the threads of the centre. With `scheme="cop"`, and without what is for several epochs
        (`max_iter`, `tol`, `n_iter_no_change`): each sample is learnt from once. The intercept moves by 0.01 of a step also where
        sources give arrays.
    sources : sequence of callables
        One for each place: `source(start)` gives `(X, y)` or `(X, y, sample_weight)` from sample number `start` on. See
        :data:`Source`.
    folder : path-like
        Where the centre keeps its order log and checkpoints. With the same folder and sources, learning goes on where it was
        broken off.
    n_features : int
        Features of all samples.
    classes : sequence of labels, default=None
        Of a classifier, all that there are. More than two are set one against the rest, all in one pass over the batches.
    n_samples : int, default=1
        About how many samples there will be: the penalty is `alpha` times this, spread over them.
    batch_size : int, default=65536
        Samples in a batch.
    batch_time : float, default=5.0
        Seconds after which a batch is shipped that is not full; looked at whenever its source gives samples.
    checkpoint_every : int, default=64
        Batches between two checkpoints; 0 for none but the last.
    collector_options : sequence of dict, default=None
        Ray's options for each collector, such as `{"resources": {"europe": 1}}`, to place it.
    center_options : dict, default=None
        Ray's options for the centre. It must be restarted where its folder is.

    Returns
    -------
    model : CopClassifier or CopRegressor
        The same object, fitted. `report_` tells what the centre counted: `samples`, `accepted` batches, `duplicates`, and so
        on.

    Raises
    ------
    ValueError
        If the model cannot be learnt like this, a sample is wrong, the folder is of something else, or the coefficients overflow.
    OSError
        If the folder cannot be used.
    """
    _learnable(model)
    whole("n_features", n_features, 1, FEATURES_MAX)
    whole("batch_size", batch_size, 1, 2**32 - 1)
    whole("checkpoint_every", checkpoint_every, 0, 2**64 - 1)
    if not batch_time > 0:
        raise ValueError(f"batch_time is {batch_time!r}: give a number of seconds above 0")
    if model.scheme != "cop":
        raise ValueError(f"scheme is {model.scheme!r}: batches of several sources are learnt from with \"cop\"")
    if not sources:
        raise ValueError("sources is empty: give a callable for each place that has samples")
    places = collector_options or [{}] * len(sources)
    if len(places) != len(sources):
        raise ValueError(f"collector_options has {len(places)} entries for {len(sources)} sources: give one for each")
    labels = _classes(model, classes)
    settings, folder = _settings(model, n_samples), os.fspath(folder)
    if not ray.is_initialized():
        ray.init()
    lasting = {"max_restarts": -1, "max_task_retries": -1}
    remote: Any = ray.remote
    # Ray makes an actor again of what it was made of, and forgets arguments that are large once it is there. What may be large is
    # put here, and stays as long as these names do.
    known, against, *given = (ray.put(one) for one in (labels, (_positives(model, labels), _words(labels)), *sources))
    center = remote(_Center).options(**lasting, **(center_options or {})).remote(
        folder, settings, n_features, checkpoint_every, against, model.n_jobs
    )
    collectors = [
        remote(_Collector).options(**lasting, **place).remote(
            number, center, source, settings, n_features, known, batch_size, batch_time
        )
        for number, (source, place) in enumerate(zip(given, places, strict=True))
    ]
    try:
        # What is wrong with the folder is told by a call: what goes wrong in making an actor, Ray has in words of its own.
        ray.get(center.open.remote())
        ray.get([collector.run.remote() for collector in collectors])
        coef, intercept, report = ray.get(center.finish.remote())
    except ray.exceptions.RayTaskError as error:
        cause: Any = error
        raise cause.as_instanceof_cause() from None
    finally:
        for actor in [*collectors, center]:
            ray.kill(actor)
    if report["samples"] == 0:
        raise ValueError("no source gave a sample")
    check_finite(GROWN, coef, intercept)
    if labels is not None:
        model.classes_ = labels
    # What Ray hands out is its own memory, which cannot be written to.
    coef = np.array(coef)
    model.coef_ = coef.reshape(-1, n_features) if is_classifier(model) else coef
    model.intercept_ = np.array(intercept)
    model.n_features_in_, model.n_iter_, model.t_, model.epochs_ = n_features, 1, report["samples"], 1
    if hasattr(model, "feature_names_in_"):
        # Of another fit: batches have none.
        del model.feature_names_in_
    model.loss_curve_, model.report_ = [], report
    return model


def replay(
    model: CopClassifier | CopRegressor,
    folder: str | os.PathLike[str],
    *,
    n_features: int,
    classes: Sequence[Any] | None = None,
    n_samples: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What one thread learns from the order log, sample by sample: what the centre's model must be equal to.

    Parameters
    ----------
    model : CopClassifier or CopRegressor
        With the parameters that were learnt with.
    folder : path-like
        The centre's, which must not be running.
    n_features, classes, n_samples
        As they were; the classes may be left out if the model is fitted.

    Returns
    -------
    coef : ndarray
        Coefficients, in the shape of the model's `coef_`.
    intercept : ndarray
        Intercepts, in that of its `intercept_`.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    """
    whole("n_features", n_features, 1, FEATURES_MAX)
    against = _positives(model, _classes(model, getattr(model, "classes_", None) if classes is None else classes))
    coef, intercept = _native.replay(_folder(folder), _settings(model, n_samples), n_features, against)
    return coef.reshape(-1, n_features) if is_classifier(model) else coef, np.array(intercept)


def order(
    model: CopClassifier | CopRegressor, folder: str | os.PathLike[str], *, n_features: int
) -> list[tuple[int, int, int, int]]:
    """The batches that were learnt from, in their order.

    Parameters
    ----------
    model : CopClassifier or CopRegressor
        With the parameters that were learnt with.
    folder : path-like
        The centre's, which must not be running.
    n_features : int
        As it was.

    Returns
    -------
    batches : list of (source, number, first, samples)
        Which source, its how manieth batch, the number of the batch's first sample in the source, and how many it has.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    """
    whole("n_features", n_features, 1, FEATURES_MAX)
    return _native.order(_folder(folder), _settings(model, 1), n_features)


class _Center:
    """The actor that orders and learns. All its state is in its folder: after a crash it is made again from there."""

    def __init__(
        self,
        folder: str,
        settings: dict[str, Any],
        width: int,
        checkpoint_every: int,
        against: tuple[list[tuple[float, float, float]] | None, str],
        n_jobs: int | None,
    ) -> None:
        # Cores are counted here, where they are used.
        self.made_of = (folder, settings | {"threads": threads_of(n_jobs)}, width, checkpoint_every, *against)
        self.native: _native.Center | None = None

    def open(self) -> None:
        """Opens the folder."""
        self._open()

    def _open(self) -> _native.Center:
        if self.native is None:
            self.native = _native.Center(*self.made_of)
        return self.native

    def next(self, source: int) -> tuple[int, int]:
        return self._open().next(source)

    def ingest(self, batch: bytes) -> tuple[str, int, int]:
        answer = self._open().ingest(batch)
        self._open().work()
        return answer

    def finish(self) -> tuple[NDArray[np.float64], list[float], dict[str, int]]:
        """The models after all batches; lets go of the folder."""
        native = self._open()
        native.checkpoint()
        coef, intercept = native.models()
        self.native = None
        return coef, intercept, native.counts()


class _Collector:
    """The actor of a source. It keeps nothing that must last: the centre knows where the source goes on."""

    def __init__(
        self,
        number: int,
        center: Any,
        source: Source,
        settings: dict[str, Any],
        width: int,
        classes: NDArray[Any] | None,
        batch_size: int,
        batch_time: float,
    ) -> None:
        self.number, self.center, self.source = number, center, source
        self.settings, self.width, self.classes = settings, width, classes
        self.batch_size, self.batch_time = batch_size, batch_time
        # Batches under way: the answer to come, the batch, and where the source goes on behind it.
        self.sent: deque[tuple[Any, bytes, tuple[int, int]]] = deque()

    def run(self) -> int:
        """Ships all samples; how many the source has."""
        while True:
            seq, sample = ray.get(self.center.next.remote(self.number))
            self.sent.clear()
            end = self._from(seq, sample)
            # The source has ended only where the centre says so, too.
            if end is not None and ray.get(self.center.next.remote(self.number))[1] == end:
                return end

    def _from(self, seq: int, sample: int) -> int | None:
        """Ships what is left; the end of the source, or `None` if it goes on elsewhere."""
        collector = _native.Collector(
            self.number, self.settings, self.width, self.batch_size, self.batch_time, seq, sample
        )
        begin = end = sample
        for given in self.source(sample):
            if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
                raise ValueError(
                    f"source {self.number} gave a {type(given).__name__}: give pairs (X, y) or triples (X, y, sample_weight)"
                )
            try:
                rows, labels, weights = self._samples(*given)
                batches = collector.push(tuple(rows), labels, weights, time.monotonic())
            except ValueError as error:
                raise ValueError(f"source {self.number}, in the piece from sample {begin} on: {error}") from None
            begin += rows.n_samples
            for batch, behind in batches:
                end = behind[1]
                if not self._send(batch, behind):
                    return None
        last = collector.flush()
        if last is not None:
            end = last[1][1]
            if not self._send(*last):
                return None
        return end if all(self._answer() for _ in range(len(self.sent))) else None

    def _samples(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Rows, NDArray[np.float64], Any]:
        kinds = [np.float64, np.float32]
        # A piece may be empty: where nothing has come for a while, a batch that is open for long is closed by it.
        X = check_array(X, accept_sparse="csr", dtype=kinds, ensure_all_finite=False, ensure_min_samples=0)
        if X.shape[1] != self.width:
            raise ValueError(f"X has {X.shape[1]} features, n_features is {self.width}")
        y = column_or_1d(known_strings(np.asarray(y)))
        weights = None
        if sample_weight is not None:
            weights = laid(sample_weight, np.float64)
            if weights.ndim > 1:
                raise ValueError(f"sample_weight has {weights.ndim} dimensions: give a number, or one for each sample")
            weights = np.full(len(y), weights) if weights.ndim == 0 else weights
        if self.classes is None:
            return rows_of(X), laid(y, np.float64), weights
        unknown = ~np.isin(y, self.classes)
        if unknown.any():
            raise ValueError(f"y has the class {y[unknown][0]}, classes is {self.classes}")
        if len(self.classes) == 2:
            return rows_of(X), np.where(y == self.classes[1], 1.0, -1.0), weights
        return rows_of(X), np.searchsorted(self.classes, y).astype(np.float64), weights

    def _send(self, batch: bytes, behind: tuple[int, int]) -> bool:
        self.sent.append((self.center.ingest.remote(batch), batch, behind))
        return len(self.sent) <= _WINDOW or self._answer()

    def _answer(self) -> bool:
        """Waits until the oldest batch under way was taken; `False` if the source goes on elsewhere."""
        reference, batch, behind = self.sent.popleft()
        while True:
            fate, seq, sample = ray.get(reference)
            if fate in ("accepted", "duplicate"):
                # Behind this batch or a later one; else the centre has taken one that an earlier attempt cut elsewhere.
                return (seq, sample) in (behind, *(later for _, _, later in self.sent))
            if fate in ("elsewhere", "held"):
                # Cut elsewhere, or an earlier one was lost in a crash of the centre: ask it where to go on.
                return False
            time.sleep(0.05)
            reference = self.center.ingest.remote(batch)


def _learnable(model: Any) -> None:
    """Refuses what is learnt nowhere but in one place."""
    if not isinstance(model, (CopClassifier, CopRegressor)):
        raise TypeError(f"model is a {type(model).__name__}: over Ray a CopClassifier or a CopRegressor can be learnt")
    for name in ("shuffle", "early_stopping", "warm_start"):
        if getattr(model, name):
            raise ValueError(f"{name} is given, but over Ray samples are learnt from once, as they come: leave it out")
    # What says the same as the one pass that there is, is no mistake.
    left_out = type(model)().get_params()
    for name, same in (("max_iter", 1), ("tol", None), ("n_iter_no_change", left_out["n_iter_no_change"])):
        value = getattr(model, name)
        if value not in (same, left_out[name]):
            raise ValueError(f"{name} is {value!r}, but over Ray samples are learnt from once, as they come: leave it out")


def _folder(folder: str | os.PathLike[str]) -> str:
    """A centre's, which is there."""
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no folder of a centre", os.fspath(folder))
    return os.fspath(folder)


def _settings(model: CopClassifier | CopRegressor, n_samples: int) -> dict[str, Any]:
    model._check_parameters()
    whole("n_samples", n_samples, 1)
    if isinstance(getattr(model, "class_weight", None), str):
        raise ValueError(
            f"class_weight is {model.class_weight!r}, but nobody sees all labels before learning begins: give a weight for each class"
        )
    if getattr(model, "packed", False):
        raise ValueError("packed is given, but over Ray each batch is learnt from once, which it does not pay for: leave it out")
    return model._settings(n_samples, dense=False, epochs=1, stopping=False, streamed=True)


def _classes(model: CopClassifier | CopRegressor, classes: Sequence[Any] | None) -> NDArray[Any] | None:
    if not is_classifier(model):
        return None
    found = None if classes is None else classes_of(classes)
    if found is None or len(found) < 2:
        raise ValueError(f"classes is {classes}: give all that there are, two or more")
    return found


def _words(classes: NDArray[Any] | None) -> str:
    """What the labels in batches stand for."""
    return "" if classes is None else ", ".join(map(repr, classes.tolist()))


def _positives(
    model: CopClassifier | CopRegressor, classes: NDArray[Any] | None
) -> list[tuple[float, float, float]] | None:
    """What collectors call each class that is set against the rest, how much samples of it count, and how much all others."""
    if classes is None:
        return None
    codes = positives(classes)
    sides = class_sides(getattr(model, "class_weight", None), classes, classes)
    return [(code, *side) for code, side in zip(codes, sides or [(1.0, 1.0)] * len(codes), strict=True)]
