//! Transactions: what clients ask of keys in several partitions at once, and what came of it.
//!
//! A [`Workload`] is data, a [`Session`] draws its [`Plan`]s from it and a seed: which keys a transaction reads and may
//! write, and what it writes given what it read. [`TransactionClients`] carries them out in the simulator, and [`run`]
//! is one simulated run of a keyspace with its verdict. Nothing is loaded before a run: a key that was never written
//! reads as what the workload begins with, so ten million keys cost nothing.

mod clients;
mod figures;
mod history;
mod ledger;
mod money;
mod plan;
mod trial;
mod workload;

pub use clients::{Script, TransactionClients};
pub use figures::{End, Figures, Tally};
pub use history::{History, Tried};
pub use plan::{Kind, Plan};
pub use trial::{Outcome, draw_change, draw_move, judge, run};
pub use workload::{Keys, Session, UnknownWorkload, Workload};
