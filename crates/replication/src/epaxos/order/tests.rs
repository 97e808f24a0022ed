//! What one replica holds, as others tell it what is committed.

use super::super::Parameters;
use super::super::message::{
    self, Attributes, Committed, Content, InstanceId, Message, Phase, Report, SEATS, Timer,
};
use super::Order;
use crate::family::Tuning as _;
use crate::order::{Member, Order as _, Ordered, Setup};
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Ballot, Blob, CommandId, Effect, Effects, Identity, Instant, KeyspaceId, NodeId, Outbox, PartitionId,
    Process, ProcessId, Random, ReplicaId, Role, Span, Stamp, Urgency,
};
use std::sync::Arc;

fn process(node: u16) -> ProcessId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    ProcessId { node: NodeId(node), keyspace, partition, role: Role(0), instance: 0 }
}

/// A write, without a name, of the key that it is.
impl Ordered for Blob {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::Key(self, Access::Write));
    }

    fn id(&self) -> Option<CommandId> {
        None
    }

    fn reads(&self) -> bool {
        false
    }
}

/// A replica of three that has executed so many instances of another, each with a hundred keys, while nothing is
/// heard of the third.
fn executed(instances: u64, keep_keys: u64) -> Order<Blob> {
    let member = |node| Member { replica: ReplicaId(node as u8), process: process(node) };
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    parameters.keep_keys = keep_keys;
    let setup = Setup { members: (0..3).map(member).collect(), preferred: None, parameters };
    let mut order = Order::open(Identity { process: process(0), incarnation: 1 }, &setup);
    let mut outbox = Outbox::<Order<Blob>>::new(process(0), Random::seeded(1));
    let now = Instant::from_nanos(1);
    let batch: Arc<[Blob]> = (0..100).map(|key| Blob::from(vec![key])).collect();
    for number in 1..=instances {
        let (id, content) = (InstanceId::at(1, number), Content::Batch(batch.clone()));
        let list = vec![Committed { id, content, attributes: Attributes::default() }];
        order.receive(process(1), Message::Commit { list }, outbox.input(now, Stamp::ZERO));
        drop(outbox.drain());
        if number % 64 == 0 {
            order.expire(Timer::Heartbeat, outbox.input(now, Stamp::ZERO));
            drop(outbox.drain());
        }
        while order.step(now).is_some() {}
        order.check();
    }
    assert_eq!(order.spaces[1].executed(), instances);
    order
}

#[test]
fn what_a_dead_replica_would_need_is_bounded_by_its_keys() {
    let held = |order: &Order<Blob>| order.spaces[1].end() - order.spaces[1].base();
    let (bounded, free) = (executed(6_000, 50_000), executed(6_000, 1_000_000));
    assert_eq!(held(&free), 6_000);
    assert!((512..3 * 1_024).contains(&held(&bounded)), "{} held", held(&bounded));
    let keys: u64 = bounded.spaces[1].from(0).map(|(_, instance)| instance.keys() as u64).sum();
    assert!(bounded.touched[1].1.abs_diff(keys) <= 64 * 100, "{} counted of {keys}", bounded.touched[1].1);
}

/// The first replica of several, and what it says to whom.
struct Recoverer {
    order: Order<Blob>,
    outbox: Outbox<Order<Blob>>,
    now: Instant,
    said: Vec<(u16, Message<Blob>)>,
}

impl Recoverer {
    fn new() -> Recoverer {
        Recoverer::among(5, 0)
    }

    /// One of so many members, which has executed so many instances of its own.
    fn among(members: u16, own: u64) -> Recoverer {
        let member = |node| Member { replica: ReplicaId(node as u8), process: process(node) };
        let parameters = Parameters::for_rtt(Span::from_millis(10));
        let setup = Setup { members: (0..members).map(member).collect(), preferred: None, parameters };
        let mut order = Order::<Blob>::open(Identity { process: process(0), incarnation: 1 }, &setup);
        order.install(&(0..members).map(|seat| (if seat == 0 { own } else { 0 }, Vec::new())).collect());
        let outbox = Outbox::new(process(0), Random::seeded(1));
        let mut recoverer = Recoverer { order, outbox, now: Instant::from_nanos(1), said: Vec::new() };
        recoverer.act(|order, effects| order.start(effects));
        recoverer
    }

