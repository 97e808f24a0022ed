//! What a replica of TAPIR knows, as its journal has made it: nothing here sends or waits.

use super::Mutation;
use super::entry::Entry;
use super::message::{Ballot, Ended, Held, Name, Record, Verdict, Vote};
use super::occ::{Data, Prepared};
use crate::census;
use crate::map::Map;
use crate::request::TxnId;
use isochrone_core::{ClientId, ProcessId};
use isochrone_store::versions::Version;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the past of one client, in one life of its process.
#[derive(Clone, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Past {
    /// Nothing is proposed any more below here.
    below: u64,
    /// All below here has ended everywhere.
    done: u64,
    /// These have as well.
    beyond: BTreeSet<u64>,
}

/// Sequences in [`Past::beyond`], the highest ones, besides those that the client may still propose. Once there are so many, what is
/// lower may have been forgotten.
const BEYOND_MAX: usize = 1 << 16;
/// Lives of one client process that are remembered: of all but the oldest of so many nothing was ever forgotten.
pub(super) const LIVES_MAX: usize = 32;

/// A replica's state.
#[derive(Clone, Hash, Debug, Default)]
pub struct State {
    /// Committed data.
    pub data: Data,
    /// What stands in the way of others.
    pub prepared: Prepared,
    /// All transactions that have not ended everywhere.
    pub entries: BTreeMap<TxnId, Entry>,
    pub(super) past: BTreeMap<ClientId, Past>,
    /// No ballot above this round was promised for what changes of view have let go.
    pub spent: u32,
    /// The last view in which this replica was normal.
    pub normal: u64,
    /// It takes part in none below this one.
    pub view: u64,
    /// The planted bug.
    pub mutation: Option<Mutation>,
}

