//! The witness role, where it is a process of its own: the [`Stores`] of one node (3.3, 3.4).
//!
//! [`Message::Start`] begins an instance, the first [`Message::Freeze`] freezes it, [`Message::End`] ends it. What was
//! accepted is durable before the client hears of it (D-1); so are a start and a freeze. What is collected is written
//! down lazily, in its place among the records, so that a restart brings exactly what was held.

use super::message::{Kept, Message};
use super::stores::{Record, Stores};
use super::{Mutation, Parameters};
use crate::REPLICA;
use crate::message::{self as common, Entry};
use crate::order::Reign;
use isochrone_core::{
    Blob, Effects, Fact, Footprint, Identity, Malformed, Mark, Process, ProcessId, Snapshot, Ticket, Wire,
    wire,
};
use std::marker::PhantomData;

/// The process. See the module.
#[derive(Clone, Hash, Debug)]
pub struct WitnessServer<C: Wire, R> {
    me: ProcessId,
    stores: Stores<Entry<C>>,
    spoken: PhantomData<fn() -> R>,
}

/// What it counts.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Note(Fact);

impl Note {
    fn counted(what: &'static str) -> Note {
        Note(Fact::Counted(what))
    }
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        Some(self.0.clone())
    }
}

/// How a message of this family travels.
fn wrapped<C: Wire, R: Wire>(message: Message<Entry<C>>) -> common::Message<C, R, Message<Entry<C>>> {
    common::Message::Order { epoch: 0, message }
}

impl<C: Wire + Footprint, R: Wire> WitnessServer<C, R> {
    /// Whether it holds anything of this master's clients.
    pub fn holds(&self, master: u64) -> Option<usize> {
        self.stores.len(master)
    }

    /// Passes reads on to the server of this node. It is asked only now: what this witness does not keep any more is
    /// in its log (D-20).
    fn on_near(&mut self, reign: Reign, reads: Vec<Entry<C>>, effects: &mut Effects<Self>) {
        let Some(sifted) = self.stores.sift(reign, self.me.keyspace, reads) else { return };
        for why in sifted.refused {
            effects.mark(Note::counted(why));
        }
        // Ahead, both: nothing that is said here rests on a record.
        if !sifted.clear.is_empty() {
            let server = ProcessId { role: REPLICA, ..self.me };
            effects.send_ahead(server, wrapped(Message::Near { reign, reads: sifted.clear }));
        }
        if let Some((asker, distant)) = sifted.distant {
            effects.send_ahead(asker, wrapped(Message::Distant(distant)));
        }
    }

    /// How full the store for this master is.
    fn tell(&self, master: u64, effects: &mut Effects<Self>) {
        let used = self.stores.len(master).unwrap_or(0);
        effects.mark(Note(Fact::stands("witness_slots_used", used as u64)));
    }

    fn on_records(
        &mut self,
        from: ProcessId,
        reign: Reign,
        requests: Vec<Kept<Entry<C>>>,
        effects: &mut Effects<Self>,
    ) {
        let Some(answer) = self.stores.keep(reign, requests, |_| false) else { return };
        for why in &answer.refused {
            effects.mark(Note::counted(why));
        }
        if !answer.fresh.is_empty() {
            effects.record(Record::Kept { master: reign.0, requests: answer.fresh });
        }
        self.tell(reign.0, effects);
        let answer = wrapped(Message::Verdicts(answer.verdicts));
        match self.stores.mutated(Mutation::AcceptBeforeDurable) {
            true => effects.send_ahead(from, answer),
            false => effects.urgently(|effects| effects.send(from, answer)),
        }
    }
}

impl<C: Wire + Footprint, R: Wire> Process for WitnessServer<C, R> {
    type Setup = Parameters;
    type Message = common::Message<C, R, Message<Entry<C>>>;
    type Record = Record<Entry<C>>;
    type Request = ();
    type Outcome = ();
    type Timer = ();
    type Mark = Note;

    fn open(identity: Identity, parameters: &Parameters) -> Self {
        WitnessServer { me: identity.process, stores: Stores::new(*parameters), spoken: PhantomData }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        let image = wire::decode(&chunk)
            .map_err(|error| Malformed { what: "witness snapshot chunk", cause: error.to_string() })?;
        self.stores.restore(image);
        Ok(())
    }

    fn replay(&mut self, record: Self::Record) {
        self.stores.replay(record);
    }

    fn start(&mut self, _: &mut Effects<Self>) {}

    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>) {
        let common::Message::Order { message, .. } = message else { return };
        match message {
            Message::Records { reign, requests } => self.on_records(from, reign, requests, effects),
            Message::Near { reign, reads } => self.on_near(reign, reads, effects),
            Message::Start { reign } => {
                let (is, new) = self.stores.begin(reign);
                if new {
                    effects.record(Record::Started { reign });
                    self.tell(reign.0, effects);
                }
                if is {
                    effects.send(from, wrapped(Message::Started { reign }));
                }
            }
            Message::Collect { master, round, pairs } => {
                // Only a master that counts collects.
                if self.stores.end(master) {
                    effects.record_lazily(Record::Ended { before: master });
                }
                if !self.stores.collect(master, &pairs) {
                    return;
                }
                let suspects = self.stores.turn(master);
                if !suspects.is_empty() {
                    effects.mark(Note(Fact::Added("requests_suspected", suspects.len() as u64)));
                }
                self.tell(master, effects);
                effects.record_lazily(Record::Collected { master, pairs });
                effects.send(from, wrapped(Message::Collected { master, round, suspects }));
            }
            Message::Freeze { master, epoch } => {
                let values = self.stores.freeze(master).map(|(values, new)| {
                    if new {
                        effects.record(Record::Frozen { master });
                    }
                    values
                });
                effects.send(from, wrapped(Message::Contents { master, epoch, values }));
            }
            Message::End { before } if self.stores.end(before) => {
                effects.record_lazily(Record::Ended { before });
            }
            _ => {}
        }
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, ());
    }

    fn cancel(&mut self, _: Ticket, _: &mut Effects<Self>) {}

    fn expire(&mut self, (): (), _: &mut Effects<Self>) {}

    fn settle(&mut self, _: &mut Effects<Self>) {}

    fn snapshot(&self) -> Option<Snapshot> {
        Some(Box::new(self.stores.images().map(|image| Blob::from(wire::encode(&image)))))
    }
}

#[cfg(test)]
mod tests;