    fn act(&mut self, input: impl FnOnce(&mut Order<Blob>, &mut Effects<Order<Blob>>)) {
        let effects = self.outbox.input(self.now, Stamp::ZERO);
        input(&mut self.order, effects);
        self.order.settle(effects);
        self.order.check();
        self.said.extend(self.outbox.drain().filter_map(|effect| match effect {
            Effect::Send { to, message, .. } => Some((to.node.0, message)),
            _ => None,
        }));
    }

    fn hear(&mut self, from: u16, message: Message<Blob>) {
        self.act(|order, effects| order.receive(process(from), message, effects));
    }

    /// Time passes, in which only these say that they live.
    fn pass(&mut self, beats: usize, live: &[u16]) {
        for _ in 0..beats {
            self.now = self.now + Span::from_millis(100);
            let sent = self.now;
            live.iter().for_each(|from| {
                self.hear(*from, Message::Heartbeat { last: 0, executed: [0; SEATS], sent });
                self.hear(*from, Message::Heard { sent });
            });
            self.act(|order, effects| order.expire(Timer::Heartbeat, effects));
            self.act(|order, effects| order.expire(Timer::Tick, effects));
        }
    }

    /// The ballots in which it has asked for promises, one after another.
    fn ballots(&self) -> Vec<Ballot> {
        let mut ballots: Vec<Ballot> = Vec::new();
        for (_, message) in &self.said {
            if let Message::Recover { ballot, .. } = message
                && ballots.last() != Some(ballot)
            {
                ballots.push(*ballot);
            }
        }
        ballots
    }
}

/// It stands still over an instance of the fifth, behind which it comes first: it has asked nobody meanwhile.
#[test]
fn who_stood_still_recovers_nothing_before_it_has_listened() {
    let mut recoverer = Recoverer::new();
    let (id, batch) = (InstanceId::at(4, 1), Arc::from([Blob::from(vec![7])]));
    let (attributes, role) = (Attributes { seq: 1, ..Attributes::default() }, message::Role::Acceptor);
    let executed = [0; SEATS];
    recoverer.hear(4, Message::PreAccept { id, batch, bytes: 1, attributes, executed, role });
    recoverer.pass(1, &[1, 2, 3, 4]);
    recoverer.now = recoverer.now + Span::from_secs(1);
    recoverer.act(|order, effects| order.expire(Timer::Heartbeat, effects));
    recoverer.act(|order, effects| order.expire(Timer::Tick, effects));
    assert_eq!(recoverer.ballots(), []);
    assert!(recoverer.order.suspects.is_empty());
    // The others speak, and the fifth is gone.
    recoverer.pass(10, &[1, 2, 3]);
    assert_eq!(recoverer.ballots().len(), 1);
}

/// The second leads an instance and falls silent. What a validation of it says may be long on its way. In a higher ballot it
/// would be said anew, behind the first, and in vain.
#[test]
fn a_validation_waits_for_whoever_is_heard() {
    let mut recoverer = Recoverer::new();
    let (id, batch) = (InstanceId::at(1, 1), Arc::from([Blob::from(vec![7])]));
    let attributes = Attributes { seq: 1, ..Attributes::default() };
    let role = message::Role::Acceptor;
    let executed = [0; SEATS];
    let copy = Arc::clone(&batch);
    recoverer.hear(1, Message::PreAccept { id, batch: copy, bytes: 1, attributes, executed, role });
    recoverer.pass(20, &[2, 3, 4]);
    let [ballot] = recoverer.ballots()[..] else { panic!("{:?}", recoverer.ballots()) };
    let report = |phase, content, initial| {
        let accepted = Ballot::ZERO;
        Box::new(Report { phase, accepted, content, attributes, initial })
    };
    let knows = report(Phase::PreAccepted, Some(Content::Batch(batch)), Some(attributes));
    recoverer.hear(2, Message::Recovered { id, ballot, report: knows });
    for from in [3, 4] {
        let report = report(Phase::Initial, None, None);
        recoverer.hear(from, Message::Recovered { id, ballot, report });
    }
    let validates = |(_, said): &&(u16, Message<Blob>)| matches!(said, Message::Validate { .. });
    let validations = |said: &[(u16, Message<Blob>)]| said.iter().filter(validates).count();
    assert_eq!(validations(&recoverer.said), 3);
    recoverer.pass(40, &[2, 3, 4]);
    assert_eq!(recoverer.ballots(), [ballot], "who is heard is waited for");
    assert!(validations(&recoverer.said) > 6, "asked again");
    recoverer.pass(20, &[2, 3]);
    assert!(recoverer.ballots().len() > 1, "others must promise in the place of one who is gone");
}

