//! The cases of `specs/sdpaxos.md` 8 as conversations, and bugs that were found once, each by its story.
//!
//! Messages arrive at once and in order but for those that a case loses or keeps back; disks are instant;
//! time passes where a case says so.

mod failover;
mod straggler;

use super::assignment::{NOBODY, Rank};
use super::message::{Message, Objects, Part, Record, Timer};
use super::{Mutation, Order, Parameters};
use crate::family::Tuning as _;
use crate::order::{Member, Order as _, Ordered, Setup, Step};
use crate::request::Change;
use crate::service::Reply;
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Ballot, Blob, CommandId, Effect, Effects, Identity, Instant, KeyspaceId, NodeId, Outbox, PartitionId,
    Process, ProcessId, Random, ReplicaId, Role, Span, Stamp, Ticket, wire,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// A write of a key, or a read of it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
struct Letter {
    name: u8,
    key: Blob,
    reads: bool,
}

fn write(name: u8) -> Letter {
    Letter { name, key: Blob::from(vec![0]), reads: false }
}

impl Ordered for Letter {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::Key(&self.key, if self.reads { Access::Read } else { Access::Update }));
    }
    fn id(&self) -> Option<CommandId> {
        None
    }
    fn reads(&self) -> bool {
        self.reads
    }
}

type Said = Message<Letter>;

/// Whether a message arrives.
type Filter = fn(from: usize, to: usize, message: &Said) -> bool;

struct Group {
    setup: Setup<Parameters>,
    orders: Vec<Order<Letter>>,
    outboxes: Vec<Outbox<Order<Letter>>>,
    records: Vec<Vec<Record<Letter>>>,
    lives: Vec<u32>,
    timers: BTreeMap<(usize, Timer), Instant>,
    network: VecDeque<(usize, usize, Said)>,
    kept: Vec<(usize, usize, Said)>,
    passes: Filter,
    /// What does not pass is kept for later instead of lost.
    keeps: bool,
    /// Slots are told to their owners only, those of R0 to R2.
    sparse: bool,
    down: Vec<bool>,
    now: Instant,
    /// How fast each steady clock goes, percent.
    rates: Vec<u64>,
    executed: Vec<Vec<u8>>,
    ready: Vec<Vec<u8>>,
    read: Vec<Vec<u8>>,
    completed: Vec<Ticket>,
}

fn process(node: usize) -> ProcessId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    ProcessId { node: NodeId(node as u16), keyspace, partition, role: Role(0), instance: 0 }
}

fn all(_: usize, _: usize, _: &Said) -> bool {
    true
}

fn view(round: u32, owner: u8) -> Ballot {
    Ballot { round, owner: ReplicaId(owner) }
}

const START: Instant = Instant::from_nanos(1_000_000_000);

impl Group {
    fn new(count: usize, mutation: Option<Mutation>) -> Group {
        let mut parameters = Parameters::for_rtt(Span::from_millis(10));
        (parameters.mutation, parameters.thrifty) = (mutation, false);
        Group::with(count, parameters)
    }

    fn with(count: usize, mut parameters: Parameters) -> Group {
        parameters.reply = Reply::Commit;
        let member = |node: usize| Member { replica: ReplicaId(node as u8), process: process(node) };
        let members = (0..count).map(member).collect();
        let setup = Setup { members, preferred: Some(ReplicaId(0)), parameters };
        let open = |node| Order::open(Identity { process: process(node), incarnation: 1 }, &setup);
        let mut group = Group {
            orders: (0..count).map(open).collect(),
            outboxes: (0..count)
                .map(|node| Outbox::new(process(node), Random::seeded(node as u64)))
                .collect(),
            setup,
            records: vec![Vec::new(); count],
            lives: vec![1; count],
            timers: BTreeMap::new(),
            network: VecDeque::new(),
            kept: Vec::new(),
            passes: all,
            keeps: false,
            sparse: false,
            down: vec![false; count],
            now: START,
            rates: vec![100; count],
            executed: vec![Vec::new(); count],
            ready: vec![Vec::new(); count],
            read: vec![Vec::new(); count],
            completed: Vec::new(),
        };
        for node in 0..count {
            group.act(node, |order, effects| order.start(effects));
        }
        group.deliver();
        group
    }

