"""The contract of scikit-learn's estimators."""

import pickle
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import sparse_samples
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from isochrone.learn import CopClassifier, CopRegressor


def differs_from_repetition(_):
    """What of the contract stochastic gradient descent cannot hold, scikit-learn's own neither."""
    why = "a step of double weight is longer than two steps, and steps shrink from sample to sample"
    return {f"check_sample_weight_equivalence_on_{kind}_data": why for kind in ("dense", "sparse")}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [CopClassifier(), CopRegressor(), CopClassifier(loss="log_loss", n_jobs=2, packed=True)],
    expected_failed_checks=differs_from_repetition,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_pickled_and_cloned(samples):
    X, y = samples
    model = CopClassifier(n_jobs=2, max_iter=5, tol=None).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "coef_")


def test_in_a_pipeline_and_a_grid_search(samples):
    X, y = samples
    pipeline = make_pipeline(MaxAbsScaler(), CopClassifier(loss="log_loss", max_iter=10, tol=None))
    search = GridSearchCV(pipeline, {"copclassifier__alpha": [1e-5, 1e-3]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.85


def test_partial_fit_over_batches_is_one_epoch_of_fit_without_a_penalty(samples):
    X, y = samples
    settings = dict(penalty=None, fit_intercept=False, learning_rate="invscaling", eta0=0.1, n_jobs=2)
    whole = CopClassifier(max_iter=1, tol=None, **settings).fit(X, y)
    pieces = CopClassifier(**settings)
    for cut in np.array_split(np.arange(X.shape[0]), 7):
        pieces.partial_fit(X[cut], y[cut], classes=[-1, 1])
    assert np.array_equal(whole.coef_, pieces.coef_)
    assert whole.t_ == pieces.t_ == X.shape[0]


def test_each_partial_fit_is_an_epoch_of_geometric_steps(samples):
    X, y = samples
    cuts = np.split(np.arange(X.shape[0]), [1500, 1990])
    pieces = CopClassifier(penalty=None, learning_rate="geometric", eta0=0.1, decay=0.5)
    by_hand = CopClassifier(penalty=None, learning_rate="constant")
    for epoch, cut in enumerate(cuts):
        pieces.partial_fit(X[cut], y[cut], classes=[-1, 1])
        by_hand.set_params(eta0=0.1 * 0.5**epoch).partial_fit(X[cut], y[cut], classes=[-1, 1])
    assert np.array_equal(pieces.coef_, by_hand.coef_) and pieces.epochs_ == 3
    # So it is behind a whole fit, of however few samples.
    pieces.set_params(max_iter=2, tol=None).fit(X, y)
    by_hand.coef_, by_hand.intercept_ = pieces.coef_.copy(), pieces.intercept_.copy()
    pieces.partial_fit(X[:50], y[:50])
    by_hand.set_params(eta0=0.1 * 0.5**2).partial_fit(X[:50], y[:50])
    assert np.array_equal(pieces.coef_, by_hand.coef_) and pieces.epochs_ == 3


def test_labels_held_back_that_are_all_one_stop_where_nothing_is_gained():
    X, y = sparse.random(200, 30, 0.3, "csr", random_state=0), np.zeros(200)
    y[:180] = np.asarray(X[:180] @ np.ones(30)).ravel()
    model = CopRegressor(early_stopping=True, max_iter=40, n_iter_no_change=5).fit(X, y)
    assert model.n_iter_ > 5


def test_probabilities(digits):
    X, y = digits
    model = CopClassifier(loss="log_loss", max_iter=5, tol=None, learning_rate="geometric").fit(X, y)
    chances = model.predict_proba(X)
    assert chances.shape == (X.shape[0], 10)
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert np.array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X))
    two = CopClassifier(loss="log_loss", max_iter=5, tol=None).fit(X, y > 4)
    assert np.allclose(two.predict_proba(X)[:, 1], 1 / (1 + np.exp(-two.decision_function(X))))
    assert not hasattr(CopClassifier(loss="hinge"), "predict_proba")


def test_l1_leaves_fewer_coefficients(samples):
    X, y = samples
    kept = [
        np.count_nonzero(CopClassifier(penalty="l1", alpha=alpha, max_iter=20, tol=None,
                                       learning_rate="geometric").fit(X, y).coef_)
        for alpha in (1e-5, 1e-2)
    ]
    assert kept[1] < kept[0] / 2


