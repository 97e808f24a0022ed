//! A transaction protocol as a whole: its servers, its clients, its knobs.

use crate::commands::Carries;
use crate::directory::Directed;
use crate::limits::Bounds;
use crate::map::{Distances, Map};
use crate::placement::Placement;
use crate::request::{Outcome, Request};
use isochrone_core::deployment::ParameterReader;
use isochrone_core::{
    Assemble, Guarantee, Lasting, PartitionId, Process, ProcessId, Protocol, Role, Span, Wire,
};
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

/// The role of replicas of a partition.
pub const SERVER: Role = Role(0);
/// The role of clients.
pub const CLIENT: Role = Role(1);

/// What a replica of a partition needs to start.
#[derive(Clone, Debug)]
pub struct Server<P> {
    /// Where everything is.
    pub map: Map,
    /// Its partition.
    pub partition: PartitionId,
    /// The clients, which are to know where it has gone.
    pub clients: Arc<[ProcessId]>,
    /// The knobs.
    pub parameters: P,
}

/// What a client needs to start.
#[derive(Clone, Debug)]
pub struct Client<P> {
    /// Where everything is.
    pub map: Map,
    /// How far.
    pub distances: Distances,
    /// The knobs.
    pub parameters: P,
}

/// A protocol of this crate. Each is a module with the same rooms.
pub trait Family: Copy + Debug + Send + Sync + 'static {
    /// The name on the command line and in deployment files.
    const NAME: &'static str;
    /// One enum for all roles.
    type Message: Wire + Carries;
    /// The knobs.
    type Parameters: Tuning;
    /// A replica of a partition.
    type Server: Process<Message = Self::Message, Setup = Server<Self::Parameters>>;
    /// What gateways host.
    type Client: Process<
            Message = Self::Message,
            Request = Request,
            Outcome = Outcome,
            Setup = Client<Self::Parameters>,
        >;

    /// Whether each partition has a leader, without which it serves nothing.
    const LED: bool = true;

    /// The knobs where everybody is at most this far apart, before the file is read.
    fn defaults(rtt_max: Span) -> Self::Parameters {
        Self::Parameters::for_rtt(rtt_max)
    }

    /// What the file leaves open, as clients of commands expect it: they take a read for the latest.
    fn served(_parameters: &mut Self::Parameters) {}

    /// What the keyspace promises of transactions that write, and of those that only read.
    fn guarantees(parameters: &Self::Parameters) -> (Guarantee, Guarantee);
}

/// The knobs of a protocol.
pub trait Tuning: Copy + Eq + Hash + Debug + Send + Sync + 'static {
    /// The defaults where everybody is at most this far apart.
    fn for_rtt(rtt_max: Span) -> Self;
    /// Reads over these defaults; the caller finishes the reader.
    fn read_from(&mut self, reader: &mut ParameterReader<'_>);
    /// Adds what of it must not change while the keyspace's data lives.
    fn fixed(&self, _fixed: &mut Vec<(&'static str, String)>) {}
    /// What one transaction may have.
    fn bounds(&self) -> Bounds;
    /// Lets it have so much.
    fn bound(&mut self, bounds: Bounds);
    /// The bugs that can be planted.
    fn bugs() -> Vec<&'static str>;
    /// Plants the bug of this name; false where there is none.
    fn plant(&mut self, bug: &str) -> bool;
}

/// The family `F` as the hosts know it.
pub struct Transactional<F>(PhantomData<F>);

impl<F: Family> Protocol for Transactional<F> {
    const NAME: &'static str = F::NAME;
    type Message = F::Message;
    type Request = Request;
    type Outcome = Outcome;
    type Placement = Placement<F>;

    /// The weaker of the two: what holds for all.
    fn guarantee(placement: &Placement<F>) -> Guarantee {
        let (updates, reads) = F::guarantees(&placement.parameters);
        updates.max(reads)
    }

    fn lasting(placement: &Placement<F>) -> Lasting {
        placement.lasting()
    }

    fn place(placement: &Placement<F>, host: &mut impl Assemble<Self>) {
        placement.servers(placement.parameters, |process, setup| host.server::<F::Server>(process, setup));
        placement.clients(placement.parameters, |process, setup| {
            host.client::<Directed<F::Client>>(process, setup);
        });
    }
}
