//! A protocol of this crate as a whole: an order, a client, knobs, and the replica around the order.

use crate::client::{self, Client};
use crate::message::{Entry, Message};
use crate::order::{Order, Ordered};
use crate::partitions::{self, Divided};
use crate::placement::Placement;
use crate::replica::{self, Replica};
use crate::request::{Outcome, Request};
use crate::service::{Reply, Service};
use isochrone_core::deployment::ParameterReader;
use isochrone_core::{
    Assemble, Guarantee, Lasting, PartitionId, Process, Protocol, ReplicaId, Role, Span, StateMachine,
};
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

/// The role of replicas.
pub const REPLICA: Role = Role(0);
/// The role of clients.
pub const CLIENT: Role = Role(1);

/// A protocol of this crate. Each is a module with the same rooms.
pub trait Family: Copy + Debug + Send + Sync + 'static {
    /// The name on the command line and in deployment files.
    const NAME: &'static str;
    /// Whether clients do best to ask the one that leads; else they ask the nearest. Then whoever has answered is asked from then
    /// on, since it is thought to lead: an order whose answers come from elsewhere, as from the last of a chain, is not led in
    /// this sense, or wants clients of its own.
    const LED: bool;
    /// Whether a command's place is certain before it is executed, so that `reply = "commit"` means something.
    const COMMITS: bool;
    /// Whether who leads an epoch first does so without anybody's vote: all must know the same one, of the first epoch for as long as
    /// the data lives. Who leads a later one stands in what ended the one before.
    const LEADER_FIXED: bool = false;
    /// Whether spares are servers like the others from the start, and only who administers them grows: then they are
    /// members of every group, and clients know them.
    const SPARES_SERVE: bool = false;
    /// Whether what is answered as safe is with all copies, of which there may be fewer at times, and not with most
    /// replicas.
    const SYNCS_ALL: bool = false;
    /// The knobs of its order.
    type Parameters: Tuning;
    /// Its order.
    type Order<V: Ordered>: Order<Value = V, Parameters = Self::Parameters>;
    /// What clients run. It is told the state machine for what a command says about itself: whether it only
    /// reads, and what a blind write is answered.
    type Client<S: StateMachine>: Process<
            Message = MessageOf<Self, S::Command, S::Reply>,
            Request = Request<S::Command>,
            Outcome = Outcome<S::Reply>,
            Setup = client::Setup<Self::Parameters>,
        >;

    /// Names what else serves a partition, beside its replicas.
    fn place_further<S: StateMachine>(
        _placement: &Placement<S, Self>,
        _partition: PartitionId,
        _host: &mut impl Assemble<Replicated<S, Self>>,
    ) {
    }

    /// What the keyspace promises.
    fn guarantee(_: &Self::Parameters, service: &Service) -> Guarantee {
        match service.reply {
            Reply::Execute => Guarantee::Linearizable,
            Reply::Commit => Guarantee::Sequenced,
        }
    }
}

/// The knobs of an order.
pub trait Tuning: Copy + Eq + Hash + Debug + Send + Sync + 'static {
    /// The defaults for replicas and clients that are at most this far apart.
    fn for_rtt(rtt_max: Span) -> Self;
    /// Reads over these defaults, in a keyspace that replies so; the caller finishes the reader.
    fn read_from(&mut self, reader: &mut ParameterReader<'_>, reply: Reply);
    /// Reads over them what depends on the number of replicas, or on how many spares there are beside them.
    fn read_sizes(&mut self, _reader: &mut ParameterReader<'_>, _replicas: usize, _spares: usize) {}
    /// What of it must not change while the keyspace's data lives, in a group of so many replicas, as
    /// [`Lasting::fixed`] has it.
    fn fixed(&self, _replicas: usize) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// How long its leases last.
    fn leases(&self) -> Span {
        Span::ZERO
    }
    /// The bugs that can be planted.
    fn bugs() -> Vec<&'static str>;
    /// Plants the bug of this name; false where there is none.
    fn plant(&mut self, bug: &str) -> bool;
    /// Whether the bug is planted that leaves the exactly-once table out of snapshots.
    fn drops_sessions(&self) -> bool {
        false
    }
    /// The bug that is planted in what the families of [`crate::curp`] share.
    fn shared_bug(&self) -> Option<crate::curp::Bug> {
        None
    }
}

/// What is spoken in a family.
pub type MessageOf<F, C, R> = Message<C, R, <<F as Family>::Order<Entry<C>> as Process>::Message>;
/// What a family's clients are, where they only ask replicas.
pub type AskingClient<F, S> = Client<
    <S as StateMachine>::Command,
    <S as StateMachine>::Reply,
    <OrderOf<F, S> as Process>::Message,
    <F as Family>::Parameters,
>;
/// A family's order for a state machine.
pub type OrderOf<F, S> = <F as Family>::Order<Entry<<S as StateMachine>::Command>>;

/// The family `F` over the state machine `S`.
pub struct Replicated<S, F>(PhantomData<(S, F)>);

impl<S: StateMachine, F: Family> Protocol for Replicated<S, F> {
    const NAME: &'static str = F::NAME;
    type Message = MessageOf<F, S::Command, S::Reply>;
    type Request = Request<S::Command>;
    type Outcome = Outcome<S::Reply>;
    type Placement = Placement<S, F>;

    fn guarantee(placement: &Self::Placement) -> Guarantee {
        F::guarantee(&placement.parameters, &placement.service)
    }

    fn lasting(placement: &Self::Placement) -> Lasting {
        let mut fixed = placement.parameters.fixed(placement.replicas.len());
        if F::COMMITS {
            // What is remembered of clients is of another kind, and what was answered early may come behind what followed.
            fixed.push(("reply", placement.service.reply.name().to_owned()));
        }
        let leader = F::LEADER_FIXED.then_some(placement.leader);
        Lasting { fixed, leader, spares: placement.spares.clone(), leases: placement.parameters.leases() }
    }

    fn place(placement: &Self::Placement, host: &mut impl Assemble<Self>) {
        for partition in placement.partitions() {
            let members = placement.members(partition);
            let preferred: Option<ReplicaId> = placement.seat(placement.leader(partition));
            for node in placement.replicas.iter().chain(&placement.spares) {
                let setup = replica::Setup {
                    members: members.clone(),
                    preferred,
                    service: placement.service,
                    parameters: placement.parameters,
                    machine: placement.machine.clone(),
                };
                host.server::<Replica<S, OrderOf<F, S>>>(placement.replica(partition, *node), setup);
            }
            F::place_further(placement, partition, host);
        }
        for (node, nearest) in &placement.clients {
            let setup = |partition| client::Setup {
                replicas: nearest.iter().map(|node| placement.replica(partition, *node)).collect(),
                members: placement.members(partition),
                leader: F::LED.then(|| placement.replica(partition, placement.leader(partition))),
                proxy: placement.proxy(*node),
                service: placement.service,
                parameters: placement.parameters,
            };
            let mut setups: Vec<_> = placement.partitions().map(setup).collect();
            let id = placement.client(*node);
            match (setups.len(), setups.pop()) {
                (1, Some(setup)) => host.client::<F::Client<S>>(id, setup),
                (_, last) => {
                    setups.extend(last);
                    let (service, bug) = (placement.service, placement.bug);
                    let setup = partitions::Setup { parts: setups, service, bug };
                    host.client::<Divided<S, F::Client<S>>>(id, setup);
                }
            }
        }
    }
}
