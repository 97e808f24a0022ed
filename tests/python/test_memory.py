"""Memory that is not there is a MemoryError, and never the end of the process."""

import subprocess
import sys

import pytest

# Each limit in a process of its own, which has imported everything.
PROGRAM = """
import os, resource, sys, traceback, warnings
import numpy as np
from scipy import sparse
from isochrone.learn import CopClassifier, CopFactorizer, CopRegressor, iter_svmlight, load_svmlight, make_sparse
warnings.simplefilter("ignore")
n, d = 20_000, 3_000_000
random = np.random.default_rng(1)
stride = d // 10
indices = (np.arange(10) * stride + random.integers(0, stride, (n, 10))).astype(np.int32)
X = sparse.csr_matrix((np.ones(10 * n, np.float32), indices.ravel(), np.arange(0, 10 * n + 1, 10)), shape=(n, d))
y = np.arange(n) % 3
cells = np.column_stack([random.integers(0, d // 16, 10 * n), random.integers(0, 100, 10 * n)])
stars = np.ones(10 * n)
lines = sys.argv[1] if len(sys.argv) > 1 else None
# What is imported when it is first needed.
CopClassifier(max_iter=1, class_weight={{0: 2.0}}).fit(X[:99, :999], y[:99]).predict(X[:9, :999])

def taken():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

told = []
for more in {limits}:
    child = os.fork()
    if child == 0:
        code = 3
        try:
            limit = taken() + (more << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            {call}
            code = 0
        except MemoryError:
            code = 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    told.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(*told)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold a process to its address space")
@pytest.mark.parametrize("call", [
    "CopClassifier(n_jobs=2, max_iter=2).fit(X, y)",
    "CopClassifier(n_jobs=2, max_iter=2, penalty='l1', packed=True).fit(X, y)",
    "CopClassifier(n_jobs=2, max_iter=2, penalty='l1', class_weight={0: 2.0}).fit(X, y).predict(X)",
    "CopClassifier(max_iter=2, early_stopping=True).fit(X, y)",
    "CopRegressor(n_jobs=2, max_iter=2, early_stopping=True, scheme='hogwild').fit(X, y)",
    "CopFactorizer(n_jobs=2, max_iter=2, alpha=0.1).fit(cells, stars)",
])
def test_a_process_with_little_memory_goes_on(call):
    codes = codes_of(call, [*range(0, 480, 40), 1000, 2000])
    assert codes == sorted(codes, reverse=True), codes


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold a process to its address space")
@pytest.mark.parametrize("call", [
    "load_svmlight(lines)",
    "load_svmlight(lines, return_plan=True)",
    "sum(len(y) for _, y in iter_svmlight(lines, 50_000, n_features=1_000))",
    "make_sparse('kdda', scale=64)",
])
def test_a_process_that_has_no_memory_to_read_with_goes_on(call, tmp_path):
    path = tmp_path / "samples.svm"
    entries = " ".join(f"{feature}:0.5" for feature in range(1, 100))
    path.write_text(f"1 {entries}\n-1 {entries}\n" * 25_000)
    # How much it takes depends on which thread runs when, so that a refusal may follow what was done with less.
    codes_of(call, [2, 5, 8, 10, 15, *range(20, 160, 20), 1000, 2000], path)


def codes_of(call, limits, *arguments):
    """How it ends with so many MiB more: without a crash, and with an end to the refusals."""
    program = PROGRAM.format(call=call, limits=limits)
    run = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    codes = run.stdout.split()
    assert set(codes) == {"0", "1"} and codes[-1] == "0", (codes, run.stderr)
    return codes