    fn act(&mut self, node: usize, input: impl FnOnce(&mut Order<Letter>, &mut Effects<Order<Letter>>)) {
        let mut input = Some(input);
        let mut own = VecDeque::new();
        loop {
            let now = self.clock(node);
            let effects = self.outboxes[node].input(now, Stamp::ZERO);
            let order = &mut self.orders[node];
            match (input.take(), own.pop_front()) {
                (Some(input), _) => input(order, effects),
                (None, Some(message)) => order.receive(process(node), message, effects),
                (None, None) => break,
            }
            order.settle(effects);
            order.check();
            while let Some(step) = order.step(now) {
                match step {
                    Step::Decided(decided) => {
                        self.executed[node].extend(decided.values.iter().map(|letter| letter.name));
                    }
                    Step::Committed(letter, _) => self.ready[node].push(letter.name),
                    Step::Local(letter) | Step::Near(letter) => self.read[node].push(letter.name),
                    Step::Dropped | Step::Tentative(_) => {}
                }
            }
            for effect in self.outboxes[node].drain() {
                match effect {
                    Effect::Record { record, .. } => self.records[node].push(record),
                    Effect::Send { to, message, .. } if to == process(node) => own.push_back(message),
                    Effect::Send { to, message, .. } => {
                        self.network.push_back((node, usize::from(to.node.0), message));
                    }
                    Effect::Arm { timer, after } => {
                        self.timers.insert((node, timer), self.now + after * 100 / self.rates[node]);
                    }
                    Effect::Disarm { timer } => {
                        self.timers.remove(&(node, timer));
                    }
                    Effect::Complete { ticket, outcome: Ok(()), .. } => self.completed.push(ticket),
                    _ => {}
                }
            }
        }
    }

    /// What a member's steady clock says.
    fn clock(&self, node: usize) -> Instant {
        START + self.now.since(START) * self.rates[node] / 100
    }

    /// All that is under way arrives, but for what the case loses.
    fn deliver(&mut self) {
        while let Some((from, to, mut message)) = self.network.pop_front() {
            if self.down[to] || self.down[from] {
                continue;
            }
            if self.sparse {
                thin(to, &mut message);
            }
            if (self.passes)(from, to, &message) {
                self.act(to, |order, effects| order.receive(process(from), message, effects));
            } else if self.keeps {
                self.kept.push((from, to, message));
            }
        }
    }

    fn propose(&mut self, node: usize, name: u8) {
        self.propose_key(node, name, 0);
    }

    fn propose_key(&mut self, node: usize, name: u8, key: u8) {
        let (now, letter) = (self.clock(node), Letter { key: Blob::from(vec![key]), ..write(name) });
        self.act(node, |order, _| order.propose(letter, 1, now).unwrap_or_default());
        self.deliver();
    }

    fn ask(&mut self, node: usize, name: u8) {
        self.ask_key(node, name, 0);
    }

    fn ask_key(&mut self, node: usize, name: u8, key: u8) {
        let (now, letter) =
            (self.clock(node), Letter { reads: true, key: Blob::from(vec![key]), ..write(name) });
        self.act(node, |order, _| order.propose(letter, 1, now).unwrap_or_default());
        self.deliver();
    }

    /// Lets time pass, timer by timer.
    fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while self.pass_one(end) {}
        self.now = end;
    }

    /// Lets time pass until the next timer has fired, but not beyond `end`.
    fn pass_one(&mut self, end: Instant) -> bool {
        let next = self.timers.iter().filter(|((node, _), _)| !self.down[*node]);
        let next = next.min_by_key(|(_, at)| **at).map(|(key, at)| (*key, *at));
        let Some(((node, timer), at)) = next.filter(|(_, at)| *at <= end) else { return false };
        self.timers.remove(&(node, timer));
        self.now = self.now.max(at);
        self.act(node, |order, effects| order.expire(timer, effects));
        self.deliver();
        true
    }

    /// Lets time pass until somebody leads in a view above this one.
    fn pass_until_led(&mut self, view: Ballot) {
        let end = self.now + Span::from_secs(10);
        let leads = |order: &Order<Letter>| order.leads() && order.view > view;
        while !(0..self.orders.len()).any(|node| !self.down[node] && leads(&self.orders[node])) {
            assert!(self.pass_one(end), "nobody leads");
        }
    }

    fn pass_millis(&mut self, millis: u64) {
        self.pass(Span::from_millis(millis));
    }

    fn crash(&mut self, nodes: &[usize]) {
        nodes.iter().for_each(|node| self.down[*node] = true);
    }

    /// It comes back with what it has recorded.
    fn restart(&mut self, node: usize) {
        self.down[node] = false;
        self.lives[node] += 1;
        let identity = Identity { process: process(node), incarnation: self.lives[node] };
        let mut order = Order::open(identity, &self.setup);
        let mut executed = Vec::new();
        for record in &self.records[node] {
            order.replay(record.clone());
            while let Some(step) = order.step(Instant::ZERO) {
                if let Step::Decided(decided) = step {
                    executed.extend(decided.values.iter().map(|letter| letter.name));
                }
            }
        }
        self.timers.retain(|(at, _), _| *at != node);
        assert!(executed.len() >= self.executed[node].len(), "executed and forgotten");
        (self.orders[node], self.executed[node]) = (order, executed);
        self.act(node, |order, effects| order.start(effects));
        self.deliver();
    }

    /// The owners of the slots from the first on, as this replica knows them.
    fn owners(&self, node: usize) -> Vec<Rank> {
        let log = &self.orders[node].log;
        log.image(log.end()).owners().collect()
    }

    fn sequencer(&self) -> Option<usize> {
        (0..self.orders.len()).find(|node| !self.down[*node] && self.orders[*node].leads())
    }

    /// All that live have executed the same, and this many.
    fn agree(&self, count: usize) {
        let live: Vec<usize> = (0..self.orders.len()).filter(|node| !self.down[*node]).collect();
        for node in &live {
            assert_eq!(self.executed[*node], self.executed[live[0]], "{node} and {}", live[0]);
        }
        assert_eq!(self.executed[live[0]].len(), count, "{:?}", self.executed[live[0]]);
    }
}

