"""Plans: what they tell, where they fit, and that they can be kept."""

import copy
import errno
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import sparse_samples
from joblib import parallel_config
from scipy import sparse

from isochrone.learn import CopClassifier, Plan, plan
from isochrone.learn._plan import threads_of


def test_depth_of_chains_and_of_no_conflicts():
    apart = plan(sparse.identity(50, format="csr"))
    assert (apart.depth, apart.parallelism) == (1, 50.0)
    assert apart.speedup(8) == pytest.approx(50 / 7)
    chain = plan(np.ones((50, 3)))
    assert (chain.depth, chain.parallelism) == (50, 1.0)
    assert chain.speedup(8) == 1.0
    for threads, told in [(0, "n_jobs is 0: give 1 or more"), (1.5, "n_jobs is 1.5: give a whole number from 1 on")]:
        with pytest.raises(ValueError, match=told):
            chain.speedup(threads)
    # The published example: the first and the third sample share a feature.
    published = plan(sparse.csr_matrix([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    assert published.levels().tolist() == [2, 1]


def test_levels_are_those_of_a_plain_look_at_the_samples():
    X, _ = sparse_samples(n=300, d=5000, per_row=5)
    depth, last = [], {}
    for row in range(X.shape[0]):
        features = X.indices[X.indptr[row]:X.indptr[row + 1]]
        depth.append(1 + max(last.get(feature, 0) for feature in features))
        last.update(dict.fromkeys(features, depth[-1]))
    assert plan(X).levels().tolist() == np.bincount(depth)[1:].tolist()


def test_four_bytes_an_entry(samples):
    X, _ = samples
    planned = plan(X)
    assert (planned.n_samples, planned.n_features, planned.n_entries) == (*X.shape, X.nnz)
    assert planned.nbytes <= 4 * X.nnz + 256


def test_planned_by_several_threads_it_is_the_same(samples):
    X, _ = samples
    assert all(plan(X, n_jobs=threads) == plan(X) for threads in (2, 3, 8))


def test_threads_are_as_many_as_scikit_learn_would_take():
    code = "from isochrone.learn._plan import threads_of; print(*map(threads_of, (-1, -2, None, 3)))"
    limited = os.environ | {"LOKY_MAX_CPU_COUNT": "1"}
    told = subprocess.run([sys.executable, "-c", code], env=limited, check=True, capture_output=True, text=True)
    assert told.stdout == "1 1 1 3\n"
    assert threads_of(None) == 1
    with parallel_config(n_jobs=3):
        assert (threads_of(None), threads_of(2)) == (3, 2)


def test_saved_loaded_pickled(samples, tmp_path):
    X, y = samples
    planned = plan(X)
    planned.save(tmp_path / "conflicts.plan")
    loaded = Plan.load(tmp_path / "conflicts.plan")
    again = pickle.loads(pickle.dumps(planned))
    assert loaded == planned == again
    with pytest.raises(ValueError, match="came without its data, of which its depth is found out: ask for that before it is pickled"):
        again.describe()
    assert copy.deepcopy(planned).depth == planned.depth == pickle.loads(pickle.dumps(planned)).depth
    settings = dict(max_iter=3, tol=None, n_jobs=2)
    with_plan = CopClassifier(**settings).fit(X, y, plan=loaded)
    assert np.array_equal(with_plan.coef_, CopClassifier(**settings).fit(X, y).coef_)


def test_what_is_not_a_plan(samples, tmp_path):
    path = tmp_path / "conflicts.plan"
    with pytest.raises(FileNotFoundError, match="conflicts.plan") as raised:
        Plan.load(path)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, str(path))
    plan(samples[0]).save(path)
    whole = path.read_bytes()
    for damaged in (whole[:-3], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], b"", b"not a plan" * 30, whole + b"\n"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="conflicts.plan: "):
            Plan.load(path)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_plan_of_other_data(samples, threads):
    X, y = samples
    model = CopClassifier(n_jobs=threads)
    with pytest.raises(ValueError, match=r"the plan is of other data \(it has 1999 samples, the data 2000\): plan this"):
        model.fit(X, y, plan=plan(X[:-1]))
    other, _ = sparse_samples(seed=1)
    with pytest.raises(ValueError, match="the plan is of other data: of 2000 samples, as these are, but not with entries at the same"):
        model.fit(X, y, plan=plan(other))
    with pytest.raises(ValueError, match="the plan is for 399 parameters, the task has 400"):
        model.fit(X, y, plan=plan(X[:, :399]))
    with pytest.raises(TypeError, match=r"plan is a str: make one by isochrone.learn.plan\(X\)"):
        model.fit(X, y, plan="conflicts.plan")
    with pytest.raises(ValueError, match="with plan=, shuffle X yourself"):
        CopClassifier(shuffle=True).fit(X, y, plan=plan(X))
    with pytest.raises(ValueError, match="early_stopping holds back samples"):
        CopClassifier(early_stopping=True).fit(X, y, plan=plan(X))


def test_other_values_and_labels_are_the_same_plan(samples):
    X, y = samples
    planned = plan(X)
    CopClassifier(n_jobs=2, max_iter=2, tol=None).fit(X * 2.0, -y, plan=planned)


def test_it_speaks(samples):
    X, _ = samples
    told = plan(X).describe()
    assert "2000 samples" in told and "depth" in told
    assert "one thread" in plan(np.ones((100, 3))).describe()


def test_it_draws(samples, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure = plan(samples[0]).plot()
    left, right = figure.axes
    assert left.get_xlabel() == "depth in the plan" and right.get_ylabel() == "speed-up at most"
    figure.savefig(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 10_000
    for X, title in [
        (sparse.identity(50, format="csr"), "50 samples, depth 1: 50.0 side by side"),
        ([[1.0]], "1 sample, depth 1: 1.0 side by side"),
        (np.ones((5000, 1)), "5000 samples, depth 5000: 1.0 side by side"),
    ]:
        planned = plan(X)
        left = planned.plot().axes[0]
        values, edges, _ = left.patches[0].get_data()
        assert left.get_title() == title
        # Few enough to be told apart, from end to end, and of all samples.
        assert (edges[0], edges[-1]) == (0.5, planned.depth + 0.5) and len(values) <= 400
        assert values @ np.diff(edges) == pytest.approx(planned.n_samples)
        assert 0.5 < left.get_ylim()[0] < 1 <= values.min() and values.max() < left.get_ylim()[1]
    # A notebook shows what is open when a cell is over, and what it results in.
    monkeypatch.setattr(pyplot, "get_backend", lambda: "module://matplotlib_inline.backend_inline")
    opened = pyplot.get_fignums()
    assert planned.plot().axes and pyplot.get_fignums() == opened
    given = pyplot.subplots(1, 2)
    assert planned.plot(given[1]) is given[0] and pyplot.fignum_exists(given[0].number)
    with pytest.raises(ValueError, match="give two axes"):
        plan(samples[0]).plot(ax=left)
