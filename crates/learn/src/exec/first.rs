//! Planning during the first epoch, which runs under locks: while a transaction holds all its locks, its entries of the
//! planner's state are its own. Specification: `specs/cop.md` 3.3.

use super::run::Worker;
use crate::data::Dataset;
use crate::memory::collected;
use crate::plan::{Annotations, Plan, ReadOp, WriteOp};
use crate::task::{Rule, Task};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The planner's state. All accesses are relaxed: the locks of the parameters order them. A compact plan takes its versions from
/// the locks, which tell who held them last.
#[derive(Debug)]
pub(crate) struct FirstEpoch {
    /// Of a general plan, as `readers`: the last writer of each parameter.
    last: Vec<AtomicU32>,
    readers: Vec<AtomicU32>,
    /// The compact plan; `None` where the plan is general.
    versions: Option<Vec<AtomicU32>>,
}

/// Annotations in the general form, as one thread collects them.
#[derive(Default, Debug)]
pub(crate) struct General {
    /// Where the reads and writes of each transaction end.
    ends: Vec<(usize, usize)>,
    reads: Vec<ReadOp>,
    writes: Vec<WriteOp>,
}

fn zeros(length: usize) -> Vec<AtomicU32> {
    collected((0..length).map(|_| AtomicU32::new(0)))
}

impl FirstEpoch {
    /// For a task on these samples.
    pub(crate) fn new<T: Task>(task: &T, data: &Dataset<'_>) -> FirstEpoch {
        let parameters = task.parameters(data.width()) as usize;
        let compact = task.rule() == Rule::Features;
        let general = if compact { 0 } else { parameters };
        FirstEpoch {
            last: zeros(general),
            readers: zeros(general),
            versions: compact.then(|| zeros(data.entries())),
        }
    }

    /// Plans transaction `number` (from 1), which holds the locks of all it reads and writes; `holders` held them before.
    #[inline(always)]
    pub(crate) fn plan(
        &self,
        number: u32,
        entries: Range<usize>,
        (reads, writes): (&[u32], &[u32]),
        (locks, holders): (&[u32], &[u32]),
        general: &mut General,
    ) {
        if let Some(versions) = &self.versions {
            let versions = versions[entries].iter().zip(reads);
            if std::ptr::eq(reads, locks) {
                versions.zip(holders).for_each(|((version, _), &holder)| version.store(holder, Relaxed));
            } else {
                for (version, parameter) in versions {
                    // Each of them is locked.
                    let at = locks.partition_point(|lock| lock < parameter);
                    version.store(holders[at], Relaxed);
                }
            }
            return;
        }
        for &parameter in reads {
            let (last, readers) = (&self.last[parameter as usize], &self.readers[parameter as usize]);
            general.reads.push(ReadOp { parameter, version: last.load(Relaxed) });
            readers.store(readers.load(Relaxed) + 1, Relaxed);
        }
        for &parameter in writes {
            let (last, readers) = (&self.last[parameter as usize], &self.readers[parameter as usize]);
            general.writes.push(WriteOp {
                parameter,
                writer: last.load(Relaxed),
                readers: readers.load(Relaxed),
            });
            last.store(number, Relaxed);
            readers.store(0, Relaxed);
        }
        general.ends.push((general.reads.len(), general.writes.len()));
    }

    /// The plan, once the epoch is over: `order` has the rows in the order of their numbers.
    pub(crate) fn finish<T: Task>(
        self,
        task: &T,
        data: &Dataset<'_>,
        order: Vec<u32>,
        workers: &[Worker],
    ) -> Plan {
        let annotations = match self.versions {
            Some(versions) => Annotations::Compact(versions.into_iter().map(AtomicU32::into_inner).collect()),
            None => general(workers),
        };
        Plan::of_data(data, task.parameters(data.width()), task.rule(), annotations).in_order(order)
    }
}

/// What all threads collected, in the order of the transactions' numbers.
fn general(workers: &[Worker]) -> Annotations {
    let numbered = workers.iter().flat_map(|worker| {
        let General { ends, reads, writes } = &worker.planned;
        worker.commits.iter().enumerate().map(move |(at, commit)| {
            let (reads_from, writes_from) = if at == 0 { (0, 0) } else { ends[at - 1] };
            (commit.0, &reads[reads_from..ends[at].0], &writes[writes_from..ends[at].1])
        })
    });
    let mut numbered: Vec<_> = numbered.collect();
    numbered.sort_unstable_by_key(|transaction| transaction.0);
    let (mut reads_at, mut writes_at) = (vec![0], vec![0]);
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for (_, its_reads, its_writes) in numbered {
        reads.extend_from_slice(its_reads);
        writes.extend_from_slice(its_writes);
        reads_at.push(reads.len() as u64);
        writes_at.push(writes.len() as u64);
    }
    Annotations::General { reads_at, reads, writes_at, writes }
}
