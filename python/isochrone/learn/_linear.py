"""Linear models, learnt by stochastic gradient descent in the planned order."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model._base import SparseCoefMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from isochrone import _native
from isochrone.learn._data import (
    all_or_nothing, check_finite, check_width, flags, laid, loudness, rows_of, whole,
)
from isochrone.learn._plan import Plan, threads_of
from isochrone.learn._progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    _Method = TypeVar("_Method", bound=Callable[..., Any])

    # That of scikit-learn has no types, and what it decorates would have none either.
    def available_if(check: Callable[[Any], bool]) -> Callable[[_Method], _Method]: ...
else:
    from sklearn.utils.metaestimators import available_if

SCHEMES = ("cop", "hogwild", "locking", "occ", "serial")
PENALTIES = ("l2", "l1", "elasticnet", None)
SCHEDULES = ("geometric", "constant", "invscaling", "optimal")

EPOCHS_MAX = 2**32 - 1
"""Epochs are counted in 32 bits."""

GROWN = (
    "the coefficients have grown beyond what a float can hold: scale the features to about 1 "
    "(sklearn.preprocessing.MaxAbsScaler), or take a smaller eta0"
)
"""Of a model that has."""

_PARAMETERS = """penalty : {"l2", "l1", "elasticnet", None}, default="l2"
        What keeps coefficients small: the objective is
        `mean(loss) + alpha * ((1 - l1_ratio) / 2 * ||w||^2 + l1_ratio * ||w||_1)`. The L2 part makes all coefficients decay
        at every step, as in `SGDClassifier`; the L1 part acts on the features of a sample when it is learnt from, divided
        by how often they occur.
    alpha : float, default=0.0001
        How strongly; with `learning_rate="optimal"` it also sets the step size.
    l1_ratio : float, default=0.15
        Share of L1 under `penalty="elasticnet"`, 0 to 1.
    fit_intercept : bool, default=True
        Whether to learn an intercept. A sample sees it as it was one to two blocks of samples before, in every scheme alike: if
        every sample read and wrote it, no two could be learnt from side by side. A block is a 64th of the samples, but at most 64 of
        them. Of sparse data it moves by 0.01 of a step, as in `SGDClassifier`, so that an array makes another model than the same numbers in a CSR matrix.
    max_iter : int, default={max_iter}
        Epochs (passes over the data) at most.
    tol : float or None, default=1e-3
        Stop when an epoch's mean loss (or, under `early_stopping`, the score) was not better than the best by this for
        `n_iter_no_change` epochs; None for all epochs.
    learning_rate : {"optimal", "invscaling", "constant", "geometric"}, default="{learning_rate}"
        Step size. `"optimal"`: `1 / (alpha * (t0 + t))` with t0 after Bottou and t the samples learnt from;
        `"invscaling"`: `eta0 / t**power_t`; `"constant"`: `eta0`; `"geometric"`: `eta0 * decay**epoch`, as published
        with 0.1 and 0.9, where each call of `partial_fit` is an epoch.
    eta0 : float, default={eta0}
        Initial step size of the schedules that have one.
    power_t : float, default=0.25
        Exponent under `"invscaling"`.
    decay : float, default=0.9
        Factor for each epoch under `"geometric"`.
    early_stopping : bool, default=False
        Whether to hold back the last `validation_fraction` of the samples and stop by the score on them.
    validation_fraction : float, default=0.1
        Share of the samples held back, between 0 and 1.
    n_iter_no_change : int, default=5
        Epochs without improvement before stopping.
    scheme : {"cop", "serial", "locking", "occ", "hogwild"}, default="cop"
        How threads share the model. `"cop"` gives the model of `"serial"`, bit for bit, for any `n_jobs`; `"locking"` and
        `"occ"` that of some order of the samples; `"hogwild"` coordinates nothing and its result varies from run to run.
    n_jobs : int, default=None
        Threads; -1 for all cores that this process may use, None for one, or for what `joblib.parallel_config` says.
    packed : bool, default=False
        Whether coefficients lie in memory by how many samples have their feature, rather than by its number. Changes speed,
        never results: epochs are faster where the coefficients are more than the caches hold. It takes four bytes a non-zero
        (eight with an L1 penalty) and about the time of planning, once for a plan. With `scheme="cop"` only; then one thread
        goes by a plan, too. `partial_fit`, which learns from each batch once, leaves coefficients as they are.
    shuffle : bool, default=False
        Whether to put the samples in a random order first (one order for all epochs; the data is copied). Needed where
        the order of the data means something, such as all samples of one class first.
    random_state : int, RandomState instance or None, default=None
        Draws the order under `shuffle`: an int, the same one in every run.
    warm_start : bool, default=False
        Whether `fit` goes on from the model of the previous `fit`, which must be one of as many features; of other classes,
        it begins anew. Step sizes do so in any case.
    verbose : int, default=0
        1 for a progress bar."""

_ATTRIBUTES = """n_features_in_ : int
        Features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if `X` had names that are all strings.
    n_iter_ : int
        Epochs of the last `fit` (of the class that took most).
    t_ : int
        Samples learnt from since the last `fit` began, or the first `partial_fit`.
    epochs_ : int
        Epochs since then, each call of `partial_fit` counted as one.
    loss_curve_ : list of float
        Mean loss of each epoch of the last call, by `sample_weight`, each sample's taken before it was learnt from; of the
        class that took most epochs. Empty when nobody asks for it: with `verbose=0` after `partial_fit`, or with `tol=None`.
    report_ : dict
        Of the last call: `seconds` spent on learning, those spent on `planning` before, the `scheme`, and the `threads` that had
        samples to learn from: no more than are of use, and one where samples wait for one another so much that one does better."""


class _Linear(SparseCoefMixin, BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share."""

    _losses: tuple[str, ...] = ()
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    # Set by scikit-learn, whose classes have no types.
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def _check_partial(self) -> None:
        """Refuses those, and what a pass over some of the samples cannot do."""
        self._check_parameters()
        if self.early_stopping:
            raise ValueError("early_stopping is True, but partial_fit goes once over what it is given: leave it False")

    def _check_parameters(self) -> None:
        """Refuses parameters that mean nothing, naming the ones that would."""
        _one_of(self, "loss", self._losses)
        _one_of(self, "penalty", PENALTIES)
        _one_of(self, "learning_rate", SCHEDULES)
        _one_of(self, "scheme", SCHEMES)
        _number(self, "alpha", 0.0, None, "0 or more")
        _number(self, "l1_ratio", 0.0, 1.0, "0 (only L2) to 1 (only L1)")
        _number(self, "power_t", None, None, "a number")
        _number(self, "decay", 0.0, 1.0, "between 0 and 1")
        flags(self, "fit_intercept", "shuffle", "early_stopping", "packed", "warm_start")
        loudness(self.verbose)
        whole("max_iter", self.max_iter, 1, EPOCHS_MAX)
        whole("n_iter_no_change", self.n_iter_no_change, 1, EPOCHS_MAX)
        _number(self, "eta0", 0.0, None, "a positive number")
        if self.eta0 == 0 and self.learning_rate != "optimal":
            raise ValueError(f"eta0 is 0, but learning_rate={self.learning_rate!r} needs a positive step size")
        if self.learning_rate == "optimal" and self.alpha == 0:
            raise ValueError('alpha is 0, but learning_rate="optimal" steps by 1 / alpha: take another schedule')
        if self.packed and self.scheme != "cop":
            raise ValueError(f'packed goes by the plan of scheme="cop", and scheme is {self.scheme!r}: take one of the two')
        if self.tol is not None:
            _number(self, "tol", None, None, "a number or None")
        if self.early_stopping:
            _number(self, "validation_fraction", np.nextafter(0.0, 1.0), np.nextafter(1.0, 0.0), "a share between 0 and 1")

    def _validate(self, X: Any, y: Any, reset: bool) -> tuple[Any, NDArray[Any]]:
        """`X` as CSR or a dense array and `y`. Whether all is finite the native half sees, and names the place."""
        return validate_data(  # type: ignore[no-any-return]
            self, X, known_strings(y), accept_sparse="csr", dtype=[np.float64, np.float32], order="C",
            ensure_all_finite=False, accept_large_sparse=True, reset=reset, y_numeric=not _is_classifier(self),
        )

    def _settings(
        self, n_samples: int, dense: bool, epochs: int, stopping: bool, streamed: bool = False
    ) -> dict[str, Any]:
        """What the native half is told. In a stream of batches, which no barrier interrupts, L2 acts by features too."""
        alpha = self.alpha if self.penalty is not None else 0.0
        share = {"l2": 0.0, "l1": 1.0, "elasticnet": self.l1_ratio, None: 0.0}[self.penalty]
        threads = threads_of(self.n_jobs)
        return {
            "loss": self.loss,
            "l2": alpha * n_samples * (1.0 - share) if streamed else 0.0,
            "decay": 0.0 if streamed else alpha * (1.0 - share),
            "l1": alpha * n_samples * share,
            "intercept": bool(self.fit_intercept),
            # scikit-learn's factor for sparse data, whose features are rarely there while the intercept always is.
            "intercept_decay": 1.0 if dense else 0.01,
            "schedule": self.learning_rate,
            "initial": float(self.eta0) if self.learning_rate != "optimal" else float(self.alpha),
            "second": {"invscaling": float(self.power_t), "geometric": float(self.decay), "constant": 0.0}.get(
                self.learning_rate, self._t0()
            ),
            "scheme": self.scheme,
            "threads": threads,
            "epochs": epochs,
            "seen": int(getattr(self, "t_", 0)),
            "epochs_before": min(int(getattr(self, "epochs_", 0)), 2**31),
            # One epoch does not make up for what it takes to lay coefficients out.
            "packed": bool(self.packed) and stopping,
            "counts": bool(self.verbose) or (stopping and self.tol is not None),
            # Whether the model is far worse than none is told by the loss of the last epoch.
            "judged": stopping,
            "tol": float(self.tol) if stopping and self.tol is not None else None,
            "patience": int(self.n_iter_no_change),
        }

    def _t0(self) -> float:
        """Bottou's start of the optimal schedule: the first step moves a typical coefficient by its own size."""
        if self.alpha == 0:
            return 1.0
        alpha = float(self.alpha)
        typical = alpha**-0.25
        first: float = typical / max(1.0, _native.slope(self.loss, -typical, 1.0))
        return 1.0 / (alpha * first)

    def _learn(
        self, X: Any, labels: NDArray[np.float64], weights: Any, positives: list[float], epochs: int, stopping: bool,
        plan: Any, fresh: bool, sides: list[tuple[float, float]] | None = None, before: dict[str, Any] | None = None,
    ) -> None:
        """Trains `coef_` and `intercept_`, one row for each of `positives`. Of some samples, not a whole fit, `coef_` is changed
        where it lies, at the very end; `before` is what is gone back to until then."""
        weights = _weights(weights, X, whole=stopping)
        if plan is not None and not isinstance(plan, Plan):
            raise TypeError(f"plan is a {type(plan).__name__}: make one by isochrone.learn.plan(X)")
        rows = given = rows_of(X)
        if self.shuffle:
            if plan is not None:
                raise ValueError("a plan is of the data in its own order: with plan=, shuffle X yourself before planning")
            order = check_random_state(self.random_state).permutation(rows.n_samples)
            rows, labels = rows_of(X[order]), labels[order]
            weights = None if weights is None else weights[order]
        held = None
        if stopping and self.early_stopping:
            if plan is not None:
                raise ValueError(
                    "early_stopping holds back samples, so a plan of all of them does not fit: give one of the two"
                )
            cut = held_from(self.validation_fraction, rows.n_samples, weights)
            (rows, tail), (labels, tail_labels) = rows.split(cut), (labels[:cut], labels[cut:])
            weights, tail_weights = (None, None) if weights is None else (weights[:cut], weights[cut:])
            held = (tuple(tail), laid(tail_labels, np.float64), tail_weights)
        settings = self._settings(rows.n_samples, isinstance(X, np.ndarray), epochs, stopping)
        bar = Progress(int(self.verbose), epochs * len(positives), type(self).__name__)

        def after(target: int, epoch: int, loss: float, score: float | None) -> None:
            told = f"loss {loss:.4f}" + (f", score {score:.4f}" if score is not None else "")
            bar.step(f"{told}" if len(positives) == 1 else f"{told} (class {target + 1} of {len(positives)})")

        handed = (
            tuple(rows), laid(labels, np.float64), weights, positives if _is_classifier(self) else None, sides,
            None if fresh else laid(self.coef_, np.float64).ravel(), laid(np.atleast_1d(self.intercept_), np.float64),
            settings, plan._native if plan is not None else None,
        )
        native, moved, coef = after if self.verbose else None, None, self.coef_
        try:
            if before is None:
                coef, intercept, report = _native.train(*handed, held, native)
            else:
                moved, intercept, report = _native.train_on(*handed, native)
        except ValueError:
            if held is not None or self.shuffle:
                # A row that is wrong is told by its number in X.
                _native.check(tuple(given))
            raise
        finally:
            bar.close()
        if moved is None:
            check_finite(GROWN, coef, intercept)
            coef = coef.reshape((len(positives), rows.width) if _is_classifier(self) else (rows.width,))
        elif not (moved.is_finite() and np.isfinite(intercept).all()):
            raise ValueError(GROWN)
        self.coef_, self.intercept_ = coef, intercept
        self.t_ = int(getattr(self, "t_", 0)) + report["epochs"] * rows.n_samples
        self.epochs_ = int(getattr(self, "epochs_", 0)) + report["epochs"]
        self.n_iter_ = report["epochs"]
        losses, worst = report.pop("losses"), report.pop("worst")
        self.loss_curve_ = losses if settings["counts"] else []
        self.report_ = report
        told = stopping or settings["counts"]
        costs = _cost_of_zeros(self.loss, labels, weights) if told else 0.0
        if told and worst > 10 * costs:
            # Its first steps are very long.
            optimal = self.learning_rate == "optimal"
            shorter = 'learning_rate="invscaling", or a larger alpha' if optimal else "a smaller eta0"
            warnings.warn(
                f"the loss is {worst:.3g}, of samples before they are learnt from, where predicting 0 for all costs {costs:.3g}: "
                f"scale the features to about 1 (sklearn.preprocessing.MaxAbsScaler), or take {shorter}",
                ConvergenceWarning, stacklevel=3,
            )
        elif stopping and self.tol is not None and not report["converged"] and epochs > self.n_iter_no_change:
            warnings.warn(
                f"still improving after max_iter={epochs} epochs: give more epochs, or a larger tol",
                ConvergenceWarning, stacklevel=3,
            )
        if moved is not None and before is not None:
            self.coef_ = np.require(coef, np.float64, ["C", "A", "W"])
            if not moved.put(self.coef_.reshape(-1), before, self.__dict__):
                # Another thread predicts by it.
                self.coef_ = self.coef_.copy()
                moved.put(self.coef_.reshape(-1), before, self.__dict__)

    def _start(self, rows: int, width: int, keep: bool) -> bool:
        """A model of zeros, unless there is one to go on from; whether it is one of zeros."""
        shape = (rows, width) if _is_classifier(self) else (width,)
        if keep and getattr(self, "coef_", None) is not None:
            if self.coef_.shape[-1] != width:
                has = self.coef_.shape[-1]
                if self.warm_start:
                    raise ValueError(
                        f"X has {width} features, but warm_start=True goes on from a model of {has}: pass warm_start=False to begin anew"
                    )
                raise ValueError(f"X has {width} features, but coef_ is one of {has}: set it to one of as many, or begin anew by fit")
            if sparse.issparse(self.coef_):
                raise ValueError("coef_ is sparse, which nothing is learnt into: call densify() first")
            if self.coef_.size == np.prod(shape):
                if np.size(self.intercept_) != rows:
                    raise ValueError(f"intercept_ has {np.size(self.intercept_)} numbers, where coef_ goes with {rows}: set as many")
                # Of a regressor that was made sparse there may be one row.
                self.coef_ = self.coef_.reshape(shape)
                return False
        check_width(width)
        try:
            self.coef_, self.intercept_, self.t_, self.epochs_ = np.zeros(shape), np.zeros(rows), 0, 0
        except MemoryError:
            raise MemoryError(
                f"{rows} times {width} coefficients want {8 * rows * width / 2**30:.1f} GiB of memory, which is not there: hash the "
                "features into fewer (sklearn.feature_extraction.FeatureHasher)"
            ) from None
        return True

    def _decide(self, X: Any) -> NDArray[np.float64]:
        """Scores of shape (n_samples, n_targets)."""
        check_is_fitted(self)
        X = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C",
            ensure_all_finite=False, accept_large_sparse=True, reset=False,
        )
        coef: Any = self.coef_
        coef = np.atleast_2d(coef.toarray() if sparse.issparse(coef) else coef)
        wanted = (np.size(self.intercept_), X.shape[1])
        if coef.shape != wanted:
            raise ValueError(
                f"coef_ is of shape {np.shape(self.coef_)}, where intercept_ and the features of fit go with {wanted}: set as many"
            )
        scores = _native.decide(
            tuple(rows_of(X)), laid(coef, np.float64).ravel(),
            laid(np.atleast_1d(self.intercept_), np.float64),
        )
        return scores.reshape(X.shape[0], len(coef))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class CopClassifier(ClassifierMixin, _Linear):  # type: ignore[misc]
    """Linear classifier that many threads learn exactly as one would.

    Support vectors (`loss="hinge"`, `"squared_hinge"`) or logistic regression (`"log_loss"`) by stochastic gradient
    descent; more than two classes one against the rest, over one shared plan.

    Parameters
    ----------
    loss : {"hinge", "squared_hinge", "log_loss"}, default="hinge"
        What is made small. `predict_proba` is there with `"log_loss"` only.
    {parameters}
    class_weight : dict, "balanced" or None, default=None
        How many times the loss of a sample of each class counts, besides what `sample_weight` says of it: numbers from 0 on
        by class, 1 for those that are not named; `"balanced"` for `n_samples / (n_classes * np.bincount(y))`, in `fit` only. As in
        `SGDClassifier`, of more than two classes each counts its weight where it is set against the rest, and 1 in the rest.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients; one row if there are two classes. float64.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    {attributes}

    Notes
    -----
    Dense data, and a feature that every sample has, make every two samples conflict: threads then cannot help, and
    :meth:`isochrone.learn.Plan.describe` says so.

    Examples
    --------
    >>> import numpy as np
    >>> from isochrone.learn import CopClassifier
    >>> X = np.array([[-1.0, -1.0], [-2.0, -1.0], [1.0, 1.0], [2.0, 1.0]])
    >>> CopClassifier().fit(X, [1, 1, 2, 2]).predict([[-0.8, -1.0]])
    array([1])
    """

    _losses = ("hinge", "squared_hinge", "log_loss")

    def __init__(
        self,
        loss: str = "hinge",
        *,
        penalty: str | None = "l2",
        alpha: float = 0.0001,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        learning_rate: str = "optimal",
        eta0: float = 0.1,
        power_t: float = 0.25,
        decay: float = 0.9,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        scheme: str = "cop",
        n_jobs: int | None = None,
        packed: bool = False,
        shuffle: bool = False,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
        class_weight: Any = None,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.power_t = power_t
        self.decay = decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.scheme = scheme
        self.n_jobs = n_jobs
        self.packed = packed
        self.shuffle = shuffle
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, plan: Plan | None = None) -> CopClassifier:
        """Learns from samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; a SciPy CSR matrix of float32 or float64 is not copied.
        y : array-like of shape (n_samples,)
            Their classes: numbers or strings, two or more different ones.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            How many times the loss of each sample counts, 0 or more; None for once each.
        plan : Plan, default=None
            A plan of `X` made before, else one is made where the scheme and `n_jobs` need it.

        Returns
        -------
        self : CopClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter means nothing, `X` is empty or holds NaN or infinity, `y` has one class only, `plan` is of
            other data, or the coefficients overflow.
        """
        self._check_parameters()
        with all_or_nothing(self):
            X, y = self._validate(X, y, reset=True)
            classes = _classes(y)
            codes = _codes(classes, y)
            kept = self.warm_start and np.array_equal(getattr(self, "classes_", []), classes)
            self.classes_ = classes
            if len(classes) < 2:
                raise ValueError(
                    f"y has 1 class only, {classes[0]}: a classifier needs samples of two classes or more"
                )
            changes = np.count_nonzero(codes[1:] != codes[:-1])
            if not self.shuffle and changes == len(classes) - 1 and len(codes) >= 20:
                warnings.warn(
                    "the samples come one class after the other, and are learnt from in that order: pass shuffle=True",
                    UserWarning, stacklevel=2,
                )
            sides = class_sides(self.class_weight, self.classes_, y)
            fresh = self._start(len(positives(self.classes_)), X.shape[1], kept)
            # Also where the model is gone on from, steps begin with the first one, as those of SGDClassifier do.
            self.t_ = self.epochs_ = 0
            self._learn(
                X, codes.astype(np.float64), sample_weight, positives(self.classes_), self.max_iter, True, plan, fresh, sides
            )
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, plan: Plan | None = None
    ) -> CopClassifier:
        """Learns from some more samples, once each, at the cost of these samples.

        Only an L2 penalty, by which all coefficients decay, has it sweep over the model. `coef_` is changed where it lies, as that of
        `SGDClassifier` is: copy it to keep it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Their classes.
        classes : array-like of shape (n_classes,), default=None
            All classes that there will be; needed in the first call, may be left out later.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            As of :meth:`fit`.
        plan : Plan, default=None
            A plan of `X`.

        Returns
        -------
        self : CopClassifier
            The estimator.
        """
        self._check_partial()
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            raise ValueError(
                "class_weight 'balanced' is not supported for partial_fit, which does not see all of y: use "
                "compute_class_weight('balanced', classes=classes, y=y) with all of y, or enough of it to tell how often each class "
                "occurs, and pass the weights by class as class_weight"
            )
        first = getattr(self, "classes_", None) is None or getattr(self, "coef_", None) is None
        if first and classes is None:
            raise ValueError("the first call of partial_fit needs classes=, all that will ever come")
        with all_or_nothing(self) as before:
            X, y = self._validate(X, y, reset=first)
            _classes(y)
            if first:
                self.classes_ = classes_of(classes)
                if len(self.classes_) < 2:
                    raise ValueError("classes has 1 class only: a classifier needs two or more")
            elif classes is not None and not np.array_equal(classes_of(classes), self.classes_):
                raise ValueError(f"classes is {classes_of(classes)}, but the first call said {self.classes_}")
            codes = _codes(self.classes_, y)
            known = self.classes_[codes] == y
            if not np.all(known):
                raise ValueError(f"y has the class {y[~known][0]}, which is not among {self.classes_}")
            sides = class_sides(self.class_weight, self.classes_, y)
            fresh = self._start(len(positives(self.classes_)), X.shape[1], True)
            self._learn(
                X, codes.astype(np.float64), sample_weight, positives(self.classes_), 1, False, plan, fresh, sides, before
            )
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """How far on which side of each class's plane samples are.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Positive for `classes_[1]` if there are two classes, else the highest is the predicted class.
        """
        scores = self._decide(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Of the dtype of `classes_`.
        """
        scores = self._decide(X)
        best = (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return self.classes_[best]  # type: ignore[no-any-return]

    def _logistic(self) -> bool:
        if self.loss != "log_loss":
            raise AttributeError(f'loss={self.loss!r} gives no probabilities: take loss="log_loss"')
        return True

    @available_if(_logistic)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, with `loss="log_loss"`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`; with more than two, those of one against the rest, made to sum up to 1.
        """
        chances = expit(self._decide(X))
        if chances.shape[1] == 1:
            return np.hstack([1.0 - chances, chances])
        total = chances.sum(axis=1, keepdims=True)
        chances = np.where(total == 0, 1.0, chances)
        normalised: NDArray[np.float64] = chances / chances.sum(axis=1, keepdims=True)
        return normalised

    @available_if(_logistic)
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        logarithms : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        logarithms: NDArray[np.float64] = np.log(self.predict_proba(X))
        return logarithms


class CopRegressor(RegressorMixin, _Linear):  # type: ignore[misc]
    """Linear regression that many threads learn exactly as one would.

    Parameters
    ----------
    loss : {"squared_error"}, default="squared_error"
        What is made small: half the squared difference.
    {parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients. float64.
    intercept_ : ndarray of shape (1,)
        Intercept.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from isochrone.learn import CopRegressor
    >>> X = np.random.RandomState(0).randn(200, 3)
    >>> round(CopRegressor().fit(X, X @ [1.0, 2.0, 3.0]).score(X, X @ [1.0, 2.0, 3.0]), 2)
    1.0
    """

    _losses = ("squared_error",)

    def __init__(
        self,
        loss: str = "squared_error",
        *,
        penalty: str | None = "l2",
        alpha: float = 0.0001,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        learning_rate: str = "invscaling",
        eta0: float = 0.01,
        power_t: float = 0.25,
        decay: float = 0.9,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        scheme: str = "cop",
        n_jobs: int | None = None,
        packed: bool = False,
        shuffle: bool = False,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.power_t = power_t
        self.decay = decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.scheme = scheme
        self.n_jobs = n_jobs
        self.packed = packed
        self.shuffle = shuffle
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, plan: Plan | None = None) -> CopRegressor:
        """Learns from samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; a SciPy CSR matrix of float32 or float64 is not copied.
        y : array-like of shape (n_samples,)
            A number for each.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            How many times the loss of each sample counts, 0 or more; None for once each.
        plan : Plan, default=None
            A plan of `X` made before, else one is made where the scheme and `n_jobs` need it.

        Returns
        -------
        self : CopRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter means nothing, `X` is empty, `X` or `y` holds NaN or infinity, `plan` is of other data, or the
            coefficients overflow.
        """
        self._check_parameters()
        with all_or_nothing(self):
            X, y = self._validate(X, y, reset=True)
            fresh = self._start(1, X.shape[1], self.warm_start)
            # Also where the model is gone on from, steps begin with the first one, as those of SGDClassifier do.
            self.t_ = self.epochs_ = 0
            self._learn(X, y.astype(np.float64, copy=False), sample_weight, [0.0], self.max_iter, True, plan, fresh)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, plan: Plan | None = None) -> CopRegressor:
        """Learns from some more samples, once each, at the cost of these samples.

        Only an L2 penalty, by which all coefficients decay, has it sweep over the model. `coef_` is changed where it lies, as that of
        `SGDClassifier` is: copy it to keep it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            A number for each.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            As of :meth:`fit`.
        plan : Plan, default=None
            A plan of `X`.

        Returns
        -------
        self : CopRegressor
            The estimator.
        """
        self._check_partial()
        with all_or_nothing(self) as before:
            X, y = self._validate(X, y, reset=getattr(self, "coef_", None) is None)
            fresh = self._start(1, X.shape[1], True)
            self._learn(X, y.astype(np.float64, copy=False), sample_weight, [0.0], 1, False, plan, fresh, before=before)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The number predicted for each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            float64.
        """
        return self._decide(X)[:, 0]


def _weights(weights: Any, X: Any, whole: bool = True) -> NDArray[np.float64] | None:
    """What each sample counts; None for all alike. Of some samples, not the `whole`, it may be that none counts."""
    if weights is None:
        return None
    if not whole and np.shape(weights) == (X.shape[0],) and not np.any(weights):
        return np.zeros(X.shape[0])
    checked = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    return laid(checked)


def held_from(fraction: float, n_samples: int, weights: NDArray[np.float64] | None) -> int:
    """The first of the last samples that are held back."""
    cut = n_samples - int(np.ceil(fraction * n_samples))
    if cut < 1:
        raise ValueError(f"validation_fraction={fraction} of {n_samples} samples leaves none to learn from")
    if weights is not None and not (weights[:cut].any() and weights[cut:].any()):
        share = "all samples but the last" if weights[cut:].any() else "the last"
        raise ValueError(
            f"sample_weight is 0 of {share} {n_samples - cut}, which early_stopping holds back: pass shuffle=True"
        )
    return cut


def _cost_of_zeros(loss: str, labels: NDArray[np.float64], weights: NDArray[np.float64] | None) -> float:
    """The mean loss of predicting 0 for all."""
    if loss == "squared_error":
        if weights is not None:
            # What counts nothing may be of any size.
            labels, weights = labels[weights != 0], weights[weights != 0]
        return float(np.average(np.square(labels), weights=weights)) / 2 if len(labels) else 0.0
    return float(np.log(2.0)) if loss == "log_loss" else 1.0


def _is_classifier(estimator: Any) -> bool:
    return isinstance(estimator, ClassifierMixin)


def _classes(y: NDArray[Any]) -> NDArray[Any]:
    """The different labels, ascending. Two numbers are found without sorting; whatever else `y` is, scikit-learn looks at it."""
    if y.dtype.kind in "biuf" and len(y):
        ends = np.array([y.min(), y.max()], dtype=y.dtype)
        if ends[0] != ends[1] and np.all((y == ends[0]) | (y == ends[1])):
            check_classification_targets(ends)
            return ends
    try:
        check_classification_targets(y)
        return np.unique(y)
    except TypeError:
        if any(isinstance(label, bytes) for label in y):
            raise ValueError("y has labels that are bytes: decode them to strings first") from None
        kinds = ", ".join(sorted({type(label).__name__ for label in y}))
        raise ValueError(f"y mixes labels of the types {kinds}: give every sample a label, all of one type") from None


def known_strings(labels: Any) -> Any:
    """Labels as they are, but for NumPy's strings of any length (StringDType), which scikit-learn does not know: as objects."""
    return labels.astype(object) if isinstance(labels, np.ndarray) and labels.dtype.kind == "T" else labels


