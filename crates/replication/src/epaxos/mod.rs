//! EPaxos.
mod message;
mod mutation;
pub mod order;
mod parameters;

pub use message::{
    Attributes, Committed, Content, InstanceId, Message, Note, Phase, Record, Report, SEATS, Timer,
};
pub use mutation::Mutation;
pub use order::Order;
pub use parameters::Parameters;

use crate::family::{AskingClient, Replicated};
use crate::order::Ordered;
use isochrone_core::StateMachine;

/// EPaxos.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// EPaxos over the state machine `S`.
pub type Epaxos<S> = Replicated<S, Family>;
/// Where EPaxos stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "epaxos";
    const LED: bool = false;
    const COMMITS: bool = true;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = AskingClient<Family, S>;

    fn admits(members: usize) -> Result<(), (String, String)> {
        if members <= SEATS {
            return Ok(());
        }
        let wrong = format!("{members} replicas, but dependencies are kept for {SEATS} at most");
        Err((wrong, format!("list at most {SEATS} nodes, an odd number")))
    }
}
