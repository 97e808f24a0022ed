//! Domino: a position in the log is a point in time, and clients choose it from what they measure.

mod client;
mod clock;
mod message;
mod mutation;
mod order;
mod parameters;
mod predict;
mod track;

pub use client::Client;
pub use message::{
    Beat, Item, Message, Note, Opening, Place, Promise, Record, Reject, Revoked, Round, Seal, Timer, Turn,
};
pub use mutation::Mutation;
pub use order::{Held, Order};
pub use parameters::{Extra, Learners, Parameters, Way};
pub use predict::Predictor;

use crate::family::Replicated;
use crate::order::Ordered;
use isochrone_core::StateMachine;

/// Domino.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// Domino over the state machine `S`.
pub type Domino<S> = Replicated<S, Family>;
/// Where Domino stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "domino";
    const LED: bool = false;
    const COMMITS: bool = true;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = Client<S>;
}
