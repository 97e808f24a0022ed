//! The unified form (3.16): a server is the witness of its node itself, so that a sync has to carry little more than an
//! order.
//!
//! **Runs of names.** A client that has not had its command recorded wants a safe answer, and so does everybody whose
//! command was refused or conflicts; what is waited for is sent whole. Of everything else the master sends the name, once:
//! the copies hold it, most likely, and move it from their stores to their logs. What one lacks it asks for, by name, and
//! what comes behind that run waits with it; after [`Parameters::resend`](super::Parameters::resend) all is sent whole. A
//! name says what the request itself does not: what the master has heard of its client's other commands.
//!
//! **One journal.** Records of requests and of the log lie in one journal, in the order in which things happened, and a
//! run is written down whole: so a restart finds each request where it was, and nothing has to be resolved again.
//!
//! **Nothing is lost between the two.** What was completed under a master is, on every copy of the list that counts, in
//! the log or in the store: all have accepted it, or it is in all logs; and it leaves the store only for the log of that
//! master. Another master begins from its own node: from its log and its store, of which it changes neither before it
//! has put the one behind the other. Only that whole is what its copies make their log from, in one message; so what one
//! of them gives up, with the end of its log, is in what it takes. The log of one node with the store of another might
//! miss what the first has still to move and the second has moved.
//!
//! **A later master freezes.** Whoever has promised a later master accepts nothing for an earlier one. A store goes when
//! the managers say that a later master counts.
//!
//! **Late records.** What is in the log of the master that the client goes by is accepted, and not kept again. What is
//! garbage all the same, as the record of a command that its master never heard of, is found as in the other form: it
//! stands in the way, and goes to the master, who runs it again.

#[cfg(test)]
mod tests;

use super::Mutation;
use super::message::{Batch, Message, Name, Note, Record, Run};
use super::order::Order;
use super::stores::{self, Stores};
use crate::curp::key_hashes;
use crate::curp::recent::Recent;
use crate::curp::witness::KEYS_MAX;
use crate::order::{Ordered, Reign};
use isochrone_core::{CommandId, Effects, KeyspaceId, ProcessId, Slot, Wire};
use std::collections::{BTreeMap, VecDeque};

/// Names of a log that are remembered, so that late records are not kept.
const REMEMBERED: usize = 16_384;
/// Runs that wait for something at most; those behind are sent again.
const WAITING_MAX: usize = 256;

/// What a server has as the witness of its node.
#[derive(Clone, Hash, Debug)]
pub(super) struct Own<V: Wire> {
    pub(super) stores: Stores<V>,
    /// What came into the log that is followed.
    recent: Recent,
    /// Runs that name something that is held nowhere here, and those behind them, without a gap.
    waiting: VecDeque<Waiting<V>>,
    /// The master that sent them.
    master: Option<ProcessId>,
    /// Where the log ended when a round did, last.
    turned: Slot,
}

/// What a run names that was not here when it came: the hash that it is named by, and what was sent whole for it.
pub(super) type Lacking<V> = BTreeMap<CommandId, (u64, Option<V>)>;

/// A run that waits. What is sent whole for it goes with it, so there is never more than runs that wait have named.
#[derive(Clone, Hash, Debug)]
struct Waiting<V: Wire> {
    run: Run<V>,
    lacking: Lacking<V>,
}

impl<V: Ordered> Own<V> {
    pub(super) fn new(stores: Stores<V>) -> Own<V> {
        let (recent, waiting) = (Recent::default(), VecDeque::new());
        Own { stores, recent, waiting, master: None, turned: Slot::ZERO }
    }

    /// There is a later master.
    pub(super) fn promise(&mut self, epoch: u64) {
        self.stores.freeze_before(epoch);
        self.forget();
    }

    /// The log is another one.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.recent.clear();
        self.turned = Slot::ZERO;
    }

    /// These are in the log of this master now.
    pub(super) fn moved(&mut self, master: u64, keyspace: KeyspaceId, values: &[V]) {
        self.stores.moved(master, keyspace, values);
        // A read that is to have its effect comes again as a command, by the same name.
        for id in values.iter().filter(|value| !value.reads()).filter_map(Ordered::id) {
            self.recent.insert(id, REMEMBERED);
        }
    }

    /// Behind the last run that waits.
    pub(super) fn reach(&self) -> Option<Slot> {
        self.waiting.back().map(|last| last.run.end())
    }

    /// Whether what a run lacked is here.
    fn has_all(&self, Waiting { run, lacking }: &Waiting<V>) -> bool {
        lacking.iter().all(|(id, (hash, value))| value.is_some() || self.stores.holds(run.epoch, *hash, *id))
    }

    /// Ends a round, the log having grown to `end`: what has been in the way of others for long, and may be garbage (3.8). A
    /// round lasts until what was in the log when the last one ended is on all backups: runs alone follow one another faster
    /// than a request gets to its master and back. In the other form it is a collection by this witness alone, and the master
    /// passes over what lies in its log.
    pub(super) fn turn(&mut self, master: u64, end: Slot, full: Slot) -> Vec<V> {
        if full < self.turned {
            return Vec::new();
        }
        self.turned = end;
        self.stores.turn(master)
    }
}

