"""The model does not depend on the number of threads, bit for bit."""

import warnings

import numpy as np
import pytest
from conftest import sparse_samples
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier, SGDRegressor

from isochrone.learn import CopClassifier, CopRegressor, plan

THREADS = (1, 2, 4, 8)


def same(one, other):
    """Whether two models are equal in every bit."""
    return one.coef_.tobytes() == other.coef_.tobytes() and one.intercept_.tobytes() == other.intercept_.tobytes()


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log_loss"])
@pytest.mark.parametrize("penalty", [None, "l2", "elasticnet"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cop_is_serial(loss, penalty, dtype):
    X, scores = sparse_samples(n=600, dtype=dtype)
    y = scores > 0
    settings = dict(loss=loss, penalty=penalty, alpha=1e-3, max_iter=5, tol=None, learning_rate="geometric")
    serial = CopClassifier(scheme="serial", **settings).fit(X, y)
    planned = plan(X)
    weights = np.random.default_rng(1).random(len(y))
    weighted = CopClassifier(scheme="serial", **settings).fit(X, y, weights)
    assert not same(weighted, serial)
    for threads in THREADS:
        cop = CopClassifier(scheme="cop", n_jobs=threads, **settings)
        assert same(cop.fit(X, y), serial), threads
        assert same(cop.fit(X, y, plan=planned), serial), threads
        assert same(cop.fit(X, y, weights, plan=planned), weighted), threads
        packed = CopClassifier(scheme="cop", n_jobs=threads, packed=True, **settings)
        assert same(packed.fit(X, y), serial), threads
        assert same(packed.fit(X, y, weights, plan=planned), weighted), threads
    assert np.abs(serial.coef_).max() > 0 and serial.intercept_[0] != 0


def test_cop_is_serial_over_twenty_epochs_of_every_class(digits):
    X, y = digits
    settings = dict(max_iter=20, tol=None, learning_rate="geometric", eta0=0.01)
    serial = CopClassifier(scheme="serial", **settings).fit(X, y)
    assert all(same(CopClassifier(n_jobs=threads, **settings).fit(X, y), serial) for threads in THREADS)


def test_cop_is_serial_for_numbers():
    X, scores = sparse_samples(n=1000)
    for rate in ("invscaling", "constant", "geometric"):
        settings = dict(max_iter=10, tol=None, learning_rate=rate, eta0=0.005)
        serial = CopRegressor(scheme="serial", **settings).fit(X, scores)
        assert all(same(CopRegressor(n_jobs=threads, **settings).fit(X, scores), serial) for threads in THREADS)


def test_partial_fit_is_serial(samples):
    X, y = samples
    models = [CopClassifier(scheme="serial"), *(CopClassifier(n_jobs=threads) for threads in THREADS)]
    for cut in np.array_split(np.arange(X.shape[0]), 5):
        for model in models:
            model.partial_fit(X[cut], y[cut], classes=[-1, 1])
    assert all(same(model, models[0]) for model in models)


@pytest.mark.parametrize("penalty", [None, "l2", "elasticnet"])
def test_a_batch_takes_out_of_a_wide_model_what_it_touches(penalty):
    """With a plan, all of the model is learnt: the same, in one place and for every class."""
    X, scores = sparse_samples(n=600, d=50_000, per_row=5)
    y = np.digitize(scores, [-0.5, 0.5])
    settings = dict(penalty=penalty, alpha=1e-3, n_jobs=2)
    some, all_ = CopClassifier(**settings), CopClassifier(**settings)
    for cut in np.array_split(np.arange(600), 4):
        some.partial_fit(X[cut], y[cut], classes=[0, 1, 2])
        all_.partial_fit(X[cut], y[cut], classes=[0, 1, 2], plan=plan(X[cut]))
        assert same(some, all_) and np.count_nonzero(some.coef_) > 0
    held, before, seen = some.coef_, some.coef_.copy(), some.t_
    # What goes wrong when all is learnt changes nothing either.
    with warnings.catch_warnings(), pytest.raises(ConvergenceWarning):
        warnings.simplefilter("error")
        some.set_params(verbose=1, learning_rate="constant", eta0=1e6).partial_fit(X, y)
    assert np.array_equal(held, before) and some.coef_ is held and some.t_ == seen
    with pytest.raises(ValueError, match="beyond what a float can hold"):
        some.set_params(verbose=0, eta0=1e300, loss="squared_hinge").partial_fit(X, y)
    assert np.array_equal(held, before)
    some.set_params(eta0=0.01).partial_fit(X, y)
    assert np.shares_memory(some.coef_, held) and not np.array_equal(held, before)
    some.coef_[2, X.indices[0]] = np.nan
    with pytest.raises(RuntimeError, match=f"the model's number {100_000 + X.indices[0]} is NaN"):
        some.partial_fit(X, y)


def test_packed_is_for_fit_and_for_plans(samples):
    X, y = samples
    sums, settings = np.asarray(X.sum(axis=1)).ravel(), dict(max_iter=5, tol=None, eta0=0.001, n_jobs=2)
    assert same(CopRegressor(packed=True, **settings).fit(X, sums), CopRegressor(**settings).fit(X, sums))
    batches = CopClassifier(packed=True, n_jobs=2).partial_fit(X, y, classes=[-1, 1])
    assert same(batches, CopClassifier(n_jobs=2).partial_fit(X, y, classes=[-1, 1]))
    with pytest.raises(ValueError, match="packed goes by the plan of scheme=\"cop\", and scheme is 'hogwild'"):
        CopClassifier(packed=True, scheme="hogwild").fit(X, y)


def test_stopping_early_does_not_depend_on_threads(samples):
    X, y = samples
    settings = dict(max_iter=200, learning_rate="geometric", early_stopping=True, random_state=3, shuffle=True)
    serial = CopClassifier(scheme="serial", **settings).fit(X, y)
    cop = CopClassifier(n_jobs=4, **settings).fit(X, y)
    assert same(cop, serial) and cop.n_iter_ == serial.n_iter_ < 200
    by_loss = [CopClassifier(n_jobs=threads, max_iter=200, learning_rate="geometric").fit(X, y) for threads in THREADS]
    assert all(same(model, by_loss[0]) for model in by_loss)


@pytest.mark.parametrize("scheme", ["hogwild", "locking", "occ"])
def test_the_other_schemes_learn_and_are_serial_with_one_thread(samples, scheme):
    X, y = samples
    settings = dict(max_iter=10, tol=None, learning_rate="geometric")
    serial = CopClassifier(scheme="serial", **settings).fit(X, y)
    assert same(CopClassifier(scheme=scheme, n_jobs=1, **settings).fit(X, y), serial)
    threaded = CopClassifier(scheme=scheme, n_jobs=4, **settings).fit(X, y)
    assert abs(threaded.score(X, y) - serial.score(X, y)) < 0.05


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log_loss", "squared_error"])
@pytest.mark.parametrize("alpha", [1e-4, 0.3, 5.0])
def test_it_learns_what_sgd_learns(loss, alpha):
    """Same order, same steps, same penalty: the same coefficients, but for rounding, on however many threads."""
    X, y = sparse_samples(n=600)
    ours, theirs = (CopRegressor, SGDRegressor) if loss == "squared_error" else (CopClassifier, SGDClassifier)
    y = y if loss == "squared_error" else y > 0
    settings = dict(
        loss=loss, alpha=alpha, fit_intercept=False, shuffle=False, tol=None, max_iter=3, learning_rate="constant", eta0=0.02
    )
    for weights in (None, np.random.default_rng(1).random(600)):
        wanted = theirs(**settings).fit(X, y, sample_weight=weights).coef_
        assert np.abs(wanted).max() > 1e-3
        for threads in (1, 2, 4):
            found = ours(n_jobs=threads, **settings).fit(X, y, weights).coef_
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weights", ["balanced", {0: 3.5}, {0: 0.5, 1: 0.0}, {"unnamed": 2.5}, {}])
def test_classes_weigh_what_they_weigh_in_sgd(n_classes, weights):
    """Of two classes both, of more the one that is set against the rest; times what the samples weigh."""
    X, y = sparse_samples(n=600)
    y = np.where(np.arange(600) % 5 == 0, n_classes - 1, y > 0)
    if "unnamed" in weights:
        names = np.array(["named", "other", "unnamed"])[-n_classes:]
        y = names[y]
    settings = dict(
        alpha=0.01, fit_intercept=False, shuffle=False, tol=None, max_iter=3, learning_rate="constant", eta0=0.02,
        class_weight=weights,
    )
    for sample_weight in (None, np.random.default_rng(1).random(600)):
        wanted = SGDClassifier(**settings).fit(X, y, sample_weight=sample_weight)
        for threads in (1, 3):
            found = CopClassifier(n_jobs=threads, **settings).fit(X, y, sample_weight)
            np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-9, atol=1e-12)
    if weights != "balanced":
        wanted = SGDClassifier(**settings).partial_fit(X, y, classes=np.unique(y))
        found = CopClassifier(n_jobs=2, **settings).partial_fit(X, y, classes=np.unique(y))
        np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-9, atol=1e-12)


def test_batches_decay_as_one_fit_does():
    """A penalty is of a sample, however many come at once."""
    X, y = sparse_samples(n=600)
    settings = dict(alpha=0.01, fit_intercept=False, learning_rate="constant", eta0=0.02, n_jobs=2)
    whole = CopClassifier(max_iter=1, tol=None, **settings).fit(X, y > 0)
    parts = CopClassifier(**settings)
    for at in range(0, 600, 50):
        parts.partial_fit(X[at:at + 50], y[at:at + 50] > 0, classes=[False, True])
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-9, atol=1e-12)


def test_the_report_tells_the_threads_that_ran(samples):
    X, y = samples
    apart = sparse.identity(5000, format="csr")
    settings = dict(max_iter=1, tol=None)

    def threads(X, **given):
        return CopRegressor(**settings, **given).fit(X, np.ones(X.shape[0])).report_["threads"]

    assert threads(apart, n_jobs=2) == 2
    assert threads(apart, n_jobs=1) == threads(apart, n_jobs=2, scheme="serial") == 1
    assert threads(apart, n_jobs=1000) < 1000
    assert threads(np.ones((500, 3)), n_jobs=2) == 1
