//! The client: asks for reads and preparation at once, lets a leader of its region coordinate, and says that it lives
//! as long as anything is open.

mod snapshot;

use super::message::{Ended, Message, Part, Timer, Word};
use super::parameters::{Parameters, Reads};
use crate::family::{self, Tuning as _};
use crate::group;
use crate::leaders::{Leaders, PROBE};
use crate::listing::Listings;
use crate::map::{Distances, Map};
use crate::request::{MoveRefusal, Outcome, Read, Reason, Refusal, Request, TxnId, Update};
use crate::said::say_ahead;
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Fact, Identity, Instant, Malformed, PartitionId, Path, Phase,
    Process, ProcessId, Snapshot, Span, Ticket,
};
use isochrone_store::versions::Version;
use rustc_hash::FxHasher;
use snapshot::Reading;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The client role. See the module.
#[derive(Clone)]
pub struct Client {
    me: ClientId,
    map: Map,
    distances: Distances,
    knobs: Parameters,
    count: u64,
    open: BTreeMap<u64, Txn>,
    /// Who leads each group.
    leaders: Leaders,
    /// The latest outcome seen: later reads are at a later moment (1.2).
    latest: Version,
    beating: bool,
    listings: Listings,
    /// Partitions whose nearest follower had old values: how often in a row, and when last.
    behind: BTreeMap<PartitionId, (u32, Instant)>,
    /// Transactions that were refused because of others, by what they touch, in short: when the first try of each began, and
    /// when the last was refused. The next one that touches the same is taken for another try of it.
    refused: BTreeMap<u64, (Instant, Instant)>,
}

impl Hash for Client {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.count, &self.open, &self.leaders, self.latest, &self.listings, &self.behind).hash(hasher);
        self.refused.hash(hasher);
    }
}

/// For how long only the leader is asked to read where a follower had old values twice in a row: it lags, and whoever
/// believes it does not come further.
const BEHIND: Span = Span::from_secs(1);
/// Transactions that were refused and are known at a time; what is beyond is taken for new when it comes again.
const REFUSED_MAX: usize = 4_096;

/// A transaction that is not over.
#[derive(Clone, Hash, Debug)]
struct Txn {
    /// Who waits for what comes next.
    ticket: Option<Ticket>,
    /// The keys read, in the order asked for.
    reads: Vec<Blob>,
    writes: BTreeSet<Blob>,
    parts: Arc<[Part]>,
    coordinator: PartitionId,
    /// What was read, by partition: the first answer counts.
    values: BTreeMap<PartitionId, Vec<Read>>,
    /// Where that was a follower's.
    followed: BTreeSet<PartitionId>,
    stage: Stage,
    begun: Instant,
    /// When the first try of it began.
    first: Instant,
    next: Instant,
    attempts: u32,
    /// Whom it asked last to commit.
    asked: Option<ProcessId>,
}

#[derive(Clone, Hash, Debug)]
enum Stage {
    /// Reads are under way. With a snapshot wanted, it goes on by itself.
    Reading { snapshot: bool },
    /// The host has what was read.
    Open,
    /// It is to commit.
    Committing { updates: Arc<[Update]>, snapshot: bool, since: Instant },
    /// A read-only transaction at a moment.
    Moment(Reading),
    /// It was refused before the host asked to commit (8.9).
    Doomed(Reason),
}

impl Client {
    fn id(&self, sequence: u64) -> TxnId {
        CommandId { client: self.me, sequence }
    }

    /// Everything below is over.
    fn below(&self) -> u64 {
        self.open.keys().next().copied().unwrap_or(self.count + 1)
    }

    fn leader(&self, partition: PartitionId) -> ProcessId {
        self.leaders.of(partition)
    }

    /// Who coordinates: a participant that is led in this region, else any group that is, else the one whose leader is
    /// nearest (2.2). A group that perhaps nobody leads comes behind all others: what waits for it stays prepared at healthy
    /// participants.
    fn coordinator(&self, parts: &[Part]) -> PartitionId {
        let participates = |partition: PartitionId| parts.iter().any(|part| part.partition == partition);
        // There are at most 1,024.
        let groups = (0..self.map.groups.len() as u16).map(PartitionId);
        let rank = |partition: &PartitionId| {
            let leader = self.leader(*partition);
            let (local, near) = (self.distances.local(leader.node), self.distances.to(leader));
            let far = if local { Span::ZERO } else { near };
            (self.leaders.doubted(*partition), !local, far, !participates(*partition), *partition)
        };
        groups.min_by_key(rank).unwrap_or_default()
    }

