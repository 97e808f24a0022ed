//! A replica's order: acceptor of every position, owner of a lane, learner, and now and then coordinator of
//! the fast lane or revoker of somebody's lane.
//!
//! **Durability.** All that is said to peers in order, and all votes told to clients, leaves behind the records
//! of its turn. A replica's own votes and clock count with itself only when they come back as a message to
//! itself, behind the same records; so whatever is decided here rests on durable votes.
//!
//! **What is said in order** goes over an [`OrderedLink`](isochrone_core::OrderedLink) to each peer
//! ([`links`]). A clock reading says "no other votes below" and is true for whoever got everything before it;
//! a session begins with all votes and proposals that may still matter, and from which stamp on they are
//! complete.

mod acceptor;
mod advance;
mod campaign;
mod catchup;
mod coordinator;
mod lanes;
mod learner;
mod links;
mod owner;
mod revoker;
mod state;
#[cfg(test)]
mod tests;

use super::clock::GroupClock;
use super::message::{Item, Message, Note, Place, Record, Reject, Timer};
use super::parameters::{Learners, Parameters};
use super::track::Track;
use crate::election::Losses;
use crate::order::{Decided, Knobs, Member, Membership, Ordered, Setup, Step, Takes, first_serial};
use crate::request::{Change, Refusal};
use acceptor::Acceptor;
use advance::Kept;
use campaign::Campaign;
use catchup::Goals;
use coordinator::Reign;
use isochrone_core::{
    Blob, ClientId, CommandId, DelayEstimate, Effects, FastQuorums, Identity, Instant, Malformed, Process,
    ProcessId, Quorums, ReplicaId, ReplicaSet, Snapshot, Span, Suspicion, Ticket,
};
use lanes::Lane;
use learner::Learner;
use links::Link;
use owner::Owner;
use revoker::Revocation;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Rounds that are kept although all of their positions are decided: those whose end is on its way.
const ROUNDS_MAX: usize = 256;

/// What is told to a client at the end of a turn.
#[derive(Clone, Hash, Debug, Default)]
struct Told {
    /// By epoch: a turn may begin in one and end in another.
    voted: BTreeMap<u32, Vec<(u64, u64)>>,
    rejected: Vec<(u64, u64, Reject)>,
    committed: Vec<(u64, u64)>,
}

/// How much of what a replica holds; for metrics and tests.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct Held {
    /// Votes for single positions, in all lanes.
    pub votes: usize,
    /// Runs of no-ops and of decided positions, in all lanes.
    pub runs: usize,
    /// Commands that are decided and not executed.
    pub waiting: usize,
    /// Executed commands kept for others.
    pub kept: usize,
    /// Everything else that is counted by position or by message.
    pub other: usize,
}

/// One replica of a Domino group. See the module.
#[derive(Clone, Hash, Debug)]
pub struct Order<V: Ordered> {
    /// Its seat, as a number; beyond all seats where it is no member.
    me: usize,
    process: ProcessId,
    incarnation: u32,
    members: Arc<[Member]>,
    first_coordinator: usize,
    knobs: Knobs<Parameters>,
    /// Whether anything was replayed: then another life of this replica may have been heard.
    restarted: bool,
    /// See [`Order::hold`](crate::order::Order::hold).
    serving: bool,

    clock: GroupClock,
    estimates: Vec<DelayEstimate>,
    contact: Suspicion,
    suspects: ReplicaSet,
    links: Vec<Link<V>>,
    beats: u64,
    ticking: bool,

    acceptor: Acceptor<V>,
    learner: Learner,
    /// Commands seen and not voted for here, by stamp.
    bodies: BTreeMap<u64, Vec<V>>,
    /// Commands that must be had before a position can be decided, and who voted for them.
    lacks: BTreeMap<u64, (CommandId, ReplicaSet)>,
    /// The rounds of the coordinator that are voted for and not known to be decided.
    rounds: BTreeMap<u64, Arc<super::message::Round<V>>>,
    /// The stream of a coordinator that has no hole: its seat, and up to where it was taken in.
    led: Option<(usize, u64)>,
    reign: Option<Box<Reign<V>>>,
    campaign: Option<Box<Campaign<V>>>,
    /// The highest epoch heard of.
    seen: u32,
    /// Who has said in this life where it stands.
    reported: ReplicaSet,
    /// When the fast lane's frontier last moved, and where it stood.
    moved: (Instant, u64),
    /// Coordinators that lived and got nowhere.
    losses: Losses,