fn parts(message: &Said) -> &[Part<Letter>] {
    match message {
        Message::Turn { parts, .. } => parts,
        _ => &[],
    }
}

/// Leaves of the slots told those of the receiver, and at R2 those of R0.
fn thin(to: usize, message: &mut Said) {
    let Message::Turn { parts, .. } = message else { return };
    for part in std::mem::take(parts) {
        match part {
            Part::Gap => {}
            Part::Order { first, runs } => {
                let owners =
                    runs.into_iter().flat_map(|(owner, count)| std::iter::repeat_n(owner, count as usize));
                for (first, owner) in (first..).zip(owners) {
                    if usize::from(owner) == to || (owner == 0 && to == 2) {
                        parts.push(Part::Order { first, runs: vec![(owner, 1)] });
                    }
                }
            }
            part => parts.push(part),
        }
    }
}

fn orders(message: &Said) -> bool {
    parts(message).iter().any(|part| matches!(part, Part::Order { .. }))
}

fn tells(message: &Said) -> bool {
    parts(message)
        .iter()
        .any(|part| matches!(part, Part::Ordered { .. } | Part::Commit { .. } | Part::Decided { .. }))
}

#[test]
fn commands_of_all_are_executed_in_one_order() {
    for count in [1, 2, 3, 4, 5, 6, 7] {
        let mut group = Group::new(count, None);
        for round in 0..3 {
            for node in 0..count {
                group.propose(node, (round * 10 + node) as u8);
            }
        }
        group.pass_millis(500);
        group.agree(3 * count);
        for node in 0..count {
            assert_eq!(group.ready[node].len(), 3, "{count}: {node}");
        }
    }
}

/// Figure 6: slots 1..5 are those of R0..R4 in turn, each known to its owner and the sequencer only, slot 1 also to
/// R2; nobody hears what is committed. C(1,1) arrives at R2 or at no voter.
fn figure_6(accepted: bool) -> Group {
    let mut group = Group::new(5, None);
    group.sparse = true;
    group.passes = match accepted {
        true => |from, to, message| !(tells(message) || from == 1 && to > 2),
        false => |from, to, message| !(tells(message) || from == 1 && to > 1),
    };
    for node in 0..5 {
        group.propose(node, node as u8);
    }
    assert_eq!(group.owners(0), [0, 1, 2, 3, 4]);
    assert_eq!(group.orders[2].log.image(5).runs, [(0, 1), (255, 1), (2, 1)]);
    assert_eq!(group.orders[3].log.image(5).runs, [(255, 3), (3, 1)]);
    (group.passes, group.sparse) = (all, false);
    group
}

/// R1 hears whose the slot before its own is by what others have executed alone. Its own is answered then, as where the sequencer
/// tells it.
#[test]
fn a_slot_behind_one_that_was_learnt_is_answered_when_it_is_committed() {
    let mut group = Group::new(3, None);
    group.sparse = true;
    group.passes = |_, to, message| to != 1 || !tells(message);
    group.propose(2, 2);
    group.propose(1, 1);
    assert_eq!(group.orders[1].log.image(2).runs, [(255, 1), (1, 1)]);
    assert!(group.ready[1].is_empty());
    let end = group.now + Span::from_secs(2);
    while group.executed[1].is_empty() {
        assert!(group.pass_one(end), "it learns nothing");
    }
    assert_eq!((group.executed[1][0], group.ready[1].as_slice()), (2, &[1][..]));
}

