//! Learning from data that is born in several regions, at one centre, as if one thread had learnt from all of it in one
//! known order.
//!
//! What it is: in each region a [`Collector`] gathers samples into batches, plans them, and sends them. The [`Center`] puts
//! the batches of all sources in one order (that of their arrival; those of a source in that source's own order), writes it
//! to a durable order log, stitches the plans, and learns. Specification: `specs/cop.md` 3.5.
//!
//! What it guarantees: every sample of every source is learnt from exactly once, whatever is lost, repeated, or sent anew
//! by a collector that restarted; the model is bit for bit what one thread learns from the order log ([`serial`]), whatever
//! crashes and restarts there were. Not guaranteed: that two runs order batches alike (they arrive as they arrive), nor
//! anything about samples that a source cannot give again after its collector was lost before they were taken.
//!
//! Messages: a batch to the centre (bytes of [`Batch`]); the answer, [`Ingest`], which tells where the source goes on.
//! There are no quorums: one centre, whose storage is the only state that must last.
//!
//! What differs from the source of the idea, which is silent about all of this: *marks*. The model is looked at, saved, or
//! handed out only at a mark, which is a record in the order log: all batches before it are learnt from, the intercept's lag
//! is made up for, and versions begin again at 0. So a checkpoint is a plain vector, 32 bits are enough for versions, and a
//! restart replays from the last mark that a checkpoint was made at.
//!
//! No clock and no thread is in here, but for those that learn: a host tells the time and moves the bytes. [`emulate`] is
//! such a host, in one process and in virtual time.

mod batch;
mod center;
mod checkpoint;
mod collector;
mod emulation;
mod log;
mod serial;
mod storage;
#[cfg(test)]
mod tests;

pub use batch::{Batch, BatchError, PlanFate};
pub use center::{Center, CenterError, CenterOptions, Counts, Ingest};
pub use checkpoint::{CHECKPOINT, Checkpoint};
pub use collector::{Collector, CollectorOptions, Next};
pub use emulation::{Emulation, EmulationReport, SourceReport, emulate};
pub use log::{Kind, LOG, LogError, OrderLog, Place, Record, Settings};
pub use serial::{ReplayError, serial};
pub use storage::{Files, Memory, Storage};