/// Batches without what is named of them, and the names.
pub(super) type Outline<V> = (Vec<Batch<V>>, Vec<Name>);

/// The same batches without what copies are likely to hold.
pub(super) fn outline<V: Ordered>(keyspace: KeyspaceId, batches: Vec<Batch<V>>) -> Outline<V> {
    let mut names = Vec::new();
    let mut without = |(batch, values): (usize, Batch<V>)| {
        let mut whole = Vec::new();
        for (index, value) in values.iter().enumerate() {
            match handle(keyspace, value) {
                // A batch has fewer values than the window.
                Some((hash, id)) => {
                    let place = (batch as u32, index as u32);
                    names.push(Name { place, hash, id, below: value.below() });
                }
                None => whole.push(value.clone()),
            }
        }
        if whole.len() == values.len() { values } else { whole.into() }
    };
    let batches = batches.into_iter().enumerate().map(&mut without).collect();
    (batches, names)
}

/// Under which key and name a witness may hold this.
fn handle<V: Ordered>(keyspace: KeyspaceId, value: &V) -> Option<(u64, CommandId)> {
    let id = value.id().filter(|_| !value.reads())?;
    let hashes = key_hashes(keyspace, |see| value.visit(see))?;
    let first = hashes.first().filter(|_| hashes.len() <= KEYS_MAX)?;
    Some((*first, id))
}

impl<V: Ordered> Order<V> {
    /// How much this server keeps for a master's clients, as a witness.
    pub fn holds(&self, master: u64) -> Option<usize> {
        self.own.stores.len(master)
    }

    /// What a run names that is neither kept here nor was sent whole for it.
    pub(super) fn missing(&self, run: &Run<V>, lacking: &Lacking<V>) -> Vec<Name> {
        if self.parameters().mutated(Mutation::DropMissing) {
            return Vec::new();
        }
        let supplied = |id: CommandId| lacking.get(&id).is_some_and(|(_, value)| value.is_some());
        let here = |name: &Name| supplied(name.id) || self.own.stores.holds(run.epoch, name.hash, name.id);
        run.names.iter().filter(|name| !here(name)).copied().collect()
    }

    /// What a run holds; none where it names something that is missing. It unpacks what is kept, so whoever may have to
    /// wait looks for that first.
    pub(super) fn resolve(&self, run: &Run<V>, lacking: &Lacking<V>) -> Option<Vec<Batch<V>>> {
        if run.names.is_empty() {
            return Some(run.batches.clone());
        }
        let drops = self.parameters().mutated(Mutation::DropMissing);
        let mut names = run.names.iter().peekable();
        let mut resolved = Vec::with_capacity(run.batches.len());
        for (batch, whole) in run.batches.iter().enumerate() {
            let (mut whole, mut values) = (whole.iter(), Vec::new());
            let mut index = 0;
            loop {
                if let Some(name) = names.next_if(|name| name.place == (batch as u32, index)) {
                    let supplied = lacking.get(&name.id).and_then(|(_, value)| value.clone());
                    match supplied.or_else(|| self.own.stores.get(run.epoch, name.hash, name.id)) {
                        Some(value) => values.push(value.with_below(name.below)),
                        None if drops => {}
                        None => return None,
                    }
                } else if let Some(value) = whole.next() {
                    values.push(value.clone());
                } else {
                    break;
                }
                index += 1;
            }
            resolved.push(values.into());
        }
        // A name without a place is of no master of ours.
        names.next().is_none().then_some(resolved)
    }

    /// Keeps a run until what it names is here, or what is before it.
    pub(super) fn wait_for(
        &mut self,
        from: ProcessId,
        run: Run<V>,
        missing: &[Name],
        effects: &mut Effects<Self>,
    ) {
        let (epoch, at) = (run.epoch, run.at);
        if self.own.reach().is_none_or(|reach| reach == at) {
            if self.own.waiting.len() >= WAITING_MAX {
                return;
            }
            let lacking = missing.iter().map(|name| (name.id, (name.hash, None))).collect();
            self.own.waiting.push_back(Waiting { run, lacking });
            self.own.master = Some(from);
        }
        if !missing.is_empty() {
            effects.mark(Note::Counted("runs_lacking"));
            let place = |name: &Name| (at.plus(u64::from(name.place.0)), name.id);
            let lacking = missing.iter().map(place).collect();
            // Ahead: it claims nothing.
            effects.send_ahead(from, Message::Missing { epoch, lacking });
        }
    }