def test_stops_early_by_loss_and_by_held_back_samples(samples):
    X, y = samples
    by_loss = CopClassifier(max_iter=500, learning_rate="geometric").fit(X, y)
    assert 5 < by_loss.n_iter_ < 500 and len(by_loss.loss_curve_) == by_loss.n_iter_
    assert by_loss.loss_curve_[-1] < by_loss.loss_curve_[0]
    held = CopClassifier(max_iter=500, early_stopping=True, validation_fraction=0.2).fit(X, y)
    assert held.n_iter_ < 500
    assert held.t_ == held.n_iter_ * 1600
    for partial in (CopClassifier(early_stopping=True), CopRegressor(early_stopping=True)):
        with pytest.raises(ValueError, match="early_stopping is True, but partial_fit goes once over what it is given"):
            partial.partial_fit(X, y, **({"classes": [-1, 1]} if isinstance(partial, CopClassifier) else {}))
    with pytest.warns(ConvergenceWarning, match="still improving after max_iter=6"):
        CopClassifier(max_iter=6, tol=1e-9, n_iter_no_change=5, learning_rate="geometric").fit(X, y)


def test_weights_of_samples(samples):
    X, y = samples
    settings = dict(tol=None, max_iter=4, learning_rate="constant", penalty=None, fit_intercept=False)
    one = CopClassifier(eta0=0.02, **settings).fit(X, y)
    for alike in (1.0, np.ones(len(y)), [1] * len(y)):
        assert np.array_equal(CopClassifier(eta0=0.02, **settings).fit(X, y, alike).coef_, one.coef_)
    half = CopClassifier(eta0=0.04, **settings).fit(X, y, sample_weight=np.full(len(y), 0.5))
    assert np.array_equal(half.coef_, one.coef_)
    some = np.arange(len(y)) % 3 != 0
    of_some = CopClassifier(eta0=0.02, **settings).fit(X[some], y[some])
    model = CopClassifier(eta0=0.02, **settings).fit(X, y, sample_weight=some)
    assert np.array_equal(model.coef_, of_some.coef_)
    assert model.score(X, y, sample_weight=some) == of_some.score(X[some], y[some])
    parts = CopClassifier(eta0=0.02, **(settings | dict(tol=1e-3)))
    parts.partial_fit(X, y, [-1, 1], some).partial_fit(X, y, sample_weight=some)
    again = CopClassifier(eta0=0.02, **(settings | dict(max_iter=2))).fit(X[some], y[some])
    assert np.array_equal(parts.coef_, again.coef_)
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        CopClassifier().fit(X, y, sample_weight=np.full(len(y), -1.0))
    with pytest.raises(ValueError, match="sample_weight.shape"):
        CopRegressor().fit(X, y, sample_weight=np.ones(3))


def test_weights_of_classes_are_weights_of_their_samples(samples):
    X, y = samples
    settings = dict(tol=None, max_iter=4, learning_rate="geometric")
    plain = CopClassifier(**settings).fit(X, y)
    some = np.arange(len(y)) % 3 + 0.5
    for weights in ({-1: 2.0, 1: 0.25}, "balanced"):
        of = weights if weights != "balanced" else {label: len(y) / 2 / np.sum(y == label) for label in (-1, 1)}
        each = np.where(y > 0, of[1], of[-1])
        model = CopClassifier(class_weight=weights, **settings)
        assert np.array_equal(model.fit(X, y).coef_, CopClassifier(**settings).fit(X, y, each).coef_)
        assert not np.array_equal(model.coef_, plain.coef_)
        both = CopClassifier(**settings).fit(X, y, each * some).coef_
        np.testing.assert_allclose(model.fit(X, y, some).coef_, both, rtol=1e-9, atol=1e-12)
    assert np.array_equal(CopClassifier(class_weight={-1: 1.0}, **settings).fit(X, y).coef_, plain.coef_)


def test_weights_of_classes_that_mean_nothing_are_refused(samples):
    X, y = samples
    with pytest.raises(ValueError, match="is not supported for partial_fit.*compute_class_weight"):
        CopClassifier(class_weight="balanced").partial_fit(X, y, classes=[-1, 1])
    with pytest.raises(ValueError, match="class_weight is -2.0 of the class 1: give a number from 0 on"):
        CopClassifier(class_weight={1: -2.0}).fit(X, y)
    with pytest.raises(ValueError, match="class_weight"):
        CopClassifier(class_weight="even").fit(X, y)
    with pytest.raises(ValueError, match=r"The classes, \[-1, 1\], are not in class_weight"):
        CopClassifier(class_weight={7: 2.0}).fit(X, y)


