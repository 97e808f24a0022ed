//! Transactions by the directory: each key at the partition that has it, and each partition's entry read along.

use super::located;
use super::moving::{Drive, Step, stands_still};
use super::{Client, Directory, Known, Mutation, Place, Route, Routes, Turn};
use crate::request::{MoveRefusal, Moved, Outcome, Read, Reason, Refusal, Request, TxnId, Update};
use isochrone_core::{Blob, Instant, NodeId, PartitionId, Ticket};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a client knows that goes by a directory.
#[derive(Clone)]
pub(super) struct Find {
    pub(super) directory: Arc<Directory>,
    /// The cache.
    pub(super) routes: Routes,
    /// The entries that were read last, by version, and what they say on top of the beginning.
    entries: BTreeMap<PartitionId, (Version, Arc<Routes>)>,
    /// The number of the next request of the client inside, or of what stands behind it.
    next: u64,
    /// What the client inside was asked, by its ticket, and for whom.
    inner: BTreeMap<u64, Of>,
    /// What a host waits for, by its ticket.
    hosts: BTreeMap<Ticket, Waits>,
    begins: BTreeMap<u64, Begin>,
    opened: BTreeMap<TxnId, Opened>,
    surveys: BTreeMap<u64, Survey>,
    pub(super) drives: BTreeMap<u64, Drive>,
    /// Moves that nobody has ended as far as is known here: from where, and to where.
    unended: BTreeMap<(PartitionId, PartitionId), Unended>,
    /// Whether the cache has learned something since these were looked for.
    learned: bool,
    /// Of how many of these from a partition the host was told, and of how many that are driven here.
    told: BTreeMap<PartitionId, [u64; 2]>,
    /// What is to go on, and when.
    later: BTreeSet<(Instant, u64)>,
}

impl Hash for Find {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.routes, self.next, &self.inner, &self.hosts, &self.begins, &self.opened).hash(hasher);
        (&self.surveys, &self.drives, &self.unended, self.learned, &self.later).hash(hasher);
    }
}

/// For whom the client inside was asked.
#[derive(Copy, Clone, Hash, Debug)]
enum Of {
    /// A transaction that begins.
    Begin(u64),
    /// A host's request that is passed on.
    Host(Ticket),
    /// A survey of the entries.
    Survey(u64),
    /// A step of a move.
    Step(u64),
    /// The end of a transaction that nobody waits for.
    Nobody,
}

/// What a host waits for.
#[derive(Copy, Clone, Hash, Debug)]
enum Waits {
    /// A transaction that begins.
    Begin(u64),
    /// An answer of the client inside.
    Inner(u64),
    /// A survey of the entries.
    Survey(u64),
    /// A move.
    Move(u64),
}

/// A transaction that has not begun, as far as its host knows.
#[derive(Clone, Hash, Debug)]
struct Begin {
    ticket: Ticket,
    reads: Vec<Blob>,
    writes: Vec<Blob>,
    /// Where its keys were looked for.
    taken: BTreeMap<Blob, Taken>,
    tries: u32,
    /// The ticket of the client inside.
    inner: Option<u64>,
}

/// A survey of the entries of all partitions.
#[derive(Clone, Hash, Debug)]
struct Survey {
    ticket: Ticket,
    tries: u32,
    /// The ticket of the client inside.
    inner: Option<u64>,
}

/// A move that nobody has ended.
#[derive(Clone, Hash, Debug)]
struct Unended {
    /// The newest change of a stretch that is on its way.
    version: u64,
    /// How often it was taken up here, and when it is next.
    taken_up: u32,
    due: Instant,
}

/// Where a key was looked for, and by what.
#[derive(Clone, Hash, Debug)]
struct Taken {
    place: Place,
    version: u64,
    route: Route,
    /// Of one that was read while it is on its way: nothing lies where it comes from.
    gone: bool,
}

/// A transaction that has begun.
#[derive(Clone, Hash, Debug)]
struct Opened {
    writes: BTreeSet<Blob>,
    taken: BTreeMap<Blob, Taken>,
}

