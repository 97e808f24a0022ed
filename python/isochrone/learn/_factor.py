"""The factorisation of a matrix of which some cells are known."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_feature_names, check_array, check_consistent_length, check_is_fitted, column_or_1d,
)

from isochrone import _native
from isochrone.learn._data import FEATURES_MAX, all_or_nothing, check_finite, flags, laid, loudness, whole
from isochrone.learn._linear import EPOCHS_MAX, SCHEMES, _number, _one_of, _weights, held_from, known_strings
from isochrone.learn._plan import threads_of
from isochrone.learn._progress import Progress

SCHEDULES = ("geometric", "constant", "invscaling")


class CopFactorizer(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Matrix factorisation that many threads learn exactly as one would.

    A sample is a cell of the matrix: who rated, what was rated, and the rating. Each row and each column of the matrix gets
    `n_components` numbers, and a cell is predicted as the product of its row's and its column's, plus the intercept.

    There is neither `partial_fit`, since rows and columns are known by `fit` only, nor a plan to hand over: `fit` makes its own.

    Parameters
    ----------
    n_components : int, default=16
        Numbers for each row and each column.
    alpha : float, default=1e-5
        How strongly they are kept small: the objective is `mean(loss) + alpha * ((1 - l1_ratio) / 2 * (||R||^2 + ||C||^2) +
        l1_ratio * (||R||_1 + ||C||_1))`, where the loss is half the squared difference.
    l1_ratio : float, default=0.0
        Share of the absolute values in the penalty, 0 to 1.
    fit_intercept : bool, default=True
        Whether to learn an intercept. It begins at the mean of the cells.
    max_iter : int, default=50
        Epochs (passes over the cells) at most.
    tol : float or None, default=1e-4
        Stop when an epoch's mean loss (or, under `early_stopping`, the score) was not better than the best by this for
        `n_iter_no_change` epochs; None for all epochs.
    learning_rate : {"geometric", "constant", "invscaling"}, default="geometric"
        Step size: `eta0 * decay**epoch`, `eta0`, or `eta0 / t**power_t` with t the cells learnt from.
    eta0 : float, default=0.05
        Initial step size.
    decay : float, default=0.95
        Factor for each epoch under `"geometric"`.
    power_t : float, default=0.25
        Exponent under `"invscaling"`.
    early_stopping : bool, default=False
        Whether to hold back the last `validation_fraction` of the cells (in their random order, under `shuffle`) and stop by the
        score on them. Rows and columns that only those have are not learnt.
    validation_fraction : float, default=0.1
        Share of the cells held back, between 0 and 1.
    n_iter_no_change : int, default=5
        Epochs without improvement before stopping.
    scheme : {"cop", "serial", "locking", "occ", "hogwild"}, default="cop"
        How threads share the model, as for :class:`CopClassifier`.
    n_jobs : int, default=None
        Threads; -1 for all cores that this process may use, None for one, or for what `joblib.parallel_config` says.
    shuffle : bool, default=True
        Whether to put the cells in a random order first: they often come row by row, and cells of one row wait for one another.
    random_state : int, RandomState instance or None, default=None
        Draws the order, and what the numbers of rows and columns begin with. An int draws the same in every run: the model is
        then the same too, with any number of threads.
    warm_start : bool, default=False
        Whether `fit` goes on from the model of the previous `fit`, if that had the same rows and columns.
    verbose : int, default=0
        1 for a progress bar.

    Attributes
    ----------
    rows_, columns_ : ndarray
        What rows and columns are called, ascending.
    row_factors_, column_factors_ : ndarray of shape (n_rows, n_components) and (n_columns, n_components)
        Their numbers, in that order.
    intercept_ : float
        Intercept.
    n_features_in_ : int
        2: a row and a column.
    feature_names_in_ : ndarray of shape (2,)
        What a DataFrame calls them.
    n_iter_ : int
        Epochs of the last `fit`.
    t_ : int
        Cells learnt from so far.
    epochs_ : int
        Epochs so far; under `warm_start` those of earlier calls too.
    loss_curve_ : list of float
        Mean loss of each epoch, each cell's taken before it was learnt from. Empty with `tol=None` and `verbose=0`.
    report_ : dict
        Of the last `fit`: `seconds` spent on learning, those spent on `planning` before, the `scheme`, and the `threads` that had
        cells to learn from.

    Examples
    --------
    >>> import numpy as np
    >>> from isochrone.learn import CopFactorizer
    >>> people, films = np.repeat(np.arange(20), 15), np.tile(np.arange(15), 20)
    >>> ratings = (1.0 + people % 4) * (1.0 + films % 3)
    >>> known = np.random.RandomState(0).rand(300) < 0.8
    >>> cells = np.column_stack([people, films])
    >>> model = CopFactorizer(n_components=3, max_iter=300, decay=1.0, random_state=0)
    >>> model.fit(cells[known], ratings[known]).score(cells[~known], ratings[~known]) > 0.95
    True
    """

    rows_: NDArray[Any]
    columns_: NDArray[Any]
    row_factors_: NDArray[np.float64]
    column_factors_: NDArray[np.float64]
    # Set by scikit-learn, whose classes have no types.
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    intercept_: float
    t_: int
    epochs_: int

    def __init__(
        self,
        n_components: int = 16,
        *,
        alpha: float = 1e-5,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        max_iter: int = 50,
        tol: float | None = 1e-4,
        learning_rate: str = "geometric",
        eta0: float = 0.05,
        decay: float = 0.95,
        power_t: float = 0.25,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        scheme: str = "cop",
        n_jobs: int | None = None,
        shuffle: bool = True,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.decay = decay
        self.power_t = power_t
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.scheme = scheme
        self.n_jobs = n_jobs
        self.shuffle = shuffle
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CopFactorizer:
        """Learns from the known cells of a matrix.

        Parameters
        ----------
        X : array-like of shape (n_samples, 2)
            Each cell's row and column: numbers or strings, such as people and films.
        y : array-like of shape (n_samples,)
            What stands there.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            How many times the loss of each cell counts, 0 or more; None for once each.

        Returns
        -------
        self : CopFactorizer
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter means nothing, `X` has not two columns, `y` holds NaN or infinity, or the numbers overflow.
        """
        self._check_parameters()
        with all_or_nothing(self):
            self._learn(X, y, sample_weight)
        return self

    def _learn(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Sets what is learnt."""
        names = _cells(X)
        _check_feature_names(self, X, reset=True)
        values = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"), warn=True)
        check_consistent_length(X, values)
        weights = _weights(sample_weight, values)
        random = check_random_state(self.random_state)
        if self.shuffle:
            order = random.permutation(len(values))
            names, values = (names[0][order], names[1][order]), values[order]
            weights = None if weights is None else weights[order]
        cut, late = len(values), names
        if self.early_stopping:
            cut = held_from(self.validation_fraction, len(values), weights)
            names, late = (names[0][:cut], names[1][:cut]), (names[0][cut:], names[1][cut:])
        (rows, row), (columns, column) = (_numbered(part) for part in names)
        # And a row and a column that nobody has learnt.
        if len(rows) + len(columns) + 2 > FEATURES_MAX:
            raise ValueError(f"{len(rows)} rows and {len(columns)} columns are more than the {FEATURES_MAX - 2} that there can be")
        held = None
        if self.early_stopping:
            held = _held(rows, columns, late, values[cut:], None if weights is None else weights[cut:])
            values, weights = values[:cut], None if weights is None else weights[:cut]
        seed = int(random.randint(np.iinfo(np.int32).max))
        # Memory that is not there is an error here; the native half would end the process.
        np.empty((len(rows) + len(columns), self.n_components))
        vectors, begin = None, 0.0
        if self.fit_intercept:
            begin = float(np.average(values, weights=weights if weights is None or weights.any() else None))
        if self.warm_start and self._same(rows, columns):
            vectors = np.concatenate([self.row_factors_, self.column_factors_]).ravel()
            begin = self.intercept_ if self.fit_intercept else 0.0
            seen, epochs = self.t_, int(getattr(self, "epochs_", 0))
        else:
            seen = epochs = 0
        width = len(rows) + len(columns)
        cells = _pairs(row, column + len(rows), width)
        settings = self._settings(len(values), seen, epochs)
        bar = Progress(int(self.verbose), self.max_iter, type(self).__name__)

        def after(_: int, epoch: int, loss: float, score: float | None) -> None:
            bar.step(f"loss {loss:.4f}" + (f", score {score:.4f}" if score is not None else ""))

        try:
            found, intercept, report = _native.factorise(
                cells, laid(values), weights, int(self.n_components), vectors, seed, begin, settings, held,
                after if self.verbose else None,
            )
        finally:
            bar.close()
        check_finite(
            "the factors have grown beyond what a float can hold: scale y to about 1, or take a smaller eta0", found, intercept
        )
        factors = found.reshape(width, int(self.n_components))
        self.rows_, self.columns_, self.intercept_ = rows, columns, float(intercept[0])
        self.row_factors_, self.column_factors_ = factors[: len(rows)].copy(), factors[len(rows) :].copy()
        self.n_features_in_, self.n_iter_ = 2, report["epochs"]
        self.t_, self.epochs_ = seen + report["epochs"] * len(values), epochs + report["epochs"]
        losses = report.pop("losses")
        self.loss_curve_, self.report_ = losses if settings["counts"] else [], report
        if self.tol is not None and not report["converged"] and self.max_iter > self.n_iter_no_change:
            warnings.warn(
                f"still improving after max_iter={self.max_iter} epochs: give more epochs, or a larger tol",
                ConvergenceWarning, stacklevel=3,
            )

    def predict(self, X: Any) -> NDArray[np.float64]:
        """What stands in each cell.

        Parameters
        ----------
        X : array-like of shape (n_samples, 2)
            Each cell's row and column. One that was not there in `fit` counts as zeros: the intercept is predicted.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            float64.

        Raises
        ------
        ValueError
            If `X` has not two columns, names of another type than in `fit`, or columns that are called otherwise.
        """
        check_is_fitted(self)
        row_names, column_names = _cells(X)
        _check_feature_names(self, X, reset=False)
        row, knows_row = _places(self.rows_, row_names)
        column, knows_column = _places(self.columns_, column_names)
        told = np.einsum("ij,ij->i", self.row_factors_[row], self.column_factors_[column])
        predicted: NDArray[np.float64] = np.where(knows_row & knows_column, told, 0.0) + self.intercept_
        return predicted

    def _check_parameters(self) -> None:
        _one_of(self, "learning_rate", SCHEDULES)
        _one_of(self, "scheme", SCHEMES)
        whole("n_components", self.n_components, 1, FEATURES_MAX)
        _number(self, "alpha", 0.0, None, "0 or more")
        _number(self, "l1_ratio", 0.0, 1.0, "0 (only squares) to 1 (only absolute values)")
        flags(self, "fit_intercept", "shuffle", "early_stopping", "warm_start")
        loudness(self.verbose)
        whole("max_iter", self.max_iter, 1, EPOCHS_MAX)
        whole("n_iter_no_change", self.n_iter_no_change, 1, EPOCHS_MAX)
        _number(self, "eta0", np.nextafter(0.0, 1.0), None, "a positive number")
        _number(self, "decay", 0.0, 1.0, "between 0 and 1")
        _number(self, "power_t", None, None, "a number")
        if self.tol is not None:
            _number(self, "tol", None, None, "a number or None")
        if self.early_stopping:
            _number(self, "validation_fraction", np.nextafter(0.0, 1.0), np.nextafter(1.0, 0.0), "a share between 0 and 1")

    def _settings(self, n_samples: int, seen: int, epochs: int) -> dict[str, Any]:
        """What the native half is told."""
        seconds = {"geometric": self.decay, "constant": 0.0, "invscaling": self.power_t}
        return {
            "loss": "squared_error",
            "l2": self.alpha * n_samples * (1.0 - self.l1_ratio),
            "decay": 0.0,
            "l1": self.alpha * n_samples * self.l1_ratio,
            "intercept": bool(self.fit_intercept),
            "intercept_decay": 0.01,
            "schedule": self.learning_rate,
            "initial": float(self.eta0),
            "second": float(seconds[self.learning_rate]),
            "scheme": self.scheme,
            "threads": threads_of(self.n_jobs),
            "epochs": int(self.max_iter),
            "seen": seen,
            "epochs_before": min(epochs, 2**31),
            # Vectors are longer than what is won by laying them out.
            "packed": False,
            "counts": bool(self.verbose) or self.tol is not None,
            "judged": False,
            "tol": None if self.tol is None else float(self.tol),
            "patience": int(self.n_iter_no_change),
        }

    def _same(self, rows: NDArray[Any], columns: NDArray[Any]) -> bool:
        """Whether the model is one of the same rows, columns and components."""
        return (
            getattr(self, "row_factors_", None) is not None
            and np.array_equal(*_comparable(self.rows_, rows))
            and np.array_equal(*_comparable(self.columns_, columns))
            and self.row_factors_.shape[1] == self.n_components
        )


def _cells(X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and columns, each of its own type."""
    if sparse.issparse(X):
        raise ValueError(
            "X is a sparse matrix: give its known cells, for M = X.tocoo() X=numpy.column_stack([M.row, M.col]) and y=M.data"
        )
    if hasattr(X, "iloc"):
        parts = [np.asarray(X.iloc[:, at]) for at in range(X.shape[1])]
    elif hasattr(X, "columns"):
        # Of Polars and pyarrow, whose tables as a whole would be of one type for all columns.
        parts = [np.asarray(X[name]) for name in getattr(X, "column_names", X.columns)]
    else:
        cells = np.asarray(X)
        if cells.ndim != 2:
            raise ValueError(f"X has {cells.ndim} dimensions: give two columns, each cell's row and column")
        parts = list(cells.T)
        if cells.dtype.kind in "fUS" and isinstance(X, (list, tuple)):
            # One type for both columns would round integers of the one where the other has none, or make strings of them.
            parts = [np.asarray(column) for column in zip(*X, strict=True)]
    parts = [known_strings(part) for part in parts]
    if len(parts) != 2:
        raise ValueError(f"X has {len(parts)} columns: give two, each cell's row and column")
    if not len(parts[0]):
        raise ValueError("X has no cells")
    for what, part in zip(("row", "column"), parts, strict=True):
        cells = np.flatnonzero(_missing(part))
        if len(cells):
            raise ValueError(f"X[{cells[0]}] has {part[cells[0]]} for its {what}: leave out cells whose {what} is not known")
    return parts[0], parts[1]


def _pairs(row: NDArray[Any], column: NDArray[Any], width: int) -> tuple[Any, ...]:
    """Cells as samples of two features each."""
    indices = np.empty((len(row), 2), np.uint32)
    indices[:, 0], indices[:, 1] = row, column
    return np.arange(0, 2 * len(row) + 1, 2, dtype=np.uint64), indices.ravel(), np.ones(2 * len(row), np.float32), width


def _held(
    rows: NDArray[Any], columns: NDArray[Any], names: tuple[NDArray[Any], NDArray[Any]], values: NDArray[np.float64], weights: Any,
) -> tuple[tuple[Any, ...], NDArray[np.float64], Any]:
    """Cells that are held back, of rows and columns that are learnt, or of one of each that is not."""
    width = len(rows) + len(columns)
    (row, knows_row), (column, knows_column) = _places(rows, names[0]), _places(columns, names[1])
    cells = _pairs(
        np.where(knows_row, row, width), np.where(knows_column, column + len(rows), width + 1), width + 2
    )
    return cells, laid(values), weights


def _missing(names: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of them are None, NaN, NaT or pandas' NA."""
    if names.dtype.kind == "O":
        absent = (name is None or type(name).__name__ == "NAType" or name != name for name in names)
        return np.fromiter(absent, np.bool_, len(names))
    # Numbers and times are unequal to themselves where there is none.
    return np.asarray(names != names)


def _numbered(names: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The different names, ascending, and which of them each is."""
    try:
        return np.unique(names, return_inverse=True)
    except TypeError:
        raise ValueError(f"a column of X mixes names of the types {_types(names)}: give all the same type") from None


def _types(names: NDArray[Any]) -> str:
    return ", ".join(sorted({type(name).__name__ for name in names}))


def _kind(names: NDArray[Any]) -> str:
    """The same letter for all kinds of numbers."""
    return "f" if names.dtype.kind in "biuf" else names.dtype.kind


def _comparable(one: NDArray[Any], other: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both as a type in which only what is equal compares as equal: integers of 64 bits and other numbers meet in float64, which
    has 53."""
    numbers = [part.dtype for part in (one, other) if part.dtype.kind in "iuf"]
    wide = any(dtype.kind in "iu" and dtype.itemsize == 8 for dtype in numbers)
    if len(numbers) == 2 and wide and np.result_type(*numbers).kind == "f":
        return one.astype(object), other.astype(object)
    return one, other


def _places(names: NDArray[Any], wanted: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where each stands among the names, and whether it does."""
    try:
        if _kind(names) != _kind(wanted) and "O" not in (_kind(names), _kind(wanted)):
            # NumPy would compare what they look like as text.
            raise TypeError
        names, wanted = _comparable(names, wanted)
        at: NDArray[np.intp] = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    except TypeError:
        raise ValueError(f"X has names of the types {_types(wanted)}, where fit had {_types(names)}") from None
    return at, np.asarray(names[at] == wanted)