/// A value that is long on its way where little is carried.
fn large() -> Blob {
    Blob::from(vec![7; 2 << 20])
}

/// What these messages say of the contents of instances that are committed.
fn contents(said: &[(u16, Message<Blob>)]) -> Vec<(u16, InstanceId, Content<Blob>)> {
    let mut contents = Vec::new();
    for (to, message) in said {
        if let Message::Commit { list } = message {
            contents.extend(list.iter().map(|committed| (*to, committed.id, committed.content.clone())));
        }
    }
    contents
}

/// What the second leads is committed, so many large values.
fn hear_of_large(replica: &mut Recoverer, values: u64) {
    for number in 1..=values {
        let (id, content) = (InstanceId::at(1, number), Content::Batch(Arc::from([large()])));
        let attributes = Attributes { seq: 1, deps: [0; SEATS] };
        replica.hear(1, Message::Commit { list: vec![Committed { id, content, attributes }] });
    }
    while replica.order.step(replica.now).is_some() {}
    replica.said.clear();
}

/// A value that takes half a minute to the delegate is given up by nobody meanwhile: given up, it would be proposed anew, behind
/// itself. It is said again to the one whose answer is waited for, ever more rarely.
#[test]
fn a_large_value_that_is_long_on_its_way_is_neither_given_up_nor_said_to_all_again() {
    let mut replica = Recoverer::among(3, 0);
    replica.act(|order, effects| {
        assert_eq!(order.propose(large(), 2 << 20, effects.now()), Ok(()));
    });
    replica.pass(300, &[1, 2]);
    let told = |role: message::Role| {
        let says = |said: &Message<Blob>| matches!(said, Message::PreAccept { role: of, .. } if *of == role);
        replica.said.iter().filter(|(_, said)| says(said)).count()
    };
    assert_eq!(told(message::Role::Listener), 1);
    let again = told(message::Role::Delegate);
    assert!((4..24).contains(&again), "{again}");
    assert_eq!(replica.ballots(), []);
}

/// Somebody asks for several large values, and for one that is under way. All are on their way, though no more than one is said
/// at once; where an answer would leave some out, these would be recovered, and given up.
#[test]
fn whoever_asks_for_much_hears_of_all_of_it() {
    let mut replica = Recoverer::among(3, 0);
    hear_of_large(&mut replica, 3);
    replica.act(|order, effects| {
        assert_eq!(order.propose(Blob::from(vec![8]), 1, effects.now()), Ok(()));
    });
    let mut ids: Vec<InstanceId> = (1..=3).map(|number| InstanceId::at(1, number)).collect();
    ids.push(InstanceId::at(0, 1));
    replica.said.clear();
    replica.hear(2, Message::Fetch { ids: ids.clone() });
    let known = |id: &InstanceId| (2, *id, Content::Known);
    let mut expected: Vec<(u16, InstanceId, Content<Blob>)> = ids[..3].iter().map(known).collect();
    expected.push((2, ids[0], Content::Batch(Arc::from([large()]))));
    assert!(contents(&replica.said) == expected, "what is small, and one that is not");
    let driven = replica.said.iter().find_map(|(_, said)| match said {
        Message::Driven { ids } => Some(ids.clone()),
        _ => None,
    });
    assert_eq!(driven, Some(ids));
}

/// It asks again for what is committed: its commands need not cross the line once more.
#[test]
fn who_has_the_commands_is_told_what_was_chosen_without_them() {
    let mut replica = Recoverer::among(3, 0);
    hear_of_large(&mut replica, 1);
    let (id, batch, executed) = (InstanceId::at(1, 1), Arc::from([large()]), [0; SEATS]);
    let (attributes, role) = (Attributes { seq: 1, deps: [0; SEATS] }, message::Role::Delegate);
    replica.hear(1, Message::PreAccept { id, batch, bytes: 2 << 20, attributes, executed, role });
    assert!(contents(&replica.said) == [(1, id, Content::Known)]);
}