def test_what_counts_nothing_does_not_stop_it_nor_show_in_its_loss(samples):
    X, y = samples
    wrong = np.where(np.arange(len(y)) < 1000, y, -y)
    counts = (np.arange(len(y)) < 1000).astype(float)
    settings = dict(max_iter=200, learning_rate="geometric", penalty=None, fit_intercept=False)
    whole = CopClassifier(**settings).fit(X, wrong, sample_weight=counts)
    part = CopClassifier(**settings).fit(X[:1000], y[:1000])
    assert whole.n_iter_ == part.n_iter_ and np.array_equal(whole.coef_, part.coef_)
    np.testing.assert_allclose(whole.loss_curve_, part.loss_curve_, rtol=1e-6)
    # The last fifth is held back, of which only every second counts.
    held = np.where(np.arange(len(y)) < 1600, 1.0, np.arange(len(y)) % 2)
    fooled = np.where(held > 0, y, -y)
    stopped = CopClassifier(early_stopping=True, validation_fraction=0.2, **settings)
    by_weight = stopped.fit(X, fooled, sample_weight=held).n_iter_
    order = np.r_[:1600, np.flatnonzero(np.arange(len(y)) % 2 * (np.arange(len(y)) >= 1600))]
    again = CopClassifier(early_stopping=True, validation_fraction=200 / 1800, **settings).fit(X[order], y[order])
    assert by_weight == again.n_iter_ and np.array_equal(stopped.coef_, again.coef_)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_label_that_counts_nothing_may_be_of_any_size(samples, early_stopping):
    X, y = samples
    weights = np.ones(len(y))
    # The last one is held back.
    weights[[7, -1]] = 0.0
    fits = []
    for label in (0.0, sys.float_info.max):
        model = CopRegressor(max_iter=20, early_stopping=early_stopping)
        fits.append(model.fit(X, np.where(weights > 0, y, label), sample_weight=weights))
    assert fits[0].n_iter_ == fits[1].n_iter_ > 5 and fits[0].loss_curve_ == fits[1].loss_curve_
    assert np.array_equal(fits[0].coef_, fits[1].coef_) and np.array_equal(fits[0].intercept_, fits[1].intercept_)


def test_an_intercept_that_overflows_in_a_batch_is_refused():
    X = sparse.csr_matrix((300, 5))
    model = CopRegressor(penalty=None, learning_rate="constant", eta0=1e300).partial_fit(X, np.zeros(300))
    with pytest.raises(ValueError, match="the coefficients have grown beyond what a float can hold"):
        model.partial_fit(X, np.full(300, 1e10))
    assert model.t_ == 300 and not model.coef_.any() and not model.intercept_.any()


def test_a_batch_of_which_nothing_counts_teaches_nothing(samples):
    X, y = samples
    model = CopClassifier(penalty=None, n_jobs=2).partial_fit(X[:1000], y[:1000], classes=[-1, 1])
    before = model.coef_.copy()
    model.partial_fit(X[1000:], y[1000:], sample_weight=np.zeros(1000))
    assert np.array_equal(model.coef_, before) and model.t_ == 2000


def test_samples_held_back_that_count_nothing_are_refused(samples):
    X, y = samples
    model = CopClassifier(early_stopping=True, validation_fraction=0.25)
    for first, told in [(0.0, "all samples but the last 500"), (1.0, "the last 500")]:
        with pytest.raises(ValueError, match=f"sample_weight is 0 of {told}, which early_stopping holds back: pass shuffle=True"):
            model.fit(X, y, sample_weight=np.repeat([first, 1.0 - first], [1500, 500]))


def test_warm_start_goes_on(samples):
    X, y = samples
    settings = dict(tol=None, learning_rate="constant", eta0=0.01)
    at_once = CopClassifier(max_iter=6, **settings).fit(X, y)
    in_two = CopClassifier(max_iter=3, warm_start=True, **settings)
    in_two.fit(X, y).fit(X, y)
    assert np.array_equal(at_once.coef_, in_two.coef_)
    # Its steps begin anew, as those of scikit-learn do.
    settings = dict(alpha=1e-3, fit_intercept=False, max_iter=3, tol=None, shuffle=False, warm_start=True)
    here, there = (kind(**settings).fit(X, y).fit(X, y) for kind in (CopClassifier, SGDClassifier))
    np.testing.assert_allclose(here.coef_, there.coef_, rtol=1e-6, atol=1e-9)
    assert here.t_ == there.t_ - 1 == 3 * X.shape[0]
    here.intercept_ = np.zeros(2)
    with pytest.raises(ValueError, match="intercept_ has 2 numbers, where coef_ goes with 1: set as many"):
        here.partial_fit(X, y)


@pytest.mark.parametrize("kind", [CopClassifier, CopRegressor])
def test_warm_start_does_not_go_on_with_other_features(samples, kind):
    X, y = samples
    model = kind(max_iter=2, tol=None, warm_start=True).fit(X, y)
    before = model.coef_
    with pytest.raises(ValueError, match="X has 399 features, but warm_start=True goes on from a model of 400"):
        model.fit(X[:, :399], y)
    assert model.n_features_in_ == 400 and model.coef_ is before
    assert model.set_params(warm_start=False).fit(X[:, :399], y).n_features_in_ == 399


