//! The end of a transaction whose client is silent: a replica takes it over under a higher ballot.

use super::Mutation;
use super::message::{Ballot, Ended, Held, Message, Name, Part, Record, Verdict, Vote};
use super::server::{DOUBLINGS, Server};
use crate::request::TxnId;
use crate::said::say;
use isochrone_core::{Effects, Instant, PartitionId, ProcessId, Quorums};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Transactions that one replica ends at once.
const AT_ONCE: usize = 256;

/// One transaction that this replica ends.
#[derive(Clone, Hash, Debug)]
pub struct Takeover {
    ballot: Ballot,
    /// The highest ballot that others have promised.
    highest: Ballot,
    promises: BTreeMap<ProcessId, Promise>,
    proposal: Option<Proposal>,
    due: Instant,
    tries: u32,
}

/// What a replica promised with.
#[derive(Clone, Hash, Debug)]
pub struct Promise {
    /// In which view of its partition.
    pub view: u64,
    /// What it holds.
    pub held: Held,
    /// Whether that is all that it ever held.
    pub sure: bool,
}

#[derive(Clone, Hash, Debug)]
struct Proposal {
    name: Name,
    vote: Vote,
    /// The partitions it is proposed to, with their views and who has accepted it.
    targets: BTreeMap<PartitionId, (u64, BTreeSet<ProcessId>)>,
}

/// What a majority of a partition says about one try of a transaction.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Said {
    /// Prepared, and a majority has checked it.
    Yes,
    /// Not prepared, and it never will be.
    No,
}

/// What follows from the answers of one partition, of a majority and all of one view, about one try.
///
/// What was accepted under the highest ballot stands. Where nothing was, all replicas may have voted for it, and their
/// client may have counted that, if all that answer have; it may be committed as soon as a majority has checked it.
pub fn said<'a>(answers: impl Iterator<Item = &'a Held>, attempt: u32, replicas: usize) -> Said {
    let mut votes = 0;
    let mut accepted: Option<(Ballot, Vote)> = None;
    for held in answers {
        if held.name.attempt != attempt {
            continue;
        }
        match (held.accepted, held.vote) {
            (Some(ballot), Some(vote)) if accepted.is_none_or(|(highest, _)| highest < ballot) => {
                accepted = Some((ballot, vote));
            }
            (None, Some(Vote::Ok)) => votes += 1,
            _ => {}
        }
    }
    match accepted {
        Some((_, Vote::Ok)) => Said::Yes,
        Some(_) => Said::No,
        None if votes >= Quorums::majority(replicas) => Said::Yes,
        None => Said::No,
    }
}

/// Which try of a transaction counts: the one that somebody who took it over has settled on, else the latest.
pub fn counting<'a>(answers: impl Iterator<Item = &'a Held>) -> Option<(u32, Version)> {
    let rank = |held: &&Held| {
        let taken = held.accepted.filter(|ballot| *ballot > Ballot::CLIENT);
        (taken, held.name.attempt)
    };
    answers.max_by_key(rank).map(|held| (held.name.attempt, held.name.at))
}

impl Server {
    /// Begins to end a transaction.
    pub(super) fn take_over(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        if self.takeovers.len() >= AT_ONCE || self.takeovers.contains_key(&txn) {
            return;
        }
        Self::count("takeovers", effects);
        self.inquire(txn, Ballot::CLIENT, 0, effects);
    }

    /// Asks all replicas of all participants, this one among them, under a ballot above all known, and above all that this
    /// replica may have used: whoever accepts something under one is counted for what was proposed under it.
    fn inquire(&mut self, txn: TxnId, highest: Ballot, tries: u32, effects: &mut Effects<Self>) {
        let Some(entry) = self.state.entries.get(&txn).filter(|entry| entry.verdict.is_none()) else {
            return;
        };
        let name = entry.name.clone();
        let spent = Ballot { round: self.state.spent, by: 0 };
        let ballot = entry.promised.max(highest).max(spent).above(self.me);
        // Before anybody hears of it, so that no later life of this replica takes the same ballot.
        self.log(Record::Promised { name: name.clone(), ballot }, effects);
        let due = effects.now() + self.pause(tries, effects);
        let takeover =
            Takeover { ballot, highest: ballot, promises: BTreeMap::new(), proposal: None, due, tries };
        self.takeovers.insert(txn, takeover);
        for replica in self.replicas(&name.participants) {
            say(replica, Message::Inquire { name: name.clone(), ballot }, effects);
        }
    }