#[test]
fn f1_two_fail_and_the_order_is_rebuilt() {
    let mut group = figure_6(true);
    group.crash(&[0, 1]);
    group.pass_millis(3_000);
    let sequencer = group.sequencer().expect("somebody leads");
    assert_eq!(group.owners(sequencer)[..5], [0, 1, 2, 3, 4]);
    group.agree(5);
    for (node, name) in [(2, 2), (3, 3), (4, 4)] {
        assert_eq!(group.ready[node], [name]);
    }
}

#[test]
fn f2_a_command_nobody_accepted_is_proposed_again_by_its_owner() {
    let mut group = figure_6(false);
    group.crash(&[0, 1]);
    group.pass_millis(3_000);
    let sequencer = group.sequencer().expect("somebody leads");
    assert_eq!(group.owners(sequencer)[..5], [0, NOBODY, 2, 3, 4]);
    group.restart(1);
    group.restart(0);
    group.pass_millis(3_000);
    group.agree(5);
    assert_eq!(group.executed[2].iter().filter(|name| **name == 1).count(), 1, "once");
}

#[test]
fn f3_whoever_was_cut_off_with_the_old_sequencer_keeps_its_place() {
    let mut group = Group::new(5, None);
    group.passes = |_, _, message| !tells(message);
    group.propose(1, 1);
    assert_eq!(group.ready[1], [1], "answered");
    // R0 and R1 on one side, the others on the other.
    group.passes = |from, to, _| (from < 2) == (to < 2);
    group.pass_millis(3_000);
    group.propose(3, 3);
    group.pass_millis(1_000);
    assert_eq!(group.ready[3], [3]);
    assert_eq!(group.executed[2], [1, 3]);
    group.passes = all;
    group.pass_millis(3_000);
    group.agree(2);
}

/// R2 is ready in slot 5, known to R0 and itself only; it wins a view and dies before telling anyone its log;
/// another wins the next while R0 is cut off.
fn aborted_view(mutation: Option<Mutation>) -> Group {
    let mut group = Group::new(5, mutation);
    for node in [0, 1, 3, 4] {
        group.propose(node, node as u8);
    }
    group.pass_millis(300);
    group.passes = |_, to, message| !tells(message) && (!orders(message) || to == 2);
    group.propose(2, 2);
    assert_eq!(group.ready[2], [2], "answered");
    // R0 is cut off, and the view of R2 is told to nobody.
    group.down[0] = true;
    group.passes = |from, _, message| !matches!(message, Message::NewView { .. }) || from != 2;
    group.act(2, |order, effects| {
        order.grant = None;
        order.elect(None, effects);
    });
    for node in [1, 3, 4] {
        group.orders[node].grant = None;
    }
    group.deliver();
    assert_eq!(group.orders[3].view, view(1, 2), "it has the votes");
    assert_eq!(group.orders[3].installed, view(1, 0), "and nobody has its log");
    group.crash(&[2]);
    group.passes = all;
    group.pass_until_led(view(1, 2));
    group.propose(3, 33);
    assert_eq!(group.ready[3], [3, 33], "answered later");
    group.pass_millis(4_000);
    group
}

#[test]
fn f4_an_aborted_view_does_not_make_an_old_sequencer() {
    assert_eq!(aborted_view(None).executed[1], [0, 1, 3, 4, 2, 33], "slot 5 is R2's");
    let wrong = aborted_view(Some(Mutation::OldSequencerAfterAbortedView));
    assert_eq!(wrong.executed[1], [0, 1, 3, 4, 33, 2], "what was answered first comes last");
}

