//! The state behind a replicated log.

use crate::command::Touch;
use crate::migration::{Ring, Step, Stretch, Told, Versions};
use crate::{Blob, Malformed, Stamp, Wire};
use std::fmt::Debug;
use std::hash::Hash;

/// A deterministic state machine: equal commands in equal order give equal states and replies, on
/// every replica, in every host. A protocol knows its state only through this trait.
pub trait StateMachine: Clone + Debug + Hash + Send + Sync + 'static {
    /// What is replicated. It carries its own stamp where it needs one.
    type Command: Wire + Footprint;
    /// What the client is told.
    type Reply: Wire;
    /// An immutable view of the state at one position, cheap to take, read beside the loop.
    type View: Export;
    /// What one command may change, as it was before: how a command that was executed too early is taken back.
    type Before: Clone + Debug + Hash + Send + Sync + 'static;

    /// Executes one command.
    fn apply(&mut self, command: &Self::Command) -> Self::Reply;

    /// What this command may change, as it is now.
    fn before(&self, command: &Self::Command) -> Self::Before;

    /// About how many bytes are kept by it alone once the command has been executed, as far as a small command can leave many:
    /// who runs ahead keeps no more than so much.
    fn kept(_before: &Self::Before) -> usize {
        0
    }

    /// Takes a command back, latest first: the state is what it was when [`StateMachine::before`] was asked.
    fn revert(&mut self, before: Self::Before);

    /// Told just before these commands are applied: a large machine may bring what they will touch nearer,
    /// all at once, where one after the other would wait for each. It changes nothing.
    fn prepare<'a>(&self, _commands: impl Iterator<Item = &'a Self::Command>) {}

    /// Whether a command can be answered from the state without changing it. A protocol may then try
    /// [`StateMachine::read`]; everything else goes through the log.
    fn reads_only(command: &Self::Command) -> bool;

    /// Whether its client asked for something that only reads before it, and has no answer to that yet: nobody is to run it
    /// ahead of that. A read whose answer is lost is asked for again all the same, and may then come behind it.
    fn follows(_command: &Self::Command) -> bool {
        false
    }

    /// Answers a reading command from the state as it is. `None` where the answer would change the
    /// state after all (a key whose deadline lies at or before the command's stamp is deleted by the
    /// command that touches it, and clients never see an expiry that is not in the log;
    /// `specs/curp.md` 7.3): such a command goes through the log. A command about all keys leaves such keys out of its
    /// answer instead.
    fn read(&self, command: &Self::Command) -> Option<Self::Reply>;

    /// The reply of a command where it depends on nothing in the state: a blind write. Where a keyspace
    /// replies at commit, its client is told so before the command is executed.
    fn blind(_command: &Self::Command) -> Option<Self::Reply> {
        None
    }

    /// What one of several machines that share the keys, [`Ring::at`], is asked where a command touches them all; `None`
    /// from one that has no part in it. In a command that cannot be divided none has. It is thought to serve these
    /// places, ascending, and others the rest.
    fn share(_command: &Self::Command, _ring: Ring, _served: &[Stretch]) -> Option<Self::Command> {
        None
    }

    /// Of which places that a share was about such an answer says nothing, since they are not served there: each as
    /// [`Told::Elsewhere`]. Whoever serves them is then asked for a share of its own.
    fn missing(_reply: &Self::Reply) -> &[Told] {
        &[]
    }

    /// The answer to such a command, from the answers of those of `of` machines that have a part in it, in their order.
    /// One that was asked several times has several.
    fn gather(_command: &Self::Command, _of: u16, _replies: Vec<Self::Reply>) -> Option<Self::Reply> {
        None
    }

    /// The command that takes this step of a move of keys between partitions. `None` from a machine whose keys
    /// cannot be moved. It touches everything.
    fn step(_step: Step, _stamp: Stamp) -> Option<Self::Command> {
        None
    }

    /// The same command, which says in which versions its client knows the places that it touches: a machine that serves one
    /// of them in a later version does not execute it, and answers [`Told::Served`].
    fn knowing(command: Self::Command, _versions: Versions) -> Self::Command {
        command
    }

    /// What a reply says of such a step, or of keys that are not served where they were asked for, or not in the versions that were
    /// said.
    fn told(_reply: &Self::Reply) -> Option<&Told> {
        None
    }

    /// How many keys there are, where it knows at once.
    fn keys(&self) -> Option<Keys> {
        None
    }

    /// Keys whose deadline lies at or before this stamp, earliest first, at most so many. A command deletes them, if one touches
    /// them; who holds the state does nothing by itself.
    fn overdue(&self, _stamp: Stamp, _most: usize) -> Vec<Blob> {
        Vec::new()
    }

    /// The state as it stands now, for a snapshot or a peer.
    fn export(&self) -> Self::View;

    /// Takes in one chunk of a view, in order, starting from the empty machine.
    ///
    /// # Errors
    /// Refuses a chunk that no version of this machine has exported.
    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed>;
}

/// How many keys a machine has.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct Keys {
    /// All of them.
    pub held: usize,
    /// Those with a deadline.
    pub expiring: usize,
    /// How many it has deleted since it was made because their time was over. No part of the state: it neither travels
    /// nor is undone.
    pub expired: u64,
}

/// What a command touches: how a protocol knows that two commands commute without knowing what they do.
pub trait Footprint {
    /// Names each key and how it is touched, repetitions included.
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>));

    /// Whether it is about all keys, or a part of it is.
    fn touches_all(&self) -> bool {
        let mut all = false;
        self.visit(&mut |touch| all |= matches!(touch, Touch::All(_)));
        all
    }
}

/// An immutable view of a state machine, read in bounded chunks by number. The same number always gives
/// the same chunk, so that a peer can ask again.
pub trait Export: Clone + Send + 'static {
    /// Chunk `index`, counted from 0 and at most [`CHUNK_MAX`] bytes unless a single entry is larger;
    /// `None` behind the last one.
    fn chunk(&self, index: u64) -> Option<Blob>;

    /// All chunks, each once. A view that shares memory with what goes on changing may let go of what it has given.
    fn into_chunks(self) -> impl Iterator<Item = Blob> + Send + 'static {
        (0..).map_while(move |index| self.chunk(index))
    }
}

/// Target size of a chunk, bytes: large enough to amortise a message, small enough to encode within a
/// turn of the loop.
pub const CHUNK_MAX: usize = 256 * 1024;