@pytest.mark.parametrize("kind", [CopClassifier, CopRegressor])
def test_coefficients_of_another_width_are_refused(samples, kind):
    X, y = samples
    model = kind(max_iter=2, tol=None).fit(X, y)
    model.coef_ = model.coef_[..., :5]
    with pytest.raises(ValueError, match=r"coef_ is of shape .*5,?\), where .* \(1, 400\): set as many"):
        model.predict(X)
    with pytest.raises(ValueError, match="X has 400 features, but coef_ is one of 5: set it to one of as many, or begin anew by fit"):
        model.partial_fit(X, y)


@pytest.mark.parametrize("kind", [CopClassifier, CopRegressor])
def test_sparse_coefficients_predict_the_same(samples, kind):
    X, y = samples
    model = kind(penalty="l1", alpha=1e-3, max_iter=5, tol=None).fit(X, y)
    told, coef = model.predict(X), model.coef_
    model.sparsify()
    assert sparse.issparse(model.coef_) and model.coef_.nnz == np.count_nonzero(coef) < coef.size
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), told)
    with pytest.raises(ValueError, match=r"coef_ is sparse, which nothing is learnt into: call densify\(\) first"):
        model.partial_fit(X, y)
    assert np.array_equal(model.densify().coef_, coef)
    # One row, as older scikit-learn leaves those of a regressor, is gone on from as well.
    model.coef_, before = np.atleast_2d(model.coef_), model.t_
    model.partial_fit(X, y)
    assert model.t_ == before + X.shape[0] and model.coef_.shape == coef.shape


def test_same_intercept_and_coefficients_whatever_holds_the_samples(samples):
    X, y = samples
    settings = dict(max_iter=3, tol=None, fit_intercept=False)
    sparse_model = CopClassifier(**settings).fit(X, y)
    for other in (X.tocsc(), X.tocoo(), X.toarray(), X.toarray(order="F")):
        assert np.array_equal(CopClassifier(**settings).fit(other, y).coef_, sparse_model.coef_)


def test_progress(samples, capsys):
    X, y = samples
    CopClassifier(max_iter=3, tol=None, verbose=1).fit(X, y)
    told = capsys.readouterr().err
    assert "3/3" in told and "loss" in told


class Closed:
    """What nothing can be written to."""

    def write(self, text):
        raise OSError("nobody listens")


def test_progress_where_there_is_no_standard_error(samples, monkeypatch):
    X, y = samples
    # Without tqdm, and without either of what it asks for.
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    written = []
    for odd in (None, SimpleNamespace(write=written.append), Closed()):
        monkeypatch.setattr(sys, "stderr", odd)
        assert CopClassifier(max_iter=3, tol=None, verbose=1).fit(X, y).n_iter_ == 3
    assert written


def test_coefficients_of_another_precision_are_gone_on_from(samples):
    X, y = samples
    model = CopClassifier(max_iter=2, tol=None).fit(X, y)
    rounded = clone(model).set_params(warm_start=True).fit(X, y)
    rounded.coef_ = model.coef_.astype(np.float32)
    rounded.intercept_ = model.intercept_.astype(np.float32)
    same = pickle.loads(pickle.dumps(rounded))
    same.coef_, same.intercept_ = rounded.coef_.astype(np.float64), rounded.intercept_.astype(np.float64)
    assert np.array_equal(rounded.partial_fit(X, y).coef_, same.partial_fit(X, y).coef_)


def test_other_threads_run_while_it_trains():
    X, scores = sparse_samples(n=20_000)
    model = CopClassifier(max_iter=60, tol=None, n_jobs=1)
    training = threading.Thread(target=model.fit, args=(X, scores > 0))
    training.start()
    turns, longest, last = 0, 0.0, time.perf_counter()
    while training.is_alive():
        now = time.perf_counter()
        turns, longest, last = turns + 1, max(longest, now - last), now
    training.join()
    # Held throughout, the interpreter would be let go of at most once an epoch.
    assert turns > 10 * model.n_iter_


def test_ctrl_c_ends_it():
    # Its second thread says when the first one learns; a callback would let Python see the signal by itself. What a
    # shell runs in the background ignores Ctrl-C, and all that it starts with it.
    program = (
        "import signal, sys, threading, time; sys.path.insert(0, 'tests/python')\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from conftest import sparse_samples\n"
        "from isochrone.learn import CopClassifier\n"
        "X, scores = sparse_samples(n=5000)\n"
        "def tell():\n"
        "    main = threading.main_thread().ident\n"
        "    while sys._current_frames()[main].f_code.co_name != '_learn':\n"
        "        time.sleep(0.001)\n"
        "    print('go', flush=True)\n"
        "threading.Thread(target=tell, daemon=True).start()\n"
        "CopClassifier(max_iter=10**7, tol=None, n_jobs=2).fit(X, scores > 0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"go\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=120)
    finally:
        process.kill()
    assert b"KeyboardInterrupt" in told