    fn divide(&self, reads: &[Blob], writes: &[Blob]) -> Arc<[Part]> {
        let mut sets: BTreeMap<PartitionId, (Vec<Blob>, Vec<Blob>)> = BTreeMap::new();
        for key in reads {
            sets.entry(self.map.partition(key)).or_default().0.push(key.clone());
        }
        for key in writes {
            sets.entry(self.map.partition(key)).or_default().1.push(key.clone());
        }
        let part = |(partition, (reads, writes)): (PartitionId, (Vec<Blob>, Vec<Blob>))| Part {
            partition,
            reads: reads.into(),
            writes: writes.into(),
        };
        sets.into_iter().map(part).collect()
    }

    fn begin(&mut self, ticket: Ticket, reads: Vec<Blob>, writes: Vec<Blob>, effects: &mut Effects<Self>) {
        let refusal = match self.knobs.bounds().check_sets(&reads, &writes) {
            Err(refusal) => Some(refusal),
            Ok(()) if self.open.len() >= self.knobs.open_max => Some(Refusal::Overloaded(self.open.len())),
            Ok(()) => None,
        };
        if let Some(refusal) = refusal {
            return effects.complete_ahead(ticket, Outcome::Refused(refusal));
        }
        self.count += 1;
        let (sequence, now) = (self.count, effects.now());
        let parts = self.divide(&reads, &writes);
        let known = if self.refused.is_empty() { None } else { self.refused.remove(&in_short(&parts)) };
        let first =
            known.filter(|(_, last)| now.since(*last) < self.knobs.hold()).map_or(now, |(first, _)| first);
        let stage = match writes.is_empty() {
            true if self.knobs.latest != Some(true) => Stage::Moment(Reading::default()),
            snapshot => Stage::Reading { snapshot },
        };
        let txn = Txn {
            ticket: Some(ticket),
            reads,
            writes: writes.into_iter().collect(),
            coordinator: self.coordinator(&parts),
            parts,
            values: BTreeMap::new(),
            followed: BTreeSet::new(),
            stage,
            begun: now,
            first,
            next: now + self.knobs.resend,
            attempts: 0,
            asked: None,
        };
        self.open.insert(sequence, txn);
        self.advance(sequence, true, effects);
        self.beat_soon(effects);
    }

    /// Sends what the stage of a transaction needs; a first time, or again to whoever has not answered.
    fn advance(&mut self, sequence: u64, first: bool, effects: &mut Effects<Self>) {
        let Some(txn) = self.open.get(&sequence) else { return };
        match &txn.stage {
            Stage::Moment(_) => return self.read_moment(sequence, first, effects),
            Stage::Reading { .. } => {
                self.ask_to_prepare(sequence, effects);
                let (id, below, parts) = (self.id(sequence), self.below(), txn.parts.clone());
                let coordinator = self.leader(txn.coordinator);
                Self::send(coordinator, Word::Begin { txn: id, below, parts }, effects);
            }
            Stage::Committing { .. } => {
                if !first {
                    // What is only written is acknowledged by nobody before the end.
                    self.ask_to_prepare(sequence, effects);
                }
                self.ask_to_commit(sequence, effects);
            }
            Stage::Open | Stage::Doomed(_) => return,
        }
        self.answer_reads(sequence, effects);
    }

    fn send(to: ProcessId, word: Word, effects: &mut Effects<Self>) {
        // A client writes nothing down.
        say_ahead(to, Message::Own(word), effects);
    }

