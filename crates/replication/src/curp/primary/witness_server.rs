//! The witness role: one store for each master that this node is a witness of (3.3, 3.4).
//!
//! An instance is *normal* from [`Message::Start`] to the first [`Message::Freeze`], and *frozen* from then to
//! [`Message::End`]; neither step is ever taken back. What was accepted is durable before the client hears of it
//! (D-1); so are a start and a freeze. What is collected is written down lazily, in its place among the records, so
//! that a restart brings exactly what was held. An instance that is not there accepts nothing and gives nothing to a
//! recovery: only the master whose it is starts one, once (D-2).

use super::message::{Kept, Message};
use super::{Mutation, Parameters};
use crate::REPLICA;
use crate::curp::witness::{Stored, Witness};
use crate::curp::{Distant, Verdicts, key_hashes};
use crate::message::{self as common, Entry};
use crate::order::{Knobs, Ordered, Reign};
use isochrone_core::{
    Blob, CommandId, Effects, Fact, Footprint, Identity, KeyspaceId, Malformed, Mark, Process, ProcessId,
    Snapshot, Ticket, Wire, wire,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// What is kept for one master.
#[derive(Clone, Hash, Debug)]
struct Instance<V> {
    /// The version of the list.
    list: u64,
    frozen: bool,
    store: Witness<V>,
    /// What a planted bug accepts although it conflicts.
    excess: BTreeMap<CommandId, V>,
}

/// The stores of one node, of whatever requests.
#[derive(Clone, Hash, Debug)]
pub(super) struct Stores<V> {
    knobs: Knobs<Parameters>,
    instances: BTreeMap<u64, Instance<V>>,
    /// Masters before this one are over.
    ended: u64,
}

/// What a witness writes down.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<V: Wire> {
    /// It is a witness of this master, with this version of the list.
    Started {
        /// Both.
        reign: Reign,
    },
    /// These were accepted.
    Kept {
        /// The master's number.
        master: u64,
        /// The requests.
        requests: Vec<Kept<V>>,
    },
    /// These were forgotten.
    Collected {
        /// The master's number.
        master: u64,
        /// Hashes of keys and names.
        pairs: Vec<(u64, CommandId)>,
    },
    /// Nothing more is kept for this master.
    Frozen {
        /// The master's number.
        master: u64,
    },
    /// Masters before this one are over.
    Ended {
        /// The number.
        before: u64,
    },
}

/// One chunk of a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Image<V: Wire> {
    ended: u64,
    /// The number, the version, whether it is frozen, what it holds.
    instance: Option<(u64, u64, bool, Vec<Stored<V>>)>,
}

impl<V: Ordered> Stores<V> {
    pub(super) fn new(parameters: Parameters) -> Stores<V> {
        Stores { knobs: Knobs(parameters), instances: BTreeMap::new(), ended: 0 }
    }

    fn mutated(&self, mutation: Mutation) -> bool {
        self.knobs.0.mutated(mutation)
    }

    /// Becomes a witness of this master, or takes on a later version of its list and keeps what there is (3.4).
    /// Whether it is one now, and whether that is new.
    fn begin(&mut self, reign: Reign) -> (bool, bool) {
        let Reign(master, list) = reign;
        if master < self.ended {
            return (false, false);
        }
        let shape = self.knobs.0.witness;
        let mut new = false;
        let instance = self.instances.entry(master).or_insert_with(|| {
            new = true;
            Instance { list, frozen: false, store: Witness::new(shape), excess: BTreeMap::new() }
        });
        if instance.list < list && !instance.frozen {
            (instance.list, new) = (list, true);
        }
        (!instance.frozen && instance.list == list, new)
    }

