//! The directory of partitions: which of them holds which keys, its cache in clients, and its change while
//! transactions run (`specs/carousel.md` 2.1).
//!
//! **What it is.** Of each partition one entry, a key of that partition like any other, which holds what has changed of
//! the stretches that the partition has or had. The client role of a protocol is wrapped: a client's key becomes one
//! that names its partition ([`located`]), and each transaction also reads the entries of the partitions that it
//! touches. If they agree with what the client believed when it chose partitions, the transaction is what it would have
//! been without a directory; else the client has learned something, and begins it anew. So no protocol knows of the directory,
//! and nothing is right because a cache is: that an entry still is what was read is part of what the protocol checks
//! when the transaction commits.
//!
//! **How keys move** ([`moving`]). A transaction marks a stretch in both entries as on its way. From there on each of its
//! keys is at one of both partitions and never at both: whoever reads it reads both, whoever writes it writes where it
//! goes and deletes it where it was. Meanwhile the mover lists what the source still has and moves it, some keys
//! in a transaction. As none are added there, one walk through the source's keys finds all; then a transaction
//! says in both entries that the stretch has arrived. Every step is a transaction of the protocol, so there is no
//! moment at which a key is not served, a mover that stops half way leaves nothing wrong, and anybody may go on: a client
//! that has seen a stretch on its way for some seconds does.
//!
//! **The list.** What is listed must have every key that a transaction which saw the older entry may still write.
//! Replicas answer once they have applied the marked entry. With a log that is enough: such a transaction was ended in
//! the log before, or the mark would have been refused. In TAPIR such a transaction may be decided later, by votes cast
//! before; so many answers are wanted that they meet every set of such voters, and they name the keys it is to write.
//! One of those that is not there yet is done with when a transaction that saw so has committed, and not before.
//!
//! **Where there is no directory** (one partition, or a keyspace whose partitions are fixed) requests pass.

mod find;
pub(crate) mod located;
mod moving;
mod mutation;
mod routes;

pub(crate) use mutation::Mutation;
pub use routes::{Known, Place, Plan, Reach, Route, Routes};

use crate::around::{Around, Timer};
use crate::limits::Bounds;
use crate::request::{Outcome, Request};
use crate::retry::Retry;
use find::Find;
use isochrone_core::{
    Blob, Effects, Fact, Identity, Instant, Loan, Malformed, NodeId, Process, ProcessId, Random, Snapshot,
    Span, Ticket,
};
use isochrone_replication::partitions::Noted;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a client that goes by a directory knows from the beginning.
#[derive(Clone, Debug)]
pub struct Directory {
    /// How keys are divided as long as nothing was moved.
    pub(crate) plan: Plan,
    /// What a host's transaction may have.
    pub(crate) bounds: Bounds,
    /// Whether a replica that has applied an entry has applied all that was decided by it, as behind a log.
    pub(crate) settled: bool,
    /// The pauses after what came to nothing.
    pub(crate) retry: Retry,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub(crate) mutation: Option<Mutation>,
}

/// What a client needs to start.
#[derive(Clone, Debug)]
pub struct Setup<P> {
    /// Of the client inside.
    pub client: P,
    /// Nothing where partitions are fixed.
    pub directory: Option<Arc<Directory>>,
}

/// What the protocol's own transactions may have, so that those of hosts may have this much.
pub(crate) fn bounds(of_hosts: Bounds, partitions: usize) -> Bounds {
    // Each key at two partitions, and the entries of all.
    let keys = of_hosts.keys * 2 + partitions * 2;
    Bounds { keys, bytes: of_hosts.bytes * 2 + keys * located::OVERHEAD + partitions * moving::ENTRY_MAX }
}

/// A client role of transactions.
pub trait Client: Process<Request = Request, Outcome = Outcome> {}

impl<C: Process<Request = Request, Outcome = Outcome>> Client for C {}

/// A client of transactions whose keys are found by a directory. See the module.
#[derive(Clone, Hash)]
pub struct Directed<C: Process> {
    inside: Inside<C>,
    /// Nothing where requests pass as they are.
    find: Option<Box<Find>>,
    armed: Option<Instant>,
}

/// The client of the protocol.
#[derive(Clone)]
struct Inside<C: Process> {
    client: C,
    loan: Loan<C>,
    /// Whether it had an input since the last [`Process::settle`].
    touched: bool,
    /// What it has answered and nobody has dealt with; nothing between inputs.
    answers: VecDeque<(Ticket, Outcome)>,
}

impl<C: Process + std::hash::Hash> std::hash::Hash for Inside<C> {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        (&self.client, self.touched).hash(hasher);
    }
}

