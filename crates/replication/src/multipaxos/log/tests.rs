//! Bugs that were found once, each by its story.

use super::{Answer, Log, Member, Message, Record, Report, Role as Part, Setup, Timer, Value};
use crate::Tuning as _;
use crate::multipaxos::{Form, Parameters};
use crate::order::{Order as _, Ordered};
use crate::request::{Change, Refusal};
use isochrone_core::command::Touch;
use isochrone_core::{
    Ballot, CommandId, Effect, Effects, Identity, Instant, KeyspaceId, NodeId, Outbox, PartitionId, Process,
    ProcessId, Random, ReplicaId, Role, Slot, Span, Stamp, Ticket, Urgency,
};
use std::collections::BTreeMap;
use std::sync::Arc;

fn process(node: u16) -> ProcessId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    ProcessId { node: NodeId(node), keyspace, partition, role: Role(0), instance: 0 }
}

/// Numbers that have no name and touch nothing.
impl Ordered for u8 {
    fn visit<'a>(&'a self, _: &mut dyn FnMut(Touch<'a>)) {}

    fn id(&self) -> Option<CommandId> {
        None
    }

    fn reads(&self) -> bool {
        false
    }
}

/// The replica on node 1 of three, or on another, and what it has recorded.
struct Follower {
    log: Log<u8>,
    outbox: Outbox<Log<u8>>,
    records: Vec<Record<u8>>,
    /// What it has sent and nobody has got.
    sent: Vec<(ProcessId, Message<u8>)>,
    /// What it has sent and may be dropped behind what waits.
    repeats: Vec<Message<u8>>,
    answers: Vec<Answer>,
    /// The timers that run, and when they are due.
    armed: BTreeMap<Timer, Instant>,
    now: Instant,
}

fn setup(form: Form) -> Setup<Parameters> {
    let member = |node| Member { replica: ReplicaId(node as u8), process: process(node) };
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    parameters.form = form;
    Setup { members: (0..3).map(member).collect(), preferred: None, parameters }
}

impl Follower {
    fn new(form: Form) -> Follower {
        Follower::on(1, form)
    }

    fn on(node: u16, form: Form) -> Follower {
        Follower {
            log: Log::open(Identity { process: process(node), incarnation: 1 }, &setup(form)),
            outbox: Outbox::new(process(node), Random::seeded(1)),
            records: Vec::new(),
            sent: Vec::new(),
            repeats: Vec::new(),
            answers: Vec::new(),
            armed: BTreeMap::new(),
            now: Instant::from_nanos(1),
        }
    }

    fn hear(&mut self, message: Message<u8>) -> Vec<Message<u8>> {
        self.run(|log, effects| log.receive(process(0), message, effects))
    }

    fn run(&mut self, input: impl FnOnce(&mut Log<u8>, &mut Effects<Log<u8>>)) -> Vec<Message<u8>> {
        input(&mut self.log, self.outbox.input(self.now, Stamp::ZERO));
        self.log.check();
        let mut said = Vec::new();
        for effect in self.outbox.drain() {
            match effect {
                Effect::Record { record, .. } => self.records.push(record),
                Effect::Send { to, message, urgency, .. } => {
                    if urgency == Urgency::Repeat {
                        self.repeats.push(message.clone());
                    }
                    self.sent.push((to, message.clone()));
                    said.push(message);
                }
                Effect::Complete { outcome, .. } => self.answers.push(outcome),
                Effect::Arm { timer, after } => {
                    self.armed.insert(timer, self.now + after);
                }
                Effect::Disarm { timer } => {
                    self.armed.remove(&timer);
                }
                _ => {}
            }
        }
        while self.log.next_decided(self.now).is_some() {}
        said
    }