    /// Which of these are kept; those that were not kept before.
    fn keep(&mut self, reign: Reign, requests: Vec<Kept<V>>) -> (Vec<(CommandId, bool)>, Vec<Kept<V>>) {
        let (any_version, conflicts) =
            (self.mutated(Mutation::IgnoreVersions), self.mutated(Mutation::AcceptConflicts));
        let instance = self.instances.get_mut(&reign.0);
        let mut instance = instance.filter(|known| !known.frozen && (known.list == reign.1 || any_version));
        let (mut verdicts, mut fresh) = (Vec::new(), Vec::new());
        for (keys, value) in requests {
            let Some(id) = value.id() else { continue };
            let accepted = instance.as_deref_mut().is_some_and(|instance| {
                if !keys.is_empty() && keys.iter().all(|hash| instance.store.holds(*hash, id)) {
                    return true;
                }
                let bytes = wire::encoded_size(&value);
                let taken = instance.store.record(&keys, id, value.clone(), bytes).is_ok();
                if taken {
                    fresh.push((keys, value));
                } else if conflicts {
                    instance.excess.insert(id, value);
                }
                taken || conflicts
            });
            verdicts.push((id, accepted));
        }
        (verdicts, fresh)
    }

    /// Whether this read commutes with everything that is kept under this reign; else why it is not known to.
    fn clears(&self, reign: Reign, keyspace: KeyspaceId, read: &V) -> Result<(), Note> {
        let instance = self.instances.get(&reign.0).filter(|known| !known.frozen && known.list == reign.1);
        let instance = instance.ok_or(Note("near_refused_reign"))?;
        let keys = key_hashes(keyspace, |see| read.visit(see)).filter(|_| read.reads());
        match keys.is_some_and(|keys| instance.store.commutes(&keys)) {
            true => Ok(()),
            false => Err(Note("near_refused_conflict")),
        }
    }

    /// The latest master that it is a witness of, and the version of its list.
    fn reign(&self) -> Reign {
        let last = self.instances.last_key_value();
        last.map(|(master, instance)| Reign(*master, instance.list)).unwrap_or_default()
    }

    /// Forgets these; `None` if there is nothing to be forgotten here.
    fn collect(&mut self, master: u64, pairs: &[(u64, CommandId)]) -> Option<&mut Instance<V>> {
        let instance = self.instances.get_mut(&master).filter(|instance| !instance.frozen)?;
        for (hash, id) in pairs {
            instance.store.collect(*hash, *id);
            instance.excess.remove(id);
        }
        Some(instance)
    }

    /// Keeps nothing more for this master, and gives what there is; whether that is new.
    fn freeze(&mut self, master: u64) -> Option<(Vec<V>, bool)> {
        let goes_on = self.mutated(Mutation::AcceptAfterRecovery);
        let instance = self.instances.get_mut(&master)?;
        let new = !std::mem::replace(&mut instance.frozen, !goes_on);
        let held = instance.store.contents().into_values().cloned();
        Some((held.chain(instance.excess.values().cloned()).collect(), new))
    }

    /// Masters before this one are over. Whether that was news.
    fn end(&mut self, before: u64) -> bool {
        let new = before > self.ended;
        self.ended = self.ended.max(before);
        self.instances = self.instances.split_off(&self.ended);
        new
    }

    fn replay(&mut self, record: Record<V>) {
        match record {
            Record::Started { reign } => drop(self.begin(reign)),
            Record::Kept { master, requests } => {
                let Some(instance) = self.instances.get_mut(&master) else { return };
                for (keys, request) in requests {
                    let Some(id) = request.id() else { continue };
                    for hash in keys {
                        instance.store.absorb(Stored { hash, id, request: request.clone() });
                    }
                }
            }
            Record::Collected { master, pairs } => drop(self.collect(master, &pairs)),
            Record::Frozen { master } => drop(self.freeze(master)),
            Record::Ended { before } => drop(self.end(before)),
        }
    }

    fn images(&self) -> impl Iterator<Item = Image<V>> + use<V> {
        let ended = self.ended;
        let mut images = vec![Image { ended, instance: None }];
        for (master, instance) in &self.instances {
            let Instance { list, frozen, store, .. } = instance;
            let mut held: Vec<_> = store.export().collect();
            loop {
                // A slot has 2 KB: a chunk stays within its size.
                let rest = held.split_off(held.len().min(64));
                images.push(Image { ended, instance: Some((*master, *list, *frozen, held)) });
                if rest.is_empty() {
                    break;
                }
                held = rest;
            }
        }
        images.into_iter()
    }

