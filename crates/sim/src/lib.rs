//! The simulator: a whole cluster on one thread, in virtual time, from one seed.
//!
//! [`Simulation`] is a visitor of a protocol's placement, as the runtime is, and keeps the same contract
//! ([`isochrone_core::Process`]); only everything that a network, a clock, a disk and a machine can do to a
//! process happens here on purpose. A [`Config`] says what the cluster is made of, a [`Driver`] what its
//! clients do, a [`FaultPlan`] what goes wrong. [`Simulation::run`] gives a [`Report`]: what broke, how much
//! was done, and a hash of everything that happened, which is the same whenever the seed is.

#![forbid(unsafe_code)]

mod clock;
mod config;
mod driver;
mod fault;
mod flow;
mod inject;
mod life;
mod network;
mod oracle;
mod plan;
mod queue;
mod run;
mod runner;
mod seat;
mod session;
mod simulation;
mod svg;
mod timers;
mod trace;
mod traffic;
mod turn;
mod world;

pub use config::{Config, Cost, NodeConfig, Record};
pub use driver::{Admin, Driver, Idle, Next, Session};
pub use fault::{Action, FaultKind, FaultPlan, FaultSet, Histogram, Planned, Shape, UnknownFault};
pub use flow::{Lanes, lanes};
pub use network::{DelayHook, Jitter};
pub use oracle::{Violation, ViolationKind};
pub use run::Report;
pub use runner::{Seeds, Summary, run_seeds};
pub use session::SESSION_NUMBERS;
pub use simulation::Simulation;
pub use trace::{Digest, FlowEvent, Line};
pub use traffic::{Load, Traffic};