/// The commands that somebody asks for may be on their way: that they are gone here, so that it had better take in a whole state,
/// is said only where nothing waits.
#[test]
fn commands_that_are_gone_may_be_on_their_way() {
    let mut replica = Recoverer::among(3, 0);
    hear_of_large(&mut replica, 10);
    let id = InstanceId::at(1, 1);
    assert!(replica.order.instance(id).is_some_and(|instance| instance.batch.is_none()), "no room for it");
    let effects = replica.outbox.input(replica.now, Stamp::ZERO);
    replica.order.receive(process(2), Message::Fetch { ids: vec![id] }, effects);
    let said = replica.outbox.drain().filter_map(|effect| match effect {
        Effect::Send { message: Message::Commit { .. }, urgency, .. } => Some(("commit", urgency)),
        Effect::Send { message: Message::Trimmed { .. }, urgency, .. } => Some(("gone", urgency)),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), [("commit", Urgency::Urgent), ("gone", Urgency::Repeat)]);
}

/// Of those who are asked to vote in a recovery one has reported the commands. When they have voted, all have them.
#[test]
fn a_recovery_says_large_commands_once_to_those_who_lack_them() {
    let mut recoverer = Recoverer::new();
    let (id, batch) = (InstanceId::at(1, 1), Arc::from([large()]));
    let attributes = Attributes { seq: 1, ..Attributes::default() };
    let (executed, role, copy) = ([0; SEATS], message::Role::Acceptor, Arc::clone(&batch));
    recoverer.hear(1, Message::PreAccept { id, batch: copy, bytes: 2 << 20, attributes, executed, role });
    recoverer.pass(20, &[2, 3, 4]);
    let [ballot] = recoverer.ballots()[..] else { panic!("{:?}", recoverer.ballots()) };
    let report = |phase, content, initial| {
        let accepted = Ballot::ZERO;
        Box::new(Report { phase, accepted, content, attributes, initial })
    };
    let nothing = report(Phase::Initial, None, None);
    let voted = report(Phase::Accepted, Some(Content::Batch(batch)), Some(attributes));
    recoverer.hear(3, Message::Recovered { id, ballot, report: nothing });
    recoverer.said.clear();
    recoverer.hear(2, Message::Recovered { id, ballot, report: voted });
    let asked = recoverer.said.iter().filter_map(|(to, said)| match said {
        Message::Accept { content, .. } => Some((*to, *content == Content::Known)),
        _ => None,
    });
    let mut asked: Vec<_> = asked.collect();
    asked.sort_unstable();
    assert_eq!(asked, [(1, false), (2, true), (3, false), (4, false)]);
    recoverer.said.clear();
    recoverer.hear(2, Message::Accepted { id, ballot });
    recoverer.hear(3, Message::Accepted { id, ballot });
    let told = contents(&recoverer.said);
    assert!(told.len() == 4 && told.iter().all(|(_, _, content)| *content == Content::Known));
}

/// A large report is said at once, and again only where nothing waits. While reports are gathered nothing large is said, and those
/// who are silent are asked as often as for something small.
#[test]
fn a_recovery_of_large_commands_is_held_up_by_nothing_that_is_on_its_way() {
    let mut replica = Recoverer::new();
    let (id, batch) = (InstanceId::at(1, 1), Arc::from([large()]));
    let attributes = Attributes { seq: 1, ..Attributes::default() };
    let (executed, role, copy) = ([0; SEATS], message::Role::Acceptor, Arc::clone(&batch));
    replica.hear(1, Message::PreAccept { id, batch: copy, bytes: 2 << 20, attributes, executed, role });
    let mut again = Vec::new();
    let mut asks = |replica: &mut Recoverer, from: u16, ballot: Ballot| {
        let effects = replica.outbox.input(replica.now, Stamp::ZERO);
        replica.order.receive(process(from), Message::Recover { id, ballot }, effects);
        again.extend(replica.outbox.drain().filter_map(|effect| match effect {
            Effect::Send { message: Message::Recovered { .. }, urgency, .. } => {
                Some(urgency == Urgency::Repeat)
            }
            _ => None,
        }));
    };
    let first = Ballot::ZERO.next(ReplicaId(2));
    let second = first.next(ReplicaId(3));
    for (from, ballot) in [(2, first), (2, first), (3, second), (3, second)] {
        asks(&mut replica, from, ballot);
    }
    assert_eq!(again, [false, true, false, true]);

    let mut replica = Recoverer::new();
    replica.hear(1, Message::PreAccept { id, batch, bytes: 2 << 20, attributes, executed, role });
    replica.pass(20, &[2, 3, 4]);
    assert_eq!(replica.ballots().len(), 1);
    replica.said.clear();
    replica.pass(40, &[2, 3, 4]);
    let asked = replica.said.iter().filter(|(_, said)| matches!(said, Message::Recover { .. })).count();
    assert!(asked > 30, "{asked}");
}

