//! What clients and replicas tell each other whatever the protocol, and what a replica writes down.

use crate::order::{Member, Ordered, Reign};
use crate::request::{Change, Refusal};
use crate::stream::Said;
use isochrone_core::command::{Access, Touch};
use isochrone_core::{Blob, ClientId, CommandId, Fact, Footprint, Mark, ProcessId, Span, Wire, wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Bytes of commands, or of answers, that go as one message, unless one alone has more: far below what a frame between
/// nodes may have, which a turn may exceed where values are large, and all the more what is asked again at once.
pub(crate) const PART: usize = 8 << 20;

/// Sends a list in parts that fit a frame.
pub(crate) fn in_parts<T: Serialize>(mut list: Vec<T>, mut send: impl FnMut(Vec<T>)) {
    while list.len() > 1 {
        let mut bytes = 0;
        let over = list.iter().position(|item| {
            bytes += wire::encoded_size(item);
            bytes > PART
        });
        let Some(over) = over else { break };
        let rest = list.split_off(over.max(1));
        send(std::mem::replace(&mut list, rest));
    }
    send(list);
}

/// What replicas give their order.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Entry<C> {
    /// A client's command.
    Command {
        /// Its name for ever.
        id: CommandId,
        /// The client has the answers to all its commands below this one.
        below: u64,
        /// What is to be executed.
        command: C,
    },
    /// A reading command without an effect: executed as often as it is found, and never remembered.
    Read {
        /// Its name for ever.
        id: CommandId,
        /// The client has the answers to all its commands below this one.
        below: u64,
        /// What is to be read.
        command: C,
    },
    /// A client was silent for long: its retained answers go.
    Expire {
        /// The client.
        client: ClientId,
        /// Its last command that is executed, as far as the proposer knows. If there is a later one when this
        /// is executed, the client was not silent after all.
        through: u64,
    },
    /// The order ends here; another one begins behind it, among these. It is led first as the first one was: by the seat that
    /// the file gives. No longer made, but in journals.
    Stop {
        /// The members from here on.
        members: Arc<[Member]>,
    },
    /// The order ends here; another one begins behind it, among these.
    HandOver {
        /// The members from here on; the first of them leads first, where any does.
        members: Arc<[Member]>,
    },
}

impl<C> Entry<C> {
    /// Where the order ends with it: who the members are behind it, and whether the first of them leads first.
    pub(crate) fn successors(&self) -> Option<Successors> {
        match self {
            Entry::Stop { members } => Some(Successors { members: members.clone(), first_leads: false }),
            Entry::HandOver { members } => Some(Successors { members: members.clone(), first_leads: true }),
            Entry::Command { .. } | Entry::Read { .. } | Entry::Expire { .. } => None,
        }
    }
}

/// The members of an epoch.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(crate) struct Successors {
    pub(crate) members: Arc<[Member]>,
    /// Whether the first of them leads first, where any does; else who has the seat that the file gives.
    pub(crate) first_leads: bool,
}

impl<C: Wire + Footprint> Ordered for Entry<C> {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        match self {
            // What looks at a key whose deadline has passed deletes it. A read that only reads is never executed
            // then, but a command is, and must have its place before or behind every other look at that key.
            Entry::Command { command, .. } => command.visit(&mut |touch| match touch {
                Touch::Key(key, Access::Read) => visit(Touch::Key(key, Access::Update)),
                Touch::All(Access::Read) => visit(Touch::All(Access::Update)),
                touch => visit(touch),
            }),
            Entry::Read { command, .. } => command.visit(visit),
            Entry::Expire { .. } | Entry::Stop { .. } | Entry::HandOver { .. } => {
                visit(Touch::All(Access::Update));
            }
        }
    }

    fn id(&self) -> Option<CommandId> {
        match self {
            Entry::Command { id, .. } | Entry::Read { id, .. } => Some(*id),
            Entry::Expire { .. } | Entry::Stop { .. } | Entry::HandOver { .. } => None,
        }
    }

    fn reads(&self) -> bool {
        matches!(self, Entry::Read { .. })
    }

    fn ends(&self) -> bool {
        matches!(self, Entry::Stop { .. } | Entry::HandOver { .. })
    }

    fn below(&self) -> u64 {
        match self {
            Entry::Command { below, .. } | Entry::Read { below, .. } => *below,
            Entry::Expire { .. } | Entry::Stop { .. } | Entry::HandOver { .. } => 0,
        }
    }

    fn with_below(self, below: u64) -> Self {
        match self {
            Entry::Command { id, command, .. } => Entry::Command { id, below, command },
            Entry::Read { id, command, .. } => Entry::Read { id, below, command },
            entry => entry,
        }
    }
}

/// One command of a client.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Ask<C> {
    /// The client's number for it.
    pub sequence: u64,
    /// What is to be executed.
    pub command: C,
    /// A read that was told [`Told::Touches`]: it is executed once, with its effect.
    pub touching: bool,
    /// An answer that is safe is wanted, if the first is not: what decides the command is to begin at once.
    pub synced: bool,
}

