//! What a node keeps as a witness: one store for each master that it is a witness of (3.3, 3.4).
//!
//! An instance is *normal* from its start until it is *frozen*, and goes when its master is over; none of these steps is
//! ever taken back. An instance that is not there accepts nothing and gives nothing to a recovery: only the master whose
//! it is starts one, once. A node whose disk is lost never comes back under its name: nodes know one another by their data
//! directories, so it hears of no master again, and its copy is replaced as that of any lost node (D-2, 3.12). Whoever
//! holds the stores writes down what happens to them: the [`super::WitnessServer`], or in the unified form the server
//! itself ([`super::unified`]).

use super::message::Kept;
use super::{Mutation, Parameters};
use crate::curp::witness::{Packed, Reject, Stored, Witness};
use crate::curp::{Distant, Verdicts, key_hashes};
use crate::order::{Knobs, Ordered, Reign};
use isochrone_core::{CommandId, KeyspaceId, ProcessId, Wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is kept for one master.
#[derive(Clone, Hash, Debug)]
struct Instance<V: Wire> {
    /// The version of the list.
    list: u64,
    frozen: bool,
    store: Witness<Packed<V>>,
    /// What a planted bug accepts although it conflicts.
    excess: BTreeMap<CommandId, V>,
}

/// The stores of one node, of whatever requests.
#[derive(Clone, Hash, Debug)]
pub(super) struct Stores<V: Wire> {
    knobs: Knobs<Parameters>,
    instances: BTreeMap<u64, Instance<V>>,
    /// Masters before this one are over.
    ended: u64,
}

/// What is said of some requests.
pub(super) struct Answer<V> {
    /// To the client.
    pub(super) verdicts: Verdicts,
    /// What is kept and was not before.
    pub(super) fresh: Vec<Kept<V>>,
    /// Whether something was accepted because it is in the log.
    pub(super) in_log: bool,
    /// Why each of the others was refused, as metrics have it.
    pub(super) refused: Vec<&'static str>,
}

/// The name in metrics of a reason to refuse a request.
fn name(why: Reject) -> &'static str {
    match why {
        Reject::Conflict => "records_refused_conflict",
        Reject::NoSpace => "records_refused_space",
        Reject::TooLarge => "records_refused_size",
    }
}

/// What becomes of reads at a copy.
pub(super) struct Sifted<V> {
    /// Those that commute with everything that is kept.
    pub(super) clear: Vec<V>,
    /// Why the others are not known to.
    pub(super) refused: Vec<&'static str>,
    /// To whom that is said, and how.
    pub(super) distant: Option<(ProcessId, Distant)>,
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

/// What a store holds, slot by slot.
type Rows<V> = Vec<Stored<Packed<V>>>;

/// One chunk of a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Image<V: Wire> {
    ended: u64,
    /// The number, the version, whether it is frozen, what it holds.
    instance: Option<(u64, u64, bool, Rows<V>)>,
}

impl<V: Ordered> Stores<V> {
    pub(super) fn new(parameters: Parameters) -> Stores<V> {
        Stores { knobs: Knobs(parameters), instances: BTreeMap::new(), ended: 0 }
    }

    pub(super) fn mutated(&self, mutation: Mutation) -> bool {
        self.knobs.0.mutated(mutation)
    }

