//! The replica around an order that does as it is told.

use super::*;
use crate::client::Nothing;
use crate::curp::Bug;
use crate::family::Tuning;
use crate::order::{Decided, Step, Tentative};
use crate::stream::Said;
use isochrone_core::command::{Access, Touch};
use isochrone_core::deployment::ParameterReader;
use isochrone_core::{Effect, Export, Fact, Footprint, Lane, NodeId, Outbox, Random, ReplicaSet, Stamp};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::LazyLock;

/// What the machine is told: texts under numbers.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Deed {
    Get(u8),
    /// Reads two.
    Both(u8, u8),
    /// Reads; a text that ends with an exclamation mark has had its time, and goes.
    Look(u8),
    Append(u8, char),
    /// Appends the first text to the second.
    Copy(u8, u8),
    Delete(u8),
    /// Fails where there is nothing.
    Need(u8, char),
    Clear,
}
use Deed::*;

static KEYS: LazyLock<Vec<Blob>> = LazyLock::new(|| (0..=255).map(|key: u8| Blob::from(vec![key])).collect());

pub(crate) type Text = Result<String, ()>;

#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
pub(crate) struct Texts(BTreeMap<u8, String>);

#[derive(Clone)]
pub(crate) struct Page(Option<Blob>);

impl Footprint for Deed {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        let mut key = |key: &u8, access| visit(Touch::Key(&KEYS[usize::from(*key)], access));
        match self {
            Get(at) | Look(at) => key(at, Access::Read),
            Both(one, other) => [one, other].into_iter().for_each(|at| key(at, Access::Read)),
            Append(at, _) | Delete(at) | Need(at, _) => key(at, Access::Update),
            Copy(from, to) => {
                key(from, Access::Read);
                key(to, Access::Update);
            }
            Clear => visit(Touch::All(Access::Update)),
        }
    }
}

impl Export for Page {
    fn chunk(&self, index: u64) -> Option<Blob> {
        self.0.clone().filter(|_| index == 0)
    }
}

impl StateMachine for Texts {
    type Command = Deed;
    type Reply = Text;
    type View = Page;
    type Before = Self;

    fn apply(&mut self, deed: &Deed) -> Text {
        let text = |texts: &Texts, at: &u8| texts.0.get(at).cloned().unwrap_or_default();
        match deed {
            Get(at) => return Ok(text(self, at)),
            Both(one, other) => return Ok(text(self, one) + &text(self, other)),
            Look(at) => {
                self.0.remove(at).filter(|text| !text.ends_with('!')).map(|text| self.0.insert(*at, text));
                return Ok(text(self, at));
            }
            Append(at, letter) => self.0.entry(*at).or_default().push(*letter),
            Copy(from, to) => {
                let more = text(self, from);
                self.0.entry(*to).or_default().push_str(&more);
                return Ok(text(self, to));
            }
            Delete(at) => return self.0.remove(at).ok_or(()),
            Need(at, letter) => self.0.get_mut(at).ok_or(())?.push(*letter),
            Clear => self.0.clear(),
        }
        match deed {
            Append(at, _) | Need(at, _) => Ok(text(self, at)),
            _ => Ok(String::new()),
        }
    }

    fn before(&self, _: &Self::Command) -> Self {
        self.clone()
    }

    /// A text that ends with a hash sign counts as much as it may.
    fn kept(before: &Self) -> usize {
        before.0.values().filter(|text| text.ends_with('#')).count() << 26
    }

    fn revert(&mut self, before: Self) {
        *self = before;
    }

    fn reads_only(deed: &Deed) -> bool {
        matches!(deed, Get(_) | Both(..) | Look(_))
    }

    fn follows(deed: &Deed) -> bool {
        matches!(deed, Copy(..))
    }

    fn read(&self, deed: &Deed) -> Option<Text> {
        match deed {
            Get(at) => Some(Ok(self.0.get(at).cloned().unwrap_or_default())),
            Both(one, other) => {
                let texts = [one, other].map(|at| self.0.get(at).cloned().unwrap_or_default());
                Some(Ok(texts.concat()))
            }
            Look(at) => {
                let text = self.0.get(at).cloned().unwrap_or_default();
                (!text.ends_with('!')).then_some(Ok(text))
            }
            _ => None,
        }
    }

    fn export(&self) -> Page {
        Page(Some(Blob::from(wire::encode(&self.0))))
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        self.0 =
            wire::decode(chunk).map_err(|error| Malformed { what: "texts", cause: error.to_string() })?;
        Ok(())
    }
}

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub(crate) struct Knobs(pub(crate) Option<Bug>);

impl Tuning for Knobs {
    fn for_rtt(_: Span) -> Knobs {
        Knobs(None)
    }
    fn read_from(&mut self, _: &mut ParameterReader<'_>, _: Reply) {}
    fn bugs() -> Vec<&'static str> {
        Vec::new()
    }
    fn plant(&mut self, _: &str) -> bool {
        false
    }
    fn shared_bug(&self) -> Option<Bug> {
        self.0
    }
}

/// An order whose steps are set by the test.
#[derive(Clone, Hash, Default)]
struct Script {
    steps: VecDeque<Step<Entry<Deed>>>,
    proposed: Vec<Entry<Deed>>,
    reign: u64,
    reads: bool,
    reads_elsewhere: bool,
    hurries: u64,
    decided: u64,
    /// Here where it says nothing.
    takes: Option<Takes>,
    candidate: Option<ProcessId>,
    /// Whether another leads.
    follows: bool,
    leader: Option<ReplicaId>,
    silent: ReplicaSet,
    /// Who was to lead first when it was opened.
    preferred: Option<ReplicaId>,
    changes: Vec<Change>,
}

impl Process for Script {
    type Setup = order::Setup<Knobs>;
    type Message = ();
    type Record = ();
    type Request = ();
    type Outcome = Result<(), Refusal>;
    type Timer = ();
    type Mark = Nothing;

    fn open(_: Identity, setup: &Self::Setup) -> Script {
        Script { preferred: setup.preferred, ..Script::default() }
    }
    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }
    fn replay(&mut self, (): ()) {}
    fn start(&mut self, _: &mut Effects<Self>) {}
    fn receive(&mut self, _: ProcessId, (): (), _: &mut Effects<Self>) {}
    fn request(&mut self, _: Ticket, (): (), _: &mut Effects<Self>) {}
    fn expire(&mut self, (): (), _: &mut Effects<Self>) {}
    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}