    lanes: Vec<Lane<V>>,
    owner: Owner<V>,
    revocations: BTreeMap<u8, Revocation<V>>,

    /// What is decided: of the fast lane, then of each replica's.
    tracks: Vec<Track<V>>,
    /// Everything before it is executed.
    done: Place,
    ready: VecDeque<Step<V>>,
    serial: u64,
    kept: Kept<V>,

    goals: Goals,
    behind: Option<ProcessId>,

    /// Of this turn: records, what is said to each member (the own seat included), what clients are told.
    journal: Vec<Record<V>>,
    votes: Vec<(u64, V)>,
    accepted: BTreeMap<u8, Vec<(u64, V)>>,
    out: Vec<Vec<Item<V>>>,
    told: BTreeMap<ClientId, Told>,
    /// With the bug planted, votes that are said a turn late.
    late_votes: Vec<(u64, CommandId)>,
}

impl<V: Ordered> Order<V> {
    /// How much it holds.
    pub fn held(&self) -> Held {
        let lanes = self.lanes.iter();
        Held {
            votes: self.acceptor.votes.len() + lanes.clone().map(|lane| lane.votes.len()).sum::<usize>(),
            runs: self.acceptor.noops.len()
                + lanes.clone().map(|lane| lane.noops.len()).sum::<usize>()
                + self.tracks.iter().map(Track::ahead).sum::<usize>(),
            waiting: self.tracks.iter().map(|track| track.commands.len()).sum(),
            kept: self.kept.len(),
            other: self.bodies.len()
                + self.learner.len()
                + self.lacks.len()
                + self.rounds.len()
                + lanes.map(|lane| lane.heard.len()).sum::<usize>()
                + self.links.iter().map(Link::pending).sum::<usize>()
                + self.owner.len(),
        }
    }

    /// The epoch of the fast lane, and whether it is open here.
    pub fn epoch(&self) -> (u32, bool) {
        (self.acceptor.epoch, self.acceptor.open)
    }

    /// The first undecided stamp of each lane, the fast one first.
    pub fn frontiers(&self) -> Vec<u64> {
        self.tracks.iter().map(Track::frontier).collect()
    }

    fn parameters(&self) -> &Parameters {
        &self.knobs.0
    }

    fn n(&self) -> usize {
        self.members.len()
    }

    fn majority(&self) -> usize {
        Quorums::majority(self.n())
    }

    /// Of the fast lane; in the others, where nothing is fast, a majority is enough for everything.
    fn quorums(&self) -> FastQuorums {
        self.parameters().quorums(self.n())
    }

    fn lane(&self) -> u8 {
        // Seats are below 128.
        self.me as u8 + 1
    }

    fn seat_of(&self, process: ProcessId) -> Option<usize> {
        self.members.iter().position(|member| member.process == process)
    }

    fn is_member(&self) -> bool {
        self.me < self.n()
    }

    /// The coordinator of an epoch.
    fn coordinator(&self, epoch: u32) -> usize {
        (self.first_coordinator + epoch as usize) % self.n()
    }

    fn suspected(&self, seat: usize) -> bool {
        self.suspects.contains(ReplicaId(seat as u8))
    }

    /// Whether a member learns fast votes for itself.
    fn learns(&self, seat: usize) -> bool {
        self.parameters().learners == Learners::All || seat == self.coordinator(self.acceptor.epoch)
    }

    fn now(&mut self, effects: &Effects<Self>) -> u64 {
        let parameters = self.knobs.0;
        self.clock.now(effects.now(), effects.stamp(), &parameters)
    }