    fn restore(&mut self, image: Image<V>) {
        self.ended = image.ended;
        if let Some((master, list, frozen, held)) = image.instance {
            self.begin(Reign(master, list));
            if let Some(instance) = self.instances.get_mut(&master) {
                instance.frozen = frozen;
                for stored in held {
                    instance.store.absorb(stored);
                }
            }
        }
    }
}

/// The process. See the module.
#[derive(Clone, Hash, Debug)]
pub struct WitnessServer<C: Wire, R> {
    me: ProcessId,
    stores: Stores<Entry<C>>,
    spoken: PhantomData<fn() -> R>,
}

/// It notes nothing that others understand.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Note(&'static str);

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        Some(Fact::Counted(self.0))
    }
}

/// How a message of this family travels.
fn wrapped<C: Wire, R: Wire>(message: Message<Entry<C>>) -> common::Message<C, R, Message<Entry<C>>> {
    common::Message::Order { epoch: 0, message }
}

impl<C: Wire + Footprint, R: Wire> WitnessServer<C, R> {
    /// Whether it holds anything of this master's clients.
    pub fn holds(&self, master: u64) -> Option<usize> {
        self.stores.instances.get(&master).map(|instance| instance.store.len())
    }

    /// Passes reads on to the server of this node. It is asked only now: what this witness does not keep any more is
    /// in its log (D-20).
    fn on_near(&self, reign: Reign, reads: Vec<Entry<C>>, effects: &mut Effects<Self>) {
        let keyspace = self.me.keyspace;
        let (mut clear, mut sequences) = (Vec::with_capacity(reads.len()), Vec::new());
        let Some(asker) = reads.first().and_then(Ordered::id).map(|id| id.client) else { return };
        for read in reads {
            let Some(id) = read.id().filter(|id| id.client == asker) else { continue };
            match self.stores.clears(reign, keyspace, &read) {
                Ok(()) => clear.push(read),
                Err(why) => {
                    effects.mark(why);
                    sequences.push(id.sequence);
                }
            }
        }
        // Ahead, both: nothing that is said here rests on a record.
        if !clear.is_empty() {
            let server = ProcessId { role: REPLICA, ..self.me };
            effects.send_ahead(server, wrapped(Message::Near { reign, reads: clear }));
        }
        if !sequences.is_empty() {
            let (incarnation, reign) = (asker.incarnation, self.stores.reign());
            let distant = Message::Distant(Distant { incarnation, reign, sequences });
            effects.send_ahead(asker.process, wrapped(distant));
        }
    }

    fn on_records(
        &mut self,
        from: ProcessId,
        reign: Reign,
        requests: Vec<Kept<Entry<C>>>,
        effects: &mut Effects<Self>,
    ) {
        let (verdicts, fresh) = self.stores.keep(reign, requests);
        let Some(incarnation) = verdicts.first().map(|(id, _)| id.client.incarnation) else { return };
        let rejected = verdicts.iter().filter(|(_, accepted)| !accepted).count();
        let known = self.stores.instances.get(&reign.0).map(|instance| Reign(reign.0, instance.list));
        let verdicts = verdicts.into_iter().map(|(id, accepted)| (id.sequence, accepted)).collect();
        if rejected > 0 {
            effects.mark(Note("records_rejected"));
        }
        if !fresh.is_empty() {
            effects.record(Record::Kept { master: reign.0, requests: fresh });
        }
        let reign =
            if self.stores.mutated(Mutation::IgnoreVersions) { reign } else { known.unwrap_or_default() };
        let answer = wrapped(Message::Verdicts(Verdicts { incarnation, reign, verdicts }));
        match self.stores.mutated(Mutation::AcceptBeforeDurable) {
            true => effects.send_ahead(from, answer),
            false => effects.send(from, answer),
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
                let Some(instance) = self.stores.collect(master, &pairs) else { return };
                let suspects: Vec<_> =
                    instance.store.turn().into_iter().map(|(_, request)| request).collect();
                if !suspects.is_empty() {
                    effects.mark(Note("requests_suspected"));
                }
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

    fn check(&self) {
        self.stores.instances.values().for_each(|instance| instance.store.check());
    }
}

#[cfg(test)]
mod tests;