    /// What a restart makes of the records.
    fn restarted(&self, form: Form) -> Log<u8> {
        let mut log = Log::open(Identity { process: process(1), incarnation: 2 }, &setup(form));
        for record in &self.records {
            log.replay(record.clone());
            while log.next_decided(Instant::ZERO).is_some() {}
        }
        log
    }
}

fn batch(value: u8) -> Value<u8> {
    Value::Batch(Arc::from([value]))
}

fn ballot(round: u32, owner: u8) -> Ballot {
    Ballot { round, owner: ReplicaId(owner) }
}

#[test]
fn what_was_learned_behind_an_unrecorded_commit_survives_a_restart() {
    for form in [Form::Slots, Form::Prefix] {
        let mut follower = Follower::new(form);
        let b = ballot(1, 0);
        let values = [batch(1), batch(2)];
        let (from, decided) = (Slot(0), Slot(0));
        follower.hear(Message::Adopt { ballot: b, from, values: values.to_vec().into(), decided });
        // Only a heartbeat tells that both are decided, and no record says so.
        let sent = Instant::ZERO;
        follower.hear(Message::Heartbeat { ballot: b, decided: Slot(2), sent });
        let learned = vec![batch(3)].into();
        follower.hear(Message::Learned { from: Slot(2), values: learned, decided: Slot(3) });
        let log = follower.restarted(form);
        assert_eq!((log.decided(), log.votes.end()), (Slot(3), Slot(3)), "{form:?}");
    }
}

#[test]
fn a_vote_of_an_older_ballot_is_not_taken_for_the_decision() {
    let mut follower = Follower::new(Form::Slots);
    let old = Message::Accept { ballot: ballot(1, 0), slot: Slot(0), value: batch(1), decided: Slot(0) };
    follower.hear(old);
    // The next leader's commit index covers a slot that it decided with another value, which was lost.
    let value = batch(2);
    follower.hear(Message::Accept { ballot: ballot(2, 0), slot: Slot(1), value, decided: Slot(1) });
    assert_eq!(follower.log.decided(), Slot(0), "what is decided in slot 0 is not known here");
    let values = vec![batch(9)].into();
    follower.hear(Message::Learned { from: Slot(0), values, decided: Slot(1) });
    assert_eq!(follower.log.decided(), Slot(1));
}

#[test]
fn a_prefix_log_takes_another_leaders_log_at_once_or_not_at_all() {
    let mut follower = Follower::new(Form::Prefix);
    let values = vec![batch(1), batch(2), batch(3)].into();
    let (from, decided) = (Slot(0), Slot(0));
    follower.hear(Message::Adopt { ballot: ballot(1, 0), from, values, decided });
    // A single slot of another leader would leave a log that nobody proposed.
    let value = batch(7);
    let said = follower.hear(Message::Accept { ballot: ballot(2, 2), slot: Slot(0), value, decided });
    assert!(said.is_empty(), "no vote: {said:?}");
    assert_eq!(follower.log.votes.end(), Slot(3));
    let values = vec![batch(1), batch(8)].into();
    let said = follower.hear(Message::Adopt { ballot: ballot(2, 2), from, values, decided });
    assert_eq!(said, [Message::Accepted { ballot: ballot(2, 2), first: Slot(0), last: Slot(1) }]);
    assert_eq!((follower.log.votes.end(), follower.log.tail), (Slot(2), ballot(2, 2)));
}

/// Nothing is proposed behind a change of the members so that those who vote for it are known to know of the change: who does
/// not gives no vote for it, whatever stands behind it.
#[test]
fn a_vote_for_nothing_is_given_by_who_knows_what_is_before_it() {
    let (ballot, from, decided) = (ballot(1, 0), Slot(1), Slot(1));
    let votes = |values: Vec<Value<u8>>| {
        let mut follower = Follower::new(Form::Slots);
        let said = follower.hear(Message::Adopt { ballot, from, values: values.into(), decided });
        said.into_iter().find_map(|said| match said {
            Message::Accepted { first, last, .. } => Some((first, last)),
            _ => None,
        })
    };
    assert_eq!(votes(vec![batch(1), Value::NoOp, batch(2)]), Some((Slot(1), Slot(1))));
    assert_eq!(votes(vec![Value::NoOp, batch(2)]), None);
    assert_eq!(votes(vec![batch(1), batch(2)]), Some((Slot(1), Slot(2))));
}

#[test]
fn a_promise_outlives_a_restart() {
    let mut follower = Follower::new(Form::Slots);
    let said = follower.hear(Message::Prepare { ballot: ballot(5, 2), from: Slot(0) });
    assert!(matches!(said[..], [Message::Promised { .. }]), "{said:?}");
    assert_eq!(follower.restarted(Form::Slots).ballot(), ballot(5, 2));
    let accept = Message::Accept { ballot: ballot(4, 0), slot: Slot(0), value: batch(1), decided: Slot(0) };
    let said = follower.hear(accept);
    assert_eq!(said, [Message::Rejected { promised: ballot(5, 2), decided: Slot(0) }]);
}

#[test]
fn a_promise_that_takes_long_is_waited_for() {
    let (from, decided) = (Slot(0), Slot(0));
    // Who is asked again says that its promise is on its way, sends it again, and welcomes nobody else meanwhile.
    let mut voter = Follower::new(Form::Slots);
    let b = ballot(2, 0);
    let said = voter.hear(Message::Prepare { ballot: b, from });
    assert!(matches!(said[..], [Message::Promised { .. }]), "{said:?}");
    let said = voter.hear(Message::Prepare { ballot: b, from });
    assert!(
        matches!(said[..], [Message::Promising { ballot }, Message::Promised { .. }] if ballot == b),
        "{said:?}"
    );
    let poll = Message::Poll { ballot: ballot(3, 2), decided };
    let said = voter.run(|log, effects| log.receive(process(2), poll, effects));
    assert!(matches!(said[..], [Message::Polled { granted: false, .. }]), "{said:?}");

    // The candidate asks again and again, and for longer where somebody says so.
    let mut candidate = Follower::new(Form::Slots);
    candidate.run(Log::campaign);
    let own = candidate.log.promise.ballot();
    let wait = setup(Form::Slots).parameters.campaign;
    let again = |candidate: &mut Follower| {
        candidate.now = candidate.now + wait / 2;
        let said = candidate.run(|log, effects| log.expire(Timer::Campaign, effects));
        said.iter().filter(|said| **said == Message::Prepare { ballot: own, from }).count()
    };
    assert_eq!(again(&mut candidate), 3, "what was asked may have been lost");
    candidate.hear(Message::Promising { ballot: ballot(1, 2) });
    assert_eq!(again(&mut candidate), 0, "somebody else's");
    assert!(matches!(candidate.log.role, Part::Follower));

    let mut candidate = Follower::new(Form::Slots);
    candidate.run(Log::campaign);
    for _ in 0..20 {
        assert_eq!(again(&mut candidate), 3);
        candidate.hear(Message::Promising { ballot: own });
    }
    let report = || {
        let lease_forgotten = Span::ZERO;
        Box::new(Report {
            decided,
            tail: Ballot::ZERO,
            end: from,
            accepted: Vec::new(),
            lease: None,
            lease_forgotten,
        })
    };
    candidate.hear(Message::Promised { ballot: own, report: report() });
    let promised = Message::Promised { ballot: own, report: report() };
    candidate.run(|log, effects| log.receive(process(1), promised, effects));
    assert!(matches!(candidate.log.role, Part::Leader(_)));
}

/// Hands on what these nodes say to each other, and nobody else, until they are silent. The rest is lost.
fn talk(group: &mut [Follower], together: &[usize]) {
    talk_but(group, together, |_| false);
}

/// The same, where some of that is lost as well.
fn talk_but(group: &mut [Follower], together: &[usize], lost: impl Fn(&Message<u8>) -> bool) {
    while group.iter().any(|one| !one.sent.is_empty()) {
        for from in 0..group.len() {
            for (to, message) in std::mem::take(&mut group[from].sent) {
                let to = usize::from(to.node.0);
                if together.contains(&from) && together.contains(&to) && !lost(&message) {
                    let sender = process(from as u16);
                    group[to].run(|log, effects| log.receive(sender, message, effects));
                }
            }
        }
    }
}

#[test]
fn a_lease_that_another_has_followed_is_waited_for_where_the_leader_hands_over() {
    let (a, b, c) = (0, 1, 2);
    for form in [Form::Slots, Form::Prefix] {
        let mut group = [0, 1, 2].map(|node| Follower::on(node, form));
        let lease = setup(form).parameters.lease_length;
        let later =
            |group: &mut [Follower; 3], span| group.iter_mut().for_each(|one| one.now = one.now + span);
        group[a].run(Log::campaign);
        talk(&mut group, &[a, b, c]);
        // The last that only C hears of A lets A read until long after what B has granted it is over.
        later(&mut group, lease * 3 / 4);
        group[a].run(Log::beat);
        talk(&mut group, &[a, c]);
        later(&mut group, lease / 4);
        group[b].run(Log::campaign);
        talk(&mut group, &[b, c]);
        assert!(group[b].log.leads() && !group[b].log.caught_up(), "it waits for A's lease");
        // C has granted B a lease, which B knows to be over when it lets C lead.
        let ticket = Ticket(1);
        group[b].run(|log, effects| log.on_change(ticket, Change::Lead(NodeId(2)), effects));
        talk(&mut group, &[b, c]);
        assert!(group[c].log.leads());
        let now = group[c].now;
        assert!(group[a].log.may_read(now), "what it holds is not over");
        group[c].run(|log, effects| {
            assert!(log.enqueue(1, 1, now).is_ok());
            log.settle(effects);
        });
        talk(&mut group, &[b, c]);
        assert_eq!(group[c].log.decided(), Slot(1));
        assert_eq!(group[c].log.delivered, Slot(0), "{form:?}: A reads what was before");
        group[c].run(|log, effects| log.expire(Timer::Wait, effects));
        assert_eq!(group[c].log.delivered, Slot(1));
    }
}

#[test]
fn a_lease_is_waited_for_until_its_holder_has_promised() {
    let (a, b, c) = (0, 1, 2);
    for form in [Form::Slots, Form::Prefix] {
        let mut group = [0, 1, 2].map(|node| Follower::on(node, form));
        group[a].run(Log::campaign);
        talk(&mut group, &[a, b, c]);
        group[a].run(Log::beat);
        talk(&mut group, &[a, b, c]);
        // B is to lead, and C's promise is there before A has heard of it.
        group[a].run(|log, effects| log.on_change(Ticket(1), Change::Lead(NodeId(1)), effects));
        let asked = std::mem::take(&mut group[a].sent).pop().unwrap().1;
        group[b].hear(asked);
        let asks = std::mem::take(&mut group[b].sent);
        let (late, now): (Vec<_>, Vec<_>) = asks.into_iter().partition(|(to, _)| *to == process(0));
        group[b].sent = now;
        talk(&mut group, &[b, c]);
        let time = group[b].now;
        assert!(group[b].log.leads() && !group[b].log.caught_up(), "{form:?}");
        assert!(group[a].log.may_read(time), "{form:?}");
        for (_, message) in late {
            group[a].run(|log, effects| log.receive(process(1), message, effects));
        }
        assert!(!group[a].log.may_read(time), "{form:?}");
        talk(&mut group, &[a, b, c]);
        assert!(group[b].log.caught_up(), "{form:?}");
    }
}

/// The first leads no more, and had to wait for another's lease itself, of which the second, a newer member perhaps, knows
/// nothing.
#[test]
fn what_a_late_promise_says_of_leases_is_waited_for() {
    let terms = setup(Form::Slots).parameters.lease_terms();
    let lease = terms.length();
    let report = |lease, lease_forgotten| {
        let (decided, tail, end) = (Slot(0), Ballot::ZERO, Slot(0));
        Box::new(Report { decided, tail, end, accepted: Vec::new(), lease, lease_forgotten })
    };
    let left = |leader: &Follower| match &leader.log.role {
        Part::Leader(reign) => reign.waiting.as_ref().map(|leases| leases.left(terms, leader.now)),
        _ => None,
    };
    let waits = |forgotten| {
        let mut leader = Follower::on(2, Form::Slots);
        leader.run(Log::campaign);
        let own = leader.log.promise.ballot();
        for (from, granted) in [(2, None), (1, Some((ReplicaId(0), lease)))] {
            let promised = Message::Promised { ballot: own, report: report(granted, Span::ZERO) };
            leader.run(|log, effects| log.receive(process(from), promised, effects));
        }
        assert_eq!(left(&leader), Some(terms.wait_out(lease)));
        leader.now = leader.now + lease / 4;
        let (sent, decided, bound) = (leader.now, Slot(0), lease);
        leader.hear(Message::Heard { ballot: own, sent, decided, bound });
        assert!(left(&leader).is_some(), "it follows, and has not said what it knows");
        leader.hear(Message::Promised { ballot: own, report: report(None, forgotten) });
        assert_eq!(leader.log.caught_up(), left(&leader).is_none());
        left(&leader)
    };
    assert_eq!(waits(Span::ZERO), None);
    let waited = waits(lease / 4).unwrap();
    assert!(lease / 4 < waited && waited < lease / 2, "{waited}");
    let as_long_as_it = terms.wait_out(lease).saturating_sub(lease / 4);
    assert_eq!(waits(lease * 4), Some(as_long_as_it), "it was granted later than what it has waited for");
}

/// Nodes may have different files for a while.
#[test]
fn a_lease_holds_for_as_long_as_its_granters_are_bound() {
    let lease = setup(Form::Slots).parameters.lease_length;
    for grants in [true, false] {
        let mut group = [0, 1, 2].map(|node| Follower::on(node, Form::Slots));
        group[0].log.parameters.lease_length = lease * 5;
        group[1..].iter_mut().for_each(|one| one.log.parameters.lease = grants);
        group[0].run(Log::campaign);
        talk(&mut group, &[0, 1, 2]);
        group[0].run(Log::beat);
        talk(&mut group, &[0, 1, 2]);
        let now = group[0].now;
        assert_eq!(group[0].log.may_read(now), grants);
        assert!(!group[0].log.may_read(now + lease), "others may lead by then");
    }
}

/// Seed 65003189 of three regions, CURP by consensus: who leads had asked for a peer's state before, and it came behind the
/// change of members that it had adopted.
#[test]
fn a_state_that_a_leader_takes_in_ends_the_change_before_it() {
    for form in [Form::Slots, Form::Prefix] {
        let mut group = [0, 1, 2].map(|node| Follower::on(node, form));
        group[0].run(Log::campaign);
        talk(&mut group, &[0, 1, 2]);
        let more = group[0].log.configuration.with(process(3)).unwrap().unwrap();
        let more = Arc::new(more);
        let change = || Value::Change(more.clone());
        group[0].run(|log, effects| log.propose_slot(change(), 9, effects.now(), effects));
        let votes = |said: &Message<u8>| matches!(said, Message::Accepted { .. });
        talk_but(&mut group, &[0, 1], votes);
        let wait = setup(form).parameters.lease_length * 2;
        group.iter_mut().for_each(|one| one.now = one.now + wait);
        group[1].run(Log::campaign);
        talk_but(&mut group, &[0, 1, 2], votes);
        assert!(group[1].log.leads(), "{form:?}");
        let leader = &mut group[1];
        leader.log.parameters.gather = false;
        leader.run(|log, effects| {
            assert!(log.install(&(Slot(1), more.clone())));
            assert!(log.enqueue(7, 1, effects.now()).is_ok());
            log.settle(effects);
        });
        let proposed = |value: &Value<u8>| {
            leader
                .sent
                .iter()
                .any(|(_, said)| matches!(said, Message::Accept { value: said, .. } if said == value))
        };
        assert!(proposed(&Value::NoOp) && proposed(&batch(7)), "{form:?}");
    }
}

#[test]
fn a_newcomer_that_is_not_there_is_waited_for_no_longer_than_it_could_be_silent() {
    let silence = setup(Form::Slots).parameters.election;
    let mut group = [0, 1, 2, 3].map(|node| Follower::on(node, Form::Slots));
    group[0].run(Log::campaign);
    talk(&mut group, &[0, 1, 2]);
    let beat = |group: &mut [Follower; 4], heard: &[usize]| {
        group.iter_mut().for_each(|one| one.now = one.now + silence / 2);
        group[0].run(Log::beat);
        talk(group, heard);
    };
    let add = |group: &mut [Follower; 4], ticket| {
        group[0].run(|log, effects| log.on_change(Ticket(ticket), Change::Add(NodeId(3)), effects));
    };
    add(&mut group, 1);
    for _ in 0..15 {
        beat(&mut group, &[0, 1, 2]);
    }
    assert!(group[0].answers.is_empty(), "it may just be starting");
    beat(&mut group, &[0, 1, 2]);
    assert_eq!(group[0].answers, [Err(Refusal::Silent)]);
    // Others may be added, and this one when it is there.
    add(&mut group, 2);
    for _ in 0..4 {
        beat(&mut group, &[0, 1, 2, 3]);
    }
    assert_eq!(group[0].answers[1..], [Ok(())]);
}

/// Commands wait while a leader hands over.
#[test]
fn an_heir_that_does_not_come_forward_is_waited_for_no_longer_than_a_dead_leader() {
    let silence = setup(Form::Slots).parameters.election;
    let led = || {
        let mut group = [0, 1, 2].map(|node| Follower::on(node, Form::Slots));
        group[0].run(Log::campaign);
        talk(&mut group, &[0, 1, 2]);
        group
    };
    let change = |group: &mut [Follower; 3], change| {
        group[0].run(|log, effects| log.on_change(Ticket(1), change, effects));
    };
    let beat = |group: &mut [Follower; 3], span| {
        group.iter_mut().for_each(|one| one.now = one.now + span);
        group[0].run(Log::beat);
        talk(group, &[0, 2]);
    };
    // Of one that is not heard of it is not asked.
    let mut group = led();
    beat(&mut group, silence);
    beat(&mut group, silence);
    change(&mut group, Change::Lead(NodeId(1)));
    assert_eq!(group[0].answers, [Err(Refusal::Silent)]);
    // One that has just died is given up, ...
    let mut group = led();
    change(&mut group, Change::Lead(NodeId(1)));
    beat(&mut group, silence / 2);
    assert!(group[0].answers.is_empty() && group[0].log.leads());
    beat(&mut group, silence / 2);
    assert_eq!(group[0].answers, [Err(Refusal::TimedOut)]);
    group[0].run(|log, effects| {
        assert!(log.enqueue(1, 1, effects.now()).is_ok());
        log.settle(effects);
    });
    talk(&mut group, &[0, 2]);
    assert_eq!(group[0].log.decided(), Slot(1), "commands go on");
    // ... and where any other will do, another is asked.
    let mut group = led();
    change(&mut group, Change::Resign);
    beat(&mut group, silence / 2);
    assert!(group[0].log.leads());
    beat(&mut group, silence / 2);
    assert!(group[2].log.leads());
    assert_eq!(group[0].answers, [Ok(())]);
}

/// Who executes the log may have told others of what it has put there.
#[test]
fn what_waited_for_a_slot_when_the_members_were_to_change_goes_before_that() {
    let mut group = [0, 1, 2].map(|node| Follower::on(node, Form::Prefix));
    group[0].run(Log::campaign);
    talk(&mut group, &[0, 1, 2]);
    group[0].log.parameters.window = 1;
    let put = |group: &mut [Follower; 3], value| {
        group[0].run(|log, effects| {
            assert!(log.enqueue(value, 1, effects.now()).is_ok());
            log.settle(effects);
        });
    };
    put(&mut group, 1);
    put(&mut group, 2);
    assert!(!group[0].log.changes());
    group[0].run(|log, effects| log.on_change(Ticket(1), Change::Remove(NodeId(2)), effects));
    assert!(group[0].log.changes() && !group[0].log.inherits_change());
    for _ in 0..4 {
        talk(&mut group, &[0, 1, 2]);
        group[0].run(Log::settle);
    }
    put(&mut group, 3);
    let proposed = group[0].records.iter().filter_map(|record| match record {
        Record::Accepted { value: Value::Batch(values), .. } => Some(values.to_vec()),
        Record::Accepted { value: Value::Change(_), .. } => Some(Vec::new()),
        _ => None,
    });
    assert_eq!(proposed.collect::<Vec<_>>(), [vec![1], vec![2], vec![], vec![3]]);
    assert!(!group[0].log.changes());
    assert_eq!(group[0].answers, [Ok(())]);
}

/// With undecided slots before it, another leader could decide other changes in those, and a vote for this one would bring
/// back who had gone, and a seat for two.
#[test]
fn a_change_of_the_members_is_proposed_behind_what_is_decided() {
    for form in [Form::Slots, Form::Prefix] {
        let mut group = [0, 1, 2].map(|node| Follower::on(node, form));
        group[0].run(Log::campaign);
        talk(&mut group, &[0, 1, 2]);
        let put = |group: &mut [Follower; 3], value| {
            group[0].run(|log, effects| {
                assert!(log.enqueue(value, 1, effects.now()).is_ok());
                log.settle(effects);
            });
        };
        let proposed = |group: &[Follower; 3]| -> Vec<Vec<u8>> {
            let values = group[0].records.iter().filter_map(|record| match record {
                Record::Accepted { value: Value::Batch(values), .. } => Some(values.to_vec()),
                Record::Accepted { value: Value::Change(_), .. } => Some(Vec::new()),
                _ => None,
            });
            values.collect()
        };
        put(&mut group, 1);
        group[0].run(|log, effects| log.on_change(Ticket(1), Change::Remove(NodeId(2)), effects));
        put(&mut group, 2);
        assert_eq!(proposed(&group), [vec![1]], "{form:?}");
        for _ in 0..4 {
            talk(&mut group, &[0, 1, 2]);
            group[0].run(Log::settle);
        }
        assert_eq!(proposed(&group), [vec![1], vec![], vec![2]], "{form:?}");
        assert_eq!(group[0].answers, [Ok(())], "{form:?}");
    }
}

/// Whoever is told that it is gone may be switched off: the others are to know then that they need nobody in its place.
#[test]
fn a_leader_that_is_removed_leads_until_the_others_know() {
    for form in [Form::Slots, Form::Prefix] {
        let mut group = [0, 1, 2].map(|node| Follower::on(node, form));
        group[0].run(Log::campaign);
        talk(&mut group, &[0, 1, 2]);
        group[0].run(|log, effects| log.on_change(Ticket(1), Change::Remove(NodeId(0)), effects));
        let tells = |said: &Message<u8>| {
            matches!(
                said,
                Message::Accept { value: Value::NoOp, .. }
                    | Message::Heartbeat { .. }
                    | Message::Handover { .. }
            )
        };
        talk_but(&mut group, &[0, 1, 2], tells);
        assert!(group[0].log.leads() && group[0].answers.is_empty(), "{form:?}: only it knows");
        for _ in 0..20 {
            group.iter_mut().for_each(|one| one.now = one.now + Span::from_millis(20));
            group[0].run(Log::beat);
            talk(&mut group, &[0, 1, 2]);
        }
        assert_eq!((group[0].log.leads(), &group[0].answers[..]), (false, &[Ok(())][..]), "{form:?}");
        for other in &group[1..] {
            assert_eq!(other.log.configuration.members().len(), 2, "{form:?}");
        }
    }
}

#[test]
fn who_hears_of_its_heir_from_a_third_has_handed_over() {
    let mut group = [0, 1, 2].map(|node| Follower::on(node, Form::Slots));
    group[0].run(Log::campaign);
    talk(&mut group, &[0, 1, 2]);
    group[0].run(|log, effects| log.on_change(Ticket(1), Change::Lead(NodeId(1)), effects));
    let asked = |said: &Message<u8>| matches!(said, Message::Prepare { .. });
    for (to, message) in std::mem::take(&mut group[0].sent) {
        assert_eq!(to, process(1));
        group[1].run(|log, effects| log.receive(process(0), message, effects));
    }
    talk(&mut group, &[1, 2]);
    assert!(group[1].log.leads() && group[0].log.leads(), "it has not heard of its heir yet");
    group[0].run(Log::beat);
    talk_but(&mut group, &[0, 2], asked);
    assert!(!group[0].log.leads());
    assert_eq!(group[0].answers, [Ok(())]);
}

/// A promise of this replica, which has accepted so much, for the ballot in which this one campaigns.
fn promises(candidate: &mut Follower, from: u16, accepted: Vec<(Slot, Ballot, Value<u8>)>) {
    let (decided, tail, end) = (Slot(0), Ballot::ZERO, Slot(0));
    let (lease, lease_forgotten) = (None, Span::ZERO);
    let report = Box::new(Report { decided, tail, end, accepted, lease, lease_forgotten });
    let promised = Message::Promised { ballot: candidate.log.promise.ballot(), report };
    candidate.run(|log, effects| log.receive(process(from), promised, effects));
}

/// What a replica is told, whether that makes it busy, and how it comes to be so.
type Doing<'a> = (&'a str, bool, &'a dyn Fn(&mut Follower));

#[test]
fn who_is_deposed_while_it_is_busy_with_what_it_takes_over_is_more_patient() {
    let silence = setup(Form::Slots).parameters.election;
    let leads = |one: &mut Follower, accepted: &[(Slot, Ballot, Value<u8>)]| {
        [1, 0].iter().for_each(|from| promises(one, *from, accepted.to_vec()));
        assert!(one.log.leads());
    };
    let is_promised = |one: &mut Follower, waits: Span| {
        let ballot = one.log.promise.ballot();
        one.now = one.now + Span::from_millis(1);
        one.hear(Message::Promising { ballot });
        one.now = one.now + waits;
    };
    // What it does when another comes, and whether it is busy.
    let doing: [Doing; 5] = [
        ("leads, and all it took over is decided", false, &|one| leads(one, &[])),
        ("leads, and something is not", true, &|one| leads(one, &[(Slot(0), Ballot::ZERO, batch(1))])),
        ("waits for a promise that is late", false, &|one| is_promised(one, silence / 2)),
        ("waits for one that takes long", true, &|one| is_promised(one, silence)),
        ("has that promise, and waits for another", false, &|one| {
            promises(one, 0, Vec::new());
            is_promised(one, silence);
        }),
    ];
    // How it hears of the other: it is asked to promise, is told so by one who has promised, or hears the other lead.
    for way in ["prepare", "rejected", "heartbeat"] {
        for (what, busy, begin) in &doing {
            let mut one = Follower::on(1, Form::Slots);
            for _ in 0..2 {
                one.run(Log::campaign);
                begin(&mut one);
                let higher = ballot(one.log.promise.ballot().round + 1, 0);
                let (decided, sent) = (Slot(0), one.now);
                match way {
                    "prepare" => drop(one.hear(Message::Prepare { ballot: higher, from: decided })),
                    "rejected" => drop(one.hear(Message::Rejected { promised: higher, decided })),
                    _ => {}
                }
                one.hear(Message::Heartbeat { ballot: higher, decided, sent });
                assert!(matches!(one.log.role, Part::Follower), "{way}: {what}");
            }
            let patient = one.log.watch.patience >= silence * 2;
            assert_eq!(patient, *busy, "{way}: it {what}: {}", one.log.watch.patience);
        }
    }
}

/// How many have led when a value is decided, of three replicas that elect another after 400 ms of silence. Whoever comes to lead
/// is busy for so long with the value, as where it has to be encoded and written, and hears nothing meanwhile; the first leader
/// stands still. A round takes what has come and then the timers that were due when it began, as on a node; what is said in it
/// leaves behind it, and is there half a millisecond later.
fn reigns(seed: u64, busy: Span) -> usize {
    let mut group = [0, 1, 2].map(|node| Follower::on(node, Form::Slots));
    for (node, one) in (0..).zip(&mut group) {
        one.outbox = Outbox::new(one.log.process, Random::seeded(seed * 3 + node));
        one.run(Log::start);
    }
    group[0].run(Log::campaign);
    talk(&mut group, &[0, 1, 2]);
    group[0].run(|log, effects| {
        assert!(log.enqueue(7, 1, effects.now()).is_ok());
        log.settle(effects);
    });
    // All have it, and nobody knows that.
    talk_but(&mut group, &[0, 1, 2], |said| matches!(said, Message::Accepted { .. }));
    let way = Span::from_micros(500);
    let mut free = [group[0].now; 3];
    free[0] = free[0] + Span::from_millis(900);
    let mut mail: Vec<(Instant, usize, usize, Message<u8>)> = Vec::new();
    let mut reigns = 1;
    while reigns < 30 && group.iter().all(|one| one.log.decided() == Slot::ZERO) {
        let due = |one: usize| {
            let said = mail.iter().filter(|(_, _, to, _)| *to == one).map(|(at, ..)| *at);
            let first = said.chain(group[one].armed.values().copied()).min()?;
            Some((first.max(free[one]), one))
        };
        let Some((begins, one)) = (0..3).filter_map(due).min() else { break };
        let (mut heard, rest): (Vec<_>, Vec<_>) =
            mail.into_iter().partition(|(at, _, to, _)| *to == one && *at <= begins);
        mail = rest;
        heard.sort_by_key(|(at, ..)| *at);
        let mut now = begins;
        for (_, from, _, message) in heard {
            let led = group[one].log.leads();
            group[one].now = now;
            group[one].run(|log, effects| log.receive(process(from as u16), message, effects));
            if !led && group[one].log.leads() {
                (reigns, now) = (reigns + 1, now + busy);
            }
        }
        group[one].now = now;
        for timer in group[one].armed.keys().copied().collect::<Vec<_>>() {
            if group[one].armed.get(&timer).is_some_and(|at| *at <= begins) {
                group[one].armed.remove(&timer);
                group[one].run(|log, effects| log.expire(timer, effects));
            }
        }
        for (to, message) in std::mem::take(&mut group[one].sent) {
            let to = usize::from(to.node.0);
            mail.push((if to == one { now } else { now + way }, one, to, message));
        }
        free[one] = now;
    }
    reigns
}

/// A leader that stood still for longer than it bears silence was cut off, as it thought, when it said its first word, and so was
/// the next, for ever; and where only others are more patient for it, nine lead in place of five.
#[test]
fn a_value_that_keeps_whoever_leads_busy_for_long_is_carried_through_by_few() {
    let led: Vec<usize> = (0..10).map(|seed| reigns(seed, Span::from_secs(3))).collect();
    assert!(led.iter().all(|led| *led > 1), "somebody was deposed: {led:?}");
    assert!(led.iter().sum::<usize>() <= 65, "{led:?}");
}

#[test]
fn a_leader_that_stood_still_asks_before_it_takes_itself_for_cut_off() {
    let parameters = setup(Form::Slots).parameters;
    let mut group = [0, 1, 2].map(|node| Follower::on(node, Form::Slots));
    group[0].run(Log::campaign);
    talk(&mut group, &[0, 1, 2]);
    group[0].now = group[0].now + parameters.election * 5;
    let said = group[0].run(Log::beat);
    assert!(said.iter().any(|said| matches!(said, Message::Heartbeat { .. })), "{said:?}");
    // Nobody answers.
    let asked = group[0].now;
    while group[0].log.leads() && group[0].now.since(asked) < parameters.election * 4 {
        group[0].now = group[0].now + parameters.heartbeat;
        group[0].run(Log::beat);
    }
    assert_eq!(group[0].now, asked + parameters.election * 2 - parameters.heartbeat);
}

/// Over links that carry little, answers wait behind values. Whoever took itself for cut off and is answered after all bears more when it
/// leads again, and what it took over is sent then as what was sent before.
#[test]
fn a_leader_whose_answers_were_only_late_waits_longer_for_the_next() {
    let parameters = setup(Form::Slots).parameters;
    let mut one = Follower::on(1, Form::Slots);
    let mut reign = |quiet: Span| {
        one.now = one.now + quiet;
        one.repeats.clear();
        one.run(Log::campaign);
        let accepted = vec![(Slot(0), Ballot::ZERO, Value::Batch(Arc::from(vec![1; Urgency::SMALL + 1])))];
        [1, 0].iter().for_each(|from| promises(&mut one, *from, accepted.clone()));
        assert!(one.log.leads());
        let again = one.repeats.iter().any(|said| matches!(said, Message::Adopt { .. }));
        let (ballot, begun) = (one.log.promise.ballot(), one.now);
        while one.log.leads() {
            one.now = one.now + parameters.heartbeat;
            one.run(Log::beat);
        }
        for _ in 0..3 {
            one.hear(Message::Heard { ballot, sent: begun, decided: Slot(0), bound: Span::ZERO });
        }
        (one.now.since(begun).as_nanos() / (parameters.election * 2).as_nanos(), again)
    };
    let short = parameters.heartbeat;
    assert_eq!([short; 4].map(&mut reign), [(1, false), (1, false), (2, true), (4, true)]);
    assert_eq!(reign(parameters.election * 64).0, 1, "long ago");
}
