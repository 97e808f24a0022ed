//! The end of transactions at a replica: how it is noted, executed, told to others, and forgotten.

use super::entry::Entry;
use super::message::{Ended, Message, Record};
use super::parameters::Parameters;
use super::server::{DOUBLINGS, Server};
use crate::family;
use crate::request::TxnId;
use crate::said::say;
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{ClientId, Effects, Instant, PartitionId, ProcessId, Quorums, wire};
use std::collections::BTreeMap;

/// Transactions in one message between replicas.
const TOLD_AT_ONCE: usize = 256;

/// What one message tells, and how many bytes that is.
#[derive(Default)]
struct Letter {
    ended: Vec<Ended>,
    bytes: usize,
}

impl Letter {
    fn is_full(&self) -> bool {
        self.ended.len() >= TOLD_AT_ONCE || self.bytes >= CHUNK_MAX
    }

    fn add(&mut self, ended: Ended) {
        self.bytes += wire::encoded_size(&ended);
        self.ended.push(ended);
    }
}

impl Server {
    /// Tells how a transaction ended.
    pub(super) fn tell(&self, to: ProcessId, txn: TxnId, effects: &mut Effects<Self>) {
        let Some(entry) = self.state.entries.get(&txn) else { return };
        let Some(verdict) = entry.verdict else { return };
        if to.role == family::CLIENT {
            return say(to, Message::Told { txn, verdict }, effects);
        }
        if let Some(ended) = entry.ended(to.partition == self.partition) {
            say(to, Message::Spread { ended: vec![ended], noted: entry.complete() }, effects);
        }
    }

    /// Notes how a transaction ended; whether all that is needed of it is here.
    pub(super) fn note(&mut self, ended: Ended, effects: &mut Effects<Self>) -> bool {
        let txn = ended.txn;
        if self.state.dropped(txn) && !self.state.entries.contains_key(&txn) {
            return true;
        }
        let known = self.state.entries.get(&txn);
        let news = known
            .is_none_or(|entry| entry.verdict.is_none() || (entry.part.is_none() && ended.part.is_some()));
        if news {
            self.log(Record::Noted { ended }, effects);
            self.takeovers.remove(&txn);
            self.touch(txn, effects);
        }
        self.state.entries.get(&txn).is_some_and(|entry| entry.complete())
    }

    pub(super) fn decide(&mut self, from: ProcessId, ended: Ended, effects: &mut Effects<Self>) {
        let txn = ended.txn;
        if self.note(ended, effects) {
            say(from, Message::Noted { txn }, effects);
        }
    }

    /// Executes what may be executed.
    pub(super) fn settled(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        let due = self.state.entries.get(&txn).is_some_and(|entry| entry.complete() && !entry.executed);
        if due {
            self.log_lazily(Record::Executed { txn }, effects);
        }
    }

    fn majority(&self, partition: PartitionId) -> usize {
        Quorums::majority(self.map.group(partition).members.len())
    }

    /// How many replicas of a partition have written down how this one ended, which this replica has, as far as it knows.
    fn knowing(&self, entry: &Entry, partition: PartitionId) -> usize {
        let members = self.map.group(partition).members.iter();
        members.filter(|of| of.process == self.me || entry.noted.contains(&of.process)).count()
    }

    pub(super) fn cleared(
        &mut self,
        client: ClientId,
        done: u64,
        sequences: &[u64],
        effects: &mut Effects<Self>,
    ) {
        for sequence in sequences {
            let txn = TxnId { client, sequence: *sequence };
            if self.state.entries.get(&txn).is_some_and(|entry| entry.complete()) {
                self.log_lazily(Record::Dropped { txn }, effects);
            }
        }
        let range = TxnId { client, sequence: 0 }..TxnId { client, sequence: done };
        let ended = self.state.entries.range(range).filter(|(_, entry)| entry.complete());
        let ended: Vec<TxnId> = ended.map(|(txn, _)| *txn).collect();
        for txn in ended {
            self.log_lazily(Record::Dropped { txn }, effects);
        }
        self.state.done(client, done);
    }

    /// Others have written down how these ended.
    pub(super) fn has(&mut self, from: ProcessId, txns: &[TxnId], effects: &mut Effects<Self>) {
        for txn in txns {
            let Some(entry) = self.state.entries.get_mut(txn) else { continue };
            entry.noted.insert(from);
            self.drop_if_done(*txn, effects);
        }
    }

    /// Drops a transaction once every replica of it knows how it ended.
    fn drop_if_done(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        let Some(entry) = self.state.entries.get(&txn) else { return };
        let lacks = |replica: &ProcessId| *replica != self.me && !entry.noted.contains(replica);
        if entry.complete() && !self.replicas(&entry.name.participants).iter().any(lacks) {
            self.log_lazily(Record::Dropped { txn }, effects);
        }
    }

