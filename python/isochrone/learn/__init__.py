"""Learning from sparse data with many threads, bit for bit as with one.

Stochastic gradient descent reads and writes, for each sample, the parameters of the sample's features. Threads that do
so without coordination (Hogwild!) overwrite one another's updates; threads that take locks are slower than one. Conflict
order planning (COP) knows the conflicts beforehand: one pass over the data writes down which sample each waits for, and
then threads only compare integers. The model is that of one thread, whatever the number of threads; where something is
drawn (`shuffle=True`, :class:`CopFactorizer`), for the same `random_state`.

=======================  ============================================================================
:class:`CopClassifier`    linear classification: support vectors, logistic regression
:class:`CopRegressor`     linear regression
:class:`CopFactorizer`    factorisation of a matrix: ratings, counts, distances
:func:`plan`              the conflicts of a data set, to look at, to keep, and to learn with again
:func:`load_svmlight`     samples from a file, planned while they are read
:func:`iter_svmlight`     the same in batches, for files larger than memory
:func:`load_parquet`      samples from a Parquet file with a column of lists; :func:`iter_parquet` in batches
:func:`load_arrow`        samples from Arrow data of any library; :func:`iter_arrow` batch by batch
:func:`make_sparse`       synthetic samples with the conflicts of published data
=======================  ============================================================================
"""

from isochrone.learn._arrow import iter_arrow, load_arrow
from isochrone.learn._factor import CopFactorizer
from isochrone.learn._linear import CopClassifier, CopRegressor
from isochrone.learn._parquet import iter_parquet, load_parquet
from isochrone.learn._plan import Plan, plan
from isochrone.learn._read import iter_svmlight, load_svmlight, make_sparse

__all__ = [
    "CopClassifier",
    "CopFactorizer",
    "CopRegressor",
    "Plan",
    "iter_arrow",
    "iter_parquet",
    "iter_svmlight",
    "load_arrow",
    "load_parquet",
    "load_svmlight",
    "make_sparse",
    "plan",
]