    /// How long replication through this replica takes; none while too few others are measured.
    fn replication(&mut self, now: Instant) -> Option<Span> {
        let (percentile, timeout) = (self.parameters().percentile, self.parameters().probe_timeout);
        let mut trips = Vec::with_capacity(self.n());
        for (seat, estimate) in self.estimates.iter().enumerate() {
            let fresh = estimate.newest().is_some_and(|newest| now.since(newest) < timeout);
            match estimate.round_trip(percentile) {
                _ if seat == self.me => trips.push(Span::ZERO),
                Some(trip) if fresh => trips.push(trip),
                _ => {}
            }
        }
        trips.sort_unstable();
        trips.get(self.majority() - 1).copied()
    }

    /// Says something to a member in order at the end of this turn.
    fn say(&mut self, seat: usize, item: Item<V>) {
        if let Some(out) = self.out.get_mut(seat) {
            out.push(item);
        }
    }

    /// Says something to every other member.
    fn tell_others(&mut self, item: &Item<V>) {
        for seat in 0..self.n() {
            if seat != self.me {
                self.out[seat].push(item.clone());
            }
        }
    }

    /// Says something to every member, the own replica among them.
    fn tell_all(&mut self, item: &Item<V>) {
        for out in &mut self.out {
            out.push(item.clone());
        }
    }

    fn handle(&mut self, from: usize, item: Item<V>, effects: &mut Effects<Self>) {
        match item {
            Item::Cover { epoch, base } => self.on_cover(from, epoch, base),
            Item::Vote { votes } => self.on_vote(from, votes, effects),
            Item::Tick { clock, skip } => self.on_tick(from, clock, skip, effects),
            Item::Own { base } => self.on_own(from, base),
            Item::Accept { values } => self.on_accept(from, values),
            Item::Accepted { stamps } => self.on_accepted(from, &stamps, effects),
            Item::Refused { sealed } => self.on_refused(sealed),
            Item::Commit { stamps } => self.on_commit(from, &stamps),
            Item::Lead { base } => self.on_lead(from, base),
            Item::Chosen { values } => self.on_chosen(values),
            Item::Settled { until } => self.on_settled(from, until),
            Item::Recover(round) => self.on_recover(from, round),
            Item::Recovered { epoch, number } => self.on_recovered(from, epoch, number, effects),
            Item::Closed { epoch, number } => self.on_closed(from, epoch, number),
            Item::Prepare { epoch, from: first } => self.on_prepare(from, epoch, first, effects),
            Item::Promise(promise) => self.on_promise(from, promise, effects),
            Item::Open(opening) => self.on_open(from, opening, effects),
            Item::Revoke { lane, ballot, from: first, until } => {
                self.on_revoke(from, lane, ballot, first, until, effects.now());
            }
            Item::Revoked(revoked) => self.on_revoked(from, revoked, effects),
            Item::Seal(seal) => self.on_seal(from, seal),
            Item::SealAccepted { lane, ballot, until } => self.on_seal_accepted(from, lane, ballot, until),
            Item::Sealed(seal) => self.on_sealed(&seal),
            Item::Outbid { lane, ballot } => self.on_outbid(lane, ballot, effects.now()),
            Item::Lack { values } => self.on_lack(from, &values),
            Item::Body { values } => self.on_body(values, effects),
            Item::Report { epoch, open, frontiers } => {
                self.on_report(from, epoch, open, &frontiers, effects);
            }
            Item::Fetch { frontiers } => self.on_fetch(from, &frontiers, effects.now()),
            Item::Learned { lane, from: first, until, values } => {
                self.on_learned(lane, first, until, values);
            }
            Item::Trimmed => self.on_trimmed(from),
            Item::Forward { values } => self.on_forward(values, effects.now()),
            Item::Campaign => self.campaign(effects),
        }
    }

