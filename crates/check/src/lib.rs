//! Checkers of recorded histories.
//!
//! A run, simulated or live, leaves a [`History`]: what each client asked, when, and what it was told. This crate
//! decides whether some order of the operations explains it:
//!
//! - [`check`] decides linearizability against a [`Model`] (Wing and Gong's search with Lowe's memoisation, over
//!   components of keys), says *undecided* where the budget ends, and explains a violation by the few operations
//!   that conflict;
//! - [`check_by_key`] decides it for each key by itself, where operations of several keys need not be linearizable as a
//!   whole;
//! - [`check_promised`] decides what a keyspace promises, be it that or less;
//! - [`once`] decides whether acknowledged operations took effect exactly once, unknown ones at most once and
//!   failed ones never, and whether a session's operations took effect in the session's order;
//! - [`transactions`] decides serializability, strict or not, by the search for a circle among transactions;
//! - [`check_sessions`] decides whether each session read its own writes and never read backwards.
//!
//! It depends on no other crate of the workspace, on purpose: the models are a second opinion about what the store
//! should do, so that a mistake of the store shows. It reads no clock; who wants a limit in seconds hands one in
//! ([`Budget::clock`]).
//!
//! The file format is in `docs/histories.md`.

#![forbid(unsafe_code)]

mod by_key;
mod explain;
mod history;
mod jsonl;
pub mod model;
mod partition;
mod planted;
mod promise;
mod report;
mod search;
mod sessions;
mod texts;
mod timeline;
pub mod transactions;
mod zones;

#[cfg(test)]
mod tests;

pub use by_key::check_by_key;
pub use explain::{ExplainedOperation, Explanation};
pub use history::{History, Operation, Outcome, Value};
pub use jsonl::{HistoryError, Reader, Writer};
pub use model::{Access, Bank, Kv, Model, ModelName, Register, Step, Texts, Timed, Unsupported};
pub use promise::{Promise, check_promised};
pub use report::{Budget, CheckError, Report, Verdict, check, check_named};
pub use sessions::{SessionReport, SessionViolation, SessionViolationKind, check_sessions, once};