impl Order for Script {
    type Value = Entry<Deed>;
    type Parameters = Knobs;
    type Position = u64;
    const TOTAL: bool = true;
    const SPECULATES: bool = true;
    const MEMBERSHIP: Membership = Membership::StopAndHandOver;

    fn takes(&self) -> Takes {
        self.takes.unwrap_or(Takes::Here)
    }
    fn candidate(&self) -> Option<ProcessId> {
        self.candidate
    }
    fn leads(&self) -> bool {
        !self.follows
    }
    fn leader(&self) -> Option<ReplicaId> {
        self.leader
    }
    fn silent(&self, _: Instant) -> ReplicaSet {
        self.silent
    }
    fn may_read(&self, _: Instant) -> bool {
        self.reads
    }
    fn reads_elsewhere(&self) -> bool {
        self.reads_elsewhere
    }
    fn reign(&self) -> Reign {
        Reign(self.reign, 0)
    }
    fn hurry(&mut self, _: Instant) {
        self.hurries += 1;
    }
    fn propose(&mut self, value: Entry<Deed>, _: usize, _: Instant) -> Result<(), Refusal> {
        self.proposed.push(value);
        Ok(())
    }
    fn step(&mut self, _: Instant) -> Option<Step<Entry<Deed>>> {
        self.steps.pop_front()
    }
    fn serial(&self) -> u64 {
        self.decided
    }
    fn position(&self) -> u64 {
        self.decided
    }
    fn serves(&self, _: u64) -> bool {
        false
    }
    fn behind(&self) -> Option<ProcessId> {
        None
    }
    fn install(&mut self, _: &u64) -> bool {
        true
    }
    fn hold(&mut self, _held: bool) {}

    fn give_up(&mut self) {}
    fn change(&mut self, _: Ticket, change: Change, _: &mut Effects<Self>) {
        self.changes.push(change);
    }
}

type Told1 = (u64, Told<Text>);

/// A replica, its client, and what was tentative and is not decided.
struct Bench {
    replica: Replica<Texts, Script>,
    outbox: Outbox<Replica<Texts, Script>>,
    tentative: VecDeque<Entry<Deed>>,
    sequence: u64,
}

fn process(node: u16, role: u8) -> ProcessId {
    let role = isochrone_core::Role(role);
    ProcessId { node: NodeId(node), role, ..ProcessId::from_u64(0) }
}

const CLIENT: fn() -> ClientId = || Identity { process: process(9, 1), incarnation: 1 }.into();

impl Bench {
    fn new(bug: Option<Bug>) -> Bench {
        Bench::of(0, 1, bug)
    }

    /// In this life, of a group whose only member is on this node.
    fn of(member: u16, incarnation: u32, bug: Option<Bug>) -> Bench {
        let mut bench = Bench::open(member, incarnation, bug);
        bench.input(|replica, effects| replica.start(effects));
        bench
    }

    /// The same before its start.
    fn open(member: u16, incarnation: u32, bug: Option<Bug>) -> Bench {
        let me = process(0, 0);
        let setup = Setup {
            members: Arc::from([Member { replica: ReplicaId(0), process: process(member, 0) }]),
            preferred: None,
            service: Service::for_rtt(Span::from_millis(1)),
            parameters: Knobs(bug),
            machine: Texts::default(),
        };
        let replica = Replica::open(Identity { process: me, incarnation }, &setup);
        let outbox = Outbox::new(me, Random::seeded(1));
        Bench { replica, outbox, tentative: VecDeque::new(), sequence: 0 }
    }

    fn input(
        &mut self,
        input: impl FnOnce(&mut Replica<Texts, Script>, &mut Effects<Replica<Texts, Script>>),
    ) -> Vec<Told1> {
        let effects = self.outbox.input(Instant::ZERO, Stamp::ZERO);
        input(&mut self.replica, effects);
        self.replica.settle(effects);
        let mut told = Vec::new();
        for effect in self.outbox.drain() {
            if let Effect::Send { message: Message::Replies { answers, .. }, lane, .. } = effect {
                let ahead = answers.iter().all(|(_, told)| matches!(told, Told::Speculative(_)));
                assert_eq!(lane == Lane::Ahead, ahead, "{answers:?}");
                told.extend(answers);
            }
        }
        told
    }

    /// What is said of administration.
    fn administer(
        &mut self,
        input: impl FnOnce(&mut Replica<Texts, Script>, &mut Effects<Replica<Texts, Script>>),
    ) -> Vec<Message<Deed, Text, ()>> {
        input(&mut self.replica, self.outbox.input(Instant::ZERO, Stamp::ZERO));
        let sent = self.outbox.drain().filter_map(|effect| match effect {
            Effect::Send { message, .. } => Some(message),
            _ => None,
        });
        sent.collect()
    }

    /// The client asks for this; its number.
    fn ask(&mut self, deed: Deed) -> (u64, Vec<Told1>) {
        self.sequence += 1;
        (self.sequence, self.ask_as(self.sequence, deed, false))
    }

    fn ask_as(&mut self, sequence: u64, command: Deed, synced: bool) -> Vec<Told1> {
        self.hear(Ask { sequence, command, touching: false, synced })
    }

    fn hear(&mut self, ask: Ask<Deed>) -> Vec<Told1> {
        let asks = vec![ask];
        let (client, under) = (CLIENT(), Some(self.replica.order.reign()));
        let requests =
            Message::Requests { client, below: 1, under, asks, forwarded: false, said: Said::Freely };
        self.input(|replica, effects| replica.receive(client.process, requests, effects))
    }

    fn step(&mut self, step: Step<Entry<Deed>>) -> Vec<Told1> {
        self.replica.order.steps.push_back(step);
        self.input(|replica, effects| replica.take_steps(effects))
    }

    /// All that was proposed is tentative now.
    fn place(&mut self) -> Vec<Told1> {
        let values: Arc<[_]> = std::mem::take(&mut self.replica.order.proposed).into();
        self.tentative.extend(values.iter().cloned());
        self.step(Step::Tentative(Tentative { values, answer: true }))
    }