    /// The timer: everything that is done by the clock.
    fn beat(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        self.beats += 1;
        let before = std::mem::replace(&mut self.suspects, self.contact.suspects(now));
        self.suspects.remove(ReplicaId(self.me as u8));
        self.tend_links(effects);
        self.ticking = true;
        if self.suspects.iter().any(|seat| !before.contains(seat)) {
            self.evaluate_all(effects);
        }
        self.coordinate(effects);
        self.watch_coordinator(effects);
        self.watch_owners(effects);
        self.resend_proposals(now);
        self.chase(now);
        if self.rounds.len() > ROUNDS_MAX {
            // Of one whose end was lost with a session nobody tells any more.
            let frontier = self.tracks[0].frontier();
            self.rounds.retain(|_, round| round.end() > frontier);
        }
        effects.arm(Timer::Beat, self.parameters().heartbeat);
    }
}

impl<V: Ordered> Process for Order<V> {
    type Setup = Setup<Parameters>;
    type Message = Message<V>;
    type Record = Record<V>;
    type Request = ();
    type Outcome = Result<(), Refusal>;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Setup<Parameters>) -> Order<V> {
        let n = setup.members.len();
        let me = setup.members.iter().position(|member| member.process == identity.process).unwrap_or(n);
        let preferred = setup.preferred.map_or(0, |seat| usize::from(seat.0));
        Order {
            me,
            process: identity.process,
            incarnation: identity.incarnation,
            members: setup.members.clone(),
            first_coordinator: if preferred < n { preferred } else { 0 },
            knobs: Knobs(setup.parameters),
            restarted: false,
            serving: false,
            clock: GroupClock::new(me, n),
            estimates: vec![DelayEstimate::over(setup.parameters.window); n],
            contact: Suspicion::watching([], setup.parameters.suspect, Instant::ZERO),
            suspects: ReplicaSet::EMPTY,
            links: (0..n).map(|_| Link::new(identity.incarnation)).collect(),
            beats: 0,
            ticking: false,
            acceptor: Acceptor::default(),
            learner: Learner::new(n),
            bodies: BTreeMap::new(),
            lacks: BTreeMap::new(),
            rounds: BTreeMap::new(),
            led: None,
            reign: None,
            campaign: None,
            seen: 0,
            reported: ReplicaSet::EMPTY,
            moved: (Instant::ZERO, 0),
            losses: Losses::default(),
            lanes: (0..n).map(|_| Lane::default()).collect(),
            owner: Owner::default(),
            revocations: BTreeMap::new(),
            tracks: (0..=n).map(|_| Track::default()).collect(),
            done: Place::default(),
            ready: VecDeque::new(),
            serial: first_serial(identity.incarnation),
            kept: Kept::default(),
            goals: Goals::default(),
            behind: None,
            journal: Vec::new(),
            votes: Vec::new(),
            accepted: BTreeMap::new(),
            out: vec![Vec::new(); n],
            told: BTreeMap::new(),
            late_votes: Vec::new(),
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.restarted = true;
        self.restore_piece(&chunk)
    }

    fn replay(&mut self, record: Record<V>) {
        self.restarted = true;
        self.replay_record(record);
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        if !self.is_member() {
            return;
        }
        let now = effects.now();
        let seats = (0..self.n()).filter(|seat| *seat != self.me).map(|seat| ReplicaId(seat as u8));
        self.contact = Suspicion::watching(seats, self.parameters().suspect, now);
        self.seen = self.seen.max(self.acceptor.epoch);
        // An earlier life may not have come to write down a reserve behind these.
        self.clock.raise(self.acceptor.passed());
        self.moved = (now, self.tracks[0].frontier());
        self.resume_lane(now);
        for link in &mut self.links {
            link.begin();
        }
        // The own replica is told like any other, without a link.
        self.out[self.me] = self.resync(self.me);
        // What an earlier life proposed in its epoch is not known: a new one is opened then, when others have been heard.
        if self.coordinator(self.acceptor.epoch) == self.me && !self.restarted && self.incarnation == 1 {
            self.reign(effects);
        }
        self.reign_again(effects);
        self.ticking = true;
        effects.arm(Timer::Beat, self.parameters().heartbeat);
        self.advance(effects);
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        match message {
            Message::Probe { sent, at } => self.on_probe(from, sent, at, effects),
            Message::Propose { values } => self.on_propose(values, effects),
            Message::ProposeLed { above, values } => self.on_propose_led(above, values, effects),
            Message::Flow { life, items, received, beat } => {
                if let Some(seat) = self.seat_of(from)
                    && seat != self.me
                {
                    self.on_flow(seat, life, items, received, beat, effects);
                }
            }
            Message::Own { items } => {
                if from == self.process {
                    for item in items.iter() {
                        self.handle(self.me, item.clone(), effects);
                    }
                }
            }
            // For clients.
            Message::Probed { .. }
            | Message::Measure { .. }
            | Message::Measured { .. }
            | Message::Voted { .. }
            | Message::Rejected { .. }
            | Message::Committed { .. } => {}
        }
        self.advance(effects);
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete(ticket, Err(Refusal::Impossible));
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Beat => self.beat(effects),
        }
        self.advance(effects);
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        if self.is_member() {
            self.flush(effects);
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        Some(Box::new(self.image().into_iter()))
    }

    fn check(&self) {
        self.check_invariants();
    }
}

