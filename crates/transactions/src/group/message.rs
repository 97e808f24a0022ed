//! What replicas of a partition and those who speak with them say, write down and wait for.

use crate::commands::{Carries, Forward};
use crate::listing::{Page, Query};
use crate::said::Said;
use isochrone_core::command::{Access, Touch};
use isochrone_core::{Blob, CommandId, Fact, Mark, Ticket, Wire};
use isochrone_replication::multipaxos::log;
use isochrone_replication::order::{Member, Ordered};
use isochrone_replication::{Change, Refusal};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An entry of the log.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Entry<E>(pub E);

impl<E: Wire> Ordered for Entry<E> {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::All(Access::Write));
    }

    fn id(&self) -> Option<CommandId> {
        None
    }

    fn reads(&self) -> bool {
        false
    }
}

/// The messages of a protocol over group logs.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<E: Wire, M: Wire> {
    /// Of the log.
    Log(log::Message<Entry<E>>),
    /// Of the protocol.
    Own(M),
    /// Give me a chunk of your replicated state; of any view, where no position is named.
    Want {
        /// Which view.
        position: Option<u64>,
        /// Which chunk of it.
        index: u64,
        /// Whether it was asked for before, and did not come.
        again: bool,
    },
    /// A chunk of it; nothing behind the last.
    Chunk {
        /// Which view.
        position: u64,
        /// Which chunk of it.
        index: u64,
        /// Its bytes.
        chunk: Option<Blob>,
    },
    /// That view is no longer offered.
    Gone {
        /// Which view.
        position: u64,
    },
    /// A client asks which keys are here.
    List {
        /// The name of the question.
        ask: CommandId,
        /// The question.
        query: Query,
    },
    /// The answer.
    Listed {
        /// The name of the question.
        ask: CommandId,
        /// The answer.
        page: Page,
    },
    /// A replica that was told to change who leads or who the members are, and does not lead itself, asks its leader.
    Administer {
        /// Under what name, of this life of who asks.
        order: (u32, Ticket),
        /// What is to change.
        change: Change,
    },
    /// The answer.
    Administered {
        /// To which.
        order: (u32, Ticket),
        /// What became of it.
        result: Result<(), Refusal>,
    },
    /// Who the members of the sender's group are, by its log: to others who speak with it, once they are no more those
    /// of the deployment file.
    Members {
        /// How many changes led there.
        version: u32,
        /// They.
        members: Arc<[Member]>,
        /// Whether the sender leads.
        leads: bool,
    },
    /// Client to client.
    Forward(Forward),
}

impl<E: Wire, M: Wire> Carries for Message<E, M> {
    fn carry(forward: Forward) -> Self {
        Message::Forward(forward)
    }

    fn carried(self) -> Result<Forward, Self> {
        if let Message::Forward(forward) = self { Ok(forward) } else { Err(self) }
    }
}

impl<E: Wire, M: Wire + Said> Said for Message<E, M> {
    fn carries(&self) -> bool {
        match self {
            // The log says of itself what is urgent.
            Message::Log(_) | Message::Chunk { .. } | Message::Listed { .. } => true,
            Message::Own(message) => message.carries(),
            Message::Want { .. } | Message::Gone { .. } | Message::List { .. } => false,
            Message::Administer { .. } | Message::Administered { .. } | Message::Members { .. } => false,
            Message::Forward(_) => false,
        }
    }
}

/// What a replica writes down.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<E: Wire, R: Wire> {
    /// Of the log.
    Log(log::Record<Entry<E>>),
    /// Of the protocol.
    Own(R),
    /// A chunk of a peer's state has come.
    Chunk {
        /// Which.
        index: u64,
        /// Its bytes.
        chunk: Blob,
    },
    /// The state that came last is this replica's own from here.
    Installed {
        /// Which view it was.
        position: u64,
    },
}

/// What a replica waits for.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer<T> {
    /// Of the log.
    Log(log::Timer),
    /// Of the protocol.
    Own(T),
    /// A chunk was asked for.
    Pull,
    /// Views on offer that nobody has read for long.
    Offers,
    /// Clients are told of the members again.
    Tell,
}

/// The notes of replicas and clients.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// Of the log.
    Log(log::Note),
    /// In the words all protocols share.
    Fact(Fact),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        match self {
            Note::Log(note) => note.fact(),
            Note::Fact(fact) => Some(fact.clone()),
        }
    }
}