/// R1's first slot, 3, is lost on the way to everybody, and its second, 4, is not. A read of what its first command
/// writes is told to wait for slot 3; then the sequencer dies. Whether the write was answered, and whether the read has
/// seen it.
fn read_across_views(count: usize, mutation: Option<Mutation>) -> (bool, bool) {
    let mut group = Group::new(count, mutation);
    group.propose(0, 10);
    group.propose(0, 11);
    group.pass_millis(500);
    group.agree(2);
    group.passes = |_, _, message| {
        let lost = |part: &Part<Letter>| matches!(part, Part::Order { first, .. } if *first < 4);
        !tells(message) && !parts(message).iter().any(|part| lost(part) || matches!(part, Part::Gap))
    };
    group.propose_key(1, 1, 1);
    group.propose_key(1, 2, 2);
    let answered = group.ready[1].contains(&1);
    group.ask_key(2, 7, 1);
    assert_eq!(group.read[2], [] as [u8; 0], "it waits");
    group.crash(&[0]);
    group.passes = all;
    for node in 1..count {
        group.orders[node].grant = None;
    }
    group.act(2, |order, effects| order.elect(None, effects));
    // That the write is decided comes to the reader last: until then its slot is not executed there.
    let mut late = Vec::new();
    while group.read[2].is_empty() {
        let Some((from, to, message)) = group.network.pop_front() else { break };
        if to == 2 && tells(&message) {
            late.push((from, to, message));
        } else if to != 0 {
            group.act(to, |order, effects| order.receive(process(from), message, effects));
        }
    }
    group.network.extend(late);
    let mut seen = group.executed[2].contains(&1);
    group.deliver();
    group.pass_millis(3_000);
    let at = |name: u8| group.executed[2].iter().position(|known| *known == name);
    if group.read[2].is_empty() {
        // The new sequencer had no lease yet: the read was ordered.
        seen = at(1) < at(7);
    }
    assert!(at(1).is_some() && (at(7).is_some() || group.read[2] == [7]), "{:?}", group.executed[2]);
    (answered, seen)
}

#[test]
fn s4_a_slot_named_in_one_view_means_nothing_in_the_next() {
    for count in [3, 7] {
        assert_eq!(read_across_views(count, None), (false, true), "{count}: neither answered nor overlooked");
        let wrong = read_across_views(count, Some(Mutation::SlotAcrossViews));
        assert_eq!(wrong, (true, false), "{count}: a write that was answered");
    }
}

/// R1 votes for R2, restarts before R2's log is there, and goes on with R0 if it has forgotten its vote. Whether a
/// command was answered meanwhile, and whether two replicas have executed different commands.
fn forgotten_vote(mutation: Option<Mutation>) -> (bool, bool) {
    let mut group = Group::new(3, mutation);
    group.propose(0, 10);
    group.pass_millis(500);
    (0..3).for_each(|node| group.orders[node].grant = None);
    group.keeps = true;
    group.passes = |from, to, message| {
        let view = matches!(message, Message::NewView { .. } | Message::Beat(_) | Message::Stale { .. });
        let apart = (to == 2 && from == 0) || (from == 2 && to == 0);
        !(apart || (view && from == 2))
    };
    group.act(2, |order, effects| order.elect(None, effects));
    group.deliver();
    assert!(group.orders[2].leads(), "it has two votes");
    group.crash(&[1]);
    group.restart(1);
    group.propose(0, 1);
    let answered = group.ready[0].contains(&1);
    group.propose(2, 2);
    group.passes = all;
    group.network.extend(std::mem::take(&mut group.kept));
    group.deliver();
    group.pass_millis(3_000);
    (answered, group.executed[0] != group.executed[2])
}

#[test]
fn a_vote_is_for_ever() {
    assert_eq!(forgotten_vote(None), (false, false));
    assert_eq!(forgotten_vote(Some(Mutation::ForgetVote)), (true, true));
}

/// R1 asks for a slot ahead of its record and loses that record in a crash. Whether a later command of R1 comes
/// behind one that was answered before.
fn lost_number(mutation: Option<Mutation>) -> bool {
    let mut group = Group::new(3, mutation);
    group.propose(1, 9);
    group.pass_millis(500);
    group.passes = |from, to, _| from == 1 && to == 0;
    group.propose(1, 8);
    group.crash(&[1]);
    group.records[1].pop();
    group.passes = |from, to, _| !(from == 1 && to == 0 || from == 0 && to == 1);
    group.propose(2, 2);
    assert_eq!(group.ready[2], [2]);
    group.restart(1);
    group.pass_millis(200);
    group.passes = all;
    group.propose(1, 1);
    group.pass_millis(3_000);
    let at = |name: u8| group.executed[0].iter().position(|known| *known == name);
    assert!(at(1).is_some() && at(2).is_some(), "{:?}", group.executed[0]);
    at(2) < at(1)
}

#[test]
fn a_number_that_may_have_been_used_is_not_used_again() {
    assert!(lost_number(None));
    assert!(!lost_number(Some(Mutation::ReuseIndex)), "the new command has the slot of the lost one");
}

