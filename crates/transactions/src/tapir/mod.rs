//! TAPIR.

mod client;
mod closing;
pub mod message;
mod mutation;
pub mod occ;
mod parameters;
pub mod round;
mod server;
mod state;
pub mod takeover;
mod timestamps;
mod transaction;
pub mod view;

pub use client::Client;
pub use message::{Message, Note, Record};
pub use mutation::Mutation;
pub use parameters::Parameters;
pub use server::{Order, Server, Standing};

use isochrone_core::Guarantee;

/// TAPIR.
#[derive(Copy, Clone, Debug)]
pub struct Family;

impl crate::Family for Family {
    const NAME: &'static str = "tapir";
    type Message = Message;
    type Parameters = Parameters;
    type Server = Server;
    type Client = Client;

    fn guarantees(_: &Parameters) -> (Guarantee, Guarantee) {
        (Guarantee::Serializable, Guarantee::Serializable)
    }
}
