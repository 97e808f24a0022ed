//! Epochs one behind the other without a barrier: carry mode over the same plan again and again (specs/cop.md 3.4).
//!
//! Stitched behind itself, a plan changes at first touches only, and always by the same: what was "version 0" is the last
//! writer of the lap before. Written relative to the lap's base that is one plan for all laps but the first; and the first
//! is like the others if cells begin as a lap would have left them. It is not written down, but told from the parameter of a
//! first touch: four bytes for each parameter (eight where plans count readers), and none for an entry.

use super::source::NEVER;
use crate::data::Rows;
use crate::memory::zeros;
use crate::plan::{Annotations, Plan};

/// How a lap of a cycle leaves each parameter, and so what the first touches of the next one find.
#[derive(Debug)]
pub(crate) struct Cycle {
    transactions: u32,
    /// The last transaction that writes each parameter; 0 where none does.
    writers: Vec<u32>,
    /// Planned readers after it; empty for compact plans, which leave none.
    readers: Vec<u32>,
}

/// Transactions of a lap: so many that differences over two laps fit 32 bits, and none is [`NEVER`].
pub(crate) const MOST: u32 = (1 << 31) - 1;

impl Cycle {
    /// Of a plan.
    pub(crate) fn of<V: crate::data::Value>(plan: &Plan, rows: &Rows<'_, V>) -> Cycle {
        let transactions = plan.transactions();
        let mut writers = zeros(plan.parameters() as usize);
        let mut readers = Vec::new();
        match plan.annotations() {
            Annotations::Compact(_) => {
                for position in 0..transactions {
                    let row = plan.order().map_or(position, |order| order[position as usize]);
                    for &feature in &rows.features[rows.range(row as usize)] {
                        writers[feature as usize] = position + 1;
                    }
                }
            }
            Annotations::General { reads_at, reads, writes_at, writes } => {
                readers = zeros(plan.parameters() as usize);
                for at in 0..transactions as usize {
                    for op in &reads[reads_at[at] as usize..reads_at[at + 1] as usize] {
                        readers[op.parameter as usize] += 1;
                    }
                    for op in &writes[writes_at[at] as usize..writes_at[at + 1] as usize] {
                        writers[op.parameter as usize] = at as u32 + 1;
                        readers[op.parameter as usize] = 0;
                    }
                }
            }
        }
        Cycle { transactions, writers, readers }
    }

    /// What is meant by version 0 of a parameter, relative to the base of the lap.
    #[inline(always)]
    pub(crate) fn before(&self, parameter: u32) -> u32 {
        match self.writers[parameter as usize] {
            0 => NEVER,
            writer => writer.wrapping_sub(self.transactions),
        }
    }

    /// How many of the lap before read that version.
    #[inline(always)]
    pub(crate) fn read_before(&self, parameter: u32) -> u32 {
        self.readers.get(parameter as usize).copied().unwrap_or(0)
    }

    /// Version and count of a parameter before the lap of this base.
    pub(crate) fn head(&self, base: u32, parameter: usize) -> (u32, u32) {
        let version = match self.writers[parameter] {
            0 => 0,
            writer => base.wrapping_add(writer).wrapping_sub(self.transactions),
        };
        (version, self.read_before(parameter as u32))
    }
}