/// Transactions that are remembered as open at most: the oldest beyond was ended by the protocol long since.
const OPENED_MAX: usize = 1 << 17;

/// Under which names the host is told of moves that nobody has ended, and of those that are driven here.
const STANDS: [&str; 2] = ["moves_unended", "moves_driven"];

/// Times that a transaction is begun at most because the directory had changed.
const BEGINS_MAX: u32 = 32;

impl Find {
    pub(super) fn new(directory: Arc<Directory>) -> Find {
        Find {
            routes: directory.plan.initial().clone(),
            directory,
            entries: BTreeMap::new(),
            next: 0,
            inner: BTreeMap::new(),
            hosts: BTreeMap::new(),
            begins: BTreeMap::new(),
            opened: BTreeMap::new(),
            surveys: BTreeMap::new(),
            drives: BTreeMap::new(),
            unended: BTreeMap::new(),
            learned: false,
            told: BTreeMap::new(),
            later: BTreeSet::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Asks the client inside; its ticket.
    fn ask<C: Client>(&mut self, of: Of, request: Request, turn: &mut Turn<'_, C>) -> u64 {
        let ticket = self.number();
        self.inner.insert(ticket, of);
        turn.ask(Ticket(ticket), request);
        ticket
    }

    /// Asks it for a step of a move.
    pub(super) fn ask_step<C: Client>(
        &mut self,
        drive: u64,
        request: Request,
        turn: &mut Turn<'_, C>,
    ) -> u64 {
        self.ask(Of::Step(drive), request, turn)
    }

    /// Ends a transaction that is open inside.
    pub(super) fn abandon<C: Client>(&mut self, txn: TxnId, turn: &mut Turn<'_, C>) {
        self.ask(Of::Nobody, Request::Abort { txn }, turn);
    }

    /// Nobody waits for this answer any more.
    pub(super) fn forget<C: Client>(&mut self, inner: u64, turn: &mut Turn<'_, C>) {
        if self.inner.remove(&inner).is_some() {
            turn.cancel(Ticket(inner));
        }
    }

    /// Lets something go on later: after the pause behind so many tries.
    pub(super) fn pause<C: Client>(&mut self, number: u64, tries: u32, turn: &mut Turn<'_, C>) {
        // What is in the way is gone after some round trips; more would only make a move last.
        let retry = crate::retry::Retry { tries: u32::MAX, ..self.directory.retry };
        let pause = retry.pause(tries.min(4), Reason::Conflict, turn.random()).unwrap_or_default();
        self.later.insert((turn.now() + pause, number));
    }

    /// The same at a time.
    pub(super) fn wake(&mut self, number: u64, at: Instant) {
        self.later.insert((at, number));
    }

    /// Nothing is waited for any more.
    pub(super) fn sleep(&mut self, number: u64) {
        self.later.retain(|(_, other)| *other != number);
    }

    /// When something is to go on.
    pub(super) fn due(&self) -> Option<Instant> {
        let later = self.later.first().map(|(due, _)| *due);
        later.into_iter().chain(self.unended.values().map(|unended| unended.due)).min()
    }

    /// The cache takes in what is newer.
    pub(super) fn learn(&mut self, known: &Known) {
        self.routes.learn(known);
        self.learned = true;
    }

    /// Looks which moves nobody has ended, where the cache has learned something.
    pub(super) fn watch(&mut self, me: NodeId, now: Instant) {
        if !std::mem::take(&mut self.learned) {
            return;
        }
        let mut on_its_way: BTreeMap<_, u64> = BTreeMap::new();
        for known in self.routes.iter() {
            if let Route::Moving { from, to } = known.route {
                let version = on_its_way.entry((from, to)).or_default();
                *version = known.version.max(*version);
            }
        }
        self.unended.retain(|way, unended| on_its_way.get(way) == Some(&unended.version));
        for (way, version) in on_its_way {
            let unended = Unended { version, taken_up: 0, due: now + stands_still(me, 0) };
            self.unended.entry(way).or_insert(unended);
        }
    }

    /// What is new of how many moves from each partition nobody has ended, and how many of them are driven here.
    pub(super) fn stands(&mut self) -> Vec<(&'static str, PartitionId, u64)> {
        if self.told.is_empty() && self.unended.is_empty() && self.drives.is_empty() {
            return Vec::new();
        }
        let mut stands: BTreeMap<PartitionId, [u64; 2]> =
            self.told.keys().map(|from| (*from, [0, 0])).collect();
        for (from, _) in self.unended.keys() {
            stands.entry(*from).or_default()[0] += 1;
        }
        for drive in self.drives.values() {
            stands.entry(drive.from()).or_default()[1] += 1;
        }
        let mut news = Vec::new();
        for (from, counts) in &stands {
            let told = self.told.get(from).copied().unwrap_or_default();
            for (what, (now, before)) in STANDS.into_iter().zip(counts.iter().zip(told)) {
                if *now != before {
                    news.push((what, *from, *now));
                }
            }
        }
        stands.retain(|_, counts| *counts != [0, 0]);
        self.told = stands;
        news
    }

    /// Takes up moves that nobody has ended for long.
    fn take_up<C: Client>(&mut self, turn: &mut Turn<'_, C>) {
        let now = turn.now();
        let late = self.unended.iter().filter(|(_, unended)| unended.due <= now).map(|(way, _)| *way);
        for (from, to) in late.collect::<Vec<_>>() {
            let driven = self.drives.values().any(|drive| drive.goes(from, to));
            let Some(unended) = self.unended.get_mut(&(from, to)) else { continue };
            // What is driven here ends, or is given up.
            unended.taken_up += u32::from(!driven);
            unended.due = now + stands_still(turn.node(), unended.taken_up);
            if !driven {
                let number = self.number();
                self.drives.insert(number, Drive::take_up(self.directory.plan.whole(), from, to));
                self.drive(number, turn);
            }
        }
    }

    /// What is due goes on.
    pub(super) fn go_on<C: Client>(&mut self, turn: &mut Turn<'_, C>) {
        while let Some((due, number)) = self.later.first().copied()
            && due <= turn.now()
        {
            self.later.pop_first();
            if self.begins.contains_key(&number) {
                self.begin(number, turn);
            } else if self.surveys.contains_key(&number) {
                self.survey(number, turn);
            } else {
                self.drive(number, turn);
            }
        }
        self.take_up(turn);
    }

    pub(super) fn request<C: Client>(&mut self, ticket: Ticket, request: Request, turn: &mut Turn<'_, C>) {
        match request {
            Request::Begin { reads, writes } => {
                if let Err(refusal) = self.directory.bounds.check_sets(&reads, &writes) {
                    return turn.tell(ticket, Outcome::Refused(refusal));
                }
                let number = self.number();
                let begin = Begin { ticket, reads, writes, taken: BTreeMap::new(), tries: 0, inner: None };
                self.begins.insert(number, begin);
                self.hosts.insert(ticket, Waits::Begin(number));
                self.begin(number, turn);
            }
            Request::Commit { txn, updates } => self.commit(ticket, txn, updates, turn),
            Request::Abort { txn } => {
                self.opened.remove(&txn);
                self.pass(ticket, Request::Abort { txn }, turn);
            }
            Request::Move { reach, from, to } => {
                let plan = &self.directory.plan;
                let known = |at: PartitionId| at.0 < plan.partitions();
                let kind = |place: &Place| matches!(place, Place::Ring(_)) == plan.hashed();
                let reach = reach.unwrap_or_else(|| plan.whole());
                let refusal = if from == to || !known(from) || !known(to) {
                    Some(MoveRefusal::NoSuchPartition)
                } else if !kind(&reach.first) || !reach.end.as_ref().is_none_or(kind) {
                    Some(MoveRefusal::Places(match plan.hashed() {
                        true => "the hashes of its keys; name a key, or the first and the last place",
                        false => "the order of its keys; name the first key and the one behind the last",
                    }))
                } else {
                    None
                };
                if let Some(refusal) = refusal {
                    return turn.tell(ticket, refusal.into());
                }
                let number = self.number();
                self.drives.insert(number, Drive::new(ticket, reach, from, to));
                self.hosts.insert(ticket, Waits::Move(number));
                self.drive(number, turn);
            }
            Request::Survey => {
                let number = self.number();
                self.surveys.insert(number, Survey { ticket, tries: 0, inner: None });
                self.hosts.insert(ticket, Waits::Survey(number));
                self.survey(number, turn);
            }
            Request::List { partition, query } => {
                self.pass(ticket, Request::List { partition, query: query.located() }, turn);
            }
        }
    }

    fn pass<C: Client>(&mut self, ticket: Ticket, request: Request, turn: &mut Turn<'_, C>) {
        let inner = self.ask(Of::Host(ticket), request, turn);
        self.hosts.insert(ticket, Waits::Inner(inner));
    }

    pub(super) fn cancel<C: Client>(&mut self, ticket: Ticket, turn: &mut Turn<'_, C>) {
        match self.hosts.remove(&ticket) {
            Some(Waits::Begin(number)) => {
                self.sleep(number);
                if let Some(inner) = self.begins.remove(&number).and_then(|begin| begin.inner) {
                    self.forget(inner, turn);
                }
            }
            Some(Waits::Inner(inner)) => self.forget(inner, turn),
            Some(Waits::Survey(number)) => {
                self.sleep(number);
                if let Some(inner) = self.surveys.remove(&number).and_then(|survey| survey.inner) {
                    self.forget(inner, turn);
                }
            }
            // It goes on.
            Some(Waits::Move(number)) => {
                if let Some(drive) = self.drives.get_mut(&number) {
                    drive.ticket = None;
                }
            }
            None => {}
        }
    }

    /// Begins a transaction where the cache says that its keys are.
    fn begin<C: Client>(&mut self, number: u64, turn: &mut Turn<'_, C>) {
        let Some(begin) = self.begins.get_mut(&number) else { return };
        begin.tries += 1;
        begin.taken.clear();
        let (mut reads, mut writes, mut partitions) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (keys, located) in [(&begin.reads, &mut reads), (&begin.writes, &mut writes)] {
            for key in keys {
                let taken = begin.taken.entry(key.clone()).or_insert_with(|| {
                    let place = self.directory.plan.place(key);
                    let Known { version, route, .. } = *self.routes.find(&place);
                    Taken { place, version, route, gone: false }
                });
                located.extend(taken.route.partitions().map(|at| located::key(at, key)));
                partitions.extend(taken.route.partitions());
            }
        }
        reads.extend(partitions.into_iter().map(located::entry));
        let inner = self.ask(Of::Begin(number), Request::Begin { reads, writes }, turn);
        if let Some(begin) = self.begins.get_mut(&number) {
            begin.inner = Some(inner);
        }
    }

    /// The client inside has answered.
    pub(super) fn answered<C: Client>(&mut self, ticket: u64, outcome: Outcome, turn: &mut Turn<'_, C>) {
        match self.inner.remove(&ticket) {
            Some(Of::Begin(number)) => self.begun(number, outcome, turn),
            Some(Of::Step(number)) => self.stepped(number, Step::of(outcome), turn),
            Some(Of::Host(host)) => {
                self.hosts.remove(&host);
                turn.tell(host, plain(outcome));
            }
            Some(Of::Survey(number)) => self.surveyed(number, outcome, turn),
            Some(Of::Nobody) | None => {}
        }
    }

    /// Reads the entries of all partitions.
    fn survey<C: Client>(&mut self, number: u64, turn: &mut Turn<'_, C>) {
        let partitions = self.directory.plan.partitions();
        let reads = (0..partitions).map(|at| located::entry(PartitionId(at))).collect();
        let inner = self.ask(Of::Survey(number), Request::Begin { reads, writes: Vec::new() }, turn);
        if let Some(survey) = self.surveys.get_mut(&number) {
            (survey.inner, survey.tries) = (Some(inner), survey.tries + 1);
        }
    }

    fn surveyed<C: Client>(&mut self, number: u64, outcome: Outcome, turn: &mut Turn<'_, C>) {
        let outcome = match outcome {
            Outcome::Snapshot { reads, .. } => {
                self.entries_of(&reads);
                Outcome::Served(self.routes.iter().cloned().collect())
            }
            Outcome::Aborted(_) | Outcome::Unknown => {
                let tries = self.surveys.get(&number).map_or(BEGINS_MAX, |survey| survey.tries);
                if tries < BEGINS_MAX {
                    return self.pause(number, tries, turn);
                }
                MoveRefusal::GivenUp(tries).into()
            }
            other => plain(other),
        };
        if let Some(survey) = self.surveys.remove(&number) {
            self.hosts.remove(&survey.ticket);
            turn.tell(survey.ticket, outcome);
        }
    }

    /// What the entries among these reads say; the cache learns from them.
    pub(super) fn entries_of(&mut self, reads: &[Read]) -> BTreeMap<PartitionId, Arc<Routes>> {
        let entries = reads.iter().filter(|read| located::is_entry(&read.key));
        let known = entries.map(|read| {
            let at = located::partition(&read.key);
            (at, self.entry(at, read))
        });
        known.collect()
    }

    fn entry(&mut self, at: PartitionId, read: &Read) -> Arc<Routes> {
        if let Some((version, routes)) = self.entries.get(&at)
            && *version == read.version
        {
            return routes.clone();
        }
        let routes = Arc::new(self.directory.plan.read(read.value.as_ref()));
        for known in routes.iter().filter(|known| known.version > 0) {
            self.learn(known);
        }
        self.entries.insert(at, (read.version, routes.clone()));
        routes
    }

    /// A transaction has begun inside, or come to its end.
    fn begun<C: Client>(&mut self, number: u64, outcome: Outcome, turn: &mut Turn<'_, C>) {
        let (txn, reads, at) = match outcome {
            Outcome::Begun { txn, reads } => (Some(txn), reads, None),
            Outcome::Snapshot { reads, at } => (None, reads, Some(at)),
            other => return self.tell_begun(number, plain(other), turn),
        };
        let entries = self.entries_of(&reads);
        let Some(begin) = self.begins.get_mut(&number) else { return };
        let agrees = |taken: &Taken| {
            taken.route.partitions().all(|at| {
                entries.get(&at).is_some_and(|routes| routes.find(&taken.place).version == taken.version)
            })
        };
        let trusts = Mutation::TrustTheCache.acts(self.directory.mutation);
        if !trusts && !begin.taken.values().all(agrees) {
            let (tries, newer) =
                (begin.tries, |taken: &Taken| self.routes.find(&taken.place).version != taken.version);
            let newer = begin.taken.values().any(newer);
            begin.inner = None;
            if let Some(txn) = txn {
                self.abandon(txn, turn);
            }
            turn.count("transactions_redirected");
            return match (tries < BEGINS_MAX, newer) {
                (true, true) => self.begin(number, turn),
                // A replica is behind what is known here.
                (true, false) => self.pause(number, tries, turn),
                (false, _) => self.tell_begun(number, Outcome::Aborted(Reason::Conflict), turn),
            };
        }
        let found: BTreeMap<&Blob, &Read> = reads.iter().map(|read| (&read.key, read)).collect();
        let mut told = Vec::with_capacity(begin.reads.len());
        for key in &begin.reads {
            let Some(taken) = begin.taken.get_mut(key) else { continue };
            let blind = Mutation::ReadSourceOnly.acts(self.directory.mutation);
            let there = |at| found.get(&located::key(at, key)).copied();
            let held: Vec<&Read> =
                taken.route.partitions().take(if blind { 1 } else { 2 }).filter_map(there).collect();
            taken.gone = held.len() > 1 && held[0].value.is_none();
            // At most one of them has a value; where none has, it was deleted last in the later version.
            if let Some(read) = held.into_iter().max_by_key(|read| (read.value.is_some(), read.version)) {
                told.push(located::told(key.clone(), read));
            }
        }
        let outcome = match (txn, at) {
            (Some(txn), _) => {
                let writes = begin.writes.iter().cloned().collect();
                let opened = Opened { writes, taken: std::mem::take(&mut begin.taken) };
                self.opened.insert(txn, opened);
                if self.opened.len() > OPENED_MAX {
                    self.opened.pop_first();
                }
                Outcome::Begun { txn, reads: told }
            }
            (None, at) => Outcome::Snapshot { reads: told, at: at.unwrap_or_default() },
        };
        self.tell_begun(number, outcome, turn);
    }

    fn tell_begun<C: Client>(&mut self, number: u64, outcome: Outcome, turn: &mut Turn<'_, C>) {
        if let Some(begin) = self.begins.remove(&number) {
            self.hosts.remove(&begin.ticket);
            turn.tell(begin.ticket, outcome);
        }
    }

    /// Commits where the keys were when the transaction began: if they have moved since, it aborts.
    fn commit<C: Client>(
        &mut self,
        ticket: Ticket,
        txn: TxnId,
        updates: Vec<Update>,
        turn: &mut Turn<'_, C>,
    ) {
        let refusal = match self.opened.get(&txn) {
            None => Err(Refusal::NotOpen(txn)),
            Some(opened) => self.directory.bounds.check_updates(&updates, &opened.writes),
        };
        if let Err(refusal) = refusal {
            return turn.tell(ticket, Outcome::Refused(refusal));
        }
        let Some(opened) = self.opened.remove(&txn) else { return };
        let mut located = Vec::with_capacity(updates.len());
        for Update { key, value } in updates {
            let Some(taken) = opened.taken.get(&key) else { continue };
            let stored = value.as_deref().map(located::value);
            match taken.route {
                Route::At(at) => located.push(Update { key: located::key(at, &key), value: stored }),
                Route::Moving { from, to } => {
                    if !taken.gone && !Mutation::KeepSource.acts(self.directory.mutation) {
                        located.push(Update { key: located::key(from, &key), value: None });
                    }
                    located.push(Update { key: located::key(to, &key), value: stored });
                }
            }
        }
        self.pass(ticket, Request::Commit { txn, updates: located }, turn);
    }

    /// A move has come to its end.
    pub(super) fn end_move<C: Client>(
        &mut self,
        number: u64,
        end: Result<Moved, MoveRefusal>,
        turn: &mut Turn<'_, C>,
    ) {
        self.sleep(number);
        let Some(drive) = self.drives.remove(&number) else { return };
        turn.count(if end.is_ok() { "moves_ended" } else { "moves_refused" });
        if let Some(ticket) = drive.ticket {
            self.hosts.remove(&ticket);
            turn.tell(ticket, end.map_or_else(Outcome::from, Outcome::Moved));
        }
    }

    /// A move that was taken up is over, or somebody else's.
    pub(super) fn leave_move(&mut self, number: u64) {
        self.sleep(number);
        self.drives.remove(&number);
    }

    pub(super) fn check(&self) {
        let begins = self.begins.values().all(|begin| self.hosts.contains_key(&begin.ticket));
        assert!(begins, "a transaction begins that nobody waits for");
        assert!(self.opened.len() <= OPENED_MAX, "too many are remembered");
    }
}

/// As hosts know the keys that a refusal names.
fn plain(outcome: Outcome) -> Outcome {
    let known = |key: Blob| located::plain(&key).unwrap_or(key);
    match outcome {
        Outcome::Refused(Refusal::Undeclared(key)) => Outcome::Refused(Refusal::Undeclared(known(key))),
        Outcome::Refused(Refusal::Twice(key)) => Outcome::Refused(Refusal::Twice(known(key))),
        Outcome::Listed { keys, open, next } => {
            let plain = |keys: Vec<Blob>| keys.iter().filter_map(|key| located::plain(key)).collect();
            Outcome::Listed { keys: plain(keys), open: plain(open), next }
        }
        other => other,
    }
}