/// What a client is told of one command.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Told<R> {
    /// It was executed, by way of the log.
    Done(R),
    /// It was executed, and commutes with all that is not yet safe before it; it is safe itself when enough
    /// witnesses have accepted it under the reign of this message.
    Speculative(R),
    /// It was read from the leader's state under its lease.
    Read(R),
    /// It was read by way of the log, and had no effect.
    Looked(R),
    /// It is a read that would let a key expire, and was not executed. A read is answered without a record
    /// of it, so a late copy may be read again; an effect must not be had again, least of all when the
    /// client has its answer. The client, which alone knows that it has none, asks for it as a change.
    Touches,
    /// It may have been executed, and what it answered is forgotten.
    Forgotten,
    /// It was not taken: too much is waiting.
    Overloaded,
    /// It was read from the state of a copy that does not lead.
    Near(R),
    /// It has a place that it cannot lose, and its reply depends on nothing in the state. It is not known to be executed, and
    /// is told again once it is.
    Placed(R),
}

/// Where the time of a slot went at the leader, microseconds: waiting for its slot, own vote, quorum,
/// order, execution. One sample stands for all commands of a message.
pub type Spans = [u32; 5];

/// The messages of a protocol whose order speaks `M`.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<C: Wire, R: Wire, M: Wire> {
    /// Of the order, between replicas; in some protocols clients take part.
    Order {
        /// How often the members were changed by stop and hand-over.
        epoch: u32,
        /// What it says.
        message: M,
    },
    /// What the receiver said is of an order that has ended.
    Ended {
        /// The one that the sender is in.
        epoch: u32,
        /// Its members.
        members: Arc<[Member]>,
    },
    /// Execute these.
    Requests {
        /// Whose they are.
        client: ClientId,
        /// The client has the answers to all its commands below this one.
        below: u64,
        /// The only reign under which they are to be taken; none where any will do.
        under: Option<Reign>,
        /// The commands.
        asks: Vec<Ask<C>>,
        /// Whether a replica has sent them on already.
        forwarded: bool,
        /// Where they stand in what the client says.
        said: Said,
    },
    /// The answers.
    Replies {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// The reign in which they were executed or decided.
        reign: Reign,
        /// Where the time went, if this was measured.
        spans: Option<Spans>,
        /// Sequence numbers and answers.
        answers: Vec<(u64, Told<R>)>,
    },
    /// The sender does not lead, or leads in another reign; ask this one, or where there is none, again soon.
    Redirect {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// The reign that the sender is in.
        reign: Reign,
        /// Who leads, as far as the sender knows.
        leader: Option<ProcessId>,
        /// The commands that were not taken.
        sequences: Vec<u64>,
    },
    /// Something that was said before what the sender was asked is missing: nothing behind it is taken. All that is
    /// outstanding is to be said in the turn after this one.
    Missed {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// The turn.
        turn: u32,
    },
    /// Change the members or the leader.
    Administer {
        /// The client's number for this; the same when asked again.
        number: u64,
        /// What to change.
        change: Change,
    },
    /// How that ended.
    Administered {
        /// The client's number.
        number: u64,
        /// Done, or why not.
        result: Result<(), Refusal>,
        /// Who leads, as far as the sender knows.
        leader: Option<ProcessId>,
    },
    /// One chunk of the receiver's applied state.
    Want {
        /// At which position; the first question leaves that to the giver.
        position: Option<u64>,
        /// Which chunk, from 0.
        index: u64,
        /// Whether it was asked for before, and did not come.
        again: bool,
    },
    /// The chunk, or that there are no more.
    Chunk {
        /// The position of the view.
        position: u64,
        /// Which chunk.
        index: u64,
        /// Its bytes; none behind the last.
        chunk: Option<Blob>,
    },
    /// The view is no longer on offer: begin again.
    Gone {
        /// The position asked for.
        position: u64,
    },
    /// What became of these? From a client that has sent them and has no answer, or does not know that they are executed; the
    /// commands are not in it.
    Status {
        /// Whose they are.
        client: ClientId,
        /// Its numbers for them.
        sequences: Vec<u64>,
    },
    /// What the sender knows of them, beside answers, which it gives as such.
    Standing {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// Those that have, or may get, a place: they are answered when they are executed.
        waiting: Vec<u64>,
        /// Those that it knows nothing of.
        unknown: Vec<u64>,
    },
    /// Are you in this epoch? From a replica that was asked for it.
    Join {
        /// The one that the sender is in.
        epoch: u32,
    },
    /// The sender is in this epoch, and will be after a crash.
    Joined {
        /// Which one; perhaps a later one than it was asked for.
        epoch: u32,
    },
    /// [`Message::Requests`] of a client that does not hear some replicas: where one of them takes these commands, and was sent them
    /// on, it answers by way of whoever has sent them on.
    Around(Box<Requests<C>>),
    /// What a replica tells a client by way of another one, which hands it on as it is.
    Pass {
        /// The client.
        to: ProcessId,
        /// The message, encoded: so that none can be nested in others without end.
        message: Blob,
    },
}