/// R2's command is accepted by a majority and has no slot; R1 becomes the sequencer of R2 alone, and both die. What was
/// answered, and in which order R3 and R2 have their places.
fn inactive_view(mutation: Option<Mutation>) -> (bool, bool) {
    let mut group = Group::new(5, mutation);
    group.pass_millis(300);
    group.passes = |from, to, message| !(tells(message) || from == 2 && to == 0);
    group.propose(2, 2);
    group.down[0] = true;
    (0..5).for_each(|node| group.orders[node].grant = None);
    group.passes =
        |_, to, message| to == 2 || !matches!(message, Message::NewView { .. } | Message::FetchView { .. });
    group.act(1, |order, effects| order.elect(None, effects));
    group.deliver();
    assert_eq!((group.orders[2].installed, group.orders[3].installed), (view(1, 1), view(1, 0)));
    let answered = group.ready[2].contains(&2);
    group.crash(&[1, 2]);
    group.down[0] = false;
    group.passes = all;
    group.pass_until_led(view(1, 1));
    group.propose(3, 33);
    group.pass_millis(3_000);
    group.restart(1);
    group.restart(2);
    group.pass_millis(4_000);
    let at = |name: u8| group.executed[3].iter().position(|known| *known == name);
    assert!(at(2).is_some() && at(33).is_some(), "{:?}", group.executed[3]);
    (answered, at(2) < at(33))
}

#[test]
fn nothing_is_answered_in_a_view_that_is_not_active() {
    assert!(!inactive_view(None).0);
    assert_eq!(inactive_view(Some(Mutation::ActBeforeActive)), (true, false), "answered first, placed last");
}

#[test]
fn f5_no_slot_waits_for_a_command_to_come() {
    for mutation in [None, Some(Mutation::LoopRepeats)] {
        let mut group = Group::new(5, mutation);
        group.propose(4, 40);
        group.pass_millis(300);
        // The sequencer dies, and R4, which lives, is not among the voters.
        group.crash(&[0]);
        group.passes = |_, to, message| to != 4 || !matches!(message, Message::ViewRequest { .. });
        while group.sequencer().is_none() {
            group.pass_millis(10);
        }
        group.propose(1, 1);
        group.propose(4, 41);
        group.pass_millis(1_000);
        // R1's command was answered before R4's second was proposed.
        let sound = group.executed[1] == [40, 1, 41];
        assert_eq!(sound, mutation.is_none(), "{:?}", group.executed[1]);
    }
}

#[test]
fn f11_repeated_and_overtaken_requests_take_one_slot_each() {
    let mut group = Group::new(3, None);
    group.keeps = true;
    // Everything R1 says to the sequencer comes late, twice and in the wrong order.
    group.passes = |from, to, message| !(from == 1 && to == 0 && matches!(message, Message::Turn { .. }));
    for name in 0..4 {
        group.propose(1, name);
    }
    group.passes = all;
    let kept = std::mem::take(&mut group.kept);
    for (from, to, message) in kept.iter().rev().chain(&kept).cloned() {
        group.network.push_back((from, to, message));
    }
    group.deliver();
    group.pass_millis(500);
    assert_eq!(group.owners(0), [1, 1, 1, 1]);
    group.agree(4);
}

/// What others have left out of its instances waited as if it took no room, all of it for one instance, which may be more than
/// a message takes; and the last of it stood in front.
#[test]
fn what_was_left_out_is_proposed_again_in_its_order_and_in_as_many_instances() {
    let mut parameters = Parameters::for_rtt(Span::from_millis(10));
    (parameters.thrifty, parameters.batch_bytes) = (false, 1);
    let mut group = Group::with(3, parameters);
    group.passes = |from, to, _| from != 1 && to != 1;
    (1..=6).for_each(|name| group.propose(1, name));
    // Its requests alone have arrived.
    let now = group.now;
    group.act(0, |order, _| order.assign(1, 1, 6, &Objects::All, true, now));
    group.pass_millis(3_000);
    assert_eq!(group.orders[0].counts[1], 6, "nothing is executed in its instances");
    group.passes = all;
    group.pass_millis(3_000);
    group.agree(6);
    assert_eq!(group.executed[0], [1, 2, 3, 4, 5, 6]);
    assert_eq!(group.owners(0), [1; 12], "each is alone, as before");
}

/// After a restart more numbers are passed over than four windows, which nobody took at once.
#[test]
fn a_restart_gets_over_more_numbers_than_a_small_window_has() {
    for (members, node) in [(1, 0), (3, 0), (3, 1)] {
        let mut parameters = Parameters::for_rtt(Span::from_millis(10));
        (parameters.thrifty, parameters.window) = (false, 2);
        let mut group = Group::with(members, parameters);
        group.propose(node, 1);
        group.pass_millis(200);
        group.crash(&[node]);
        group.restart(node);
        if node == 1 {
            // What it says to the sequencer is lost for now, and enough for what it takes back.
            group.passes = |from, to, message| from != 1 || to != 0 || parts(message).is_empty();
            group.pass_millis(50);
            group.passes = all;
        }
        group.propose(node, 2);
        group.pass_millis(5_000);
        assert_eq!(group.executed[node], [1, 2], "member {node} of {members}");
    }
}