    pub(super) fn spread(
        &mut self,
        from: ProcessId,
        ended: Vec<Ended>,
        noted: bool,
        effects: &mut Effects<Self>,
    ) {
        let mut txns = Vec::new();
        for ended in ended {
            let txn = ended.txn;
            if self.note(ended, effects) {
                txns.push(txn);
            }
            if let Some(entry) = self.state.entries.get_mut(&txn).filter(|_| noted) {
                entry.noted.insert(from);
            }
            self.settled(txn, effects);
        }
        say(from, Message::Has { txns: txns.clone() }, effects);
        for txn in txns {
            self.drop_if_done(txn, effects);
        }
    }

    /// Looks after everything that has not ended everywhere.
    pub(super) fn sweep(&mut self, effects: &mut Effects<Self>) {
        self.sweeping = false;
        let now = effects.now();
        let Parameters { resend, terminate_after, .. } = self.parameters;
        let mut tell: BTreeMap<ProcessId, Letter> = BTreeMap::new();
        let mut ask = Vec::new();
        let (mut execute, mut orphans, mut done) = (Vec::new(), Vec::new(), Vec::new());
        let mut finished = 0;
        let (me, map, partition) = (self.me, &self.map, self.partition);
        for (txn, entry) in &mut self.state.entries {
            finished += usize::from(entry.complete());
            if entry.complete() && !entry.executed && now.since(entry.since) >= resend {
                execute.push(*txn);
            }
            if entry.due > now {
                continue;
            }
            if entry.verdict.is_none() {
                // Those of the first participant begin, one after the other.
                let rank = entry.name.participants.iter().position(|at| *at == partition).unwrap_or(0);
                let turn = (rank.min(8) * 4 + self.seat.min(8)) as u64;
                if now.since(entry.since) >= terminate_after + resend * turn {
                    orphans.push(*txn);
                }
                continue;
            }
            entry.due = now + terminate_after * (1 << entry.told.min(DOUBLINGS));
            entry.told += 1;
            // What it does here this replica has not heard.
            if !entry.complete() {
                ask.push(*txn);
                continue;
            }
            let mut lacking = false;
            for participant in entry.name.participants.iter() {
                for member in map.group(*participant).members.iter() {
                    let to = member.process;
                    if to == me || entry.noted.contains(&to) {
                        continue;
                    }
                    lacking = true;
                    let letter = tell.entry(to).or_default();
                    if !letter.is_full()
                        && let Some(ended) = entry.ended(*participant == partition)
                    {
                        letter.add(ended);
                    }
                }
            }
            if !lacking {
                done.push(*txn);
            }
        }
        for txn in execute {
            self.settled(txn, effects);
        }
        finished -= done.len();
        for txn in done {
            self.drop_if_done(txn, effects);
        }
        for (to, Letter { ended, .. }) in tell {
            if !ended.is_empty() {
                say(to, Message::Spread { ended, noted: true }, effects);
            }
        }
        for txn in ask {
            self.peers().filter(|peer| *peer != me).for_each(|to| say(to, Message::Ask { txn }, effects));
        }
        if finished > self.parameters.keep_records {
            self.forget(finished - self.parameters.keep_records, effects);
        }
        if self.state.is_normal() {
            // Who has waited longest comes first: there may be more than can be taken over at once, of which none can be ended.
            orphans.sort_by_key(|txn| self.state.entries.get(txn).map(|entry| entry.due));
            for txn in orphans {
                self.take_over(txn, effects);
            }
        }
        self.sweep_takeovers(effects);
        if !self.state.entries.is_empty() {
            self.sweep_soon(effects);
        }
    }

    /// Drops the oldest of what a majority of each participant's replicas knows to have ended. For as long as its client may
    /// ask for it none is dropped: somebody who takes it over could then tell that client another end.
    fn forget(&mut self, count: usize, effects: &mut Effects<Self>) {
        let (now, limit) = (effects.now(), self.parameters.time_limit);
        let over = |txn: TxnId, entry: &Entry| self.state.over(txn) || now.since(entry.since) >= limit;
        let known = |entry: &Entry| {
            let mut participants = entry.name.participants.iter();
            participants.all(|partition| self.knowing(entry, *partition) >= self.majority(*partition))
        };
        let entries = self.state.entries.iter();
        let mut old: Vec<(Instant, TxnId)> = entries
            .filter(|(txn, entry)| entry.complete() && over(**txn, entry) && known(entry))
            .map(|(txn, entry)| (entry.since, *txn))
            .collect();
        old.sort_unstable();
        for (_, txn) in old.into_iter().take(count) {
            self.log_lazily(Record::Forgotten { txn }, effects);
            Self::count("records_forgotten", effects);
        }
    }

    /// A peer lacks what a transaction did here.
    pub(super) fn asked(&mut self, from: ProcessId, txn: TxnId, effects: &mut Effects<Self>) {
        if self.state.entries.contains_key(&txn) {
            self.tell(from, txn, effects);
        } else if self.state.dropped(txn) {
            say(from, Message::Gone { txn }, effects);
        }
    }

    /// A transaction has ended and is forgotten: what is held of it comes from a message that was late, or this replica
    /// was away for too long.
    pub(super) fn gone(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        if self.state.entries.contains_key(&txn) {
            self.takeovers.remove(&txn);
            self.log_lazily(Record::Dropped { txn }, effects);
        }
    }
}