    /// Another replica, or this one, wants to end a transaction.
    pub(super) fn inquired(
        &mut self,
        from: ProcessId,
        name: Name,
        ballot: Ballot,
        effects: &mut Effects<Self>,
    ) {
        let txn = name.txn;
        if !self.state.is_normal() || !name.participants.contains(&self.partition) {
            return;
        }
        match self.state.entries.get(&txn) {
            Some(entry) if entry.verdict.is_some() => return self.tell(from, txn, effects),
            Some(entry) if entry.promised > ballot => {
                let promised = entry.promised;
                return say(from, Message::Outbid { txn, promised }, effects);
            }
            Some(entry) if entry.promised == ballot => {}
            None if self.state.dropped(txn) => return say(from, Message::Gone { txn }, effects),
            known => {
                let fresh = known.is_none();
                self.log(Record::Promised { name, ballot }, effects);
                if fresh {
                    self.touch(txn, effects);
                }
            }
        }
        let Some(entry) = self.state.entries.get(&txn) else { return };
        let (view, held, sure) = (self.state.normal, entry.held(), self.state.is_sure(entry));
        say(from, Message::Promised { ballot, view, held, sure }, effects);
    }

    pub(super) fn promised(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        promise: Promise,
        effects: &mut Effects<Self>,
    ) {
        let txn = promise.held.name.txn;
        let Some(takeover) = self.takeovers.get_mut(&txn) else { return };
        if takeover.ballot != ballot || takeover.proposal.is_some() {
            return;
        }
        takeover.promises.insert(from, promise);
        self.consider(txn, effects);
    }

    /// Proposes an end as soon as the answers oblige to one, or leave the choice. Who may have forgotten is believed where
    /// that aborts, and nowhere else.
    fn consider(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        let presume = self.parameters.mutated(Mutation::PresumeAbort);
        let Some(entry) = self.state.entries.get(&txn) else { return };
        let Some(takeover) = self.takeovers.get_mut(&txn) else { return };
        let participants = entry.name.participants.clone();
        let all = takeover.promises.values().map(|promise| &promise.held);
        let Some((attempt, at)) = counting(all) else { return };
        let (mut views, mut never, mut unsure) = (BTreeMap::new(), None, false);
        for partition in participants.iter() {
            let here = || takeover.promises.iter().filter(|(from, _)| from.partition == *partition);
            let Some(view) = here().map(|(_, promise)| promise.view).max() else { return };
            let answers = || here().map(|(_, promise)| promise).filter(|promise| promise.view == view);
            let sure = || answers().filter(|promise| promise.sure);
            let replicas = self.map.group(*partition).members.len();
            let (all, certain, majority) = (answers().count(), sure().count(), Quorums::majority(replicas));
            if all < majority {
                return;
            }
            let said = match () {
                () if all - certain >= majority => Said::No,
                () if certain >= majority => said(sure().map(|promise| &promise.held), attempt, replicas),
                () => said(answers().map(|promise| &promise.held), attempt, replicas),
            };
            let untold = || answers().all(|promise| promise.held.accepted.is_none());
            match said {
                Said::Yes if !(presume && untold()) => unsure |= certain < majority,
                _ => never = never.or(Some(*partition)),
            }
            views.insert(*partition, view);
        }
        let (vote, targets) = match never {
            Some(partition) => (Vote::Abort, vec![partition]),
            None if unsure => return,
            None => (Vote::Ok, participants.to_vec()),
        };
        let name = Name { txn, participants, attempt, at };
        let targets = targets.into_iter().map(|partition| (partition, (views[&partition], BTreeSet::new())));
        takeover.proposal = Some(Proposal { name, vote, targets: targets.collect() });
        self.propose(txn, effects);
    }

    fn propose(&self, txn: TxnId, effects: &mut Effects<Self>) {
        let Some(takeover) = self.takeovers.get(&txn) else { return };
        let Some(Proposal { name, vote, targets }) = &takeover.proposal else { return };
        for (partition, (view, _)) in targets {
            let part = takeover.part(*partition);
            for member in self.map.group(*partition).members.iter() {
                let (name, part) = (name.clone(), part.clone());
                let message =
                    Message::Finalize { name, ballot: takeover.ballot, view: *view, vote: *vote, part };
                say(member.process, message, effects);
            }
        }
    }