/// What may be done in one input: things are asked of the client inside, and hosts are told.
struct Turn<'a, C: Client> {
    inside: &'a mut Inside<C>,
    effects: &'a mut Effects<Directed<C>>,
}

impl<C: Client> Turn<'_, C> {
    fn now(&self) -> Instant {
        self.effects.now()
    }

    fn node(&self) -> NodeId {
        self.effects.me().node
    }

    fn random(&mut self) -> &mut Random {
        self.effects.random()
    }

    fn tell(&mut self, host: Ticket, outcome: Outcome) {
        // A client writes nothing down.
        self.effects.complete_ahead(host, outcome);
    }

    fn count(&mut self, what: &'static str) {
        self.effects.mark(Noted::Fact(Fact::Counted(what)));
    }

    fn ask(&mut self, ticket: Ticket, request: Request) {
        self.input(|client, effects| client.request(ticket, request, effects));
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.input(|client, effects| client.cancel(ticket, effects));
    }

    fn input(&mut self, input: impl FnOnce(&mut C, &mut Effects<C>)) {
        self.inside.touched = true;
        self.lend(input);
    }

    fn lend(&mut self, input: impl FnOnce(&mut C, &mut Effects<C>)) {
        let client = &mut self.inside.client;
        let answers = self.effects.lend(&mut self.inside.loan, &Around, |inner| input(client, inner));
        self.inside.answers.extend(answers);
    }
}

impl<C: Client> Directed<C> {
    /// An input, and all that comes of it.
    fn turn(&mut self, effects: &mut Effects<Self>, input: impl FnOnce(Option<&mut Find>, &mut Turn<'_, C>)) {
        let mut turn = Turn { inside: &mut self.inside, effects };
        input(self.find.as_deref_mut(), &mut turn);
        while let Some((ticket, outcome)) = turn.inside.answers.pop_front() {
            match &mut self.find {
                Some(find) => find.answered(ticket.0, outcome, &mut turn),
                None => turn.tell(ticket, outcome),
            }
        }
    }
}

impl<C: Client + std::hash::Hash> Process for Directed<C> {
    type Setup = Setup<C::Setup>;
    type Message = C::Message;
    type Record = C::Record;
    type Request = Request;
    type Outcome = Outcome;
    type Timer = Timer<C::Timer>;
    type Mark = Noted<C::Mark>;

    fn open(identity: Identity, setup: &Self::Setup) -> Self {
        Directed {
            inside: Inside {
                client: C::open(identity, &setup.client),
                loan: Loan::default(),
                touched: false,
                answers: VecDeque::new(),
            },
            find: setup.directory.clone().map(|directory| Box::new(Find::new(directory))),
            armed: None,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.inside.client.restore(chunk)
    }

    fn replay(&mut self, record: C::Record) {
        self.inside.client.replay(record);
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.turn(effects, |_, turn| turn.input(C::start));
    }

    fn receive(&mut self, from: ProcessId, message: C::Message, effects: &mut Effects<Self>) {
        self.turn(effects, |_, turn| turn.input(|client, effects| client.receive(from, message, effects)));
    }

    fn request(&mut self, ticket: Ticket, request: Request, effects: &mut Effects<Self>) {
        self.turn(effects, |find, turn| match find {
            Some(find) => find.request(ticket, request, turn),
            None => turn.ask(ticket, request),
        });
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        self.turn(effects, |find, turn| match find {
            Some(find) => find.cancel(ticket, turn),
            None => turn.cancel(ticket),
        });
    }

    fn expire(&mut self, timer: Self::Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Of(timer) => {
                self.turn(effects, |_, turn| turn.input(|client, effects| client.expire(timer, effects)));
            }
            Timer::Again => {
                self.armed = None;
                self.turn(effects, |find, turn| {
                    if let Some(find) = find {
                        find.go_on(turn);
                    }
                });
            }
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        while std::mem::take(&mut self.inside.touched) {
            self.turn(effects, |_, turn| turn.lend(C::settle));
        }
        if let Some(find) = &mut self.find {
            find.watch(effects.me().node, effects.now());
            for (what, partition, value) in find.stands() {
                effects.mark(Noted::Fact(Fact::Stands { what, partition, value }));
            }
        }
        let due = self.find.as_ref().and_then(|find| find.due());
        if let Some(due) = due.filter(|due| self.armed.is_none_or(|armed| *due < armed)) {
            self.armed = Some(due);
            let now = effects.now();
            effects.arm(Timer::Again, if due > now { due.since(now) } else { Span::ZERO });
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.inside.client.snapshot()
    }

    fn check(&self) {
        self.inside.client.check();
        assert!(self.inside.answers.is_empty(), "an answer was left lying");
        if let Some(find) = &self.find {
            find.check();
        }
    }
}
