"""Files of samples."""

import gzip
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from isochrone.learn import CopClassifier, iter_svmlight, load_svmlight, make_sparse, plan


@pytest.fixture
def file(samples, tmp_path):
    X, y = samples
    path = tmp_path / "samples.svm"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path



@pytest.mark.parametrize("packed", [False, True])
def test_written_by_scikit_learn(file, packed):
    X, y = load_svmlight_file(str(file), n_features=400, zero_based=False)
    if packed:
        text, file = file.read_bytes(), file.with_suffix(".gz")
        file.write_bytes(gzip.compress(text))
    again, labels = load_svmlight(file, n_features=400, zero_based=False, dtype=np.float64)
    assert again.shape == X.shape and np.array_equal(labels, y)
    assert np.array_equal(again.indices, X.indices) and np.array_equal(again.data, X.data)
    single, _ = load_svmlight(file)
    assert single.dtype == np.float32 and np.array_equal(single.data, X.data.astype(np.float32))


def test_planned_while_it_is_read(file):
    X, y, planned = load_svmlight(file, return_plan=True)
    assert planned == plan(X)
    assert planned.depth == plan(X).depth
    CopClassifier(n_jobs=2, max_iter=2, tol=None).fit(X, y, plan=planned)


def test_in_batches_for_partial_fit(file):
    X, y = load_svmlight(file, n_features=400, zero_based=False, dtype=np.float64)
    model, whole = CopClassifier(), CopClassifier()
    for batch, labels in iter_svmlight(file, 300, n_features=400, zero_based=False, dtype=np.float64):
        assert batch.shape[1] == 400 and batch.shape[0] <= 300
        model.partial_fit(batch, labels, classes=[-1, 1])
    for start in range(0, 2000, 300):
        whole.partial_fit(X[start:start + 300], y[start:start + 300], classes=[-1, 1])
    assert model.t_ == 2000 and np.array_equal(model.coef_, whole.coef_)


def test_wrong_lines(file, tmp_path):
    lines = file.read_text().splitlines()
    lines[6] = "1 3:0.5 7:x"
    file.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"samples.svm:7:\d+: .*expected"):
        load_svmlight(file)
    with pytest.warns(UserWarning, match=r"1 wrong lines were left out:\n.*samples.svm:7:"):
        X, _ = load_svmlight(file, skip_errors=1)
    assert X.shape[0] == 1999
    with pytest.raises(FileNotFoundError, match="absent.svm"):
        load_svmlight(tmp_path / "absent.svm")
    with pytest.raises(ValueError, match="dtype is int32: give float32 or float64"):
        load_svmlight(file, dtype=np.int32)
    with pytest.raises(ValueError, match="batch_size is 18446744073709551616: give 9223372036854775807 at most"):
        next(iter_svmlight(file, 2**64, n_features=400))
    with pytest.raises(ValueError, match="batch_size is 0"):
        next(iter_svmlight(file, 0, n_features=400))
    with pytest.raises(ValueError, match="n_features is None: give the number of features"):
        next(iter_svmlight(file))


def test_what_lines_of_vowpal_wabbit_count(tmp_path):
    path = tmp_path / "samples.vw"
    text = [f"{1 if row % 3 else -1} {row % 4}{' tag' if row % 2 else ' '}|f w{row % 3} v{row % 7}:0.5\n" for row in range(60)]
    path.write_text("".join(text))
    X, y, weights, planned = load_svmlight(path, format="vw", return_sample_weight=True, return_plan=True)
    assert X.shape == (60, 2**18) and weights.tolist() == [row % 4 for row in range(60)] and planned == plan(X)
    settings = dict(fit_intercept=False, penalty=None, learning_rate="constant")
    model = CopClassifier(max_iter=1, tol=None, n_jobs=2, **settings).fit(X, y, sample_weight=weights, plan=planned)
    counted = weights > 0
    assert np.array_equal(
        model.coef_, CopClassifier(max_iter=1, tol=None, **settings).fit(X[counted], y[counted], weights[counted]).coef_
    )
    batches, parts = CopClassifier(**settings), []
    for batch in iter_svmlight(path, 25, format="vw", return_sample_weight=True):
        batches.partial_fit(*batch[:2], classes=[-1, 1], sample_weight=batch[2])
        parts.append(batch[2])
    assert np.array_equal(np.concatenate(parts), weights) and np.array_equal(batches.coef_, model.coef_)
    for read in (load_svmlight, lambda path, **form: next(iter_svmlight(path, **form))):
        with pytest.raises(ValueError, match=r"of an importance other than 1, 0.0 for one: pass return_sample_weight=True"):
            read(path, format="vw")
    path.write_text("1 |f a\n-1 |f b\n")
    assert len(load_svmlight(path, format="vw")) == 2
    assert load_svmlight(path, format="vw", return_sample_weight=True)[2].tolist() == [1.0, 1.0]
    path.write_text("1 -2 |f a\n")
    with pytest.raises(ValueError, match=r"samples.vw:1:3: `-2`: expected an importance, a finite number from 0 on"):
        load_svmlight(path, format="vw", return_sample_weight=True)