#[test]
fn f12_a_restart_reuses_no_number_and_votes_once() {
    let mut group = Group::new(3, None);
    group.passes = |from, _, message| from != 1 || !tells(message);
    group.propose(1, 1);
    let used = group.orders[1].next;
    group.crash(&[1]);
    group.restart(1);
    assert!(group.orders[1].next >= used, "a number used before the crash");
    group.passes = all;
    group.pass_millis(1_000);
    group.propose(1, 2);
    group.pass_millis(500);
    group.agree(2);
    // A vote outlives a restart.
    group.pass_millis(1_000);
    for node in 0..3 {
        group.orders[node].grant = None;
    }
    group.passes =
        |_, to, message| to != 2 || !matches!(message, Message::Vote { .. } | Message::NewView { .. });
    let voted = view(2, 2);
    group.act(1, |order, effects| order.on_view_request(process(2), voted, None, effects));
    // The voter restarted once before: a whole lease has passed since.
    assert_eq!(group.orders[1].view, voted);
    group.crash(&[1]);
    group.restart(1);
    assert_eq!(group.orders[1].view, voted);
}

#[test]
fn s5_an_isolated_sequencer_answers_no_read_when_its_lease_is_over() {
    for mutation in [None, Some(Mutation::ReadAfterLease)] {
        let mut group = Group::new(3, mutation);
        group.propose(0, 1);
        group.pass_millis(500);
        group.ask(0, 7);
        assert_eq!(group.read[0], [7], "under its lease");
        group.passes = |from, to, _| from != 0 && to != 0;
        group.pass_millis(3_000);
        group.propose(1, 2);
        group.pass_millis(500);
        assert_eq!(group.ready[1], [2], "others go on");
        group.ask(0, 8);
        let stale = group.read[0].contains(&8);
        assert_eq!(stale, mutation.is_some(), "{mutation:?}");
        group.passes = all;
        group.pass_millis(3_000);
        group.agree(if mutation.is_none() { group.executed[0].len() } else { 2 });
    }
}

/// A sequencer whose clock goes this fast, and whose file has leases so many times as long, is cut off, others go on, and
/// it is asked.
fn reads_what_was(rate: u64, longer: u64) -> bool {
    let mut group = Group::new(3, None);
    group.rates[0] = rate;
    let knobs = &mut group.orders[0].knobs.0;
    knobs.lease_length = knobs.lease_length * longer;
    group.propose(0, 1);
    group.pass_millis(500);
    group.ask(0, 7);
    assert_eq!(group.read[0], [7], "under its lease");
    group.passes = |from, to, _| from != 0 && to != 0;
    group.pass_until_led(view(1, 0));
    group.propose(1, 2);
    while group.ready[1].is_empty() {
        let end = group.now + Span::from_secs(1);
        assert!(group.pass_one(end), "others go on");
    }
    group.ask(0, 8);
    group.read[0].contains(&8)
}

#[test]
fn s6_a_clock_beyond_the_margin_breaks_reads() {
    // The margin is a hundredth.
    assert!(!reads_what_was(100, 1));
    assert!(!reads_what_was(99, 1));
    assert!(reads_what_was(25, 1), "a clock four times too slow, which this test must be able to see");
    assert!(!reads_what_was(100, 8), "a lease is as long as its granter says");
}

/// Bytes that the sequencer of five sends, and is sent besides commands that are decided, for one command of
/// this length of another member whose quorum it is not in.
fn bytes_at_sequencer(length: usize) -> usize {
    let parameters = Parameters { thrifty: true, ..Parameters::for_rtt(Span::from_millis(10)) };
    let mut group = Group::with(5, parameters);
    // Far from R3, to which all others are near.
    for (trip, millis) in group.orders[3].contact.trips.iter_mut().zip([50, 10, 10, 0, 10]) {
        *trip = isochrone_core::RoundTrip::default();
        trip.least(Span::from_millis(millis));
    }
    let letter = Letter { key: Blob::from(vec![0; length]), ..write(1) };
    let now = group.now;
    group.act(3, |order, _| order.propose(letter, length, now).unwrap_or_default());
    let (mut bytes, mut values) = (0, 0);
    let end = group.now + Span::from_millis(200);
    loop {
        while let Some((from, to, message)) = group.network.pop_front() {
            for part in parts(&message).iter().filter(|_| from == 0 || to == 0) {
                match part {
                    Part::Decided { .. } => values += 1,
                    Part::Accept { .. } => panic!("it is not in the quorum"),
                    part => bytes += wire::encoded_size(part),
                }
            }
            group.act(to, |order, effects| order.receive(process(from), message, effects));
        }
        if !group.pass_one(end) {
            break;
        }
    }
    assert_eq!(values, 1, "the command itself came once");
    group.agree(1);
    bytes
}