impl<V: Ordered> crate::order::Order for Order<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = Place;

    const TOTAL: bool = true;
    // Votes count here only when they come back behind their records.
    const AHEAD: bool = true;
    const MEMBERSHIP: Membership = Membership::StopAndHandOver;

    fn takes(&self) -> Takes {
        Takes::Here
    }

    fn leads(&self) -> bool {
        self.reign.is_some()
    }

    fn leader(&self) -> Option<ReplicaId> {
        self.is_member().then(|| ReplicaId(self.coordinator(self.acceptor.epoch) as u8))
    }

    fn silent(&self, now: Instant) -> ReplicaSet {
        self.contact.suspects(now)
    }

    fn propose(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        if self.is_full(bytes) {
            return Err(Refusal::Overloaded);
        }
        self.enqueue(value, 0, now);
        Ok(())
    }

    fn holds(&self, client: ClientId) -> BTreeSet<u64> {
        if self.n() - self.suspects.len() < self.quorums().classic() {
            // What nobody else is heard to have, another leader is to be asked for.
            return BTreeSet::new();
        }
        let decided = self.tracks.iter().flat_map(|track| track.commands.values());
        let fast = self.acceptor.votes.range(self.tracks[0].frontier()..);
        let fast = fast.filter(|(at, _)| !self.tracks[0].is_decided(**at));
        let fast = fast.flat_map(|(_, vote)| vote.value.iter().chain(&vote.fast));
        let lanes = self.lanes.iter().zip(&self.tracks[1..]);
        let led = lanes.flat_map(|(lane, track)| lane.votes.range(track.frontier()..));
        let led = led.filter_map(|(_, (_, value))| value.as_ref());
        let ids = decided.chain(fast).chain(led).chain(self.owner.values()).filter_map(Ordered::id);
        ids.filter(|id| id.client == client).map(|id| id.sequence).collect()
    }

    fn step(&mut self, _: Instant) -> Option<Step<V>> {
        let step = self.ready.pop_front()?;
        if matches!(step, Step::Decided(Decided { .. })) {
            self.serial += 1;
        }
        Some(step)
    }

    fn serial(&self) -> u64 {
        self.serial
    }

    fn position(&self) -> Place {
        self.done
    }

    fn serves(&self, serial: u64) -> bool {
        serial <= self.serial && self.serial - serial <= self.kept.len() as u64
    }

    fn behind(&self) -> Option<ProcessId> {
        self.behind
    }

    fn install(&mut self, position: &Place) -> bool {
        self.behind = None;
        self.jump(*position)
    }

    fn hold(&mut self, held: bool) {
        self.serving = held;
    }

    fn give_up(&mut self) {
        self.behind = None;
    }

    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        let answer = self.on_change(change, effects);
        effects.complete(ticket, answer);
    }
}