    fn ask_to_prepare(&self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(txn) = self.open.get(&sequence) else { return };
        let (id, below) = (self.id(sequence), self.below());
        let again = txn.first < txn.begun;
        let age = if again { effects.now().since(txn.first) } else { Span::ZERO };
        let coordinator = self.leader(txn.coordinator);
        for part in txn.parts.iter() {
            let leader = self.leader(part.partition);
            let wanted = !part.reads.is_empty() && !txn.values.contains_key(&part.partition);
            let near = self.near(part.partition, effects.now());
            let members = self.leaders.members(part.partition).iter().map(|member| member.process);
            // Who leads may be a member that is not known as such yet.
            let others = members.filter(|process| self.knobs.cpc && *process != leader);
            for to in std::iter::once(leader).chain(others) {
                let (part, vote) = (part.clone(), self.knobs.cpc);
                let read = wanted && (to == leader || Some(to) == near);
                let word = Word::Prepare { txn: id, below, age, coordinator, part, read, vote };
                Self::send(to, word, effects);
            }
        }
    }

    /// The follower that serves reads, if one does (5.3).
    fn near(&self, partition: PartitionId, now: Instant) -> Option<ProcessId> {
        let behind = self.behind.get(&partition);
        if behind.is_some_and(|(times, last)| *times > 1 && now.since(*last) < BEHIND) {
            return None;
        }
        let nearest = self
            .leaders
            .members(partition)
            .iter()
            .map(|member| member.process)
            .min_by_key(|process| (!self.distances.local(process.node), self.distances.to(*process)))?;
        match self.knobs.reads {
            Reads::Leader => None,
            Reads::Local => Some(nearest).filter(|process| self.distances.local(process.node)),
            Reads::Nearest => Some(nearest),
        }
    }

    fn ask_to_commit(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(txn) = self.open.get(&sequence) else { return };
        let to = self.leader(txn.coordinator);
        let Stage::Committing { updates, .. } = &txn.stage else { return };
        // As in votes, all keys without a value are alike.
        let version = |read: &Read| read.value.as_ref().map_or(Version::NONE, |_| read.version);
        let versions = |reads: &Vec<Read>| reads.iter().map(version).collect();
        let seen = txn.values.iter().map(|(partition, reads)| (*partition, versions(reads))).collect();
        let word = Word::Commit {
            txn: self.id(sequence),
            below: self.below(),
            parts: txn.parts.clone(),
            updates: updates.clone(),
            seen,
        };
        Self::send(to, word, effects);
        if let Some(txn) = self.open.get_mut(&sequence) {
            txn.asked = Some(to);
        }
    }

    /// Whether everything was read; then the host is told, or the transaction goes on.
    fn answer_reads(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let id = self.id(sequence);
        let Some(txn) = self.open.get_mut(&sequence) else { return };
        let Stage::Reading { snapshot } = txn.stage else { return };
        let complete =
            txn.parts.iter().all(|part| part.reads.is_empty() || txn.values.contains_key(&part.partition));
        if !complete {
            return;
        }
        let now = effects.now();
        txn.attempts = 0;
        if snapshot {
            txn.stage = Stage::Committing { updates: Arc::default(), snapshot, since: now };
            txn.next = now + self.knobs.resend;
            return self.advance(sequence, true, effects);
        }
        txn.stage = Stage::Open;
        let reads = txn.in_order();
        if let Some(ticket) = txn.ticket.take() {
            effects.complete_ahead(ticket, Outcome::Begun { txn: id, reads });
        }
    }

    fn on_values(
        &mut self,
        id: TxnId,
        partition: PartitionId,
        (leads, reads): (bool, Vec<Read>),
        effects: &mut Effects<Self>,
    ) {
        if id.client != self.me {
            return;
        }
        let Some(txn) = self.open.get_mut(&id.sequence) else { return };
        if matches!(txn.stage, Stage::Reading { .. }) {
            // The first answer of a partition, whole (5.3).
            if let Entry::Vacant(first) = txn.values.entry(partition) {
                first.insert(reads);
                if !leads {
                    txn.followed.insert(partition);
                }
            }
            self.answer_reads(id.sequence, effects);
        }
    }

