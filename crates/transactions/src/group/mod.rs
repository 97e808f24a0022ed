//! The group log under a transaction protocol: a replica of a partition, which holds a Multi-Paxos log in its prefix
//! form and what the protocol makes of it ([`Rules`]), with snapshots for its own restart and for peers.
//!
//! The prefix form gives what Raft calls log matching (`specs/carousel.md` 2.1): what a leader appended survives it as
//! a prefix or not at all, so an entry may rest on those that the same leader appended before it.
//!
//! A leader is told so ([`Rules::lead`]) before it may act; what it appends then has its place behind everything that
//! an earlier leader may have told anybody.

mod message;
mod orders;
mod transfer;
mod tuning;

pub use message::{Entry, Message, Note, Record, Timer};
pub(crate) use tuning::{log_for_rtt, read_log};

use crate::census::{self, Census};
use crate::family::{self, SERVER, Tuning};
use crate::listing::{AsOf, Listings, Page, Query};
use crate::map::Map;
use crate::said::{Said, say, say_ahead};
use isochrone_core::{
    Ballot, Blob, CommandId, Effects, Export, Fact, Identity, Instant, Loan, Malformed, NodeId, Offers,
    PartitionId, Process, ProcessId, Pull, ReplicaId, Snapshot, Span, Stamp, Ticket, Wire, Wrap, wire,
};
use isochrone_replication::multipaxos::{self, log::Configuration, log::Log};
use isochrone_replication::order::{Member, Order as _, Setup, Step};
use isochrone_replication::{Change, Refusal};
use isochrone_store::versions::Versions;
use orders::{Ended, Orders};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use transfer::Staged;