    /// As much of what is tentative is decided.
    fn decide(&mut self, count: usize) -> Vec<Told1> {
        let values: Arc<[_]> = self.tentative.drain(..count).collect();
        self.replica.order.decided += 1;
        let position = self.replica.order.decided;
        self.step(Step::Decided(Decided { position, digest: position, values, answer: true, spans: None }))
    }

    /// What is tentative is void, under another reign.
    fn drop(&mut self) -> Vec<Told1> {
        self.tentative.clear();
        self.replica.order.proposed.clear();
        self.replica.order.reign += 1;
        self.step(Step::Dropped)
    }

    fn text(&self, key: u8) -> &str {
        self.replica.machine.0.get(&key).map_or("", String::as_str)
    }

    /// What is asked and has its place; what is told at once.
    fn run(&mut self, deed: Deed) -> Vec<Told<Text>> {
        let (_, mut told) = self.ask(deed);
        told.extend(self.place());
        told.into_iter().map(|(_, told)| told).collect()
    }

    /// The same restarted from its own snapshot.
    fn restarted(&self) -> Bench {
        self.restarted_as(Bench::new(None))
    }

    fn restarted_as(&self, mut fresh: Bench) -> Bench {
        for chunk in self.replica.snapshot().unwrap() {
            fresh.replica.restore(chunk).unwrap();
        }
        fresh
    }
}

/// How far a replica that starts says it is.
fn told_at_the_start(mut bench: Bench) -> Option<u64> {
    bench.replica.start(bench.outbox.input(Instant::ZERO, Stamp::ZERO));
    bench.outbox.drain().find_map(|effect| match effect {
        Effect::Mark(Note::Fact(Fact::Applied { position, .. })) => Some(position),
        _ => None,
    })
}

fn speculative(text: &str) -> Vec<Told<Text>> {
    vec![Told::Speculative(Ok(text.to_owned()))]
}

fn done(text: &str) -> Told<Text> {
    Told::Done(Ok(text.to_owned()))
}

#[test]
fn who_starts_tells_how_far_its_snapshot_and_its_journal_have_brought_it() {
    assert_eq!(told_at_the_start(Bench::open(0, 1, None)), None, "it has nothing");
    let mut before = Bench::new(None);
    before.run(Append(1, 'a'));
    before.run(Append(2, 'b'));
    before.decide(2);
    let mut restored = Bench::open(0, 2, None);
    for chunk in before.replica.snapshot().unwrap() {
        restored.replica.restore(chunk).unwrap();
    }
    assert_eq!(told_at_the_start(restored), Some(2));
    let mut replayed = Bench::open(0, 2, None);
    let id = CommandId { client: CLIENT(), sequence: 1 };
    let values = Arc::from([Entry::Command { id, below: 1, command: Append(1, 'a') }]);
    let decided = Decided { position: 1, digest: 1, values, answer: true, spans: None };
    replayed.replica.order.steps.push_back(Step::Decided(decided));
    replayed.replica.replay(Record::Order { epoch: 0, record: () });
    assert_eq!(told_at_the_start(replayed), Some(1));
}

#[test]
fn who_has_a_speculative_answer_hears_no_more() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.run(Append(1, 'a')), speculative("a"));
    assert_eq!(bench.run(Append(2, 'b')), speculative("b"));
    assert_eq!(bench.replica.order.hurries, 0, "nobody waits");
    assert_eq!(bench.decide(2), []);
    assert_eq!((bench.text(1), bench.text(2)), ("a", "b"));
    assert_eq!(bench.replica.applied, 2);
    // The exactly-once table has it.
    assert_eq!(bench.ask_as(1, Append(1, 'a'), false), [(1, done("a"))]);
}

/// T16: Rule 2.
#[test]
fn who_conflicts_waits_for_the_decision() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.run(Append(1, 'a')), speculative("a"));
    assert_eq!(bench.run(Append(1, 'b')), []);
    assert_eq!(bench.replica.order.hurries, 1);
    // T18: reads one key, writes another.
    assert_eq!(bench.run(Copy(1, 2)), []);
    assert_eq!(bench.run(Append(3, 'c')), speculative("c"));
    assert_eq!(bench.decide(2), [(2, done("ab"))]);
    assert_eq!(bench.run(Append(1, 'd')), [], "the copy looked at it");
    assert_eq!(bench.decide(3), [(3, done("ab")), (5, done("abd"))]);
    assert_eq!(bench.run(Append(1, 'e')), speculative("abde"));
    let mut broken = Bench::new(Some(Bug::SpeculateOnConflict));
    broken.run(Append(1, 'a'));
    assert!(broken.replica.speculation.told_apart(usize::MAX, usize::MAX));
    assert_eq!(broken.run(Append(1, 'b')), speculative("ab"));
    assert!(!broken.replica.speculation.told_apart(usize::MAX, usize::MAX), "the invariant sees it");
    let mut broken = Bench::new(Some(Bug::ForgetReadKeys));
    broken.run(Append(1, 'a'));
    assert_eq!(broken.run(Copy(1, 2)), speculative("a"));
    assert!(!broken.replica.speculation.told_apart(usize::MAX, usize::MAX), "the invariant sees it");
}

/// T19, D-15: a failure is a result, and its key is not safe before it is.
#[test]
fn a_failure_is_answered_and_remembered() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.run(Need(1, 'a')), [Told::Speculative(Err(()))]);
    assert_eq!(bench.run(Append(1, 'b')), []);
    assert_eq!(bench.decide(2), [(2, done("b"))]);
    assert_eq!(bench.ask_as(1, Need(1, 'a'), true), [(1, Told::Done(Err(())))]);
    assert_eq!(bench.text(1), "b");
}

/// T20, D-12: a copy of a tentative command waits, and has the same answer.
#[test]
fn a_duplicate_waits() {
    let mut bench = Bench::new(None);
    bench.run(Append(1, 'a'));
    bench.run(Append(1, 'b'));
    assert_eq!(bench.ask_as(2, Append(1, 'b'), false), []);
    assert_eq!(bench.ask_as(1, Append(1, 'a'), true), []);
    assert_eq!(bench.place(), [], "neither was proposed again");
    assert_eq!(bench.decide(2), [(1, done("a")), (2, done("ab"))]);
    let mut broken = Bench::new(Some(Bug::SpeculateOnDuplicate));
    broken.run(Append(1, 'a'));
    broken.run(Append(1, 'b'));
    assert_eq!(broken.ask_as(2, Append(1, 'b'), false), [(2, Told::Speculative(Ok("ab".to_owned())))]);
}