def classes_of(classes: Any) -> NDArray[Any]:
    """All labels that there will be, ascending."""
    try:
        found: NDArray[Any] = np.unique(known_strings(classes))
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in classes}))
        raise ValueError(f"classes mixes labels of the types {kinds}: give all of one type") from None
    if np.any(found != found):
        raise ValueError(f"classes is {found}: NaN is no label")
    return found


def positives(classes: NDArray[Any]) -> list[float]:
    """The classes, as numbers, each of which is set against the rest."""
    return [1.0] if len(classes) == 2 else [float(code) for code in range(len(classes))]


def class_sides(class_weight: Any, classes: NDArray[Any], y: NDArray[Any]) -> list[tuple[float, float]] | None:
    """What `class_weight` makes a sample of each positive class count, and one of the others; None for 1 each."""
    if class_weight is None:
        return None
    weights = compute_class_weight(class_weight, classes=classes, y=y)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if np.any(wrong):
        raise ValueError(f"class_weight is {weights[wrong][0]} of the class {classes[wrong][0]}: give a number from 0 on")
    if len(weights) == 2:
        return [(float(weights[1]), float(weights[0]))]
    return [(float(weight), 1.0) for weight in weights]


def _codes(classes: NDArray[Any], y: NDArray[Any]) -> NDArray[np.integer[Any]]:
    """The place of each label among `classes`, which are sorted; any place for a label that is not there."""
    if len(classes) == 2:
        return np.asarray(y == classes[1]).view(np.int8)
    codes: NDArray[np.intp] = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return codes


def _one_of(estimator: Any, name: str, allowed: tuple[Any, ...]) -> None:
    value = getattr(estimator, name)
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}: give one of {', '.join(map(repr, allowed))}")


def _number(
    estimator: Any, name: str, least: float | None, most: float | None, wanted: str
) -> None:
    value: Any = getattr(estimator, name)
    fits = isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(value))  # type: ignore[call-overload]
    if not fits or (least is not None and value < least) or (most is not None and value > most):
        raise ValueError(f"{name} is {value!r}: give {wanted}")


def _fill(kind: type, **defaults: Any) -> None:
    """The shared part of a docstring."""
    parameters = _PARAMETERS
    for name, value in defaults.items():
        parameters = parameters.replace(f"{{{name}}}", str(value))
    if kind.__doc__:
        kind.__doc__ = kind.__doc__.replace("{parameters}", parameters).replace("{attributes}", _ATTRIBUTES)


_fill(CopClassifier, max_iter=1000, learning_rate="optimal", eta0=0.1)
_fill(CopRegressor, max_iter=1000, learning_rate="invscaling", eta0=0.01)