/// What a protocol is, seen from the replica of a group that executes it.
///
/// Its *replicated state* changes by [`Rules::apply`] alone, and is what a snapshot and a peer are given
/// ([`Rules::export`]). Beside it stand its *own records* (votes), which no peer is given, and what is lost at a
/// restart.
pub trait Rules: Clone + Hash + Send + 'static {
    /// The knobs.
    type Parameters: Tuning;
    /// What the log holds.
    type Entry: Wire;
    /// What its roles tell each other.
    type Message: Wire + Said;
    /// What it writes down beside the log.
    type Record: Wire;
    /// What it waits for.
    type Timer: Clone + Ord + Hash + Debug + Send + 'static;
    /// An immutable view of the replicated state.
    type View: Export;

    /// The state before the first entry.
    fn open(identity: Identity, setup: &family::Server<Self::Parameters>) -> Self;
    /// The knobs of the log.
    fn log(parameters: &Self::Parameters) -> multipaxos::Parameters;
    /// Takes in one of its own records, before the start; entries come between them as they were written.
    fn replay(&mut self, record: Self::Record);
    /// Begins to act.
    fn start(&mut self, turn: &mut Turn<'_, Self>);
    /// This replica leads from now on; entries of earlier leaders may still come. A change of the members that one of
    /// them has begun is decided.
    fn lead(&mut self, turn: &mut Turn<'_, Self>);
    /// It leads no more: what it appended and has not seen may never come.
    fn follow(&mut self, turn: &mut Turn<'_, Self>);
    /// The next entry has its place. The replicated state it makes must not depend on `turn`, which is absent before
    /// the start.
    fn apply(&mut self, entry: &Self::Entry, turn: Option<&mut Turn<'_, Self>>);
    /// Whether the members may change: all that rests on who they were is in the log.
    fn settled(&self) -> bool {
        true
    }
    /// Another group has these members, after so many changes.
    fn learn(&mut self, group: PartitionId, version: u32, members: &Arc<[Member]>);
    /// A message has come.
    fn receive(&mut self, from: ProcessId, message: Self::Message, turn: &mut Turn<'_, Self>);
    /// A timer has run out.
    fn expire(&mut self, timer: Self::Timer, turn: &mut Turn<'_, Self>);
    /// The replicated state as it stands now.
    fn export(&self) -> Self::View;
    /// Takes in one chunk of a view, in order, starting from [`Rules::open`].
    ///
    /// # Errors
    /// Refuses a chunk that no version of this protocol has exported.
    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed>;
    /// Takes over the replicated state of `staged`, which has taken in a peer's view; its own records stay, but for
    /// those that the new state makes void.
    fn install(&mut self, staged: Self, turn: Option<&mut Turn<'_, Self>>);
    /// What was applied.
    fn store(&self) -> &Versions;
    /// A page of the keys that have a value, and of those that may get one.
    fn list(&self, query: &Query) -> Option<Page>;
    /// Its own records that a restart still needs.
    fn records(&self) -> Vec<Self::Record>;
    /// Asserts the named invariants.
    fn check(&self) {}
}

/// Asks the replicas of a partition which keys it has. One answer will do. Since a version of a key it is that of whichever
/// replica has applied that: it has what every other has there, and whatever wrote a key without having read this one had
/// ended before. As of now it is the leader's.
pub(crate) fn list<E: Wire, M: Wire, C: Process<Message = Message<E, M>>>(
    listings: &mut Listings,
    map: &Map,
    ask: CommandId,
    partition: PartitionId,
    query: &Query,
    effects: &mut Effects<C>,
) {
    let question = Message::List { ask, query: query.clone() };
    listings.ask(Ticket(ask.sequence), map.group(partition), 1, &question, effects);
}

/// What is said under these rules.
pub type MessageOf<R> = Message<<R as Rules>::Entry, <R as Rules>::Message>;
/// What is written down under these rules.
pub type RecordOf<R> = Record<<R as Rules>::Entry, <R as Rules>::Record>;

/// What a protocol may do in one input.
pub struct Turn<'a, R: Rules> {
    effects: &'a mut Effects<Server<R>>,
    appended: &'a mut Vec<R::Entry>,
    ballot: Ballot,
    leads: bool,
    leader: Option<ProcessId>,
    configuration: Arc<Configuration>,
    changes: bool,
}

impl<R: Rules> Turn<'_, R> {
    /// This process.
    pub fn me(&self) -> ProcessId {
        self.effects.me()
    }

    /// The steady clock.
    pub fn now(&self) -> Instant {
        self.effects.now()
    }

    /// The wall clock.
    pub fn stamp(&self) -> Stamp {
        self.effects.stamp()
    }

    /// The highest ballot that this replica has promised: the term in which it votes.
    pub fn term(&self) -> Ballot {
        self.ballot
    }

    /// Whether this replica leads, in that term.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Who leads, as far as is known here.
    pub fn leader(&self) -> Option<ProcessId> {
        if self.leads { Some(self.me()) } else { self.leader }
    }

    /// Who the members are, as far as is decided and known here.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The seat of this replica, if it is a member.
    pub fn seat(&self) -> Option<ReplicaId> {
        self.configuration.seat(self.me())
    }

    /// Whether this leader is about to change who the members are: what it appends from now on may lie behind that.
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Puts an entry into the log, behind all that were put there before: only who leads may.
    pub fn append(&mut self, entry: R::Entry) {
        debug_assert!(self.leads, "only a leader appends");
        self.appended.push(entry);
    }

    /// How many entries wait for the log to take them.
    pub fn backlog(&self) -> usize {
        self.appended.len()
    }

    /// As [`Effects::send`].
    pub fn send(&mut self, to: ProcessId, message: R::Message) {
        say(to, Message::Own(message), self.effects);
    }

    /// As [`Effects::send_ahead`]: the message rests on entries that were applied and on nothing else of this replica.
    pub fn send_ahead(&mut self, to: ProcessId, message: R::Message) {
        say_ahead(to, Message::Own(message), self.effects);
    }

    /// As [`Effects::record`].
    pub fn record(&mut self, record: R::Record) {
        self.effects.record(Record::Own(record));
    }

    /// As [`Effects::arm`].
    pub fn arm(&mut self, timer: R::Timer, after: Span) {
        self.effects.arm(Timer::Own(timer), after);
    }

    /// Counts something for the metrics.
    pub fn count(&mut self, what: &'static str) {
        self.effects.mark(Note::Fact(Fact::Counted(what)));
    }
}

/// A replica of a partition. See the module.
#[derive(Clone, Hash)]
pub struct Server<R: Rules> {
    identity: Identity,
    setup: Frozen<R::Parameters>,
    log: Log<Entry<R::Entry>>,
    loan: Loan<Log<Entry<R::Entry>>>,
    rules: R,
    /// What was appended and the log has not taken yet.
    appended: Vec<R::Entry>,
    /// The ballot in which the rules were told that they lead.
    reign: Option<Ballot>,
    applied: u64,
    digest: u64,
    resend: Span,
    census: Census,
    offers: Offers<transfer::View<R>>,
    taking: Option<Pull>,
    staged: Option<Box<Staged<R>>>,
    orders: Orders,
    /// Whom this replica has told of members other than those of the file, of which and when.
    informed: BTreeMap<ProcessId, (u32, Instant)>,
    /// The nodes of the members that the host was last told of.
    told_members: Arc<[NodeId]>,
    /// Whether all clients are told of the members now and then.
    telling: bool,
    /// Who asks for keys as of now, with the last heartbeat before that.
    listing: VecDeque<(Instant, ProcessId, CommandId, Query)>,
}

/// Questions for keys that wait at once at most; who asks more asks again.
const LISTING_MAX: usize = 1_024;

/// Who speaks with a group whose members have changed is told again so often: it may have begun anew since.
const INFORM_EVERY: Span = Span::from_secs(1);
/// Those who have nothing to ask are told so often.
const TELL_EVERY: Span = Span::from_secs(5);

/// What a replica was opened with: it never changes, and says nothing to a hash.
#[derive(Clone)]
struct Frozen<P>(Arc<family::Server<P>>);

impl<P> Hash for Frozen<P> {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// How the log's effects are told from the rules'.
struct Inner;

impl<R: Rules> Wrap<Server<R>, Log<Entry<R::Entry>>> for Inner {
    fn message(&self, message: multipaxos::log::Message<Entry<R::Entry>>) -> MessageOf<R> {
        Message::Log(message)
    }
    fn record(&self, record: multipaxos::log::Record<Entry<R::Entry>>) -> RecordOf<R> {
        Record::Log(record)
    }
    fn timer(&self, timer: multipaxos::log::Timer) -> Timer<R::Timer> {
        Timer::Log(timer)
    }
    fn mark(&self, mark: multipaxos::log::Note) -> Note {
        Note::Log(mark)
    }
}

impl<R: Rules> Server<R> {
    /// What the protocol has made of the log.
    pub fn rules(&self) -> &R {
        &self.rules
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> bool {
        self.log.leads()
    }

    fn with_log(
        &mut self,
        effects: &mut Effects<Self>,
        input: impl FnOnce(&mut Log<Entry<R::Entry>>, &mut Effects<Log<Entry<R::Entry>>>),
    ) {
        let log = &mut self.log;
        let answers = effects.lend(&mut self.loan, &Inner, |inner| input(log, inner));
        for (ticket, result) in answers {
            self.answer(ticket, result, effects);
        }
        self.advance(effects);
        self.list_confirmed(effects);
    }

    fn answer(&mut self, ticket: Ticket, result: Result<(), Refusal>, effects: &mut Effects<Self>) {
        match self.orders.ended(ticket) {
            Ended::Foreign(Some((asker, order))) => {
                say(asker, Message::Administered { order, result }, effects);
            }
            Ended::Foreign(None) => {}
            Ended::Own => effects.complete(ticket, result),
        }
    }

    /// The leader is to change who leads, or who the members are. What was appended before goes before a change of these,
    /// whatever a vote for it has told others (see [`Turn::changes`]).
    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        if matches!(change, Change::Add(_) | Change::Remove(_)) {
            if self.reign.is_none() || !self.rules.settled() {
                return self.answer(ticket, Err(Refusal::Busy), effects);
            }
            self.flush(effects);
            if !self.appended.is_empty() {
                return self.answer(ticket, Err(Refusal::Overloaded), effects);
            }
        }
        self.with_log(effects, |log, inner| log.change(ticket, change, inner));
    }

    /// Somebody asks which keys are here: as of now the leader is asked, once it is sure that it led when the question came.
    fn on_list(&mut self, from: ProcessId, ask: CommandId, query: Query, effects: &mut Effects<Self>) {
        match query.as_of {
            AsOf::Version(..) => {
                let member = self.log.configuration().seat(self.identity.process).is_some();
                if let Some(page) = self.rules.list(&query).filter(|_| member) {
                    // What was applied is decided.
                    effects.send_ahead(from, Message::Listed { ask, page });
                }
            }
            AsOf::Now { .. } if self.reign.is_none() || self.listing.len() >= LISTING_MAX => {}
            AsOf::Now { .. } => {
                let mut before = Instant::MAX;
                self.with_log(effects, |log, inner| before = log.confirm(inner));
                self.listing.push_back((before, from, ask, query));
                self.list_confirmed(effects);
            }
        }
    }

    /// Tells the keys to those whose questions came before it was sure that this replica leads.
    fn list_confirmed(&mut self, effects: &mut Effects<Self>) {
        if self.listing.is_empty() {
            return;
        }
        if self.reign.is_none() {
            return self.listing.clear();
        }
        while let Some((_, from, ask, query)) =
            self.listing.pop_front_if(|(before, ..)| self.log.confirmed(*before))
        {
            if let Some(page) = self.rules.list(&query) {
                effects.send_ahead(from, Message::Listed { ask, page });
            }
        }
    }

    /// Tells who speaks with this group who its members are, where they are not those of the file.
    fn inform(&mut self, to: ProcessId, effects: &mut Effects<Self>) {
        let (version, now) = (self.log.configuration().version(), effects.now());
        if version == 0 || to.role == SERVER && to.partition == self.identity.process.partition {
            return;
        }
        let told = self.informed.get(&to);
        if told.is_some_and(|(told, at)| *told == version && now.since(*at) < INFORM_EVERY) {
            return;
        }
        self.informed.insert(to, (version, now));
        let message = self.members();
        // What is decided is so whatever this replica forgets.
        say_ahead(to, message, effects);
    }

    fn members(&self) -> MessageOf<R> {
        let configuration = self.log.configuration();
        let (version, members) = (configuration.version(), configuration.members().into());
        Message::Members { version, members, leads: self.reign.is_some() }
    }

    /// Tells all clients who the members are, now and then, where they are not those of the file: one that has just begun,
    /// or has nothing to ask, would not know where the partition has gone.
    fn tell_all(&mut self, effects: &mut Effects<Self>) {
        self.telling = self.reign.is_some();
        if self.telling {
            let message = self.members();
            for client in self.setup.0.clients.clone().iter() {
                say_ahead(*client, message.clone(), effects);
            }
            effects.arm(Timer::Tell, TELL_EVERY);
        }
    }

    /// Tells the host who the members are, where that is news.
    fn mark_members(&mut self, effects: &mut Effects<Self>) {
        let nodes = || self.log.configuration().members().iter().map(|member| member.process.node);
        if !nodes().eq(self.told_members.iter().copied()) {
            self.told_members = nodes().collect();
            let version = self.log.configuration().version();
            let (partition, nodes) = (self.identity.process.partition, self.told_members.clone());
            effects.mark(Note::Fact(Fact::Members { partition, version, nodes }));
            self.telling = false;
        }
    }

    /// Tells the rules what has changed, and what was decided.
    fn advance(&mut self, effects: &mut Effects<Self>) {
        // Until it is decided nobody knows who the members are that a new leader is to ask.
        let open = self.reign.is_none() && self.log.inherits_change();
        let reign = (self.log.leads() && !open).then(|| self.log.ballot());
        if reign != self.reign {
            if self.reign.is_some() {
                self.appended.clear();
                self.reign = None;
                self.with_rules(effects, |rules, turn| rules.follow(turn));
            }
            if reign.is_some() {
                self.reign = reign;
                self.with_rules(effects, |rules, turn| rules.lead(turn));
            }
        }
        while let Some(step) = self.log.step(effects.now()) {
            let Step::Decided(decided) = step else { continue };
            let (position, digest) = (decided.position, decided.digest);
            effects.mark(Note::Fact(Fact::Decided { position, digest }));
            self.fold(&decided.values, digest);
            for entry in decided.values.iter() {
                self.with_rules(effects, |rules, turn| rules.apply(&entry.0, Some(turn)));
            }
            if !decided.values.is_empty() {
                self.mark_applied(effects);
            }
        }
        self.pull_if_behind(effects);
    }

    fn mark_applied(&self, effects: &mut Effects<Self>) {
        let (position, digest) = (self.applied, Some(self.digest));
        effects.mark(Note::Fact(Fact::Applied { position, digest }));
    }

    /// As the part of [`Server::advance`] before the start: nobody is told anything.
    fn advance_quietly(&mut self) {
        while let Some(step) = self.log.step(Instant::ZERO) {
            if let Step::Decided(decided) = step {
                self.fold(&decided.values, decided.digest);
                for entry in decided.values.iter() {
                    self.rules.apply(&entry.0, None);
                }
            }
        }
    }

    fn fold(&mut self, values: &[Entry<R::Entry>], digest: u64) {
        if !values.is_empty() {
            self.applied += values.len() as u64;
            self.digest = (self.digest.rotate_left(5) ^ digest).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn with_rules(&mut self, effects: &mut Effects<Self>, input: impl FnOnce(&mut R, &mut Turn<'_, R>)) {
        let mut turn = Turn {
            effects,
            appended: &mut self.appended,
            ballot: self.log.ballot(),
            leads: self.reign.is_some() && self.log.leads(),
            leader: self.log.leader(),
            configuration: self.log.configuration().clone(),
            changes: self.log.changes(),
        };
        input(&mut self.rules, &mut turn);
    }

    /// Gives the log what was appended; what it has no room for waits here, in order.
    fn flush(&mut self, effects: &mut Effects<Self>) {
        let mut taken = 0;
        for entry in &self.appended {
            let bytes = wire::encoded_size(entry) + 8;
            if self.log.propose(Entry(entry.clone()), bytes, effects.now()).is_err() {
                break;
            }
            taken += 1;
        }
        self.appended.drain(..taken);
    }
}

impl<R: Rules> Process for Server<R> {
    type Setup = family::Server<R::Parameters>;
    type Message = MessageOf<R>;
    type Record = RecordOf<R>;
    type Request = Change;
    type Outcome = Result<(), Refusal>;
    type Timer = Timer<R::Timer>;
    type Mark = Note;

    fn open(identity: Identity, setup: &Self::Setup) -> Server<R> {
        let members: Arc<[Member]> = setup.map.group(setup.partition).members.clone();
        let parameters = R::log(&setup.parameters);
        let resend = parameters.resend;
        let log = Setup { members, preferred: Some(ReplicaId(0)), parameters };
        Server {
            identity,
            setup: Frozen(Arc::new(setup.clone())),
            log: Log::open(identity, &log),
            loan: Loan::default(),
            rules: R::open(identity, setup),
            appended: Vec::new(),
            reign: None,
            applied: 0,
            digest: 0,
            resend,
            census: Census::default(),
            offers: Offers::default(),
            taking: None,
            staged: None,
            orders: Orders::default(),
            informed: BTreeMap::new(),
            told_members: Arc::default(),
            telling: false,
            listing: VecDeque::new(),
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.restore_piece(&chunk)
    }

    fn replay(&mut self, record: RecordOf<R>) {
        match record {
            Record::Log(record) => {
                self.log.replay(record);
                self.advance_quietly();
            }
            Record::Own(record) => self.rules.replay(record),
            Record::Chunk { index, chunk } => self.stage(index, &chunk),
            Record::Installed { position } => {
                self.install(position, None);
                self.advance_quietly();
            }
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.staged = None;
        if self.applied > 0 {
            // Nobody was told of what the snapshot and the records have brought, and nothing may follow it.
            self.mark_applied(effects);
        }
        self.with_rules(effects, |rules, turn| rules.start(turn));
        self.with_log(effects, |log, inner| log.start(inner));
    }

    fn receive(&mut self, from: ProcessId, message: MessageOf<R>, effects: &mut Effects<Self>) {
        match message {
            Message::Log(message) => self.with_log(effects, |log, inner| log.receive(from, message, inner)),
            Message::Own(message) => {
                self.inform(from, effects);
                self.with_rules(effects, |rules, turn| rules.receive(from, message, turn));
            }
            Message::Members { version, members, .. } => {
                self.rules.learn(from.partition, version, &members);
            }
            Message::Want { position, index, again } => self.on_want(from, position, index, again, effects),
            Message::Chunk { position, index, chunk } => self.on_chunk(from, position, index, chunk, effects),
            Message::Gone { position } => self.on_gone(from, position, effects),
            Message::List { ask, query } => self.on_list(from, ask, query, effects),
            Message::Administer { order, .. } if !self.log.leads() => {
                let result = Err(Refusal::NotLeader);
                say_ahead(from, Message::Administered { order, result }, effects);
            }
            Message::Administer { order, change } => {
                let ticket = self.orders.begun(from, order);
                self.change(ticket, change, effects);
            }
            Message::Administered { order: (incarnation, ticket), result } => {
                if incarnation == self.identity.incarnation && self.orders.answered(ticket) {
                    effects.complete(ticket, result);
                }
            }
            // For clients.
            Message::Listed { .. } | Message::Forward(_) => {}
        }
    }

    fn request(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        if self.log.leads() {
            return self.change(ticket, change, effects);
        }
        match self.log.leader() {
            _ if change == Change::Resign => effects.complete_ahead(ticket, Ok(())),
            Some(leader) => {
                if let Some(oldest) = self.orders.passed_on(ticket) {
                    effects.complete_ahead(oldest, Err(Refusal::Busy));
                }
                let order = (self.identity.incarnation, ticket);
                say_ahead(leader, Message::Administer { order, change }, effects);
            }
            None => effects.complete_ahead(ticket, Err(Refusal::NotLeader)),
        }
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Effects<Self>) {
        self.orders.given_up(ticket);
    }

    fn expire(&mut self, timer: Timer<R::Timer>, effects: &mut Effects<Self>) {
        match timer {
            Timer::Log(timer) => self.with_log(effects, |log, inner| log.expire(timer, inner)),
            // What is asked or told after some time was before.
            Timer::Own(timer) => effects.repeating(|effects| {
                self.with_rules(effects, |rules, turn| rules.expire(timer, turn));
            }),
            Timer::Tell => effects.repeating(|effects| self.tell_all(effects)),
            Timer::Pull => self.pull(effects),
            Timer::Offers => {
                self.offers.clear();
                self.log.hold(false);
            }
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        loop {
            let waiting = self.appended.len();
            self.flush(effects);
            self.with_log(effects, |log, inner| log.settle(inner));
            // A group of one decides in `settle`, and its rules append again.
            if self.appended.is_empty() || self.appended.len() >= waiting {
                break;
            }
        }
        self.census.tell(self.rules.store().count(), Note::Fact, effects);
        self.mark_members(effects);
        if !self.telling && self.reign.is_some() && self.log.configuration().version() > 0 {
            self.tell_all(effects);
        }
    }

    /// None while a peer's state is coming in: its chunks are in the journal and in no snapshot.
    fn snapshot(&self) -> Option<Snapshot> {
        self.staged.is_none().then(|| self.own_snapshot())
    }

    fn overdue(&self, stamp: Stamp, most: usize) -> Vec<Blob> {
        census::overdue(self.rules.store(), &self.setup.0.map.split, stamp, most)
    }

    fn check(&self) {
        self.log.check();
        self.rules.check();
    }
}