    /// Takes in the runs that wait for nothing any more; whether there were any.
    pub(super) fn take_waiting(&mut self, from: ProcessId, effects: &mut Effects<Self>) -> bool {
        let mut any = false;
        while let Some(first) = self.own.waiting.front().filter(|first| first.run.at <= self.book.end()) {
            let Waiting { run, lacking } = first;
            // What is in the log already need not be found again.
            let late = run.end() <= self.book.end();
            let found = match late {
                true => Some(Vec::new()),
                // A run before it may have moved what both name.
                false if self.own.has_all(first) && self.missing(run, lacking).is_empty() => {
                    self.resolve(run, lacking)
                }
                false => None,
            };
            let Some(batches) = found else { break };
            let Some(Waiting { run, .. }) = self.own.waiting.pop_front() else { break };
            let at = if late { run.end() } else { run.at };
            self.take_run(from, Run { at, batches, names: Vec::new(), ..run }, effects);
            any = true;
        }
        any
    }

    /// What was waited for may have come.
    fn go_on(&mut self, effects: &mut Effects<Self>) {
        let Some(master) = self.own.master.filter(|_| !self.own.waiting.is_empty()) else { return };
        if self.take_waiting(master, effects) {
            self.acknowledge(master, self.adopted, effects);
        }
    }

    /// A copy lacks something that was named to it.
    pub(super) fn on_missing(
        &mut self,
        from: ProcessId,
        epoch: u64,
        lacking: Vec<(Slot, CommandId)>,
        effects: &mut Effects<Self>,
    ) {
        if self.target(from, epoch, effects.now()).is_none() {
            return;
        }
        let find = |(slot, id): (Slot, CommandId)| {
            let named = |value: &&V| value.id() == Some(id) && !value.reads();
            self.book.get(slot)?.iter().find(named).cloned()
        };
        let values = lacking.into_iter().filter_map(find).collect();
        effects.send(from, Message::Supplied { epoch, values });
    }

    pub(super) fn on_supplied(&mut self, epoch: u64, values: Vec<V>, effects: &mut Effects<Self>) {
        if epoch != self.adopted {
            return;
        }
        for value in values {
            let Some(id) = value.id() else { continue };
            for waiting in &mut self.own.waiting {
                if let Some((_, supplied)) = waiting.lacking.get_mut(&id) {
                    *supplied = Some(value.clone());
                }
            }
        }
        self.go_on(effects);
    }

    /// A client asks for requests to be kept.
    pub(super) fn on_records(
        &mut self,
        from: ProcessId,
        reign: Reign,
        requests: Vec<super::message::Kept<V>>,
        effects: &mut Effects<Self>,
    ) {
        let again = self.parameters().mutated(Mutation::StoreAgain);
        let followed = self.adopted == reign.0 && !again;
        let Own { stores, recent, .. } = &mut self.own;
        let Some(answer) = stores.keep(reign, requests, |id| followed && recent.contains(id)) else { return };
        for why in &answer.refused {
            effects.mark(Note::Counted(why));
        }
        let used = self.own.stores.len(reign.0).unwrap_or(0);
        effects.mark(Note::Stands("witness_slots_used", used as u64));
        let fresh = !answer.fresh.is_empty();
        if fresh {
            let (master, requests) = (reign.0, answer.fresh);
            effects.record(Record::Witness(stores::Record::Kept { master, requests }));
        } else if answer.in_log {
            // What brought it may be waiting for company.
            effects.record(Record::Full { full: self.book.full() });
        }
        let verdicts = Message::Verdicts(answer.verdicts);
        match self.parameters().mutated(Mutation::AcceptBeforeDurable) {
            true => effects.send_ahead(from, verdicts),
            false => effects.urgently(|effects| effects.send(from, verdicts)),
        }
        if fresh {
            self.go_on(effects);
        }
    }

    /// A master has this server as a witness.
    pub(super) fn on_start(&mut self, from: ProcessId, reign: Reign, effects: &mut Effects<Self>) {
        if reign.0 < self.promised {
            return;
        }
        let (is, new) = self.own.stores.begin(reign);
        if new {
            effects.record(Record::Witness(stores::Record::Started { reign }));
        }
        if is {
            effects.send(from, Message::Started { reign });
        }
    }

    /// Masters before this one are over.
    pub(super) fn end_witnesses(&mut self, before: u64, effects: &mut Effects<Self>) {
        if self.own.stores.end(before) {
            effects.record_lazily(Record::Witness(stores::Record::Ended { before }));
        }
    }

    /// A client reads here: what this server does not keep as a witness is in its log (D-20).
    pub(super) fn on_reads(&mut self, reign: Reign, reads: Vec<V>, effects: &mut Effects<Self>) {
        let Some(sifted) = self.own.stores.sift(reign, self.process.keyspace, reads) else { return };
        for why in sifted.refused {
            effects.mark(Note::Counted(why));
        }
        if let Some((asker, distant)) = sifted.distant {
            // Ahead: it claims nothing.
            effects.send_ahead(asker, Message::Distant(distant));
        }
        self.on_near(reign, sifted.clear, effects);
    }
}