/// One instance stands for an earlier one that it does not leave anything of. A peer has given the later one up, and has
/// executed nothing in its place: what comes behind both waits for the earlier one as before.
#[test]
fn who_stands_for_another_no_more_in_a_peers_state_lets_nobody_pass() {
    let mut replica = Recoverer::new();
    let batch: Arc<[Blob]> = Arc::from([Blob::from(vec![7])]);
    let earlier = Attributes { seq: 1, deps: [0; SEATS] };
    let mut later = Attributes { seq: 2, deps: [0; SEATS] };
    later.deps[1] = 1;
    for (number, attributes) in [(1, earlier), (2, later)] {
        let (id, role) = (InstanceId::at(1, number), message::Role::Listener);
        let (batch, executed) = (batch.clone(), [0; SEATS]);
        replica.hear(1, Message::PreAccept { id, batch, bytes: 1, attributes, executed, role });
    }
    let mut behind = Attributes { seq: 3, deps: [0; SEATS] };
    behind.deps[1] = 2;
    let commit = |id, attributes| {
        let list = vec![Committed { id, content: Content::Batch(batch.clone()), attributes }];
        Message::Commit { list }
    };
    replica.hear(2, commit(InstanceId::at(2, 1), behind));
    let executed = |replica: &mut Recoverer| {
        while replica.order.step(replica.now).is_some() {}
        (0..3).map(|seat| replica.order.spaces[seat].executed()).collect::<Vec<_>>()
    };
    assert_eq!(executed(&mut replica), [0, 0, 0]);
    let state = vec![(0, vec![]), (0, vec![2]), (0, vec![]), (0, vec![]), (0, vec![])];
    assert!(replica.order.install(&state));
    assert_eq!(executed(&mut replica), [0, 0, 0], "it waits for what the other stood for");
    replica.hear(1, commit(InstanceId::at(1, 1), earlier));
    assert_eq!(executed(&mut replica), [0, 2, 1]);
}

/// A command was proposed before its leader executed another that interferes, and came here when all had and this one had forgotten
/// it. If it were pre-accepted as it was proposed, it could be committed fast, and a recovery that asks somebody who does
/// not know yet that all have executed the other would give it up.
#[test]
fn what_comes_late_is_not_passed_by_what_is_forgotten_here() {
    let answers = |executed: [u64; SEATS]| {
        let mut replica = Recoverer::new();
        // So many keys that the index is swept of them.
        let other: Arc<[Blob]> = (0..300_u16).map(|key| Blob::from(key.to_string().into_bytes())).collect();
        let attributes = Attributes { seq: 1, deps: [0; SEATS] };
        let other = Committed { id: InstanceId::at(3, 1), content: Content::Batch(other), attributes };
        replica.hear(3, Message::Commit { list: vec![other] });
        while replica.order.step(replica.now).is_some() {}
        replica.act(|order, effects| order.expire(Timer::Heartbeat, effects));
        let mut all = [0; SEATS];
        all[3] = 1;
        for from in 1..5 {
            let sent = replica.now;
            replica.hear(from, Message::Heartbeat { last: 0, executed: all, sent });
        }
        assert_eq!((replica.order.settled[3], replica.order.spaces[3].base()), (1, 2), "it is forgotten");
        replica.said.clear();
        let (id, role) = (InstanceId::at(1, 1), message::Role::Acceptor);
        let batch = Arc::from([Blob::from("7")]);
        replica.hear(1, Message::PreAccept { id, batch, bytes: 1, attributes, executed, role });
        let answer = replica.said.iter().find_map(|(_, said)| match said {
            Message::PreAccepted { attributes, .. } => Some(attributes.deps[3]),
            _ => None,
        });
        answer.expect("an answer")
    };
    let mut after = [0; SEATS];
    after[3] = 1;
    assert_eq!(answers(after), 0, "its leader had executed the other: as proposed");
    assert_eq!(answers([0; SEATS]), 1);
}

