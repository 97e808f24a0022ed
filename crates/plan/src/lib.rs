//! What the distances allow: lower bounds, closed forms of the protocols, and the advice that follows.
//!
//! Everything here is pure arithmetic over a [`Matrix`](isochrone_core::Matrix); it runs no protocol. The simulator
//! with processing and sync cost at zero gives the same numbers, and a test of each protocol says so.
//!
//! - [`floor`]: no linearizable replicated write is faster, whatever the protocol;
//! - [`multipaxos`], [`curp_consensus`], [`mencius`], [`fastpaxos`], [`epaxos`], [`sdpaxos`], [`domino`], [`curp`]: what
//!   each needs without load, with all replicas or with some of them crashed ([`Group`]);
//! - [`decision`]: how many processes fast decisions need;
//! - [`plan`]: all of it for one keyspace of a deployment and its clients, and the protocol, leader and placement to
//!   choose; [`leader`]: only the leader; [`servers`]: where those stand that serve it;
//! - [`plan_over`], [`expected`]: the same over measured distances, and what clients of a keyspace should wait as it runs;
//! - [`Reply`], [`Learners`], and `Tuned` of a protocol: the parameters on which it depends how long clients wait, with their
//!   defaults; the protocols read them by way of this crate, so that what is planned is what is run;
//! - [`carousel`], [`tapir`], [`twopc`]: what a transaction over several [`Partitions`] needs; [`plan_transactions`]: the
//!   same for the mixes of workloads and one keyspace of a deployment.

#![forbid(unsafe_code)]

mod advice;
pub mod carousel;
mod client;
pub mod curp;
pub mod curp_consensus;
pub mod decision;
pub mod domino;
pub mod epaxos;
pub mod fastpaxos;
mod floor;
mod forecast;
mod group;
pub mod mencius;
pub mod multipaxos;
#[cfg(test)]
mod oracle;
mod partitions;
mod placement;
mod running;
pub mod sdpaxos;
mod table;
pub mod tapir;
#[cfg(test)]
mod tests;
mod told;
mod transactions;
pub mod twopc;

pub use advice::{Plan, Recommendation, about, forecasts, leader, plan, plan_over, servers, serving};
pub use client::Client;
pub use floor::{floor, nearest_majority};
pub use forecast::{Demand, Forecast, RegionForecast};
pub use group::Group;
pub use partitions::{Footprint, Partitions};
pub use running::{Expected, Standing, expected};
pub use table::{cells, gap, mark};
pub use told::{Learners, Reply};
pub use transactions::{
    Quantiles, TransactionForecast, TransactionPlan, plan_transactions, plan_transactions_over,
};