impl State {
    /// Of a replica that has heard nothing yet.
    pub fn new(map: &Map, mutation: Option<Mutation>) -> State {
        State { data: Data::new(census::versions(map)), mutation, ..State::default() }
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

    /// Whether this replica knows that it has ended, be it dropped since.
    pub fn has_ended(&self, txn: TxnId) -> bool {
        self.dropped(txn) || self.entries.get(&txn).is_some_and(|entry| entry.verdict.is_some())
    }

    /// Whether this transaction may have ended here and its name be forgotten since.
    pub fn may_be_forgotten(&self, txn: TxnId) -> bool {
        let newer = self.lives(txn.client.process).filter(|life| *life > txn.client).count();
        // What its client may still propose is kept; of an earlier life a version of before may have cut that, too.
        let cut = self
            .past
            .get(&txn.client)
            .filter(|past| past.beyond.len() >= BEYOND_MAX && (newer > 0 || txn.sequence < past.below));
        let first = cut.and_then(|past| past.beyond.first());
        newer + 1 >= LIVES_MAX || first.is_some_and(|first| txn.sequence < *first)
    }

    /// Whether this is all that this replica ever held of a transaction that has not ended as far as it knows: what it has voted
    /// itself, or accepted from the client or for OK. Of one that it has forgotten it takes none of that.
    pub fn is_sure(&self, entry: &Entry) -> bool {
        let taken = entry.accepted.is_some_and(|ballot| ballot > Ballot::CLIENT);
        let own = entry.vote == Some(Vote::Ok) || (entry.vote.is_some() && !taken) || entry.checked;
        own || !(self.dropped(entry.name.txn) || self.may_be_forgotten(entry.name.txn))
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

    /// Changes an entry and what it stands in the way of. What was tried before stands in the way of all that reads what it
    /// writes: it may have been checked at an earlier timestamp, and others may settle on that.
    pub(super) fn change(&mut self, name: &Name, change: impl FnOnce(&mut Entry)) {
        let release = self.mutated(Mutation::ReleaseEarly);
        let stands = |entry: &Entry| entry.stands() && !(release && entry.verdict.is_some());
        let entry = self.entries.entry(name.txn).or_insert_with(|| Entry::new(name.clone()));
        if let Some(part) = entry.part.as_deref().filter(|_| stands(entry)) {
            self.prepared.remove(name.txn, part);
        }
        change(entry);
        if let Some(part) = entry.part.as_deref().filter(|_| stands(entry)) {
            self.prepared.insert(name.txn, entry.name.at, part);
            if entry.name.attempt > 0 {
                self.prepared.insert_writes(name.txn, Version::NONE, part);
            }
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
                    entry.checked |= vote == Vote::Ok;
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
            Record::Dropped { txn } | Record::Forgotten { txn } => self.drop(txn),
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
            // Who has forgotten a commit may tell it as an abort; what is written down here stays.
            match *entry.verdict.get_or_insert(verdict) {
                Verdict::Commit(at) => entry.name.at = at,
                // It releases what it held.
                Verdict::Abort => entry.executed = true,
            }
            if entry.part.is_none() {
                entry.part = part;
            }
        });
    }

    fn execute(&mut self, txn: TxnId) {
        let due = self.entries.get(&txn).filter(|entry| entry.complete() && !entry.executed);
        let Some(entry) = due else { return };
        let name = entry.name.clone();
        if let (Some(Verdict::Commit(at)), Some(part)) = (entry.verdict, &entry.part) {
            self.data.apply(part, at);
        }
        self.change(&name, |entry| entry.executed = true);
    }

    fn drop(&mut self, txn: TxnId) {
        self.execute(txn);
        self.remove(txn);
        let past = self.past(txn.client);
        if txn.sequence >= past.done {
            past.beyond.insert(txn.sequence);
            while past.beyond.len() > BEYOND_MAX
                && past.beyond.first().is_some_and(|first| *first < past.below)
            {
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
        let lost: Vec<(TxnId, Ballot)> = open.map(|(txn, entry)| (*txn, entry.promised)).collect();
        for (txn, promised) in lost {
            // It may come again, and what was said under a ballot of this replica in this view is on its way.
            self.spent = self.spent.max(promised.round);
            self.remove(txn);
        }
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
                entry.checked = held.vote == Some(Vote::Ok);
                entry.promised = entry.promised.max(held.promised);
                (entry.name, entry.merged) = (held.name.clone(), true);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Update;
    use crate::tapir::message::Part;
    use crate::tapir::occ::{self, Rules};
    use isochrone_core::{Blob, PartitionId};
    use std::sync::Arc;

    /// Others have accepted the first try: whoever has checked it holds it at both timestamps, though it refuses the second.
    #[test]
    fn what_was_checked_is_held_through_later_tries() {
        let client = ClientId { process: ProcessId::from_u64(1), incarnation: 1 };
        let part = |reads: bool, writes: bool| {
            let key = Blob::from("x");
            Part {
                reads: reads.then(|| (key.clone(), Version::NONE)).into_iter().collect(),
                writes: writes.then(|| Update { key, value: Some(Blob::from("v")) }).into_iter().collect(),
            }
        };
        let mut state = State::default();
        for (attempt, at, vote) in [(0, 10, Vote::Ok), (1, 30, Vote::Abstain)] {
            let txn = TxnId { client, sequence: 1 };
            let name = Name { txn, participants: Arc::from([PartitionId(0)]), attempt, at: Version(at) };
            let part = Arc::new(part(true, true));
            state.apply(Record::Voted { name, part, vote, below: 0, done: 0 });
        }
        for strict in [false, true] {
            let rules = Rules { strict, blind: false, stale: false };
            let ask = |part: &Part, at: u64| {
                let other = TxnId { client, sequence: 2 };
                occ::check(&state.data, &state.prepared, other, part, Version(at), rules)
            };
            let (reads, writes) = (part(true, false), part(false, true));
            assert_eq!((ask(&reads, 20), ask(&reads, 40)), (Vote::Abstain, Vote::Abstain));
            assert_ne!(ask(&writes, 5), Vote::Ok);
        }
    }

    /// It was executed once, and a crash has lost that.
    #[test]
    fn a_commit_stands_in_the_way_from_when_it_is_written_down() {
        let client = ClientId { process: ProcessId::from_u64(1), incarnation: 1 };
        let key = Blob::from("x");
        let writes = vec![Update { key: key.clone(), value: Some(Blob::from("v")) }];
        let part = Some(Arc::new(Part { reads: Vec::new(), writes }));
        let (participants, verdict) = (Arc::from([PartitionId(0)]), Verdict::Commit(Version(10)));
        let ended = Ended { txn: TxnId { client, sequence: 1 }, participants, verdict, part };
        let mut state = State::default();
        state.apply(Record::Noted { ended });
        let reader = |seen| Part { reads: vec![(key.clone(), seen)], writes: Vec::new() };
        let rules = Rules { strict: false, blind: false, stale: false };
        let ask = |state: &State, at: u64| {
            let other = TxnId { client, sequence: 2 };
            occ::check(&state.data, &state.prepared, other, &reader(Version::NONE), Version(at), rules)
        };
        assert_eq!((ask(&state, 5), ask(&state, 20)), (Vote::Ok, Vote::Abstain));
        state.apply(Record::Executed { txn: TxnId { client, sequence: 1 } });
        assert_eq!(ask(&state, 20), Vote::Abort, "it has read what was before");
        assert!(state.prepared.is_empty());
    }

    #[test]
    fn what_may_have_been_forgotten_is_known() {
        let client = ClientId { process: ProcessId::from_u64(1), incarnation: 1 };
        let txn = |sequence: u64| TxnId { client, sequence };
        let (mut state, last) = (State::default(), BEYOND_MAX as u64 + 2);
        // The first never ended here.
        for sequence in 2..=last {
            state.apply(Record::Dropped { txn: txn(sequence) });
        }
        let known = |state: &State, sequence: u64| {
            (state.dropped(txn(sequence)), state.may_be_forgotten(txn(sequence)))
        };
        let open = [1, 2].map(|at| known(&state, at));
        assert_eq!(open, [(false, false), (true, false)], "its client may still propose the first");
        state.past(client).below = last + 1;
        state.apply(Record::Dropped { txn: txn(last) });
        let cut = [1, 2, 3, last, last + 1].map(|at| known(&state, at));
        assert_eq!(cut, [(false, true), (false, true), (true, false), (true, false), (false, false)]);
        state.done(client, 4);
        assert_eq!([1, 2, 3, 4].map(|at| known(&state, at).0), [true, true, true, true]);
        // So many later lives push out what is known of this one.
        for incarnation in 2..=LIVES_MAX as u32 {
            assert!(!state.may_be_forgotten(txn(last + 1)), "{incarnation}");
            state.done(ClientId { incarnation, ..client }, 0);
        }
        assert!(state.may_be_forgotten(txn(last + 1)));
    }

    /// Who has forgotten it may say that it was aborted.
    #[test]
    fn an_end_that_is_written_down_stays() {
        let client = ClientId { process: ProcessId::from_u64(1), incarnation: 1 };
        let txn = TxnId { client, sequence: 1 };
        let writes = vec![Update { key: Blob::from("x"), value: Some(Blob::from("v")) }];
        let part = Some(Arc::new(Part { reads: Vec::new(), writes }));
        let mut state = State::default();
        for (verdict, part) in [(Verdict::Commit(Version(10)), None), (Verdict::Abort, part)] {
            let participants = Arc::from([PartitionId(0)]);
            state.apply(Record::Noted { ended: Ended { txn, participants, verdict, part } });
        }
        state.apply(Record::Executed { txn });
        assert_eq!(state.data.latest(&Blob::from("x")).0, Version(10));
    }
}