/// What a client asks for: [`Message::Requests`], or [`Message::Around`] where it does not hear everybody.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Requests<C> {
    /// Whose they are.
    pub client: ClientId,
    /// The client has the answers to all its commands below this one.
    pub below: u64,
    /// The only reign under which they are to be taken; none where any will do.
    pub under: Option<Reign>,
    /// The commands.
    pub asks: Vec<Ask<C>>,
    /// Whether a replica has sent them on already.
    pub forwarded: bool,
    /// Where they stand in what the client says.
    pub said: Said,
    /// Whom it does not hear.
    pub unheard: Vec<ProcessId>,
}

impl<C: Wire, R: Wire, M: Wire> From<Requests<C>> for Message<C, R, M> {
    fn from(requests: Requests<C>) -> Message<C, R, M> {
        if !requests.unheard.is_empty() {
            return Message::Around(Box::new(requests));
        }
        let Requests { client, below, under, asks, forwarded, said, .. } = requests;
        Message::Requests { client, below, under, asks, forwarded, said }
    }
}

impl<C: Wire, R: Wire, M: Wire> Message<C, R, M> {
    /// Whom to send this that is for a client, and what: that client, or the replica by way of which it goes.
    pub(crate) fn for_client(
        self,
        client: ProcessId,
        by_way: Option<ProcessId>,
    ) -> (ProcessId, Message<C, R, M>) {
        match by_way {
            Some(replica) => {
                let message = Blob::from(wire::encode(&self));
                (replica, Message::Pass { to: client, message })
            }
            None => (client, self),
        }
    }

    /// Whether a replica says it to a client that asked it for commands, where this process is one, wherever it lives.
    pub(crate) fn is_for_asker(&self, me: ProcessId) -> bool {
        match self {
            Message::Pass { to, .. } => *to == me,
            Message::Replies { .. }
            | Message::Redirect { .. }
            | Message::Missed { .. }
            | Message::Standing { .. } => true,
            Message::Order { .. }
            | Message::Ended { .. }
            | Message::Requests { .. }
            | Message::Administer { .. }
            | Message::Administered { .. }
            | Message::Want { .. }
            | Message::Chunk { .. }
            | Message::Gone { .. }
            | Message::Status { .. }
            | Message::Join { .. }
            | Message::Joined { .. }
            | Message::Around(_) => false,
        }
    }
}

/// What a replica writes ahead.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<R: Wire> {
    /// A record of the order.
    Order {
        /// Of which one.
        epoch: u32,
        /// What it writes.
        record: R,
    },
    /// A chunk of a peer's state; number 0 begins a new one.
    Chunk {
        /// Which chunk.
        index: u64,
        /// Its bytes.
        chunk: Blob,
    },
    /// All chunks since number 0 are the state from here on.
    Installed {
        /// Where it stands.
        position: u64,
    },
    /// What lies before brings this epoch at a restart.
    Joined {
        /// Which one.
        epoch: u32,
    },
}

/// The timers of a replica whose order has `T`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer<T> {
    /// One of the order's, and of which order.
    Order(u32, T),
    /// Chunks that were asked for have not come: they are asked for again, or the giver is given up.
    Pull,
    /// Nobody has read the views on offer for long: they go.
    Offers,
    /// Sessions that have been silent for long are looked for.
    Sessions,
    /// Members of a new epoch have not said that they are in it: they are asked again.
    Join,
    /// Who is to become a member has not said that it is there: it is asked again, or given up.
    Call,
}

/// The notes of replicas and clients.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note<N> {
    /// The order's own, and of which order.
    Order(u32, N),
    /// In the words all protocols share.
    Fact(Fact),
}

impl<N: Mark> Mark for Note<N> {
    fn fact(&self) -> Option<Fact> {
        match self {
            // Reigns of later epochs are other reigns; those of an order are below 2^48.
            Note::Order(epoch, note) => match note.fact()? {
                Fact::Leads { reign } => Some(Fact::Leads { reign: reign + (u64::from(*epoch) << 48) }),
                fact => Some(fact),
            },
            Note::Fact(fact) => Some(fact.clone()),
        }
    }
}

/// Whole microseconds, as far as they fit.
pub(crate) fn micros(span: Span) -> u32 {
    u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::command::{Command, Operation};
    use isochrone_core::{Blob, Identity, Stamp};

    /// Seeds 851 (three regions) and 781 (five) of EPaxos and 518 of SDPaxos: a read that had deleted an expired
    /// key, and another with an older stamp that found it there afterwards, were thought to commute.
    #[test]
    fn a_read_that_may_delete_is_a_change() {
        let command = Command::new(Stamp::ZERO, Operation::Get { key: Blob::from("k") });
        let process = ProcessId::from_u64(1);
        let id = CommandId { client: Identity { process, incarnation: 1 }.into(), sequence: 1 };
        let seen = |entry: &Entry<Command>| {
            let mut seen = Vec::new();
            entry.visit(&mut |touch| match touch {
                Touch::Key(_, access) | Touch::All(access) => seen.push(access),
            });
            seen
        };
        assert_eq!(seen(&Entry::Read { id, below: 1, command: command.clone() }), [Access::Read]);
        assert_eq!(seen(&Entry::Command { id, below: 1, command }), [Access::Update]);
    }
}