/// A recovery by the other two of three goes by what the delegate has voted: nobody asks the one that only listened, which has
/// perhaps forgotten too much to say what rules a vote out.
#[test]
fn who_has_only_listened_has_not_voted() {
    let mut replica = Recoverer::among(3, 0);
    let (id, batch) = (InstanceId::at(1, 1), Arc::from([Blob::from(vec![7])]));
    let attributes = Attributes { seq: 1, ..Attributes::default() };
    let (executed, role) = ([0; SEATS], message::Role::Listener);
    replica.hear(1, Message::PreAccept { id, batch, bytes: 1, attributes, executed, role });
    replica.pass(20, &[2]);
    let [ballot] = replica.ballots()[..] else { panic!("{:?}", replica.ballots()) };
    let (phase, accepted, attributes) = (Phase::Initial, Ballot::ZERO, Attributes::default());
    let report = Box::new(Report { phase, accepted, content: None, attributes, initial: None });
    replica.hear(2, Message::Recovered { id, ballot, report });
    let gives_up =
        |(_, said): &(u16, Message<Blob>)| matches!(said, Message::Accept { content: Content::NoOp, .. });
    assert!(replica.said.iter().any(gives_up), "{:?}", replica.said);
}

/// A delegate that has executed too few of its leader's instances has no room for the next, and says nothing of it.
#[test]
fn who_lags_is_no_delegate() {
    let own = 70_000;
    let mut replica = Recoverer::among(3, own);
    let delegate = |replica: &mut Recoverer, key: u8| {
        replica.said.clear();
        replica.act(|order, effects| {
            assert_eq!(order.propose(Blob::from(vec![key]), 1, effects.now()), Ok(()));
        });
        replica.said.iter().find_map(|(to, said)| match said {
            Message::PreAccept { role: message::Role::Delegate, .. } => Some(*to),
            _ => None,
        })
    };
    assert_eq!(delegate(&mut replica, 1), Some(1), "nothing is known of either");
    let (mut executed, sent) = ([0; SEATS], replica.now);
    replica.hear(1, Message::Heartbeat { last: 0, executed, sent });
    executed[0] = own;
    replica.hear(2, Message::Heartbeat { last: 0, executed, sent });
    assert_eq!(delegate(&mut replica, 2), Some(2));
    // Both are heard, and neither settles anything.
    replica.pass(10, &[1, 2]);
    let recovers = |number| {
        let id = InstanceId::at(0, number);
        replica.said.iter().any(|(_, said)| matches!(said, Message::Recover { id: of, .. } if *of == id))
    };
    assert!(recovers(own + 1), "nobody waits for one that lags");
    assert!(!recovers(own + 2), "who is heard is waited for");
}

#[test]
fn what_a_state_has_in_it_takes_no_room() {
    let mut replica = Recoverer::among(3, 0);
    let missed = 10_000_000;
    let state = vec![(0, vec![]), (missed, vec![]), (0, vec![])];
    assert!(replica.order.install(&state));
    let (id, batch) = (InstanceId::at(1, missed + 1), Arc::from([Blob::from(vec![7])]));
    let attributes = Attributes { seq: 1, ..Attributes::default() };
    let (executed, role) = ([0; SEATS], message::Role::Delegate);
    replica.hear(1, Message::PreAccept { id, batch, bytes: 1, attributes, executed, role });
    let space = &replica.order.spaces[1];
    assert_eq!(space.end(), missed + 2, "it is held");
    let room = space.end() - space.base();
    assert!(room <= replica.order.parameters.keep_attributes, "room for {room}");
}

/// Sessions end and what the exactly-once table remembers is trimmed by who leads, whoever is gone.
#[test]
fn the_first_of_those_who_live_does_what_one_has_to_do() {
    let member = |node| Member { replica: ReplicaId(node as u8), process: process(node) };
    let parameters = Parameters::for_rtt(Span::from_millis(10));
    let setup = Setup { members: (0..3).map(member).collect(), preferred: None, parameters };
    let lead = |own: u16, gone: &[u8]| {
        let mut order = Order::<Blob>::open(Identity { process: process(own), incarnation: 1 }, &setup);
        for seat in gone {
            order.suspects.insert(ReplicaId(*seat));
        }
        order.leads()
    };
    assert_eq!([0, 1, 2].map(|own| lead(own, &[])), [true, false, false]);
    assert_eq!([1, 2].map(|own| lead(own, &[0])), [true, false]);
    assert!(lead(2, &[0, 1]) && !lead(2, &[1]));
    assert!(!lead(3, &[0, 1, 2]), "it is no member");
}
