//! What a replica of TAPIR knows, as its journal has made it: nothing here sends or waits.

use super::Mutation;
use super::message::{Ballot, Ended, Held, Name, Part, Record, Verdict, Vote};
use super::occ::{Data, Margin, Prepared};
use crate::request::TxnId;
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Blob, ClientId, Export as _, Instant, Malformed, ProcessId, Snapshot, wire};
use isochrone_store::versions::Version;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// One transaction at one replica.
#[derive(Clone, Hash, Debug)]
pub struct Entry {
    /// Which, and the latest try of it that is known here.
    pub name: Name,
    /// What it does here.
    pub part: Option<Arc<Part>>,
    /// The vote, or what was accepted.
    pub vote: Option<Vote>,
    /// Under whose ballot that was accepted.
    pub accepted: Option<Ballot>,
    /// Whoever coordinates below this is not listened to.
    pub promised: Ballot,
    /// How it ended.
    pub verdict: Option<Verdict>,
    /// Whether what it wrote is in the store.
    pub executed: bool,
    /// Whether it was agreed on in the change to the present view.
    pub merged: bool,
    /// Since when it is as it is, by the clock of this life.
    pub since: Instant,
    /// Replicas that are known to have written down how it ended.
    pub noted: BTreeSet<ProcessId>,
    /// When something is next done about it, and how often it was.
    pub due: Instant,
    /// How often it was told to others.
    pub told: u32,
}

impl Entry {
    fn new(name: Name) -> Entry {
        Entry {
            name,
            part: None,
            vote: None,
            accepted: None,
            promised: Ballot::CLIENT,
            verdict: None,
            executed: false,
            merged: false,
            since: Instant::ZERO,
            noted: BTreeSet::new(),
            due: Instant::ZERO,
            told: 0,
        }
    }

    /// Whether it has ended and this replica has all it needs to execute that.
    pub fn complete(&self) -> bool {
        match self.verdict {
            Some(Verdict::Commit(_)) => self.part.is_some(),
            Some(Verdict::Abort) => true,
            None => false,
        }
    }

    /// What others are told of it while it has not ended.
    pub fn held(&self) -> Held {
        Held {
            name: self.name.clone(),
            part: self.part.clone(),
            vote: self.vote,
            accepted: self.accepted,
            promised: self.promised,
        }
    }

    /// What others are told of its end; what it did here only to a replica of this partition.
    pub fn ended(&self, here: bool) -> Option<Ended> {
        let part = self.part.clone().filter(|_| here);
        let Name { txn, participants, .. } = &self.name;
        Some(Ended { txn: *txn, participants: participants.clone(), verdict: self.verdict?, part })
    }

    /// Whether it stands in the way of others.
    fn stands(&self) -> bool {
        self.vote == Some(Vote::Ok) && !self.executed && self.verdict != Some(Verdict::Abort)
    }
}

/// What is known of the past of one client, in one life of its process.
#[derive(Clone, Hash, Debug, Default, Serialize, Deserialize)]
struct Past {
    /// Nothing is proposed any more below here.
    below: u64,
    /// All below here has ended everywhere.
    done: u64,
    /// These have as well.
    beyond: BTreeSet<u64>,
}

/// Sequences in [`Past::beyond`]. One that is forgotten makes some messages more, and no harm.
const BEYOND_MAX: usize = 1 << 16;
/// Lives of one client process that are remembered, likewise.
const LIVES_MAX: usize = 32;

/// A replica's state.
#[derive(Clone, Hash, Debug, Default)]
pub struct State {
    /// Committed data.
    pub data: Data,
    /// What stands in the way of others.
    pub prepared: Prepared,
    /// All transactions that have not ended everywhere.
    pub entries: BTreeMap<TxnId, Entry>,
    past: BTreeMap<ClientId, Past>,
    /// Of transactions up to this timestamp some were dropped that somebody may still ask for.
    pub forgotten: Version,
    /// The last view in which this replica was normal.
    pub normal: u64,
    /// It takes part in none below this one.
    pub view: u64,
    /// The planted bug.
    pub mutation: Option<Mutation>,
}

impl State {
    /// Of a replica that has heard nothing yet.
    pub fn new(mutation: Option<Mutation>) -> State {
        State { mutation, ..State::default() }
    }

    fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }

    /// Whether this replica takes part in a view, and does not change to one.
    pub fn is_normal(&self) -> bool {
        self.normal == self.view
    }

    /// The lives of a client process that are known.
    fn lives(&self, process: ProcessId) -> impl DoubleEndedIterator<Item = ClientId> {
        let life = |incarnation| ClientId { process, incarnation };
        self.past.range(life(0)..=life(u32::MAX)).map(|(client, _)| *client)
    }

    /// Whether a client proposes this transaction no more, as far as is known here.
    pub fn over(&self, txn: TxnId) -> bool {
        let newer = self.lives(txn.client.process).next_back().is_some_and(|latest| txn.client < latest);
        let below = self.past.get(&txn.client).is_some_and(|past| txn.sequence < past.below);
        newer || below || self.dropped(txn)
    }

    /// Whether this transaction has ended everywhere, as far as is known here.
    pub fn dropped(&self, txn: TxnId) -> bool {
        let past = self.past.get(&txn.client);
        past.is_some_and(|past| txn.sequence < past.done || past.beyond.contains(&txn.sequence))
    }

    fn past(&mut self, client: ClientId) -> &mut Past {
        if !self.past.contains_key(&client) && self.lives(client.process).count() >= LIVES_MAX {
            let oldest = self.lives(client.process).next();
            oldest.and_then(|oldest| self.past.remove(&oldest));
        }
        self.past.entry(client).or_default()
    }

    fn entry(&mut self, name: &Name) -> &mut Entry {
        self.entries.entry(name.txn).or_insert_with(|| Entry::new(name.clone()))
    }

    /// Changes an entry and what it stands in the way of.
    fn change(&mut self, name: &Name, change: impl FnOnce(&mut Entry)) {
        let release = self.mutated(Mutation::ReleaseEarly);
        let stands = |entry: &Entry| entry.stands() && !(release && entry.verdict.is_some());
        let entry = self.entries.entry(name.txn).or_insert_with(|| Entry::new(name.clone()));
        if let Some(part) = entry.part.as_deref().filter(|_| stands(entry)) {
            self.prepared.remove(name.txn, part);
        }
        change(entry);
        if let Some(part) = entry.part.as_deref().filter(|_| stands(entry)) {
            self.prepared.insert(name.txn, entry.name.at, part);
        }
    }

    fn remove(&mut self, txn: TxnId) {
        if let Some(entry) = self.entries.remove(&txn)
            && let Some(part) = &entry.part
        {
            self.prepared.remove(txn, part);
        }
    }

    /// Takes in one record: all that ever changes the state.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Voted { name, part, vote, below, done } => {
                let past = self.past(name.txn.client);
                past.below = past.below.max(below);
                self.done(name.txn.client, done);
                self.change(&name, |entry| {
                    entry.name = name.clone();
                    entry.part = Some(part);
                    (entry.vote, entry.accepted, entry.merged) = (Some(vote), None, false);
                });
            }
            Record::Accepted { name, part, ballot, vote } => self.change(&name, |entry| {
                entry.name = name.clone();
                entry.part = part.or(entry.part.take());
                (entry.vote, entry.accepted) = (Some(vote), Some(ballot));
                entry.promised = entry.promised.max(ballot);
            }),
            Record::Promised { name, ballot } => self.entry(&name).promised = ballot,
            Record::Noted { ended } => self.note(ended),
            Record::Executed { txn } => self.execute(txn),
            Record::Dropped { txn } => self.drop(txn),
            Record::Forgotten { txn } => {
                if let Some(entry) = self.entries.get(&txn) {
                    let at = match entry.verdict {
                        Some(Verdict::Commit(at)) => at.max(entry.name.at),
                        _ => entry.name.at,
                    };
                    self.forgotten = self.forgotten.max(at);
                }
                self.drop(txn);
            }
            Record::Changing { view } => self.view = self.view.max(view),
            Record::Installed { view, held, ended } => self.install(view, held, ended),
        }
    }

    /// All of a client's transactions below this have ended everywhere.
    pub fn done(&mut self, client: ClientId, done: u64) {
        let past = self.past(client);
        if past.done < done {
            past.done = done;
            past.beyond = past.beyond.split_off(&done);
        }
    }

    fn note(&mut self, ended: Ended) {
        let Ended { txn, participants, verdict, part } = ended;
        let at = match verdict {
            Verdict::Commit(at) => at,
            Verdict::Abort => Version::NONE,
        };
        let name = Name { txn, participants, attempt: 0, at };
        self.change(&name, |entry| {
            debug_assert!(
                entry.verdict.is_none_or(|known| known == verdict),
                "{txn:?} ended twice: {:?}, then {verdict:?}",
                entry.verdict
            );
            entry.verdict = Some(verdict);
            if entry.part.is_none() {
                entry.part = part;
            }
            entry.executed |= verdict == Verdict::Abort;
        });
    }

    fn execute(&mut self, txn: TxnId) {
        let Some(entry) = self.entries.get(&txn).filter(|entry| !entry.executed) else { return };
        let (Some(Verdict::Commit(at)), Some(part)) = (entry.verdict, entry.part.clone()) else { return };
        let name = entry.name.clone();
        self.data.apply(&part, at);
        self.change(&name, |entry| entry.executed = true);
    }

    fn drop(&mut self, txn: TxnId) {
        self.execute(txn);
        self.remove(txn);
        let past = self.past(txn.client);
        if txn.sequence >= past.done {
            past.beyond.insert(txn.sequence);
            if past.beyond.len() > BEYOND_MAX {
                past.beyond.pop_first();
            }
        }
    }

    fn install(&mut self, view: u64, held: Vec<Held>, ended: Vec<Ended>) {
        (self.normal, self.view) = (view, self.view.max(view));
        for ended in ended {
            let txn = ended.txn;
            if !self.dropped(txn) {
                self.note(ended);
                self.execute(txn);
            }
        }
        let agreed: BTreeSet<TxnId> = held.iter().map(|held| held.name.txn).collect();
        let open =
            self.entries.iter().filter(|(txn, entry)| entry.verdict.is_none() && !agreed.contains(txn));
        let lost: Vec<TxnId> = open.map(|(txn, _)| *txn).collect();
        lost.into_iter().for_each(|txn| self.remove(txn));
        self.entries.values_mut().for_each(|entry| entry.merged = false);
        if self.mutated(Mutation::ForgetView) {
            agreed.into_iter().for_each(|txn| self.remove(txn));
            return;
        }
        for held in held {
            if self.dropped(held.name.txn) {
                continue;
            }
            let known = self.entries.get(&held.name.txn).is_some_and(|entry| entry.verdict.is_some());
            if known {
                self.change(&held.name, |entry| entry.part = entry.part.take().or(held.part));
                continue;
            }
            self.change(&held.name, |entry| {
                entry.part = held.part.or(entry.part.take());
                (entry.vote, entry.accepted) = (held.vote, held.accepted);
                (entry.name, entry.promised, entry.merged) = (held.name.clone(), held.promised, true);
            });
        }
    }
}

