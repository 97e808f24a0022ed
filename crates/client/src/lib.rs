//! The client library of Isochrone: transactions over the keys of a keyspace, in one closure.
//!
//! ```no_run
//! use isochrone_client::{Client, Error, Outcome};
//!
//! # async fn example() -> Result<(), Error> {
//! // Nodes in the order in which they are preferred: the nearest first.
//! let client = Client::connect(["10.0.0.1:7400", "10.0.1.1:7400"]).await?;
//! let bank = client.keyspace("bank");
//!
//! let outcome = bank
//!     .transaction()
//!     .read(["ana", "bo"])
//!     .write(["ana", "bo"])
//!     .run(async |txn| {
//!         let [ana, bo] = [txn.number("ana")?, txn.number("bo")?];
//!         if ana < 30 {
//!             return Ok(false); // Nothing was put, so nothing changes.
//!         }
//!         txn.put("ana", (ana - 30).to_string())?;
//!         txn.put("bo", (bo + 30).to_string())?;
//!         Ok(true)
//!     })
//!     .await?;
//!
//! match outcome {
//!     Outcome::Committed { value: paid, at, .. } => println!("paid: {paid}, at version {at}"),
//!     Outcome::Aborted { reason, tries } => println!("no effect after {tries} tries: {reason}"),
//!     Outcome::Unknown { why } => println!("it may have taken effect, or not: {why}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **The model.** A transaction names the keys it may read and the keys it may write when it begins. It has one round of
//! reads, then one round of writes, whose values may depend on all that was read: over a wide area that is what makes it
//! fast. The closure runs between the two, and again where the transaction was aborted, so it must change nothing outside.
//! What it sees may be of several moments, or no longer the latest: then the transaction is aborted, whatever it has put.
//! Only what it answers where the transaction has committed is sure. Where a key depends on a value, see [`Transaction::find`].
//! In a spawned task it is `async move` and owns what it captures ([`Transaction::run`]).
//!
//! **What is known.** [`Outcome::Aborted`] took no effect. [`Outcome::Unknown`] may have: the node was lost, or the
//! partitions did not answer, between the request to commit and its answer. No transaction is tried again whose end is
//! not known.
//!
//! **Nodes.** A node that is down, or silent for long, is left for the next one by all calls; one that stops, or that does
//! not answer a call in its time, by that call alone. What has no effect there is asked again at the next. Every ten
//! seconds it is looked whether a nearer one serves again.
//!
//! **Redis clients** see the same keys: values here are the strings of `GET` and `SET` there.

#![forbid(unsafe_code)]

mod begin;
mod call;
mod client;
mod error;
mod keyspace;
mod pause;
mod reply;
mod resolver;
#[cfg(test)]
mod tests;
mod transaction;

pub use client::{Builder, Client};
pub use error::{Code, Error, Reason};
pub use keyspace::{Keyspace, Snapshot, Written};
pub use reply::Reply;
pub use transaction::{Keys, Outcome, Transaction, Txn};