#[test]
fn p2_what_ordering_a_command_costs_does_not_depend_on_its_length() {
    // But for the hash of its key, whose length differs by a few bytes.
    let (small, large) = (bytes_at_sequencer(100), bytes_at_sequencer(10_000));
    assert!(small > 0 && small.abs_diff(large) < 9, "{small} and {large} bytes");
}

#[test]
fn p3_order_instances_are_fewer_by_what_shares_one() {
    for share in [1, 2, 4, 8] {
        let parameters =
            Parameters { batch: false, order_batch: share, ..Parameters::for_rtt(Span::from_millis(10)) };
        let mut group = Group::with(3, parameters);
        let now = group.now;
        group.act(1, |order, _| {
            for name in 0..8 {
                order.propose(write(name), 1, now).unwrap_or_default();
            }
        });
        let mut told = 0;
        while let Some((from, to, message)) = group.network.pop_front() {
            for part in parts(&message).iter().filter(|_| (from, to) == (0, 1)) {
                if let Part::Order { runs, .. } = part {
                    told += runs.len();
                }
            }
            group.act(to, |order, effects| order.receive(process(from), message, effects));
        }
        assert_eq!(told, 8 / share as usize, "{share} slots in one order instance");
        group.agree(8);
    }
}

#[test]
fn an_answer_to_a_read_of_a_former_life_names_no_slot() {
    let mut group = Group::new(3, None);
    group.propose(1, 1);
    group.pass_millis(500);
    group.keeps = true;
    group.passes =
        |_, to, message| to != 1 || !parts(message).iter().any(|part| matches!(part, Part::ReadAt(_)));
    group.ask(1, 7);
    group.crash(&[1]);
    group.restart(1);
    group.ask(1, 8);
    let old = group.kept.first().cloned();
    group.network.extend(old);
    group.passes = all;
    group.deliver();
    assert_eq!(group.read[1], [] as [u8; 0], "the answer is not to this read");
    group.pass_millis(500);
    assert_eq!(group.read[1], [8]);
}

#[test]
fn the_role_of_sequencer_is_handed_over_without_waiting_for_a_lease() {
    for count in [3, 5] {
        let mut group = Group::new(count, None);
        group.propose(1, 1);
        group.pass_millis(500);
        // Asked of somebody who is neither.
        group.act(1, |order, effects| order.change(Ticket(5), Change::Lead(NodeId(2)), effects));
        group.deliver();
        assert_eq!((group.sequencer(), &group.completed[..]), (Some(2), &[Ticket(5)][..]));
        group.act(2, |order, effects| order.change(Ticket(6), Change::Resign, effects));
        group.deliver();
        assert_eq!((group.sequencer(), group.completed.len()), (Some(0), 2));
        group.propose(2, 2);
        group.pass_millis(500);
        group.agree(2);
    }
}

#[test]
fn a_release_is_good_for_one_life_of_the_sequencer() {
    let mut group = Group::new(3, None);
    group.pass_millis(500);
    group.keeps = true;
    group.passes = |from, _, message| from != 0 || !matches!(message, Message::Beat(_));
    group.pass(group.setup.parameters.heartbeat);
    let beats = std::mem::take(&mut group.kept);
    assert_eq!(beats.len(), 2, "one to each");
    group.passes = |_, _, message| !matches!(message, Message::Handover { .. });
    group.act(0, |order, effects| order.change(Ticket(5), Change::Lead(NodeId(2)), effects));
    group.deliver();
    let kept = std::mem::take(&mut group.kept);
    group.crash(&[0]);
    group.restart(0);
    group.passes = |from, to, message| {
        !matches!(message, Message::Handover { .. })
            && (from != 0 || to != 2 || !matches!(message, Message::Turn { .. }))
    };
    group.pass_millis(1_000);
    group.ask(0, 7);
    assert_eq!(group.read[0], [7], "it holds a lease again");
    group.passes = all;
    // Nor do late signs of life of the first life let go of it.
    group.network.extend(beats.into_iter().chain(kept.into_iter().take(1)));
    let now = group.now;
    group.deliver();
    assert_eq!(group.orders[1].view, view(1, 0), "the vote waits for the lease of the second life: {now}");
}