    /// A replica has accepted what this one proposed.
    pub(super) fn confirmed(
        &mut self,
        from: ProcessId,
        (txn, attempt): (TxnId, u32),
        ballot: Ballot,
        view: u64,
        effects: &mut Effects<Self>,
    ) {
        let Some(takeover) = self.takeovers.get_mut(&txn) else { return };
        let Some(proposal) = &mut takeover.proposal else { return };
        if takeover.ballot != ballot || proposal.name.attempt != attempt {
            return;
        }
        if let Some((of, accepted)) = proposal.targets.get_mut(&from.partition)
            && *of == view
        {
            accepted.insert(from);
        }
        let settled = proposal.targets.iter().all(|(partition, (_, accepted))| {
            accepted.len() >= Quorums::majority(self.map.group(*partition).members.len())
        });
        if !settled {
            return;
        }
        let verdict = match proposal.vote {
            Vote::Ok => Verdict::Commit(proposal.name.at),
            _ => Verdict::Abort,
        };
        let participants = proposal.name.participants.clone();
        let Some(takeover) = self.takeovers.remove(&txn) else { return };
        for partition in participants.iter() {
            let part = takeover.part(*partition);
            for member in self.map.group(*partition).members.iter() {
                let ended = Ended { txn, participants: participants.clone(), verdict, part: part.clone() };
                say(member.process, Message::Spread { ended: vec![ended], noted: false }, effects);
            }
        }
    }

    pub(super) fn outbid(&mut self, txn: TxnId, promised: Ballot) {
        if let Some(takeover) = self.takeovers.get_mut(&txn) {
            takeover.highest = takeover.highest.max(promised);
        }
    }

    /// Tries again what has taken too long, under a higher ballot. Where others may wait for their turn, what was tried
    /// often is put off: its partitions may be out of reach for long.
    pub(super) fn sweep_takeovers(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let full = self.takeovers.len() >= AT_ONCE;
        let due = self.takeovers.iter().filter(|(_, takeover)| takeover.due <= now);
        let due: Vec<TxnId> = due.map(|(txn, _)| *txn).collect();
        for txn in due {
            let Some(takeover) = self.takeovers.remove(&txn) else { continue };
            let mut views: BTreeMap<PartitionId, u64> = BTreeMap::new();
            for (from, promise) in &takeover.promises {
                let latest = views.entry(from.partition).or_default();
                *latest = (*latest).max(promise.view);
            }
            for (from, promise) in &takeover.promises {
                // Who is behind comes along.
                let latest = views[&from.partition];
                if promise.view < latest {
                    say(*from, Message::ChangeView { view: latest }, effects);
                }
            }
            if full && takeover.tries >= DOUBLINGS {
                let due = now + self.pause(takeover.tries, effects);
                if let Some(entry) = self.state.entries.get_mut(&txn) {
                    entry.due = due;
                }
            } else if self.state.is_normal() {
                self.inquire(txn, takeover.highest, takeover.tries + 1, effects);
            }
        }
    }
}

