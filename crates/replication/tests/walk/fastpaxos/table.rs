//! Replicas at a table: what is on the way is delivered by hand, so that one case shows one rule.

use crate::world::{Letter, process};
use isochrone_core::{
    Effect, Effects, Identity, Instant, NodeId, Outbox, Process as _, Random, ReplicaId, Span, Stamp, Ticket,
};
use isochrone_replication::fastpaxos::{Message, Mutation, Order, Parameters, Record, Timer};
use isochrone_replication::order::{Member, Order as _, Setup, Step};
use isochrone_replication::{Change, Tuning as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A message on its way.
struct Sent {
    to: usize,
    from: usize,
    message: Message<Letter>,
}

struct Table {
    setup: Setup<Parameters>,
    orders: Vec<Order<Letter>>,
    records: Vec<Vec<Record<Letter>>>,
    down: BTreeSet<usize>,
    network: Vec<Sent>,
    armed: Vec<BTreeSet<Timer>>,
    now: Instant,
    /// For each replica what it was given at each index.
    given: Vec<BTreeMap<u64, Vec<u8>>>,
    /// Where a client sits.
    votes_for_client: Vec<(usize, Message<Letter>)>,
}

impl Table {
    fn new(replicas: usize, mutation: Option<Mutation>) -> Table {
        let member = |node: usize| Member { replica: ReplicaId(node as u8), process: process(node) };
        let mut parameters = Parameters::for_rtt(Span::from_millis(10));
        (parameters.mutation, parameters.cast) = (mutation, true);
        let members: Arc<[Member]> = (0..replicas).map(member).collect();
        let setup = Setup { members, preferred: Some(ReplicaId(0)), parameters };
        let open = |node| Order::open(Identity { process: process(node), incarnation: 1 }, &setup);
        let mut table = Table {
            orders: (0..replicas).map(open).collect(),
            setup,
            records: vec![Vec::new(); replicas],
            down: BTreeSet::new(),
            network: Vec::new(),
            armed: vec![BTreeSet::new(); replicas],
            now: Instant::ZERO,
            given: vec![BTreeMap::new(); replicas],
            votes_for_client: Vec::new(),
        };
        for node in 0..replicas {
            table.act(node, |order, effects| order.start(effects));
        }
        table.deliver(|_| true);
        table
    }

    fn act(&mut self, node: usize, input: impl FnOnce(&mut Order<Letter>, &mut Effects<Order<Letter>>)) {
        let (mut input, mut own) = (Some(input), VecDeque::new());
        loop {
            let mut outbox = Outbox::new(process(node), Random::seeded(node as u64));
            let effects = outbox.input(self.now, Stamp::ZERO);
            let order = &mut self.orders[node];
            match (input.take(), own.pop_front()) {
                (Some(input), _) => input(order, effects),
                (None, Some(message)) => order.receive(process(node), message, effects),
                (None, None) => break,
            }
            order.settle(effects);
            order.check();
            while let Some(step) = order.step(self.now) {
                if let Step::Decided(decided) = step {
                    let numbers = decided.values.iter().map(|letter| letter.number).collect();
                    self.given[node].insert(decided.position, numbers);
                }
            }
            for effect in outbox.drain() {
                match effect {
                    Effect::Send { to, message, .. } if to == process(node) => own.push_back(message),
                    Effect::Send { to, message, .. } => match usize::from(to.node.0) {
                        to if to < self.orders.len() => {
                            self.network.push(Sent { to, from: node, message });
                        }
                        _ => self.votes_for_client.push((node, message)),
                    },
                    Effect::Record { record, .. } => self.records[node].push(record),
                    Effect::Arm { timer, .. } => {
                        self.armed[node].insert(timer);
                    }
                    Effect::Disarm { timer } => {
                        self.armed[node].remove(&timer);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Delivers what is chosen, oldest first, and what comes of it, until nothing chosen is left.
    fn deliver(&mut self, chosen: impl Fn(&Sent) -> bool) {
        let mut rounds = 0;
        while let Some(at) = self.network.iter().position(&chosen) {
            let Sent { to, from, message } = self.network.remove(at);
            if !self.down.contains(&to) {
                self.act(to, |order, effects| order.receive(process(from), message, effects));
            }
            rounds += 1;
            assert!(rounds < 10_000, "they never stop talking");
        }
    }

    /// Only these talk, among themselves.
    fn among(&mut self, nodes: &[usize]) {
        self.deliver(|sent| nodes.contains(&sent.to) && nodes.contains(&sent.from));
    }

    /// A client's command reaches a replica.
    fn ask(&mut self, node: usize, number: u8) {
        let now = self.now;
        self.act(node, |order, _| order.propose(Letter::new(number, 0), 1, now).unwrap());
    }

    fn lead(&mut self, node: usize) {
        let change = Change::Lead(NodeId(node as u16));
        self.act(node, |order, effects| order.change(Ticket(1), change, effects));
    }

    /// Time passes, and every timer armed now fires.
    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        for node in 0..self.orders.len() {
            if !self.down.contains(&node) {
                for timer in std::mem::take(&mut self.armed[node]) {
                    self.act(node, |order, effects| order.expire(timer, effects));
                }
            }
        }
    }

    /// Loses its memory, keeps its journal.
    fn restart(&mut self, node: usize) {
        let identity = Identity { process: process(node), incarnation: 2 };
        let mut order = Order::open(identity, &self.setup);
        for record in &self.records[node] {
            order.replay(record.clone());
            while order.step(self.now).is_some() {}
        }
        self.orders[node] = order;
        self.armed[node].clear();
        self.act(node, |order, effects| order.start(effects));
    }

    /// What replicas were given at an index, as far as they were.
    fn at(&self, index: u64) -> BTreeSet<Vec<u8>> {
        self.given.iter().filter_map(|given| given.get(&index).cloned()).collect()
    }

    /// The first execution of each command, in order.
    fn executed(&self, node: usize) -> Vec<u8> {
        let mut executed = Vec::new();
        for number in self.given[node].values().flatten() {
            if !executed.contains(number) {
                executed.push(*number);
            }
        }
        executed
    }
}

/// `specs/domino.md` S8: two clients collide. One command has the index, the other has a place behind.
#[test]
fn commands_that_collide_are_both_executed_in_one_order() {
    for first in 0..8u8 {
        let mut table = Table::new(3, None);
        for node in 0..3 {
            let order = if first & (1 << node) == 0 { [1, 2] } else { [2, 1] };
            order.into_iter().for_each(|number| table.ask(node, number));
        }
        table.deliver(|_| true);
        let order = table.executed(0);
        assert_eq!(order.len(), 2, "{first:b}: {:?}", table.given);
        assert!((0..3).all(|node| table.executed(node) == order), "{first:b}: {:?}", table.given);
    }
}

/// S10: a client dies when its command has reached some replicas. The index is decided all the same.
#[test]
fn a_command_that_reached_a_few_holds_nothing_up() {
    for reached in 1..8usize {
        let mut table = Table::new(3, None);
        (0..3).filter(|node| reached & (1 << node) != 0).for_each(|node| table.ask(node, 1));
        (0..3).for_each(|node| table.ask(node, 2));
        table.deliver(|_| true);
        for _ in 0..4 {
            table.pass(Span::from_millis(100));
            table.deliver(|_| true);
        }
        for node in 0..3 {
            assert_eq!(table.executed(node), table.executed(0), "{reached:b}");
            assert_eq!(table.executed(node).len(), 2, "{reached:b}: {:?}", table.given);
        }
    }
}

/// S3: what a client has counted a fast quorum for survives every crash of as many replicas as may fail, the
/// coordinator among them, whoever voted for it.
#[test]
fn what_a_client_has_learned_survives_every_crash_of_a_minority() {
    for (n, fast) in [(3usize, 3usize), (5, 4), (7, 6)] {
        let sets = |size: usize| (0u32..1 << n).filter(move |set| set.count_ones() as usize == size);
        for voters in sets(fast) {
            for dead in sets((n - 1) / 2) {
                let mut table = Table::new(n, None);
                for node in 0..n {
                    let order = if voters & (1 << node) != 0 { [1, 2] } else { [2, 1] };
                    order.into_iter().for_each(|number| table.ask(node, number));
                }
                let for_first = table.votes_for_client.iter().filter(|(node, message)| {
                    matches!(message, Message::Cast { votes, .. }
                        if votes.iter().any(|(number, slot, _)| (*number, slot.0) == (1, 0)))
                        && voters & (1 << node) != 0
                });
                assert_eq!(for_first.count(), fast, "the client has a fast quorum");
                table.down = (0..n).filter(|node| dead & (1 << node) != 0).collect();
                let survivor = (0..n).find(|node| !table.down.contains(node)).unwrap();
                // What was on the way is lost with them.
                table.network.clear();
                if survivor == 0 {
                    table.restart(0);
                } else {
                    table.lead(survivor);
                }
                table.deliver(|_| true);
                for _ in 0..4 {
                    table.pass(Span::from_millis(300));
                    table.deliver(|_| true);
                }
                let decided = table.at(0);
                assert_eq!(decided, BTreeSet::from([vec![1]]), "n {n} voters {voters:b} dead {dead:b}");
            }
        }
    }
}

/// Votes of two reigns for one command at one index: together they would be a fast quorum, and a third reign
/// may decide otherwise.
fn two_reigns(mutation: Option<Mutation>) -> Table {
    let mut table = Table::new(5, mutation);
    // Two replicas vote for 1 in the first reign, cut off from the others.
    table.ask(2, 1);
    table.ask(3, 1);
    // The others begin a second reign, and two of them vote for 1 at the same index; the fifth for 2.
    table.lead(1);
    table.among(&[0, 1, 4]);
    table.ask(0, 1);
    table.ask(1, 1);
    table.ask(4, 2);
    // One hears all votes for 1: those of the first reign come late.
    table.deliver(|sent| sent.to == 0 && matches!(sent.message, Message::Votes { .. }) && sent.from != 4);
    // A third reign knows the second one's vote for 2 only, and that nothing was chosen.
    table.lead(2);
    table.among(&[2, 3, 4]);
    table
}

#[test]
fn votes_of_two_reigns_do_not_add_up() {
    let table = two_reigns(None);
    assert_eq!(table.given[0], BTreeMap::new(), "nothing was chosen at the first index");
    assert_eq!(table.at(0), BTreeSet::from([vec![2]]));
    // Counted together they are taken for a choice, which the third reign contradicts.
    let table = two_reigns(Some(Mutation::CountReignsTogether));
    assert_eq!(table.at(0), BTreeSet::from([vec![1], vec![2]]), "the planted bug is seen");
}

/// A replica that has said that it will not vote at an index does not after a restart either.
#[test]
fn what_was_skipped_stays_skipped_after_a_restart() {
    let mut table = Table::new(3, None);
    table.ask(0, 1);
    table.ask(1, 1);
    table.deliver(|_| true);
    table.pass(Span::from_millis(100));
    // The coordinator asks the third replica, which has nothing to tell.
    table.deliver(|sent| matches!(sent.message, Message::Heartbeat { .. } | Message::Ask { .. }));
    table.restart(2);
    table.ask(2, 2);
    assert_eq!(table.orders[2].next().0, 2, "it votes behind what it has skipped");
}

/// What it proposed before, it may not know any more.
#[test]
fn a_restarted_coordinator_begins_another_reign() {
    let mut table = Table::new(3, None);
    let before = table.orders[0].reign();
    table.restart(0);
    table.deliver(|_| true);
    assert!(table.orders[0].leads() && table.orders[0].reign() > before);
    (0..3).for_each(|node| table.ask(node, 7));
    table.deliver(|_| true);
    assert!((0..3).all(|node| table.executed(node) == [7]), "{:?}", table.given);
}