    /// Becomes a witness of this master, or takes on a later version of its list and keeps what there is (3.4).
    /// Whether it is one now, and whether that is new.
    pub(super) fn begin(&mut self, reign: Reign) -> (bool, bool) {
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

    /// Which of these are kept, and what is new in that. What is `logged` at this node is as safe as it can be here, and
    /// not kept again (D-30).
    pub(super) fn keep(
        &mut self,
        reign: Reign,
        requests: Vec<Kept<V>>,
        logged: impl Fn(CommandId) -> bool,
    ) -> Option<Answer<V>> {
        let (any_version, conflicts) =
            (self.mutated(Mutation::IgnoreVersions), self.mutated(Mutation::AcceptConflicts));
        let incarnation = requests.iter().find_map(|(_, value)| value.id())?.client.incarnation;
        let known = self.instances.get(&reign.0).map(|instance| Reign(reign.0, instance.list));
        let instance = self.instances.get_mut(&reign.0);
        let mut instance = instance.filter(|known| !known.frozen && (known.list == reign.1 || any_version));
        let (mut verdicts, mut fresh, mut refused, mut in_log) = (Vec::new(), Vec::new(), Vec::new(), false);
        let mut room = Vec::new();
        for (keys, value) in requests {
            let Some(id) = value.id() else { continue };
            let taken = instance.as_deref_mut().ok_or("records_refused_reign").and_then(|instance| {
                if !keys.is_empty() && keys.iter().all(|hash| instance.store.holds(*hash, id)) {
                    return Ok(());
                }
                if logged(id) {
                    in_log = true;
                    return Ok(());
                }
                let packed = Packed::new(&value, &mut room);
                let bytes = packed.bytes();
                match instance.store.record(&keys, id, packed, bytes) {
                    Ok(()) => fresh.push((keys, value)),
                    Err(_) if conflicts => drop(instance.excess.insert(id, value)),
                    Err(why) => return Err(name(why)),
                }
                Ok(())
            });
            let accepted = taken.map_err(|why| refused.push(why)).is_ok();
            verdicts.push((id.sequence, accepted));
        }
        let reign = if any_version { reign } else { known.unwrap_or_default() };
        Some(Answer { verdicts: Verdicts { incarnation, reign, verdicts }, fresh, in_log, refused })
    }

    /// Whether this read commutes with everything that is kept under this reign; else why it is not known to.
    fn clears(&mut self, reign: Reign, keyspace: KeyspaceId, read: &V) -> Result<(), &'static str> {
        let instance = self.instances.get_mut(&reign.0);
        let instance = instance.filter(|known| !known.frozen && known.list == reign.1);
        let instance = instance.ok_or("near_refused_reign")?;
        let keys = key_hashes(keyspace, |see| read.visit(see)).filter(|_| read.reads());
        match keys.is_some_and(|keys| instance.store.commutes(&keys)) {
            true => Ok(()),
            false => Err("near_refused_conflict"),
        }
    }

    /// Which reads of a client commute with everything that is kept under this reign, and what it is told of the others.
    pub(super) fn sift(&mut self, reign: Reign, keyspace: KeyspaceId, reads: Vec<V>) -> Option<Sifted<V>> {
        let asker = reads.first().and_then(Ordered::id)?.client;
        let (mut clear, mut refused, mut sequences) =
            (Vec::with_capacity(reads.len()), Vec::new(), Vec::new());
        for read in reads {
            let Some(id) = read.id().filter(|id| id.client == asker) else { continue };
            match self.clears(reign, keyspace, &read) {
                Ok(()) => clear.push(read),
                Err(why) => {
                    refused.push(why);
                    sequences.push(id.sequence);
                }
            }
        }
        let told = Distant { incarnation: asker.incarnation, reign: self.reign(), sequences };
        let distant = (!told.sequences.is_empty()).then_some((asker.process, told));
        Some(Sifted { clear, refused, distant })
    }

    /// The latest master that it is a witness of, and the version of its list.
    pub(super) fn reign(&self) -> Reign {
        let last = self.instances.last_key_value();
        last.map(|(master, instance)| Reign(*master, instance.list)).unwrap_or_default()
    }

    /// Forgets these; false if there is nothing to be forgotten here.
    pub(super) fn collect(&mut self, master: u64, pairs: &[(u64, CommandId)]) -> bool {
        let instance = self.instances.get_mut(&master).filter(|instance| !instance.frozen);
        let Some(instance) = instance else { return false };
        for (hash, id) in pairs {
            instance.store.collect(*hash, *id);
            instance.excess.remove(id);
        }
        true
    }