/// 7.2: who wants a safe answer as well is told both.
#[test]
fn both_answers_where_both_are_wanted() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.ask_as(1, Append(1, 'a'), true), []);
    assert_eq!(bench.replica.order.hurries, 1);
    assert_eq!(bench.place(), [(1, Told::Speculative(Ok("a".to_owned())))]);
    assert_eq!(bench.decide(1), [(1, done("a"))]);
}

#[test]
fn one_that_has_two_places_is_executed_once() {
    let mut bench = Bench::new(None);
    bench.ask(Append(1, 'a'));
    let twice = bench.replica.order.proposed[0].clone();
    bench.replica.order.proposed.push(twice.clone());
    assert_eq!(bench.place(), [(1, Told::Speculative(Ok("a".to_owned())))]);
    assert_eq!(bench.text(1), "a");
    assert_eq!(bench.decide(1), []);
    bench.replica.order.proposed.push(twice);
    bench.place();
    assert_eq!(bench.decide(2), [(1, done("a")), (1, done("a"))]);
    assert_eq!(bench.text(1), "a");
}

/// What an acknowledgement or a later life of the client behind it forbids, no tentative command does either.
#[test]
fn a_late_command_is_passed_over_alike() {
    let command = |incarnation, sequence, below, deed| {
        let client = ClientId { incarnation, ..CLIENT() };
        Entry::Command { id: CommandId { client, sequence }, below, command: deed }
    };
    let late = [
        command(1, 7, 6, Append(1, 'a')),
        command(1, 5, 1, Append(2, 'b')),
        command(2, 1, 1, Append(3, 'c')),
        command(1, 9, 1, Append(4, 'd')),
        command(1, 7, 6, Append(1, 'a')),
    ];
    let mut ahead = Bench::new(None);
    ahead.replica.order.proposed.extend(late.clone());
    ahead.place();
    for _ in 0..late.len() {
        ahead.decide(1);
    }
    let mut plain = Bench::new(None);
    plain.tentative.extend(late);
    for _ in 0..5 {
        plain.decide(1);
    }
    assert_eq!(ahead.replica.machine, plain.replica.machine);
    assert_eq!(ahead.replica.once, plain.replica.once);
    assert_eq!(ahead.replica.digest, plain.replica.digest);
    assert_eq!(ahead.replica.machine.0.len(), 2);
}

#[test]
fn what_is_dropped_is_undone() {
    let mut bench = Bench::new(None);
    bench.run(Append(1, 'a'));
    bench.run(Append(2, 'b'));
    bench.decide(1);
    bench.run(Append(1, 'c'));
    bench.run(Delete(2));
    assert_eq!((bench.text(1), bench.text(2)), ("ac", ""));
    bench.drop();
    assert_eq!((bench.text(1), bench.text(2)), ("a", ""));
    // Asked again, it is proposed again, and nothing conflicts with what is gone.
    assert_eq!(bench.ask_as(3, Append(1, 'c'), false), []);
    assert_eq!(bench.place(), [(3, Told::Speculative(Ok("ac".to_owned())))]);
    assert_eq!(bench.decide(1), []);
    assert_eq!(bench.ask_as(1, Append(1, 'a'), false), [(1, done("a"))]);
    let mut broken = Bench::new(Some(Bug::KeepTentative));
    broken.run(Append(1, 'a'));
    broken.drop();
    assert_eq!(broken.text(1), "a");
}

/// Seed 804 of the consensus variant: a tentative read ran before the first tentative command.
#[test]
fn a_read_in_front_does_not_hide_the_way_back() {
    let mut bench = Bench::new(None);
    bench.run(Get(1));
    bench.run(Append(1, 'a'));
    assert_eq!(bench.restarted().text(1), "");
    bench.drop();
    assert_eq!(bench.text(1), "");
}

/// A request under another reign is not taken.
#[test]
fn another_reign_is_told() {
    let mut bench = Bench::new(None);
    bench.drop();
    let asks = vec![Ask { sequence: 1, command: Append(1, 'a'), touching: false, synced: true }];
    let under = Some(Reign(0, 0));
    let requests =
        Message::Requests { client: CLIENT(), below: 1, under, asks, forwarded: false, said: Said::Freely };
    let effects = bench.outbox.input(Instant::ZERO, Stamp::ZERO);
    bench.replica.receive(CLIENT().process, requests, effects);
    let told: Vec<_> = bench.outbox.drain().collect();
    let [Effect::Send { message: Message::Redirect { reign, leader, sequences, .. }, .. }] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((*reign, *leader, &sequences[..]), (Reign(1, 0), Some(process(0, 0)), &[1][..]));
    assert!(bench.replica.order.proposed.is_empty());
}