/// A chunk of a snapshot.
#[derive(Serialize, Deserialize)]
enum Image {
    Head { normal: u64, view: u64, forgotten: Version, past: Vec<(ClientId, Past)> },
    Entries(Vec<Kept>),
    Margin(Margin),
    Store(Blob),
}

/// An entry in a snapshot.
#[derive(Serialize, Deserialize)]
struct Kept {
    held: Held,
    verdict: Option<Verdict>,
    executed: bool,
    merged: bool,
}

impl State {
    /// The state in chunks.
    pub fn snapshot(&self) -> Snapshot {
        let past = self.past.iter().map(|(process, past)| (*process, past.clone())).collect();
        let head = Image::Head { normal: self.normal, view: self.view, forgotten: self.forgotten, past };
        let keep = |entry: &Entry| Kept {
            held: entry.held(),
            verdict: entry.verdict,
            executed: entry.executed,
            merged: entry.merged,
        };
        let mut kept: VecDeque<Kept> = self.entries.values().map(keep).collect();
        let Margin { deleted, late, newest, reads, floor } = self.data.margin();
        let (mut deleted, mut late, mut reads) = (deleted.into_iter(), late.into_iter(), reads.into_iter());
        let view = self.data.store().export();
        let entries = std::iter::from_fn(move || {
            let taken = fill(|| kept.pop_front());
            (!taken.is_empty()).then_some(Image::Entries(taken))
        });
        let mut first = true;
        let margin = std::iter::from_fn(move || {
            let margin = Margin {
                deleted: fill(|| deleted.next()),
                late: fill(|| late.next()),
                reads: fill(|| reads.next()),
                newest,
                floor,
            };
            let more = !margin.deleted.is_empty() || !margin.late.is_empty() || !margin.reads.is_empty();
            (std::mem::take(&mut first) || more).then_some(Image::Margin(margin))
        });
        let mut index = 0;
        let store = std::iter::from_fn(move || {
            let chunk = view.chunk(index)?;
            index += 1;
            Some(Image::Store(chunk))
        });
        let images = std::iter::once(head).chain(entries).chain(margin).chain(store);
        Box::new(images.map(|image| Blob::from(wire::encode(&image))))
    }

    /// Takes in one chunk.
    ///
    /// # Errors
    /// Bytes that are no such chunk.
    pub fn restore(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let image = wire::decode::<Image>(chunk);
        match image.map_err(|error| Malformed { what: "tapir chunk", cause: error.to_string() })? {
            Image::Head { normal, view, forgotten, past } => {
                (self.normal, self.view, self.forgotten) = (normal, view, forgotten);
                self.past = past.into_iter().collect();
            }
            Image::Entries(kept) => {
                for Kept { held, verdict, executed, merged } in kept {
                    self.change(&held.name, |entry| {
                        (entry.vote, entry.accepted, entry.promised) =
                            (held.vote, held.accepted, held.promised);
                        (entry.part, entry.verdict, entry.executed) = (held.part, verdict, executed);
                        entry.merged = merged;
                    });
                }
            }
            Image::Margin(margin) => self.data.absorb(margin),
            Image::Store(chunk) => self.data.absorb_store(&chunk)?,
        }
        Ok(())
    }
}

/// Takes about as much as a chunk may hold.
fn fill<T: Serialize>(mut next: impl FnMut() -> Option<T>) -> Vec<T> {
    let (mut taken, mut size) = (Vec::new(), 0);
    while size < CHUNK_MAX
        && let Some(one) = next()
    {
        size += wire::encoded_size(&one);
        taken.push(one);
    }
    taken
}