    fn commit(&mut self, ticket: Ticket, id: TxnId, updates: Vec<Update>, effects: &mut Effects<Self>) {
        let txn = self.open.get_mut(&id.sequence).filter(|_| id.client == self.me);
        let Some(txn) = txn else {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::NotOpen(id)));
        };
        match &txn.stage {
            Stage::Open => {}
            Stage::Doomed(reason) => {
                let outcome = Outcome::Aborted(*reason);
                self.open.remove(&id.sequence);
                return effects.complete_ahead(ticket, outcome);
            }
            _ => return effects.complete_ahead(ticket, Outcome::Refused(Refusal::NotOpen(id))),
        }
        if let Err(refusal) = self.knobs.bounds().check_updates(&updates, &txn.writes) {
            return effects.complete_ahead(ticket, Outcome::Refused(refusal));
        }
        let now = effects.now();
        txn.ticket = Some(ticket);
        txn.stage = Stage::Committing { updates: updates.into(), snapshot: false, since: now };
        (txn.attempts, txn.next) = (0, now + self.knobs.resend);
        self.advance(id.sequence, true, effects);
    }

    fn abort(&mut self, ticket: Ticket, id: TxnId, effects: &mut Effects<Self>) {
        let known = id.client == self.me
            && self
                .open
                .get(&id.sequence)
                .is_some_and(|txn| matches!(txn.stage, Stage::Open | Stage::Doomed(_)));
        if !known {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::NotOpen(id)));
        }
        self.give_up(id.sequence, effects);
        effects.complete_ahead(ticket, Outcome::Aborted(Reason::Client));
    }

    /// Ends a transaction that was not asked to commit. If nobody hears of that, its silence says the same.
    fn give_up(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let (id, below) = (self.id(sequence), self.below());
        if let Some(txn) = self.open.remove(&sequence) {
            let to = self.leader(txn.coordinator);
            Self::send(to, Word::Abort { txn: id, below, parts: txn.parts }, effects);
        }
    }

    fn on_ended(&mut self, id: TxnId, ended: Ended, fast: bool, effects: &mut Effects<Self>) {
        if id.client != self.me {
            return;
        }
        let Some(txn) = self.open.get(&id.sequence) else { return };
        if matches!(ended, Ended::Aborted(Reason::Conflict | Reason::StaleRead)) {
            let (touched, first) = (in_short(&txn.parts), txn.first);
            self.note_refusal(touched, first, effects.now());
        }
        let Some(txn) = self.open.get_mut(&id.sequence) else { return };
        let (snapshot, since) = match &txn.stage {
            Stage::Committing { snapshot, since, .. } => (*snapshot, *since),
            stage => {
                if let (Ended::Aborted(reason), Stage::Open) = (ended, stage) {
                    txn.stage = Stage::Doomed(reason);
                }
                return;
            }
        };
        let Some(txn) = self.open.remove(&id.sequence) else { return };
        for partition in &txn.followed {
            match ended {
                Ended::Committed(_) => drop(self.behind.remove(partition)),
                Ended::Aborted(Reason::StaleRead) => {
                    let (times, last) = self.behind.entry(*partition).or_default();
                    (*times, *last) = (times.saturating_add(1), effects.now());
                }
                Ended::Aborted(_) => {}
            }
        }
        let outcome = match ended {
            Ended::Committed(at) => {
                self.latest = self.latest.max(at);
                let path = match (self.knobs.cpc, fast) {
                    (false, _) => Path::Leader,
                    (true, true) => Path::Fast,
                    (true, false) => Path::Slow,
                };
                let total = effects.now().since(txn.begun);
                let mut phases = [Span::ZERO; Phase::ALL.len()];
                // Reading, and committing.
                (phases[0], phases[2]) = (since.since(txn.begun), effects.now().since(since));
                effects.mark(group::Note::Fact(Fact::Committed { id, path, total, phases }));
                match snapshot {
                    true => Outcome::Snapshot { reads: txn.in_order(), at },
                    false => Outcome::Committed { at },
                }
            }
            Ended::Aborted(reason) => Outcome::Aborted(reason),
        };
        if let Some(ticket) = txn.ticket {
            effects.complete_ahead(ticket, outcome);
        }
    }

    /// A transaction was refused because of others, and may come again.
    fn note_refusal(&mut self, touched: u64, first: Instant, now: Instant) {
        let hold = self.knobs.hold();
        self.refused.retain(|_, (_, last)| now.since(*last) < hold);
        if self.refused.len() < REFUSED_MAX || self.refused.contains_key(&touched) {
            let known = self.refused.entry(touched).or_insert((first, now));
            *known = (known.0.min(first), now);
        }
    }

    fn on_not_leader(
        &mut self,
        from: ProcessId,
        partition: PartitionId,
        leader: Option<ProcessId>,
        effects: &mut Effects<Self>,
    ) {
        // Old news of one that is not asked any more.
        if self.leader(partition) != from {
            return;
        }
        if leader.is_none() {
            // It is cut off, or an election is under way.
            self.leaders.suspect(partition, effects.now(), Span::ZERO);
        }
        let Some(leader) = leader.filter(|leader| leader.partition == partition && *leader != from) else {
            return;
        };
        self.leaders.told(leader.partition, leader, effects.now());
        let waits = |txn: &Txn| {
            txn.coordinator == partition || txn.parts.iter().any(|part| part.partition == partition)
        };
        let waiting = self.open.iter().filter(|(_, txn)| waits(txn)).map(|(sequence, _)| *sequence);
        for sequence in waiting.collect::<Vec<_>>() {
            self.advance(sequence, false, effects);
        }
    }

    fn beat_soon(&mut self, effects: &mut Effects<Self>) {
        if !std::mem::replace(&mut self.beating, true) {
            effects.arm(group::Timer::Own(Timer::Sweep), self.beat_every());
        }
    }

    /// Often enough to ask again in time.
    fn beat_every(&self) -> Span {
        self.knobs.heartbeat.min(self.knobs.resend)
    }

    /// Says that it lives, asks again for what is late, and ends what takes too long.
    fn beat(&mut self, effects: &mut Effects<Self>) {
        self.beating = false;
        let (now, limit) = (effects.now(), self.knobs.limit);
        let mut coordinators: BTreeMap<PartitionId, Vec<u64>> = BTreeMap::new();
        let (mut late, mut dead) = (Vec::new(), Vec::new());
        for (sequence, txn) in &mut self.open {
            if !matches!(txn.stage, Stage::Moment(_)) {
                coordinators.entry(txn.coordinator).or_default().push(*sequence);
            }
            if now.since(txn.begun) >= limit {
                dead.push(*sequence);
            } else if now >= txn.next {
                // Looked at once a heartbeat.
                let waited = self.knobs.pause(txn.attempts) + self.knobs.heartbeat;
                txn.attempts += 1;
                txn.next = now + self.knobs.pause(txn.attempts);
                late.push((*sequence, waited));
            }
        }
        let (client, below) = (self.me, self.below());
        for (partition, open) in coordinators {
            Self::send(self.leader(partition), Word::Heartbeat { client, below, open }, effects);
        }
        for sequence in dead {
            self.time_out(sequence, effects);
        }
        for (sequence, waited) in late {
            self.turn_from_silent(sequence, now, waited);
            self.advance(sequence, false, effects);
        }
        self.leaders.probe(self.me, effects);
        if !self.open.is_empty() {
            self.beat_soon(effects);
        }
    }

    /// Who has not answered for so long may lead no more.
    fn turn_from_silent(&mut self, sequence: u64, now: Instant, waited: Span) {
        let Some(txn) = self.open.get(&sequence) else { return };
        let silent: Vec<PartitionId> = match &txn.stage {
            Stage::Reading { .. } => txn
                .parts
                .iter()
                .filter(|part| !part.reads.is_empty() && !txn.values.contains_key(&part.partition))
                .map(|part| part.partition)
                .collect(),
            // Where another has since said that it leads, that one was not asked yet.
            Stage::Committing { .. } if txn.asked != Some(self.leader(txn.coordinator)) => Vec::new(),
            Stage::Committing { .. } => vec![txn.coordinator],
            Stage::Moment(reading) => reading.silent(&txn.parts),
            Stage::Open | Stage::Doomed(_) => Vec::new(),
        };
        for partition in silent {
            self.leaders.doubt(partition, now, waited);
        }
    }

    fn time_out(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(txn) = self.open.get_mut(&sequence) else { return };
        let ticket = txn.ticket.take();
        let outcome = match txn.stage {
            Stage::Committing { snapshot: false, .. } => {
                self.open.remove(&sequence);
                Outcome::Unknown
            }
            Stage::Moment(_) => {
                self.open.remove(&sequence);
                Outcome::Aborted(Reason::Unavailable)
            }
            _ => {
                self.give_up(sequence, effects);
                Outcome::Aborted(Reason::Unavailable)
            }
        };
        if let Some(ticket) = ticket {
            effects.complete_ahead(ticket, outcome);
        }
    }
}