impl Takeover {
    /// What the transaction does at a partition, if anybody there has said.
    fn part(&self, partition: PartitionId) -> Option<Arc<Part>> {
        let here = self.promises.iter().filter(|(from, _)| from.partition == partition);
        here.filter_map(|(_, promise)| promise.held.part.clone()).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::{self, Tuning as _};
    use crate::map::{Group, Map, Split};
    use crate::request::Update;
    use crate::tapir::Parameters;
    use crate::tapir::state::LIVES_MAX;
    use isochrone_core::{
        Blob, ClientId, Effect, Identity, KeyspaceId, NodeId, Outbox, Process as _, Random, ReplicaId, Span,
        Stamp,
    };
    use isochrone_replication::order::Member;

    fn held(attempt: u32, vote: Option<Vote>, accepted: Option<Ballot>) -> Held {
        let txn = TxnId { client: ClientId { process: ProcessId::from_u64(1), incarnation: 1 }, sequence: 1 };
        let participants = Arc::from([PartitionId(0)]);
        let name = Name { txn, participants, attempt, at: Version(u64::from(attempt) + 1) };
        Held { name, part: None, vote, accepted, promised: Ballot::CLIENT }
    }

    const TAKEN: Ballot = Ballot { round: 1, by: 1 };

    /// Whoever voted how, and whoever of them answers: what all have voted for is never denied, and what is affirmed was
    /// checked by a majority.
    #[test]
    fn a_fast_quorum_is_never_denied() {
        for replicas in [1, 3, 5, 7] {
            let majority = Quorums::majority(replicas);
            for votes in 0..1u32 << replicas {
                for answers in (0..1u32 << replicas).filter(|set| set.count_ones() as usize >= majority) {
                    let vote = |replica: &usize| {
                        let ok = votes & 1 << replica != 0;
                        held(0, Some(if ok { Vote::Ok } else { Vote::Abstain }), None)
                    };
                    let told: Vec<Held> = (0..replicas)
                        .filter(|replica| answers & 1 << replica != 0)
                        .map(|at| vote(&at))
                        .collect();
                    let said = said(told.iter(), 0, replicas);
                    let all = votes.count_ones() as usize;
                    assert!(all < replicas || said != Said::No, "{replicas} {votes:b} {answers:b}");
                    assert!(said != Said::Yes || all >= majority, "{replicas} {votes:b} {answers:b}");
                }
            }
        }
    }

    #[test]
    fn what_was_accepted_under_the_highest_ballot_stands() {
        let client = held(0, Some(Vote::Ok), Some(Ballot::CLIENT));
        let taken = held(0, Some(Vote::Abort), Some(TAKEN));
        assert_eq!(said([&client, &taken].into_iter(), 0, 3), Said::No);
        let vote = held(0, Some(Vote::Abstain), None);
        assert_eq!(said([&client, &vote].into_iter(), 0, 3), Said::Yes);
    }

    /// The first of the three replicas of a partition.
    struct First {
        server: Server,
        outbox: Outbox<Server>,
        now: Instant,
    }

    fn replica(seat: u8) -> ProcessId {
        let (keyspace, partition, node) = (KeyspaceId(1), PartitionId(0), NodeId(seat.into()));
        ProcessId { node, keyspace, partition, role: family::SERVER, instance: 0 }
    }

    impl First {
        fn new() -> First {
            let member = |seat| Member { replica: ReplicaId(seat), process: replica(seat) };
            let groups = [Group { members: (0..3).map(member).collect(), spares: [].into() }].into();
            let map = Map { keyspace: KeyspaceId(1), split: Split::Hash, groups };
            let parameters = Parameters::for_rtt(Span::from_millis(10));
            let setup = family::Server { map, partition: PartitionId(0), clients: [].into(), parameters };
            let server = Server::open(Identity { process: replica(0), incarnation: 1 }, &setup);
            First { server, outbox: Outbox::new(replica(0), Random::seeded(1)), now: Instant::ZERO }
        }

        /// What it says.
        fn run(&mut self, input: impl FnOnce(&mut Server, &mut Effects<Server>)) -> Vec<Message> {
            input(&mut self.server, self.outbox.input(self.now, Stamp::from_nanos(1)));
            let message = |effect: Effect<Server>| match effect {
                Effect::Send { message, .. } => Some(message),
                _ => None,
            };
            self.outbox.drain().filter_map(message).collect()
        }

        fn hear(&mut self, from: ProcessId, message: Message) -> Vec<Message> {
            self.run(|server, effects| server.receive(from, message, effects))
        }

        /// Takes a transaction over; the ballot under which it asks.
        fn take_over(&mut self, txn: TxnId) -> Ballot {
            let asks = self.run(|server, effects| server.take_over(txn, effects));
            let ballot = |message: &Message| match message {
                Message::Inquire { ballot, .. } => Some(*ballot),
                _ => None,
            };
            asks.iter().find_map(ballot).unwrap()
        }
    }

    /// What the first replica of three proposes where these promise, each with what it holds and whether it is sure.
    fn proposed(promises: &[(u8, &Held, bool)]) -> Vec<Vote> {
        let mut first = First::new();
        let name = held(0, None, None).name;
        let (part, below, done, cleared) = (Arc::<Part>::default(), 0, 0, Vec::new());
        let prepare = Message::Prepare { name: name.clone(), part, view: 0, below, done, cleared };
        first.hear(name.txn.client.process, prepare);
        let ballot = first.take_over(name.txn);
        let mut said = Vec::new();
        for (seat, held, sure) in promises {
            let promise = Message::Promised { ballot, view: 0, held: (*held).clone(), sure: *sure };
            said.extend(first.hear(replica(*seat), promise));
        }
        let vote = |message: Message| match message {
            Message::Finalize { vote, .. } => Some(vote),
            _ => None,
        };
        said.into_iter().filter_map(vote).collect()
    }

    #[test]
    fn who_may_have_forgotten_aborts_and_commits_nothing() {
        let (nothing, vote) = (held(0, None, None), held(0, Some(Vote::Ok), None));
        let accepted = held(0, Some(Vote::Ok), Some(TAKEN));
        let refused = |ballot: Ballot| held(0, Some(Vote::Abort), Some(ballot));
        let (abort, commit) = (vec![Vote::Abort; 3], vec![Vote::Ok; 3]);
        // The third is silent. Had all voted for it, or two accepted it, and nobody forgotten, these would know.
        assert_eq!(proposed(&[(0, &vote, true), (1, &nothing, false)]), abort);
        // It may have been accepted by two; or refused, under a later ballot, by the one that does not know.
        let one = [(0, &accepted, true), (1, &nothing, false)];
        assert_eq!(proposed(&one), []);
        assert_eq!(proposed(&[one[0], one[1], (2, &vote, true)]), commit, "two are sure");
        assert_eq!(proposed(&[one[0], one[1], (2, &nothing, false)]), abort, "two have accepted nothing");
        // What it has refused since it may have refused before under a later ballot.
        let (earlier, later) = (refused(Ballot { round: 1, by: 0 }), refused(Ballot { round: 2, by: 0 }));
        assert_eq!(proposed(&[one[0], (1, &earlier, false)]), []);
        assert_eq!(proposed(&[one[0], (1, &later, false)]), abort);
    }

    /// It says so of what it never voted for, keeps its promise, and takes no part in a commit.
    #[test]
    fn a_replica_says_what_it_may_have_forgotten() {
        let mut first = First::new();
        let name = held(0, None, None).name;
        let client = name.txn.client;
        let another = |client: ClientId, sequence: u64| {
            let txn = TxnId { client, sequence };
            Name { txn, ..name.clone() }
        };
        let prepare = |name: &Name| {
            let (name, part, below, done, cleared) = (name.clone(), Arc::<Part>::default(), 0, 0, Vec::new());
            Message::Prepare { name, part, view: 0, below, done, cleared }
        };
        let ballot = |by: u64| Ballot { round: 1, by };
        let ask = |by: u64, name: &Name| Message::Inquire { name: name.clone(), ballot: ballot(by) };
        let finalize = |vote: Vote| {
            let (name, part) = (name.clone(), Some(Arc::<Part>::default()));
            Message::Finalize { name, ballot: ballot(2), view: 0, vote, part }
        };
        let voted = another(client, 2);
        first.hear(client.process, prepare(&voted));
        // So many later lives of the client are known that what was known of this one may be gone.
        let latest = LIVES_MAX as u32;
        for incarnation in 2..=latest {
            first.server.state.done(ClientId { incarnation, ..client }, 0);
        }
        assert_eq!(first.hear(client.process, prepare(&name)), []);
        assert_eq!(first.hear(replica(2), finalize(Vote::Ok)), []);
        let said = first.hear(replica(2), ask(2, &name));
        assert!(matches!(said[..], [Message::Promised { sure: false, .. }]), "{said:?}");
        let said = first.hear(replica(1), ask(1, &name));
        assert!(matches!(said[..], [Message::Outbid { .. }]), "{said:?}");
        assert_eq!(first.hear(replica(2), finalize(Vote::Ok)), []);
        let said = first.hear(replica(2), finalize(Vote::Abort));
        assert!(matches!(said[..], [Message::Confirmed { .. }]), "{said:?}");
        let said = first.hear(replica(2), ask(3, &name));
        assert!(matches!(said[..], [Message::Promised { sure: false, .. }]), "{said:?}");
        // What it has voted for, and what of the latest lives it never heard of.
        for name in [voted, another(ClientId { incarnation: latest, ..client }, 1)] {
            let said = first.hear(replica(2), ask(2, &name));
            assert!(matches!(said[..], [Message::Promised { sure: true, .. }]), "{said:?}");
        }
    }

    #[test]
    fn a_ballot_is_taken_once_whatever_views_and_restarts_forget() {
        let name = held(0, None, None).name;
        let taken = Ballot::CLIENT.above(replica(0));
        for kept in [Vec::new(), vec![held(0, Some(Vote::Ok), Some(Ballot::CLIENT))]] {
            let (part, vote) = (Arc::default(), Vote::Ok);
            let voted = Record::Voted { name: name.clone(), part, vote, below: 0, done: 0 };
            let promised = Record::Promised { name: name.clone(), ballot: taken };
            let installed = Record::Installed { view: 1, held: kept.clone(), ended: Vec::new() };
            let (mut replayed, mut restored) = (First::new(), First::new());
            for record in [voted.clone(), promised, installed, voted] {
                replayed.server.replay(record);
            }
            for chunk in replayed.server.snapshot().unwrap() {
                restored.server.restore(chunk).unwrap();
            }
            let again = [replayed, restored].map(|mut first| first.take_over(name.txn));
            assert!(again.iter().all(|ballot| *ballot > taken), "{again:?}, where {kept:?} is agreed on");
        }
    }

    /// A replica proposes in a view before it hears how that began: without the transaction, which then comes late, and
    /// another one is in its way.
    #[test]
    fn what_is_proposed_twice_in_a_view_is_proposed_under_two_ballots() {
        let mut first = First::new();
        let update = Update { key: Blob::from("x"), value: Some(Blob::from("v")) };
        let part = Arc::new(Part { reads: vec![(Blob::from("x"), Version::NONE)], writes: vec![update] });
        let name = held(0, None, None).name;
        let client = name.txn.client.process;
        let prepare = |name: &Name, view| {
            let (name, part) = (name.clone(), part.clone());
            Message::Prepare { name, part, view, below: 0, done: 0, cleared: Vec::new() }
        };
        let promise = |ballot, vote| {
            let held = Held { part: Some(part.clone()), promised: ballot, ..held(0, Some(vote), None) };
            Message::Promised { ballot, view: 1, held, sure: true }
        };
        let proposed = |said: Vec<Message>| -> Vec<(Ballot, u64, Vote)> {
            let proposal = |message| match message {
                Message::Finalize { ballot, view, vote, .. } => Some((ballot, view, vote)),
                _ => None,
            };
            said.into_iter().filter_map(proposal).collect()
        };
        first.hear(client, prepare(&name, 0));
        let one = first.take_over(name.txn);
        first.hear(replica(1), promise(one, Vote::Ok));
        let said = proposed(first.hear(replica(2), promise(one, Vote::Ok)));
        assert_eq!(said, vec![(one, 1, Vote::Ok); 3]);
        first.hear(replica(1), Message::StartView { view: 1, held: Vec::new(), ended: Vec::new() });
        let other = Name { txn: TxnId { sequence: 2, ..name.txn }, at: Version(2), ..name.clone() };
        first.hear(client, prepare(&other, 1));
        first.hear(client, prepare(&name, 1));
        let two = first.take_over(name.txn);
        first.hear(replica(0), promise(two, Vote::Abstain));
        let said = proposed(first.hear(replica(2), promise(two, Vote::Ok)));
        assert_eq!(said, vec![(two, 1, Vote::Abort); 3]);
        // The others have accepted what was proposed first.
        for seat in [1, 2] {
            let (txn, attempt) = (name.txn, 0);
            let said = first.hear(replica(seat), Message::Confirmed { txn, attempt, ballot: one, view: 1 });
            assert!(said.is_empty(), "they are counted for the second: {said:?}");
        }
        assert!(two > one);
    }

    /// As many as are taken over at once cannot be ended, since nobody answers: those behind them have their turn.
    #[test]
    fn what_cannot_be_ended_holds_up_nothing_else() {
        let mut first = First::new();
        let Name { txn, participants, .. } = held(0, None, None).name;
        let last = AT_ONCE as u64 + 1;
        for sequence in 1..=last {
            let name = Name {
                txn: TxnId { sequence, ..txn },
                participants: participants.clone(),
                attempt: 0,
                at: Version(sequence),
            };
            let (part, view, below, done, cleared) = (Arc::default(), 0, 0, 0, Vec::new());
            let prepare = Message::Prepare { name, part, view, below, done, cleared };
            first.hear(txn.client.process, prepare);
        }
        let asked =
            |message: &Message| matches!(message, Message::Inquire { name, .. } if name.txn.sequence == last);
        let heard = (0..200).any(|_| {
            first.now = first.now + first.server.parameters.resend;
            first.run(|server, effects| server.sweep(effects)).iter().any(asked)
        });
        assert!(heard, "it was never asked about");
    }

    #[test]
    fn the_latest_try_counts_unless_a_takeover_settled_on_an_earlier_one() {
        let (first, second) = (held(0, Some(Vote::Ok), Some(Ballot::CLIENT)), held(1, Some(Vote::Ok), None));
        assert_eq!(counting([&first, &second].into_iter()), Some((1, Version(2))));
        let taken = held(0, Some(Vote::Abort), Some(TAKEN));
        assert_eq!(counting([&taken, &second].into_iter()), Some((0, Version(1))));
        assert_eq!(said([&first, &second].into_iter(), 1, 3), Said::No, "an earlier try's vote is none");
    }
}