/// Who has asked lately would wait for what was dropped: it is told whom to ask, once.
#[test]
fn clients_are_told_when_commands_are_taken_elsewhere() {
    let mut bench = Bench::new(None);
    let settled = |bench: &mut Bench, seconds: u64, takes, candidate: Option<u16>| {
        bench.replica.order.takes = takes;
        bench.replica.order.candidate = candidate.map(|node| process(node, 0));
        let now = Instant::ZERO + Span::from_secs(seconds);
        bench.replica.settle(bench.outbox.input(now, Stamp::ZERO));
        let told = bench.outbox.drain().filter_map(|effect| match effect {
            Effect::Send { to, message: Message::Redirect { leader, .. }, .. } => Some((to, leader)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let at = |node| Some(Takes::At(process(node, 0)));
    let told = |node| vec![(CLIENT().process, Some(process(node, 0)))];
    bench.ask(Append(1, 'a'));
    assert_eq!(settled(&mut bench, 0, Some(Takes::Nobody), None), [], "nobody knows who");
    assert_eq!(settled(&mut bench, 0, Some(Takes::Nobody), Some(1)), told(1), "a candidate");
    assert_eq!(settled(&mut bench, 0, at(2), None), [], "it was told");
    assert_eq!(settled(&mut bench, 0, None, None), []);
    assert_eq!(settled(&mut bench, 0, at(2), Some(1)), told(2));
    bench.ask(Append(1, 'b'));
    assert_eq!(settled(&mut bench, 9, None, None), []);
    assert_eq!(settled(&mut bench, 9, at(2), None), [], "it has asked again by now, or waits for nothing");
}

/// Who leads answers a request for nothing, with nothing, and remembers nothing of it.
#[test]
fn a_request_for_nothing_is_answered() {
    let mut bench = Bench::new(None);
    let ask = |bench: &mut Bench, under| {
        let requests = Message::Requests {
            client: CLIENT(),
            below: 1,
            under,
            asks: Vec::new(),
            forwarded: true,
            said: Said::Freely,
        };
        let effects = bench.outbox.input(Instant::ZERO, Stamp::ZERO);
        bench.replica.receive(CLIENT().process, requests, effects);
        bench.replica.settle(effects);
        bench.outbox.drain().collect::<Vec<_>>()
    };
    let before = bench.replica.clone();
    for under in [None, Some(Reign(0, 0))] {
        let told = ask(&mut bench, under);
        let [Effect::Send { message: Message::Replies { reign, answers, .. }, .. }] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!((*reign, answers.len()), (Reign(0, 0), 0));
    }
    assert_eq!(bench.replica.clients, before.clients);
    let told = ask(&mut bench, Some(Reign(7, 0)));
    assert!(matches!(told[..], [Effect::Send { message: Message::Redirect { .. }, .. }]), "{told:?}");
}

type Said1 = Message<Deed, Text, ()>;

/// What is said because of this: to whom, by way of whom, and what.
fn said_for(
    bench: &mut Bench,
    input: impl FnOnce(&mut Replica<Texts, Script>, &mut Effects<Replica<Texts, Script>>),
) -> Vec<(ProcessId, Option<ProcessId>, Said1)> {
    let effects = bench.outbox.input(Instant::ZERO, Stamp::ZERO);
    input(&mut bench.replica, effects);
    bench.replica.settle(effects);
    let said = bench.outbox.drain().filter_map(|effect| match effect {
        Effect::Send { to: by_way, message: Message::Pass { to, message }, .. } => {
            Some((to, Some(by_way), wire::decode(&message).unwrap()))
        }
        Effect::Send { to, message, .. } => Some((to, None, message)),
        _ => None,
    });
    said.collect()
}

/// As long as it does not ask here itself.
#[test]
fn a_client_that_does_not_hear_this_replica_is_told_by_way_of_who_has_sent_its_commands_on() {
    let mut bench = Bench::new(None);
    let (me, other, client) = (process(0, 0), process(2, 0), CLIENT());
    let ask = |bench: &mut Bench, forwarded, unheard: ProcessId, asks: Vec<Ask<Deed>>, said| {
        let from = if forwarded { other } else { client.process };
        let (under, unheard) = (None, vec![process(1, 0), unheard]);
        let requests = Requests { client, below: 1, under, asks, forwarded, said, unheard };
        said_for(bench, |replica, effects| {
            replica.receive(from, Message::Around(Box::new(requests)), effects)
        })
    };
    let append = || vec![Ask { sequence: 1, command: Append(1, 'a'), touching: false, synced: false }];
    for (forwarded, unheard, by_way) in
        [(true, me, Some(other)), (true, process(3, 0), None), (false, me, None)]
    {
        let said = ask(&mut bench, forwarded, unheard, Vec::new(), Said::Freely);
        let [(to, way, Message::Replies { answers, .. })] = &said[..] else { panic!("{said:?}") };
        assert_eq!((*to, *way, answers.len()), (client.process, by_way, 0));
    }
    let said = ask(&mut bench, true, me, append(), Said::Next { turn: 3, number: 5 });
    assert_eq!(said, [(client.process, Some(other), Message::Missed { incarnation: 1, turn: 3 })]);
    assert!(bench.replica.ways.is_empty(), "nothing of it was taken");

    assert_eq!(ask(&mut bench, true, me, append(), Said::Next { turn: 4, number: 0 }), []);
    let values: Arc<[_]> = std::mem::take(&mut bench.replica.order.proposed).into();
    bench.tentative.extend(values.iter().cloned());
    bench.replica.order.steps.push_back(Step::Tentative(Tentative { values, answer: true }));
    let said = said_for(&mut bench, |replica, effects| replica.take_steps(effects));
    let [(to, way, Message::Replies { answers, .. })] = &said[..] else { panic!("{said:?}") };
    assert_eq!((*to, *way), (client.process, Some(other)));
    assert_eq!(*answers, [(1, Told::Speculative(Ok("a".to_owned())))]);

    // What is told unasked takes the same way.
    bench.replica.order.takes = Some(Takes::At(process(1, 0)));
    let said = said_for(&mut bench, |_, _| {});
    assert!(matches!(said[..], [(_, Some(way), Message::Redirect { .. })] if way == other), "{said:?}");
    let said = ask(&mut bench, true, me, append(), Said::Freely);
    assert!(matches!(said[..], [(_, Some(way), Message::Redirect { .. })] if way == other), "{said:?}");

    bench.replica.order.takes = None;
    bench.sequence = 1;
    assert_eq!(bench.run(Append(2, 'b')), [Told::Speculative(Ok("b".to_owned()))], "told directly");
    assert!(bench.replica.ways.is_empty());
}

/// It goes no further than to whom it is for.
#[test]
fn only_what_a_replica_of_the_group_tells_is_handed_on() {
    let mut bench = Bench::of(3, 1, None);
    let client = CLIENT().process;
    let elsewhere = ProcessId { keyspace: isochrone_core::KeyspaceId(7), ..client };
    for (from, to, handed_on) in [
        (process(3, 0), client, true),
        (process(4, 0), client, false),
        (client, client, false),
        (process(3, 0), process(0, 0), false),
        (process(3, 0), elsewhere, false),
    ] {
        let effects = bench.outbox.input(Instant::ZERO, Stamp::ZERO);
        bench.replica.receive(from, Message::Pass { to, message: Blob::from("x") }, effects);
        let said: Vec<_> = bench.outbox.drain().collect();
        match &said[..] {
            [Effect::Send { to: told, message: Message::Pass { to: client, message }, .. }] => {
                assert!(handed_on && *told == to && *client == to, "{said:?}");
                assert_eq!(*message, Blob::from("x"), "as it is");
            }
            said => assert!(!handed_on && said.is_empty(), "{from} of {to}: {said:?}"),
        }
    }
}

/// T17, I5: also for keys that are gone.
#[test]
fn a_read_waits_for_what_it_saw() {
    let mut bench = Bench::new(None);
    bench.replica.order.reads = true;
    bench.run(Append(1, 'a'));
    bench.decide(1);
    bench.run(Delete(1));
    let read = |text: &str| Told::Read(Ok(text.to_owned()));
    assert_eq!(bench.run(Get(2)), [read("")], "nobody writes it");
    assert_eq!(bench.run(Get(1)), []);
    bench.run(Append(1, 'b'));
    // The read came before the second write, and rests on the first alone.
    assert_eq!(bench.decide(1), [(4, read(""))]);
    assert_eq!(bench.run(Get(1)), []);
    bench.drop();
    assert_eq!(bench.run(Get(1)), [read("")]);
    let mut broken = Bench::new(Some(Bug::ReadTentative));
    broken.replica.order.reads = true;
    broken.run(Append(1, 'a'));
    assert_eq!(broken.run(Get(1)), [read("a")]);
}

/// Where others may read without a look at what is tentative: else one who has seen the second write in place would not find
/// the first, which the read has seen before it.
#[test]
fn a_write_is_not_over_before_what_a_read_of_its_key_has_seen() {
    // It is answered here, or has its place in the log.
    for reads in [true, false] {
        for reads_elsewhere in [true, false] {
            let mut bench = Bench::new(None);
            (bench.replica.order.reads, bench.replica.order.reads_elsewhere) = (reads, reads_elsewhere);
            bench.run(Append(1, 'a'));
            assert_eq!(bench.run(Both(1, 2)), []);
            let told = bench.run(Append(2, 'b'));
            let speculative = Told::Speculative(Ok("b".to_owned()));
            assert_eq!(told, if reads_elsewhere { vec![] } else { vec![speculative] });
            bench.decide(bench.tentative.len());
            assert_eq!(bench.run(Append(2, 'c')), [Told::Speculative(Ok("bc".to_owned()))]);
        }
    }
}

/// T17, I5: a read that lets a key expire has its place, and whoever reads that key behind it waits for that.
#[test]
fn a_read_waits_for_one_that_let_a_key_expire() {
    let mut bench = Bench::new(None);
    bench.replica.order.reads = true;
    bench.run(Append(1, '!'));
    bench.decide(1);
    assert_eq!(bench.run(Look(1)), [Told::Touches]);
    assert_eq!(bench.text(1), "!", "to read changes nothing");
    // It is asked for again as a change, by the same name.
    let again = |bench: &mut Bench, sequence| {
        let told = bench.hear(Ask { sequence, command: Look(1), touching: true, synced: false });
        told.into_iter().chain(bench.place()).collect::<Vec<_>>()
    };
    assert_eq!(again(&mut bench, 2), [(2, Told::Speculative(Ok(String::new())))]);
    assert_eq!((bench.run(Look(1)), bench.run(Get(1))), (vec![], vec![]));
    assert_eq!(bench.text(1), "");
    let read = |sequence| (sequence, Told::Read(Ok(String::new())));
    assert_eq!(bench.decide(1), [read(3), read(4)]);
    // One that loses its place has let nothing expire.
    bench.run(Append(1, '!'));
    bench.decide(1);
    again(&mut bench, 6);
    bench.drop();
    assert_eq!(bench.run(Look(1)), [Told::Touches]);
    assert_eq!(bench.text(1), "!");
}

#[test]
fn a_read_by_way_of_the_log_is_told_when_it_is_decided() {
    let mut bench = Bench::new(None);
    bench.run(Append(1, 'a'));
    assert_eq!(bench.run(Get(1)), []);
    bench.run(Append(1, 'b'));
    let looked = |text: &str| Told::Looked(Ok(text.to_owned()));
    assert_eq!(bench.decide(2), [(2, looked("a"))]);
    assert_eq!(bench.decide(1), [(3, done("ab"))]);
}

/// T23.
#[test]
fn behind_what_touches_everything_everything_waits() {
    let mut bench = Bench::new(None);
    bench.replica.order.reads = true;
    assert_eq!(bench.run(Clear), [], "no witness keeps it");
    assert_eq!(bench.run(Append(1, 'a')), []);
    assert_eq!(bench.run(Get(7)), []);
    assert_eq!(bench.decide(1).len(), 2, "it, and the read");
    assert_eq!(bench.run(Append(2, 'b')), speculative("b"));
    assert_eq!(bench.run(Clear), []);
    assert_eq!(bench.decide(3).len(), 2);
}

#[test]
fn a_snapshot_holds_what_is_decided() {
    let mut bench = Bench::new(None);
    bench.run(Append(1, 'a'));
    bench.run(Append(2, 'b'));
    bench.decide(1);
    bench.run(Append(1, 'c'));
    let copy = bench.restarted();
    assert_eq!((copy.text(1), copy.text(2)), ("a", ""));
    assert_eq!((copy.replica.applied, copy.replica.digest), (1, bench.replica.digest));
    assert_eq!(bench.replica.decided_machine().into_owned(), copy.replica.machine);
    assert_eq!(bench.text(1), "ac", "the own machine runs ahead all the same");
    bench.decide(2);
    assert_eq!(bench.restarted().replica.machine, bench.replica.machine);
}

/// However long something stays tentative, what is decided is within reach.
#[test]
fn the_way_back_follows() {
    let mut bench = Bench::new(None);
    for round in 0..10_000_u32 {
        bench.ask(Append((round % 7) as u8, 'x'));
        bench.place();
        if bench.tentative.len() > 5 {
            bench.decide(1);
        }
        if round % 1_000 == 999 {
            let base = bench.replica.decided_machine().into_owned();
            let length: usize = base.0.values().map(String::len).sum();
            assert_eq!(length as u32, round + 1 - bench.tentative.len() as u32);
        }
    }
    let before = bench.replica.decided_machine().into_owned();
    bench.drop();
    assert_eq!(bench.replica.machine, before);
}

/// The end of a session, and of the order, is executed when it is decided, and what is behind it then.
#[test]
fn nothing_runs_ahead_of_a_barrier() {
    let mut bench = Bench::new(None);
    bench.run(Append(1, 'a'));
    bench.replica.order.proposed.push(Entry::Expire { client: CLIENT(), through: 1 });
    assert_eq!(bench.run(Append(2, 'b')), []);
    assert_eq!(bench.text(2), "", "it waits");
    assert!(bench.replica.order.hurries > 0);
    assert_eq!(bench.decide(1), []);
    assert_eq!(bench.decide(1), [(2, Told::Speculative(Ok("b".to_owned())))], "the session has ended");
    assert_eq!(bench.ask_as(1, Append(1, 'a'), false), [(1, Told::Forgotten)]);
    let members = Arc::from([Member { replica: ReplicaId(0), process: process(3, 0) }]);
    bench.replica.order.proposed.push(Entry::Stop { members });
    assert_eq!(bench.run(Append(3, 'c')), []);
    bench.decide(1);
    bench.decide(1);
    assert_eq!(bench.replica.epoch, 1);
    assert_eq!((bench.text(2), bench.text(3)), ("b", ""));
    assert!(!bench.replica.speculation.is_tentative());
}

/// In one batch, too.
#[test]
fn a_barrier_within_a_batch() {
    let mut bench = Bench::new(None);
    bench.ask(Append(1, 'a'));
    bench.replica.order.proposed.push(Entry::Expire { client: CLIENT(), through: 0 });
    bench.ask(Append(1, 'b'));
    assert_eq!(bench.place(), [(1, Told::Speculative(Ok("a".to_owned())))]);
    assert_eq!(bench.decide(3), [(2, done("ab"))]);
    assert_eq!(bench.run(Append(1, 'c')), speculative("abc"));
    bench.drop();
    assert_eq!(bench.text(1), "ab");
}

/// Nor of ways back that weigh too much; what is behind is executed when it is decided.
#[test]
fn nothing_runs_ahead_once_too_much_is_kept() {
    let mut bench = Bench::new(None);
    bench.replica.order.reads = true;
    assert_eq!(bench.run(Append(1, '#')), speculative("#"));
    assert_eq!(bench.run(Append(2, 'a')), speculative("a"), "it keeps what is too much");
    let hurries = bench.replica.order.hurries;
    assert_eq!(bench.run(Append(3, 'b')), []);
    assert_eq!(bench.run(Append(4, 'c')), []);
    assert_eq!((bench.text(2), bench.text(3)), ("a", ""), "they wait");
    assert!(bench.replica.order.hurries > hurries);
    let before = bench.replica.decided_machine().into_owned();
    assert_eq!(before, Texts::default());
    assert_eq!(bench.run(Get(3)), [], "nor is anything read before them");
    let mut told = bench.decide(3);
    told.sort_by_key(|(sequence, _)| *sequence);
    let ahead = Told::Speculative(Ok("c".to_owned()));
    assert_eq!(
        told,
        [(3, done("b")), (4, ahead)],
        "one is executed when it is decided, the next ahead again"
    );
    assert_eq!(bench.decide(2), [(5, Told::Looked(Ok("b".to_owned())))]);
    assert_eq!(bench.run(Append(1, 'd')), speculative("#d"));
    assert_eq!(bench.run(Append(5, 'e')), []);
    bench.drop();
    assert_eq!((bench.text(1), bench.text(5)), ("#", ""));
    assert_eq!(bench.run(Append(5, 'f')), speculative("f"), "what is void weighs nothing");
    bench.drop();
    assert!(!bench.replica.speculation.is_tentative());
}

/// Of one that comes again an answer is on its way. A number alone does not say that it is the same.
#[test]
fn another_order_under_the_same_number_is_not_taken_for_the_first() {
    let mut bench = Bench::new(None);
    let mut asked = |node: u16| {
        let ask = Message::Administer { number: 7, change: Change::Lead(NodeId(node)) };
        bench.administer(|replica, effects| replica.receive(process(1, 0), ask, effects))
    };
    assert!(asked(1).is_empty() && asked(1).is_empty());
    let answers = asked(2);
    let [Message::Administered { number: 7, result: Err(Refusal::Busy), .. }] = &answers[..] else {
        panic!("{answers:?}")
    };
}

/// A node that stops asks its replicas of all partitions, and those that follow must not take the lead from whoever stays. A
/// client means whoever leads, whichever member it asks.
#[test]
fn of_a_node_that_stops_only_who_leads_resigns() {
    for leads in [false, true] {
        let mut bench = Bench::new(None);
        bench.replica.order.follows = !leads;
        bench.replica.request(Ticket(1), Change::Resign, bench.outbox.input(Instant::ZERO, Stamp::ZERO));
        let completed = bench.outbox.drain().filter_map(|effect| match effect {
            Effect::Complete { ticket, outcome, .. } => Some((ticket, outcome)),
            _ => None,
        });
        let completed: Vec<(Ticket, Result<(), Refusal>)> = completed.collect();
        let at_once = if leads { vec![] } else { vec![(Ticket(1), Ok(()))] };
        assert_eq!(completed, at_once);
        let asked = usize::from(leads);
        assert_eq!(bench.replica.order.changes.len(), asked, "at once, or by the order");
        let resign = Message::Administer { number: 7, change: Change::Resign };
        bench.administer(|replica, effects| replica.receive(process(9, 1), resign, effects));
        assert_eq!(bench.replica.order.changes.len(), asked + 1);
    }
}

#[test]
fn what_is_passed_on_has_a_number_of_its_life() {
    let numbers = [1, 2].map(|life| {
        let mut bench = Bench::of(1, life, None);
        let change = Change::Lead(NodeId(1));
        let sent = bench.administer(|replica, effects| replica.request(Ticket(1), change, effects));
        let [Message::Administer { number, .. }] = sent[..] else { panic!("{sent:?}") };
        number
    });
    assert_ne!(numbers[0], numbers[1]);
}

/// A group counts on whom it takes in; and what was proposed may have been lost.
#[test]
fn who_is_to_become_a_member_is_asked_first_whether_it_is_there() {
    type Scripted = Replica<Texts, Script>;
    let mut bench = Bench::new(None);
    let mut act = |now: Instant, input: &dyn Fn(&mut Scripted, &mut Effects<Scripted>)| {
        let effects = bench.outbox.input(now, Stamp::ZERO);
        input(&mut bench.replica, effects);
        bench.replica.settle(effects);
        let said = bench.outbox.drain().filter_map(|effect| match effect {
            Effect::Send { message: Message::Administered { number, result, .. }, .. } => {
                Some(format!("{number}: {result:?}"))
            }
            Effect::Send { to, message: Message::Join { epoch }, .. } => {
                Some(format!("n{} in {epoch}?", to.node.0))
            }
            _ => None,
        });
        let said: Vec<_> = said.collect();
        let proposed = bench.replica.order.proposed.iter().map(|entry| match entry {
            Entry::HandOver { members } => members.iter().map(|member| member.process.node.0).collect(),
            _ => vec![],
        });
        (said.join(", "), proposed.collect::<Vec<_>>())
    };
    let ask = |number, change| {
        move |replica: &mut Scripted, effects: &mut Effects<Scripted>| {
            replica.receive(process(9, 1), Message::Administer { number, change }, effects);
        }
    };
    let (three, four) = (Change::Add(NodeId(3)), Change::Add(NodeId(4)));
    let service = Service::for_rtt(Span::from_millis(1));
    let start = Instant::from_nanos(1);
    let said = |text: &str| (text.to_owned(), vec![]);
    assert_eq!(act(start, &ask(1, three)), said("n3 in 0?"));
    assert_eq!(act(start, &ask(1, three)), said(""), "it is being asked");
    assert_eq!(act(start, &ask(2, four)), said("2: Err(Busy)"));
    let call = |replica: &mut Scripted, effects: &mut Effects<Scripted>| {
        replica.expire(Timer::Call, effects);
    };
    assert_eq!(act(start + service.resend, &call), said("n3 in 0?"), "that may have been lost");
    let start = start + service.retry * 4;
    assert_eq!(act(start, &call), said("1: Err(Silent)"));
    assert_eq!(act(start, &ask(3, three)), said("n3 in 0?"));
    let there = |replica: &mut Scripted, effects: &mut Effects<Scripted>| {
        replica.receive(process(3, 0), Message::Joined { epoch: 0 }, effects);
    };
    let once = vec![0, 3];
    assert_eq!(act(start, &there), (String::new(), vec![once.clone()]));
    assert_eq!(act(start, &ask(4, four)), ("4: Err(Busy)".to_owned(), vec![once.clone()]));
    let twice = vec![once.clone(), once];
    assert_eq!(
        act(start, &ask(5, three)),
        ("3: Err(Busy)".to_owned(), twice.clone()),
        "the same, by another"
    );
    assert_eq!(act(start + service.limit, &ask(6, four)), ("n4 in 0?".to_owned(), twice));
}

/// Where the members change by stop and hand-over, the first of the list that is decided leads first, whatever a file says: the
/// file of a member that was added need not name whom the others' do, and none knows who has died. What an earlier version has
/// in its journal goes on as it has begun.
#[test]
fn who_leads_when_the_members_change_leads_the_next_epoch_first() {
    let setup = |preferred| {
        let mut bench = Bench::new(None);
        bench.replica.preferred = preferred;
        let member = |at: u8| Member { replica: ReplicaId(at), process: process(u16::from(at), 0) };
        bench.replica.members = (0..4).map(member).collect();
        bench
    };
    let after = |leader: u8, silent: &[u8], removed: u16| {
        let mut bench = setup(Some(ReplicaId(2)));
        bench.replica.order.leader = Some(ReplicaId(leader));
        bench.replica.order.silent = silent.iter().map(|seat| ReplicaId(*seat)).collect();
        let change = Message::Administer { number: 1, change: Change::Remove(NodeId(removed)) };
        assert_eq!(
            bench.administer(|replica, effects| replica.receive(process(9, 1), change, effects)).len(),
            0
        );
        let Some(Entry::HandOver { members }) = bench.replica.order.proposed.pop() else { panic!("nothing") };
        assert!(members.iter().zip(0..).all(|(member, seat)| member.replica == ReplicaId(seat)));
        (members.iter().map(|member| member.process.node.0).collect::<Vec<_>>(), members)
    };
    assert_eq!(after(3, &[], 1).0, [3, 0, 2]);
    assert_eq!(after(0, &[], 1).0, [0, 2, 3]);
    assert_eq!(after(3, &[3], 1).0, [0, 2, 3], "it is dead");
    assert_eq!(after(3, &[], 3).0, [0, 1, 2], "it leaves");
    let (_, members) = after(2, &[], 1);
    let ended = |entry, preferred| {
        let mut bench = setup(preferred);
        bench.replica.order.proposed.push(entry);
        assert_eq!(bench.place(), []);
        bench.decide(1);
        assert_eq!(bench.replica.epoch, 1);
        bench
    };
    for preferred in [None, Some(ReplicaId(1)), Some(ReplicaId(2))] {
        let bench = ended(Entry::HandOver { members: members.clone() }, preferred);
        assert_eq!(bench.replica.order.preferred, None, "the first");
        assert_eq!(bench.restarted_as(setup(Some(ReplicaId(1)))).replica.order.preferred, None);
        let mut newcomer = setup(Some(ReplicaId(1)));
        for index in 0.. {
            let Some(chunk) = bench.replica.view(7).chunk(index) else { break };
            newcomer.replica.stage(index, &chunk);
        }
        assert!(newcomer.replica.install(7));
        assert_eq!((newcomer.replica.epoch, newcomer.replica.order.preferred), (1, None));
        // As an earlier version has it in its journal.
        let mut earlier = setup(preferred);
        let chunk = bench.replica.view(7).chunk(0).unwrap();
        earlier.replica.stage(0, &chunk[..chunk.len() - 1]);
        assert!(earlier.replica.install(7));
        assert_eq!((earlier.replica.epoch, earlier.replica.order.preferred), (1, preferred));
        assert_eq!(newcomer.restarted_as(setup(Some(ReplicaId(1)))).replica.order.preferred, None);
        let bench = ended(Entry::Stop { members: members.clone() }, preferred);
        assert_eq!(bench.replica.order.preferred, preferred);
        assert_eq!(bench.restarted_as(setup(preferred)).replica.order.preferred, preferred);
    }
}