/// What a transaction touches, as a number. Where two have the same one is taken for another try of the other.
fn in_short(parts: &[Part]) -> u64 {
    let mut hasher = FxHasher::default();
    parts.hash(&mut hasher);
    hasher.finish()
}

impl Txn {
    /// What was read, in the order it was asked for.
    fn in_order(&self) -> Vec<Read> {
        Read::in_order(&self.reads, self.values.values().flatten())
    }
}

impl Process for Client {
    type Setup = family::Client<Parameters>;
    type Message = Message;
    type Record = ();
    type Request = Request;
    type Outcome = Outcome;
    type Timer = group::Timer<Timer>;
    type Mark = group::Note;

    fn open(identity: Identity, setup: &Self::Setup) -> Client {
        Client {
            me: identity.into(),
            map: setup.map.clone(),
            distances: setup.distances.clone(),
            knobs: setup.parameters,
            count: 0,
            open: BTreeMap::new(),
            leaders: Leaders::new(&setup.map),
            latest: Version::NONE,
            beating: false,
            listings: Listings::default(),
            behind: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }

    fn replay(&mut self, (): ()) {}

    fn start(&mut self, _: &mut Effects<Self>) {}

    fn receive(&mut self, from: ProcessId, message: Message, effects: &mut Effects<Self>) {
        let word = match message {
            Message::Own(word) => word,
            Message::Listed { ask, page } if ask.client == self.me => {
                if ask.sequence == PROBE {
                    self.leaders.note(from.partition, from, effects.now());
                }
                return self.listings.heard(from, ask, page, effects);
            }
            Message::Members { version, members, leads } => {
                return self.leaders.heard(from, version, &members, leads, effects);
            }
            _ => return,
        };
        if !word.names_partitions_below(self.leaders.len()) {
            return;
        }
        match word {
            Word::Values { txn, partition, leads, reads } => {
                if leads {
                    self.leaders.note(from.partition, from, effects.now());
                }
                self.on_values(txn, partition, (leads, reads), effects);
            }
            Word::Ended { txn, ended, fast } => {
                self.leaders.note(from.partition, from, effects.now());
                self.on_ended(txn, ended, fast, effects);
            }
            Word::ReadIs { txn, partition, at, reads } => {
                self.leaders.note(from.partition, from, effects.now());
                self.on_read_is(txn, partition, at, reads, effects);
            }
            Word::NotLeader { partition, leader } => self.on_not_leader(from, partition, leader, effects),
            _ => {}
        }
    }

    fn request(&mut self, ticket: Ticket, request: Request, effects: &mut Effects<Self>) {
        match request {
            Request::Begin { reads, writes } => self.begin(ticket, reads, writes, effects),
            Request::Commit { txn, updates } => self.commit(ticket, txn, updates, effects),
            Request::Abort { txn } => self.abort(ticket, txn, effects),
            Request::List { partition, query } => {
                let ask = CommandId { client: self.me, sequence: ticket.0 };
                group::list(&mut self.listings, &self.map, ask, partition, &query, effects);
            }
            Request::Move { .. } | Request::Survey => {
                effects.complete_ahead(ticket, MoveRefusal::Undivided.into());
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        self.listings.cancel(ticket);
        let asked = self.open.iter_mut().find(|(_, txn)| txn.ticket == Some(ticket));
        let Some((&sequence, txn)) = asked else { return };
        txn.ticket = None;
        if matches!(txn.stage, Stage::Reading { snapshot: false }) {
            // Nobody will ask it to commit: what it has prepared is not to wait for that.
            self.give_up(sequence, effects);
        }
    }

    fn expire(&mut self, _: Self::Timer, effects: &mut Effects<Self>) {
        effects.repeating(|effects| self.beat(effects));
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}