@pytest.mark.parametrize(("given", "told"), [
    (dict(n_features=-1), "n_features is -1: give 0 or more"),
    (dict(n_features=2**33), "n_features is 8589934592: give 4294967295 at most"),
    (dict(n_features=2.5), "n_features is 2.5: give a whole number from 0 on"),
    (dict(skip_errors=-1), "skip_errors is -1: give 0 or more"),
    (dict(zero_based="yes"), "zero_based is 'yes': give True, False or \"auto\""),
    (dict(format="vw", bits=40), "bits is 40: give 31 at most"),
    (dict(format="vw", n_features=5), "n_features is 5, but under format=\"vw\" there are 2\\*\\*bits = 262144: leave it out"),
])
def test_parameters_that_mean_nothing(file, given, told):
    with pytest.raises(ValueError, match=told):
        load_svmlight(file, **given)


def test_generated_samples_have_the_published_shape():
    X, y = make_sparse("imdb", scale=16)
    assert X.shape == (10485, 42848) and X.dtype == np.float32
    assert abs(X.nnz / X.shape[0] - 14.6) < 0.2
    assert set(np.unique(y)) == {-1.0, 1.0}
    again, _ = make_sparse("imdb", scale=16, n_jobs=2)
    assert (X != again).nnz == 0
    with pytest.raises(ValueError, match="no data is called `mnist`"):
        make_sparse("mnist")
    for given, told in [(dict(scale=0), "scale is 0: give 1"), (dict(random_state=None), "random_state is None: give a whole number from 0 on")]:
        with pytest.raises(ValueError, match=told):
            make_sparse("imdb", **given)


def alone(program, *arguments):
    """What a program prints that is the first of its process to do anything."""
    run = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return run.stdout.strip() or run.stderr


PIPE = """
import os, signal, sys, threading, time
from isochrone.learn import load_svmlight
# What a shell runs in the background ignores Ctrl-C, and all that it starts with it.
signal.signal(signal.SIGINT, signal.default_int_handler)
{writer}
try:
    print(load_svmlight(sys.argv[1])[0].shape)
except KeyboardInterrupt:
    print("interrupted")
"""
# The first array of the process is made while the signal waits.
WRITER = """
def write():
    with open(sys.argv[1], "w") as pipe:
        pipe.write("1 1:1\\n-1 2:1\\n")
        pipe.flush()
        time.sleep(0.3)
        {then}
threading.Thread(target=write, daemon=True).start()
"""
NOBODY = "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of Unix")
@pytest.mark.parametrize(("writer", "told"), [
    (WRITER.format(then="pass"), "(2, 2)"),
    (WRITER.format(then="os.kill(os.getpid(), signal.SIGINT)"), "interrupted"),
    (WRITER.format(then="os.kill(os.getpid(), signal.SIGINT); time.sleep(3600)"), "interrupted"),
    (NOBODY, "interrupted"),
])
def test_a_pipe_written_by_a_thread_and_ctrl_c(tmp_path, writer, told):
    os.mkfifo(tmp_path / "pipe")
    assert alone(PIPE.format(writer=writer), tmp_path / "pipe") == told


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold a process to its address space")
@pytest.mark.parametrize(("call", "told"), [
    ("load_svmlight(sys.argv[1], return_plan=True)", "4294967294 features want 16.0 GiB"),
    ("plan(wide)", "4294967294 features want 16.0 GiB"),
    ("make_sparse('kdda', scale=1)", "give a larger scale, or fewer samples"),
])
def test_memory_that_is_not_there_is_an_error(tmp_path, call, told):
    path = tmp_path / "wide.svm"
    path.write_text("1 1:1 4294967294:1\n-1 1:2\n")
    program = f"""
import resource, sys
import numpy as np
from scipy import sparse
from isochrone.learn import load_svmlight, make_sparse, plan
wide = sparse.csr_matrix((np.ones(2), np.array([0, 2**32 - 3]), np.array([0, 1, 2])), shape=(2, 2**32 - 2))
resource.setrlimit(resource.RLIMIT_AS, (4_000_000_000, 4_000_000_000))
try:
    {call}
except MemoryError as error:
    print(error)
"""
    assert told in alone(program, path)


def test_values_of_vowpal_wabbit_that_single_precision_does_not_hold(tmp_path):
    path = tmp_path / "samples.vw"
    path.write_text("1 |a x:1\n1 |a:1e20 x:1e20\n")
    with pytest.raises(ValueError, match=r"samples.vw:2:11: `x:1e20`: expected a value of at most 3.4e38 in single precision"):
        load_svmlight(path, format="vw")
    assert load_svmlight(path, format="vw", dtype=np.float64)[0].max() == 1e40


def test_a_path_of_bytes(file):
    assert load_svmlight(os.fsencode(file))[0].shape[0] == 2000
    assert next(iter_svmlight(os.fsencode(file), n_features=400))[0].shape[0] == 2000


@pytest.mark.parametrize("damage", [lambda packed: packed[:-40], lambda packed: packed[:-8] + b"x" * 8])
def test_a_damaged_file_is_said_to_be_one(file, tmp_path, damage):
    path = tmp_path / "samples.svm.gz"
    path.write_bytes(damage(gzip.compress(file.read_bytes())))
    with pytest.raises(OSError, match="the file is damaged, cut off, or has something behind its end"):
        load_svmlight(path)
