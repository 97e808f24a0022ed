//! Planning during the first epoch, which runs under locks. Specification: `specs/cop.md` 3.3.

use crate::plan::{ReadOp, WriteOp};

/// Annotations of transactions in the general form, as one thread collects them.
#[derive(Default, Debug)]
pub(crate) struct General {
    /// Number of reads and of writes of each transaction.
    pub(crate) lengths: Vec<(u32, u32)>,
    pub(crate) reads: Vec<ReadOp>,
    pub(crate) writes: Vec<WriteOp>,
}
