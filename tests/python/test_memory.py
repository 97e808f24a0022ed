"""Memory that is not there is a MemoryError, and never the end of the process."""

import subprocess
import sys

import pytest

# Each limit in a process of its own, which has imported everything.
PROGRAM = """
import os, resource, sys, traceback, warnings
import numpy as np
from scipy import sparse
from isochrone.learn import CopClassifier, CopFactorizer, CopRegressor
warnings.simplefilter("ignore")
n, d = 20_000, 3_000_000
random = np.random.default_rng(1)
stride = d // 10
indices = (np.arange(10) * stride + random.integers(0, stride, (n, 10))).astype(np.int32)
X = sparse.csr_matrix((np.ones(10 * n, np.float32), indices.ravel(), np.arange(0, 10 * n + 1, 10)), shape=(n, d))
y = np.arange(n) % 3
cells = np.column_stack([random.integers(0, d // 16, 10 * n), random.integers(0, 100, 10 * n)])
stars = np.ones(10 * n)
# What is imported when it is first needed.
CopClassifier(max_iter=1, class_weight={{0: 2.0}}).fit(X[:99, :999], y[:99]).predict(X[:9, :999])

def taken():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

told = []
for more in [*range(0, 480, 40), 1000, 2000]:
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
    run = subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], capture_output=True, text=True, timeout=300)
    codes = run.stdout.split()
    # Without a crash, and with an end to the refusals.
    assert set(codes) == {"0", "1"}, (codes, run.stderr)
    assert codes == sorted(codes, reverse=True), codes
