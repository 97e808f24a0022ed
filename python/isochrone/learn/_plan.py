"""The plan of conflicts of a data set."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from joblib import cpu_count, effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils import check_array

from isochrone import _native
from isochrone.learn._data import Rows, rows_of, whole


def plan(X: Any, *, n_jobs: int | None = None) -> Plan:
    """Plans the conflicts of samples, once, for every estimator that is to learn from them.

    Which parameters a sample touches is known before anything is learnt: those of its non-zero features. One pass
    over the samples writes down, for each entry, which sample must have been learnt from before. A plan depends on where
    `X` has entries, not on their values nor on labels.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The samples, best as a SciPy CSR matrix of float32 or float64, which is not copied.
    n_jobs : int, default=None
        Threads to plan with; -1 for all cores that this process may use, None for one, or for what `joblib.parallel_config`
        says. The plan is the same.

    Returns
    -------
    plan : Plan
        To hand to `fit(X, y, plan=plan)`. It takes 4 bytes for each entry of `X`.

    Raises
    ------
    ValueError
        If `X` is empty, has a row that names a feature twice, or holds NaN or infinity.
    MemoryError
        If there are more features than there is memory to plan with: four bytes for each, in each thread.

    Examples
    --------
    >>> from scipy.sparse import random
    >>> from isochrone.learn import plan
    >>> plan(random(1000, 500, density=0.01, format="csr", random_state=0)).n_samples
    1000
    """
    rows = _checked(X)
    return Plan(_native.Plan.of(tuple(rows), threads_of(n_jobs)), rows)


class Plan:
    """The planned order of conflicts; made by :func:`plan` or :meth:`load`.

    Attributes
    ----------
    n_samples : int
        Samples planned.
    n_features : int
        Features they have.
    n_entries : int
        Entries of the samples, each with an annotation.
    nbytes : int
        Memory that the annotations take, in bytes. What `fit` finds out of the plan and leaves with it comes on top: nine bytes a
        sample with `n_jobs` of two or more, and four an entry with `packed` (eight with an L1 penalty).
    depth : int
        Length of the longest chain of samples that wait for one another.
    parallelism : float
        `n_samples / depth`: with how many threads, at most, learning exactly can be faster than with one.
    """

    def __init__(self, native: _native.Plan, rows: Rows | None = None) -> None:
        self._native = native
        self._rows = rows
        self._found: dict[str, Any] | None = None

    def _statistics(self) -> dict[str, Any]:
        """What the native half sees in it; looked for once."""
        if self._found is None:
            if self._rows is None:
                raise ValueError(
                    "this plan came without its data, of which its depth is found out: ask for that before it is pickled, or give "
                    "the data by Plan.load(path, X)"
                )
            self._found = self._native.statistics(tuple(self._rows), threads_of(-1))
            self._rows = None
        return self._found

    @property
    def n_samples(self) -> int:
        return self._native.n_samples

    @property
    def n_features(self) -> int:
        return self._native.n_features

    @property
    def n_entries(self) -> int:
        return self._native.n_entries

    @property
    def nbytes(self) -> int:
        return self._native.nbytes

    @property
    def depth(self) -> int:
        return len(self.levels())

    @property
    def parallelism(self) -> float:
        return self.n_samples / max(self.depth, 1)

    def levels(self) -> NDArray[np.uint32]:
        """How many samples there are at each depth of the plan: those of one level conflict with none of that level.

        Returns
        -------
        levels : ndarray of shape (depth,), dtype uint32
            They sum up to `n_samples`.
        """
        return self._statistics()["levels"]  # type: ignore[no-any-return]

    def bottlenecks(self) -> list[tuple[int, int, int]]:
        """The features that hold threads up most.

        Returns
        -------
        bottlenecks : list of (feature, waits, samples)
            Up to five: how many waits of the longest chain are for this feature, and how many samples have it.
        """
        return self._statistics()["bottlenecks"]  # type: ignore[no-any-return]

    def speedup(self, n_jobs: int) -> float:
        """How much faster than one thread so many are at most, if they take the levels of the plan one after the other.

        This is what :meth:`plot` draws. Threads need not wait for the end of a level, but have more to do than to learn.

        Parameters
        ----------
        n_jobs : int
            Threads, 1 or more.

        Returns
        -------
        speedup : float
            Between 1 and `n_jobs`.

        Raises
        ------
        ValueError
            If `n_jobs` is no whole number from 1 on.
        """
        whole("n_jobs", n_jobs, 1)
        steps = int(np.sum(-(-self.levels().astype(np.int64) // n_jobs)))
        return self.n_samples / max(steps, 1)

    def describe(self) -> str:
        """What the plan says of the data, in words, with a recommendation.

        Returns
        -------
        text : str
            Several lines; the last ones say how many of this machine's cores are worth using, and why.
        """
        return self._statistics()["text"]  # type: ignore[no-any-return]

    def plot(self, ax: Any = None) -> Any:
        """Draws how many samples can be learnt from side by side, and what that gives to threads.

        Parameters
        ----------
        ax : pair of matplotlib axes, default=None
            Where to draw; None for a new figure.

        Returns
        -------
        figure : matplotlib.figure.Figure
            In a notebook it is shown as the result of its cell, and not once more as an open figure of pyplot's; one that `ax` is of
            is left to whoever made it. Left: samples at each depth of the plan. Right: speed-up that the plan allows, by threads.

        Raises
        ------
        ImportError
            If matplotlib is not installed: `pip install isochrone[plot]`.
        ValueError
            If `ax` is not two axes.
        """
        try:
            from matplotlib import pyplot
        except ImportError as missing:
            raise ImportError("a plan is drawn by matplotlib: pip install isochrone[plot]") from missing
        own = ax is None
        if own:
            _, ax = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        if np.shape(ax) != (2,) or not all(hasattr(one, "stairs") for one in ax):
            raise ValueError(f"ax is {ax!r}: give two axes, such as pyplot.subplots(1, 2)[1]")
        left, right = ax
        levels = self.levels()
        # More steps than a figure has points across are drawn as the means of as many levels each.
        edges = np.unique(np.linspace(0, len(levels), min(len(levels), _STEPS) + 1).astype(np.intp))
        means = np.add.reduceat(levels, edges[:-1], dtype=np.float64) / np.diff(edges)
        left.stairs(means, edges + 0.5, baseline=_BOTTOM, fill=True, color="C0", alpha=0.35)
        left.stairs(means, edges + 0.5, baseline=None, color="C0", linewidth=0.8)
        left.axhline(self.parallelism, linestyle="--", linewidth=0.8, color="black")
        left.set_yscale("log")
        left.set_ylim(_BOTTOM, max(10.0, 1.5 * means.max()))
        left.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        noun = "sample" if self.n_samples == 1 else "samples"
        left.set(
            xlabel="depth in the plan", ylabel="samples that do not conflict",
            title=f"{self.n_samples} {noun}, depth {self.depth}: {self.parallelism:.1f} side by side",
        )
        threads = 2 ** np.arange(8)
        right.plot(threads, [self.speedup(int(count)) for count in threads], marker="o", label="this plan")
        right.plot(threads, threads, linestyle=":", color="grey", label="no conflicts")
        right.set_xscale("log", base=2)
        right.set_yscale("log", base=2)
        right.set(xlabel="threads", ylabel="speed-up at most", title="What the plan allows")
        right.set_xticks(threads, [str(count) for count in threads])
        right.legend(frameon=False)
        if own and "inline" in pyplot.get_backend():
            # What is open at the end of a cell is shown, and so is what the cell results in.
            pyplot.close(left.figure)
        return left.figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file, with a checksum and the fingerprint of the data.

        Parameters
        ----------
        path : path-like
            Where to.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        self._native.save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], X: Any = None) -> Plan:
        """Reads what :meth:`save` wrote.

        Parameters
        ----------
        path : path-like
            Where it is.
        X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            The data it is of. Without it the plan can be learnt with, but not described nor drawn.

        Returns
        -------
        plan : Plan
            Equal to the one saved.

        Raises
        ------
        OSError
            If it cannot be read.
        ValueError
            If it is not a plan, damaged, or not of `X`.
        """
        native = _native.Plan.load(os.fspath(path))
        if X is None:
            return cls(native)
        rows = _checked(X)
        native.check(tuple(rows))
        return cls(native, rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._native.to_bytes(), self._found)

    def __copy__(self) -> Plan:
        # Nothing changes it.
        return self

    def __deepcopy__(self, _: Any) -> Plan:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._native.equals(other._native)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Plan of {self.n_samples} samples, {self.n_features} features, {self.n_entries} entries>"


def _checked(X: Any) -> Rows:
    """The rows of anything that scikit-learn takes."""
    kinds = [np.float64, np.float32]
    return rows_of(check_array(X, accept_sparse="csr", dtype=kinds, ensure_all_finite=False, accept_large_sparse=True))


def _unpickled(data: bytes, found: dict[str, Any] | None = None) -> Plan:
    plan = Plan(_native.Plan.from_bytes(data))
    plan._found = found
    return plan


_STEPS = 400
"""Levels that the plot tells apart."""

_BOTTOM = 0.8
"""Where its axis of samples begins: below one sample, which no level goes without."""

_THREADS_MAX = 1024
"""Far more than machines have cores; beyond, systems refuse to start them."""


def threads_of(n_jobs: int | None) -> int:
    """Threads that `n_jobs` asks for, as scikit-learn reads it: None is 1, or what joblib's context says; -1 is all cores that the
    process may use (by affinity, its container's share and LOKY_MAX_CPU_COUNT), -2 all but one."""
    if n_jobs is None:
        n_jobs = effective_n_jobs(None)
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise ValueError(f"n_jobs is {n_jobs!r}: give the number of threads, or -1 for all cores")
    if n_jobs < 0:
        return max(1, int(cpu_count()) + 1 + int(n_jobs))
    if n_jobs > _THREADS_MAX:
        raise ValueError(f"n_jobs is {n_jobs}, more than the {_THREADS_MAX} threads that there can be: give -1 for all cores")
    return int(n_jobs)