    /// Keeps nothing more for this master, and gives what there is; whether that is new.
    pub(super) fn freeze(&mut self, master: u64) -> Option<(Vec<V>, bool)> {
        let new = self.close(master)?;
        Some((self.contents(master)?, new))
    }

    /// Keeps nothing more for this master; whether that is new.
    fn close(&mut self, master: u64) -> Option<bool> {
        let goes_on = self.mutated(Mutation::AcceptAfterRecovery);
        let instance = self.instances.get_mut(&master)?;
        Some(!std::mem::replace(&mut instance.frozen, !goes_on))
    }

    /// Keeps nothing more for masters before this one.
    pub(super) fn freeze_before(&mut self, epoch: u64) {
        let goes_on = self.mutated(Mutation::AcceptAfterRecovery);
        self.instances.range_mut(..epoch).for_each(|(_, instance)| instance.frozen = !goes_on);
    }

    /// What is kept for this master; none where this is no witness of it.
    pub(super) fn contents(&self, master: u64) -> Option<Vec<V>> {
        let instance = self.instances.get(&master)?;
        let held = instance.store.contents().into_values().map(Packed::unpack);
        Some(held.chain(instance.excess.values().cloned()).collect())
    }

    /// Whether this request is kept for this master.
    pub(super) fn holds(&self, master: u64, hash: u64, id: CommandId) -> bool {
        self.instances.get(&master).is_some_and(|instance| instance.store.holds(hash, id))
    }

    /// This request, if it is kept for this master.
    pub(super) fn get(&self, master: u64, hash: u64, id: CommandId) -> Option<V> {
        self.instances.get(&master)?.store.get(hash, id).map(Packed::unpack)
    }

    /// These are in the log of this node, which is that master's: they leave.
    pub(super) fn moved<'a>(
        &mut self,
        master: u64,
        keyspace: KeyspaceId,
        values: impl IntoIterator<Item = &'a V>,
    ) where
        V: 'a,
    {
        let Some(instance) = self.instances.get_mut(&master) else { return };
        for value in values.into_iter().filter(|value| !value.reads()) {
            let Some(id) = value.id() else { continue };
            instance.excess.remove(&id);
            if instance.store.is_empty() {
                continue;
            }
            for hash in key_hashes(keyspace, |see| value.visit(see)).unwrap_or_default() {
                instance.store.collect(hash, id);
            }
        }
    }

    /// Ends a round: what has been in the way of others for long, and may be garbage (3.8).
    pub(super) fn turn(&mut self, master: u64) -> Vec<V> {
        let Some(instance) = self.instances.get_mut(&master) else { return Vec::new() };
        instance.store.turn().into_iter().map(|(_, request)| request.unpack()).collect()
    }

    /// How much is kept for this master's clients.
    pub(super) fn len(&self, master: u64) -> Option<usize> {
        self.instances.get(&master).map(|instance| instance.store.len())
    }

    /// Masters before this one are over. Whether that was news.
    pub(super) fn end(&mut self, before: u64) -> bool {
        let new = before > self.ended;
        self.ended = self.ended.max(before);
        self.instances = self.instances.split_off(&self.ended);
        new
    }

    pub(super) fn replay(&mut self, record: Record<V>) {
        match record {
            Record::Started { reign } => drop(self.begin(reign)),
            Record::Kept { master, requests } => {
                let Some(instance) = self.instances.get_mut(&master) else { return };
                let mut room = Vec::new();
                for (keys, request) in requests {
                    let Some(id) = request.id() else { continue };
                    let request = Packed::new(&request, &mut room);
                    for hash in keys {
                        instance.store.absorb(Stored { hash, id, request: request.clone() });
                    }
                }
            }
            Record::Collected { master, pairs } => {
                self.collect(master, &pairs);
            }
            Record::Frozen { master } => drop(self.close(master)),
            Record::Ended { before } => drop(self.end(before)),
        }
    }

    pub(super) fn images(&self) -> impl Iterator<Item = Image<V>> + use<V> {
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

    pub(super) fn restore(&mut self, image: Image<V>) {
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
