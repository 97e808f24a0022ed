use super::*;
use isochrone_core::command::Access;
use isochrone_core::migration::{Cursor, Move, Piece, Step};
use isochrone_core::{Effect, Export, Footprint, KeyspaceId, NodeId, Outbox, Random, Role, Stamp};
use serde::{Deserialize, Serialize};
use std::cell::Cell;

#[test]
fn each_partition_owns_an_equal_stretch_and_a_tag_decides() {
    let partition = |partitions, key: &str| {
        let ring = Ring { keyspace: KeyspaceId(1), partitions, at: PartitionId(0) };
        ring.owner(ring.place(key.as_bytes())).0
    };
    for partitions in [1, 3, 7, 1_024] {
        let mut keys = vec![0u32; usize::from(partitions)];
        for number in 0..u32::from(partitions) * 500 {
            keys[usize::from(partition(partitions, &format!("k{number}")))] += 1;
        }
        assert!(keys.iter().all(|count| (350..650).contains(count)), "{partitions}: {keys:?}");
    }
    for number in 0..100 {
        assert_eq!(partition(16, &format!("{{user7}}:{number}")), partition(16, "user7"));
    }
}

/// A command that touches keys, and a number to know it by, and what it says of their versions; one that touches all, which can be divided where its number
/// is even; one that is about places, and the share of a partition in it; or a step.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
enum Asks {
    Keys(u32, Vec<Blob>, Option<u32>),
    All(u32),
    Page(u32),
    Share(u32, PartitionId, Vec<Stretch>),
    Step(Step),
}

thread_local! {
    /// How often commands were asked here which keys they touch.
    static VISITS: Cell<u32> = const { Cell::new(0) };
}

impl Footprint for Asks {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        VISITS.set(VISITS.get() + 1);
        match self {
            Asks::Keys(_, keys, _) => keys.iter().for_each(|key| visit(Touch::Key(key, Access::Update))),
            _ => visit(Touch::All(Access::Update)),
        }
    }
}

#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
enum Says {
    Done(u32),
    /// All but this.
    Partly(u32, Vec<Told>),
    Told(Told),
    /// Nothing was done there.
    Refused,
}

/// What the partitions execute is played by the tests.
#[derive(Clone, Hash, Debug)]
struct Machine;

impl Export for Machine {
    fn chunk(&self, _: u64) -> Option<Blob> {
        None
    }
}

impl StateMachine for Machine {
    type Command = Asks;
    type Reply = Says;
    type View = Machine;
    type Before = ();
    fn before(&self, _: &Asks) {}
    fn revert(&mut self, (): ()) {}
    fn apply(&mut self, _: &Asks) -> Says {
        Says::Done(0)
    }
    fn reads_only(asks: &Asks) -> bool {
        matches!(asks, Asks::Page(_))
    }
    fn read(&self, _: &Asks) -> Option<Says> {
        None
    }
    fn share(command: &Asks, ring: Ring, served: &[Stretch]) -> Option<Asks> {
        match command {
            Asks::All(number) if number % 2 == 0 => Some(command.clone()),
            Asks::Page(number) if !served.is_empty() => Some(Asks::Share(*number, ring.at, served.to_vec())),
            _ => None,
        }
    }
    fn missing(reply: &Says) -> &[Told] {
        match reply {
            Says::Partly(_, missing) => missing,
            _ => &[],
        }
    }
    /// The digits of all, in order.
    fn gather(_: &Asks, of: u16, replies: Vec<Says>) -> Option<Says> {
        assert_eq!(of, 2);
        let mut all = 0;
        for says in &replies {
            let (Says::Done(digit) | Says::Partly(digit, _)) = says else { return None };
            all = all * 10 + digit;
        }
        Some(Says::Done(all))
    }
    fn step(step: Step, _: Stamp) -> Option<Asks> {
        Some(Asks::Step(step))
    }
    fn knowing(command: Asks, versions: Versions) -> Asks {
        let said = (0..9).find(|version| Versions::FIRST.and(*version) == versions);
        match command {
            Asks::Keys(number, keys, None) => Asks::Keys(number, keys, said.map(|version| version as u32)),
            other => panic!("{other:?} says its versions"),
        }
    }
    fn told(reply: &Says) -> Option<&Told> {
        match reply {
            Says::Told(told) => Some(told),
            _ => None,
        }
    }
    fn export(&self) -> Machine {
        Machine
    }
    fn absorb(&mut self, _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

/// The client of a partition: it sends what it is asked to the test, whose messages are answers.
#[derive(Clone, Hash)]
struct Fake;

type Said = Result<(u64, Asks), (u64, Option<Says>)>;

#[derive(Clone, Debug)]
struct Nothing;

impl Mark for Nothing {
    fn fact(&self) -> Option<Fact> {
        None
    }
}

impl Process for Fake {
    type Setup = ();
    type Message = Said;
    type Record = ();
    type Request = Request<Asks>;
    type Outcome = Outcome<Says>;
    type Timer = ();
    type Mark = Nothing;
    fn open(_: Identity, (): &()) -> Fake {
        Fake
    }
    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }
    fn replay(&mut self, (): ()) {}
    fn start(&mut self, _: &mut Effects<Fake>) {}
    fn receive(&mut self, _: ProcessId, message: Said, effects: &mut Effects<Fake>) {
        if let Err((ticket, says)) = message {
            let outcome = match says {
                Some(Says::Refused) => Outcome::Refused(Refusal::NoLeader),
                Some(says) => Outcome::Replied(says),
                None => Outcome::Unknown,
            };
            effects.complete(Ticket(ticket), outcome);
        }
    }
    fn request(&mut self, ticket: Ticket, request: Request<Asks>, effects: &mut Effects<Fake>) {
        if let Request::Command(command) = request {
            // The partition is not known here, so the asked one is told by its key in the tests.
            effects.send(effects.me(), Ok((ticket.0, command)));
        }
    }
    fn expire(&mut self, (): (), _: &mut Effects<Fake>) {}
    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}

/// A client of two partitions, and what leaves it.
struct Bench {
    divided: Divided<Machine, Fake>,
    outbox: Outbox<Divided<Machine, Fake>>,
    now: Instant,
    asked: Vec<(u64, Asks)>,
    answered: Vec<(u64, Outcome<Says>)>,
}

const ME: ProcessId = ProcessId {
    node: NodeId(0),
    keyspace: KeyspaceId(1),
    partition: PartitionId(0),
    role: Role(1),
    instance: 0,
};

impl Bench {
    fn new() -> Bench {
        let service = Service::for_rtt(Span::from_millis(10));
        let setup = Setup { parts: vec![(), ()], service, bug: None };
        let divided = Divided::open(Identity { process: ME, incarnation: 1 }, &setup);
        let outbox = Outbox::new(ME, Random::seeded(1));
        Bench { divided, outbox, now: Instant::ZERO, asked: Vec::new(), answered: Vec::new() }
    }

    fn input(
        &mut self,
        input: impl FnOnce(&mut Divided<Machine, Fake>, &mut Effects<Divided<Machine, Fake>>),
    ) {
        input(&mut self.divided, self.outbox.input(self.now, Stamp::ZERO));
        self.drain();
        self.divided.settle(self.outbox.input(self.now, Stamp::ZERO));
        self.drain();
        self.divided.check();
    }

    fn drain(&mut self) {
        for effect in self.outbox.drain() {
            match effect {
                Effect::Send { message: Ok(asked), .. } => self.asked.push(asked),
                Effect::Complete { ticket, outcome, .. } => self.answered.push((ticket.0, outcome)),
                _ => {}
            }
        }
    }

    fn ask(&mut self, number: u32, keys: &[&str]) {
        let command = Asks::Keys(number, keys.iter().map(|key| Blob::from(*key)).collect(), None);
        self.input(|divided, effects| divided.request(Ticket(number.into()), command.into(), effects));
    }

    fn ask_all(&mut self, number: u32) {
        let command = Asks::All(number);
        self.input(|divided, effects| divided.request(Ticket(number.into()), command.into(), effects));
    }

    fn ask_page(&mut self, number: u32) {
        let command = Asks::Page(number);
        self.input(|divided, effects| divided.request(Ticket(number.into()), command.into(), effects));
    }

    /// A partition answers what was asked under this inner ticket.
    fn tell(&mut self, partition: u16, ticket: u64, says: Option<Says>) {
        let from = ProcessId { partition: PartitionId(partition), ..ME };
        self.input(|divided, effects| divided.receive(from, Err((ticket, says)), effects));
    }

    fn pass(&mut self, time: Span) {
        self.now = self.now + time;
        self.input(|divided, effects| divided.expire(Timer::Again, effects));
    }

    /// The numbers of the commands that were sent since the last look, with their inner tickets.
    fn sent(&mut self) -> Vec<(u32, u64)> {
        let number = |(ticket, asks): (u64, Asks)| match asks {
            Asks::Keys(number, ..) | Asks::All(number) => (number, ticket),
            other => panic!("{other:?}"),
        };
        self.asked.drain(..).map(number).collect()
    }

    /// The same of commands on keys, with the sums of the versions that they say.
    fn said(&mut self) -> Vec<(u32, u64, u32)> {
        let said = |(ticket, asks): (u64, Asks)| match asks {
            Asks::Keys(number, _, Some(versions)) => (number, ticket, versions),
            other => panic!("{other:?}"),
        };
        self.asked.drain(..).map(said).collect()
    }

    /// The shares that were asked for since the last look, by partition and places, with their inner tickets.
    fn shares(&mut self) -> Vec<(u16, Vec<Stretch>, u64)> {
        let share = |(ticket, asks)| match asks {
            Asks::Share(_, at, places) => (at.0, places, ticket),
            other => panic!("{other:?}"),
        };
        self.asked.drain(..).map(share).collect()
    }

    fn step(&mut self) -> (u64, Step) {
        match self.asked.pop() {
            Some((ticket, Asks::Step(step))) => (ticket, step),
            other => panic!("{other:?}"),
        }
    }
}

/// A key that partition 0 owns at first, and the whole of what it owns.
fn mine() -> (String, Stretch) {
    let ring = Ring { keyspace: KeyspaceId(1), partitions: 2, at: PartitionId(0) };
    let key = (0..).map(|n| format!("k{n}")).find(|key| ring.owner(ring.place(key.as_bytes())).0 == 0);
    (key.unwrap(), ring.stretch(PartitionId(0)))
}

fn elsewhere(there: bool) -> Option<Says> {
    let (_, stretch) = mine();
    Some(Says::Told(Told::Elsewhere { stretch, to: PartitionId(1), version: 1, there }))
}

#[test]
fn where_nothing_is_in_the_way_a_command_is_asked_once_which_keys_it_touches() {
    let (key, _) = mine();
    let mut bench = Bench::new();
    for keys in [1, 9] {
        let command = Asks::Keys(1, vec![Blob::from(key.as_str()); keys], None);
        bench.input(|divided, effects| {
            VISITS.set(0);
            divided.request(Ticket(keys as u64), command.into(), effects);
            assert_eq!(VISITS.get(), 1, "{keys} keys");
        });
    }
    assert_eq!(bench.sent().len(), 2);
}

/// What touches all keys is asked of every partition and answered when the last of them has; what cannot be divided is
/// refused, and a partition that does not know makes the whole unknown.
#[test]
fn what_touches_all_keys_is_asked_everywhere() {
    let mut bench = Bench::new();
    bench.ask_all(3);
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.answered.pop(), Some((3, Outcome::Refused(Refusal::Whole))));
    bench.ask_all(4);
    bench.ask_all(6);
    let sent = bench.sent();
    assert_eq!(sent.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4, 4, 6, 6]);
    bench.tell(1, sent[1].1, Some(Says::Done(2)));
    assert_eq!(bench.answered, []);
    bench.tell(0, sent[0].1, Some(Says::Done(7)));
    assert_eq!(bench.answered.pop(), Some((4, Outcome::Replied(Says::Done(72)))));
    bench.tell(1, sent[3].1, None);
    assert_eq!(bench.answered.pop(), Some((6, Outcome::Unknown)));
    bench.tell(0, sent[2].1, Some(Says::Done(1)));
    // Of what changes something the other may have done its part; of what only reads there is nothing to be done.
    bench.ask_all(10);
    let refused = bench.sent()[0].1;
    bench.tell(0, refused, Some(Says::Refused));
    assert_eq!(bench.answered.pop(), Some((10, Outcome::Unknown)));
    bench.ask_page(11);
    let refused = bench.shares()[0].2;
    bench.tell(0, refused, Some(Says::Refused));
    assert_eq!(bench.answered.pop(), Some((11, Outcome::Refused(Refusal::NoLeader))));
    bench.ask_all(8);
    bench.input(|divided, effects| divided.cancel(Ticket(8), effects));
    for (_, ticket) in bench.sent() {
        bench.tell(0, ticket, Some(Says::Done(1)));
    }
    assert_eq!(bench.answered, [], "nobody waits for either");
    assert!(bench.divided.wholes.is_empty() && bench.divided.shares.is_empty());
}

/// What is about places is answered when all of them are: what one partition does not serve any more is asked of the one
/// that does, and later ones of that at once.
#[test]
fn places_that_have_moved_are_asked_for_where_they_are() {
    let ring = |at| Ring { keyspace: KeyspaceId(1), partitions: 2, at: PartitionId(at) };
    let [first, second] = [0, 1].map(|at| ring(at).stretch(PartitionId(at)));
    let half = Stretch { first: 1_000, last: first.last };
    let gone = |there| vec![Told::Elsewhere { stretch: half, to: PartitionId(1), version: 1, there }];
    let mut bench = Bench::new();
    bench.ask_page(1);
    let sent = bench.shares();
    assert_eq!(
        sent.iter().map(|(at, places, _)| (*at, places)).collect::<Vec<_>>(),
        [(0, &vec![first]), (1, &vec![second])]
    );
    bench.tell(1, sent[1].2, Some(Says::Done(7)));
    bench.tell(0, sent[0].2, Some(Says::Partly(4, gone(true))));
    assert_eq!(bench.answered, [], "nobody has answered for the half");
    let rest = bench.shares();
    assert_eq!((rest.len(), rest[0].0, &rest[0].1), (1, 1, &vec![half]));
    bench.tell(1, rest[0].2, Some(Says::Done(8)));
    assert_eq!(bench.answered.pop(), Some((1, Outcome::Replied(Says::Done(478)))));
    bench.ask_page(2);
    let whole = vec![Stretch { first: half.first, last: second.last }];
    let sent = bench.shares();
    assert_eq!(
        sent.iter().map(|(at, places, _)| (*at, places)).collect::<Vec<_>>(),
        [(0, &vec![Stretch { first: 0, last: half.first - 1 }]), (1, &whole)]
    );
    bench.tell(0, sent[0].2, Some(Says::Done(1)));
    assert_eq!(bench.answered, []);
    bench.tell(1, sent[1].2, None);
    assert_eq!(bench.answered.pop(), Some((2, Outcome::Unknown)));
    assert!(bench.divided.wholes.is_empty() && bench.divided.shares.is_empty());
}

/// What is on its way is asked for until it has arrived. A move that nobody ends is ended, and who has waited too long is
/// refused.
#[test]
fn places_that_are_moving_are_waited_for() {
    let (_, stretch) = mine();
    let moving = |there| vec![Told::Elsewhere { stretch, to: PartitionId(1), version: 1, there }];
    let mut bench = Bench::new();
    // Whoever is asked to end the move does not answer.
    let steps = |bench: &mut Bench| {
        let all = bench.asked.len();
        bench.asked.retain(|(_, asks)| !matches!(asks, Asks::Step(_)));
        all - bench.asked.len()
    };
    bench.ask_page(1);
    let sent = bench.shares();
    bench.tell(1, sent[1].2, Some(Says::Done(2)));
    let mut ticket = sent[0].2;
    for _ in 0..3 {
        bench.tell(0, ticket, Some(Says::Partly(0, moving(false))));
        assert!(bench.asked.is_empty(), "it is looked for after a while");
        bench.pass(Span::from_millis(100));
        let again = bench.shares();
        assert_eq!((again.len(), again[0].0, &again[0].1), (1, 0, &vec![stretch]));
        ticket = again[0].2;
    }
    bench.tell(0, ticket, Some(Says::Partly(4, moving(true))));
    let rest = bench.shares();
    assert_eq!((rest[0].0, &rest[0].1), (1, &vec![stretch]));
    bench.tell(1, rest[0].2, Some(Says::Done(5)));
    assert_eq!(bench.answered.pop(), Some((1, Outcome::Replied(Says::Done(425)))));

    let mut bench = Bench::new();
    bench.ask_page(1);
    let sent = bench.shares();
    bench.tell(1, sent[1].2, Some(Says::Done(2)));
    let (mut ticket, mut ends) = (sent[0].2, 0);
    for _ in 0..49 {
        bench.tell(0, ticket, Some(Says::Partly(0, moving(false))));
        ends += steps(&mut bench);
        bench.pass(Span::from_millis(200));
        ends += steps(&mut bench);
        ticket = bench.shares()[0].2;
    }
    assert_eq!((ends, bench.answered.len()), (1, 0), "the move is asked to be ended");
    bench.tell(0, ticket, Some(Says::Partly(0, moving(false))));
    bench.pass(Span::from_millis(200));
    assert_eq!(bench.answered.pop(), Some((1, Outcome::Refused(Refusal::Moving))));
    assert!(bench.divided.wholes.is_empty() && bench.divided.shares.is_empty());
}

/// T39: who does not know of a move is told, asks again where the keys are, and is answered once. What was asked on one
/// key stays in its order: what is still on its way to where the key was is waited for.
#[test]
fn a_stale_client_is_redirected_and_keeps_the_order_on_a_key() {
    let (key, _) = mine();
    let mut bench = Bench::new();
    for number in 1..=3 {
        bench.ask(number, &[&key]);
    }
    let sent = bench.sent();
    assert_eq!(sent.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3]);
    // The second answer is heard first.
    bench.tell(0, sent[1].1, elsewhere(true));
    bench.ask(4, &[&key]);
    assert_eq!(bench.sent(), [], "1 and 3 are on their way to where the key was");
    bench.tell(0, sent[0].1, Some(Says::Done(1)));
    assert_eq!(bench.sent(), [], "3 is still");
    assert_eq!(bench.answered, [(1, Outcome::Replied(Says::Done(1)))], "executed before the key left");
    bench.tell(0, sent[2].1, elsewhere(true));
    let again = bench.sent();
    assert_eq!(again.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3, 4]);
    for (number, ticket) in again {
        bench.tell(1, ticket, Some(Says::Done(number)));
    }
    assert_eq!(bench.answered.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [1, 2, 3, 4]);
    bench.ask(5, &[&key]);
    assert_eq!(bench.sent().len(), 1, "nothing waits any more");
}

/// Two commands on a key are on their way while it leaves and comes back: the first finds it gone, and the second finds it there,
/// but in a later version than it says. So both are asked anew, in their order.
#[test]
fn what_is_sent_behind_a_refused_command_is_not_executed_before_it() {
    let (key, stretch) = mine();
    let mut bench = Bench::new();
    bench.ask(1, &[&key]);
    bench.ask(2, &[&key]);
    let (mut serves, mut executed) = (None, Vec::new());
    for _ in 0..2 {
        for (number, ticket, said) in bench.said() {
            let says = match serves {
                None => elsewhere(false),
                Some(version) if said < version => {
                    Some(Says::Told(Told::Served(vec![(stretch, version.into())])))
                }
                Some(_) => {
                    executed.push(number);
                    Some(Says::Done(number))
                }
            };
            bench.tell(0, ticket, says);
            serves = Some(2);
        }
        bench.pass(Span::from_millis(200));
    }
    assert_eq!(executed, [1, 2]);
    assert_eq!(bench.answered.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [1, 2]);
}

/// It may not be known that a key was away and is back: what says its new version waits for what says the old one.
#[test]
fn what_says_another_version_waits_for_what_is_on_its_way() {
    let (key, stretch) = mine();
    let mut bench = Bench::new();
    bench.ask(1, &[&key]);
    bench.ask(2, &[&key]);
    let sent = bench.said();
    let back = || Some(Says::Told(Told::Served(vec![(stretch, 2)])));
    bench.tell(0, sent[1].1, back());
    bench.ask(3, &[&key]);
    assert_eq!(bench.said(), [], "1 is on its way, to the same partition");
    bench.tell(0, sent[0].1, back());
    let again: Vec<_> = bench.said().iter().map(|(number, _, said)| (*number, *said)).collect();
    assert_eq!(again, [(1, 2), (2, 2), (3, 2)]);
}

/// A command of two keys that is refused for one is not asked anew where the other may have been touched behind it.
#[test]
fn a_command_of_several_places_comes_to_nothing_where_it_may_have_been_overtaken() {
    let (key, _) = mine();
    let ring = Ring { keyspace: KeyspaceId(1), partitions: 2, at: PartitionId(0) };
    let other = (0..).map(|n| format!("o{n}")).find(|key| ring.owner(ring.place(key.as_bytes())).0 == 0);
    let other = other.unwrap();
    let place = ring.place(other.as_bytes());
    let one = Stretch { first: place, last: place };
    let gone = Told::Elsewhere { stretch: one, to: PartitionId(1), version: 1, there: false };
    for told in [gone, Told::Served(vec![(one, 2)])] {
        let mut bench = Bench::new();
        bench.ask(1, &[&key, &other]);
        bench.ask(2, &[&key]);
        let sent = bench.said();
        bench.tell(0, sent[0].1, Some(Says::Told(told.clone())));
        assert_eq!(bench.answered.pop(), Some((1, Outcome::Refused(Refusal::Moving))));
        bench.tell(0, sent[1].1, Some(Says::Done(2)));
        assert_eq!(bench.answered.pop(), Some((2, Outcome::Replied(Says::Done(2)))));
        bench.ask(3, &[&key, &other]);
        let sent = bench.said();
        bench.tell(0, sent[0].1, Some(Says::Told(told)));
        bench.pass(Span::from_millis(200));
        assert_eq!((bench.said().len(), bench.answered.len()), (1, 0), "nothing was sent behind it");
    }
    // All that it touches was gone at once, and so it was for what was sent behind it.
    let mut bench = Bench::new();
    bench.ask(1, &[&key, &other]);
    bench.ask(2, &[&key]);
    for (_, ticket) in bench.sent() {
        bench.tell(0, ticket, elsewhere(true));
    }
    assert_eq!(bench.sent().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
}

/// Nobody is asked for keys that seem to lie apart, so nobody would say that one of them has moved: the partitions are
/// asked what they serve before it is refused, once in a while.
#[test]
fn keys_that_seem_to_lie_apart_are_looked_for() {
    let (key, stretch) = mine();
    let ring = Ring { keyspace: KeyspaceId(1), partitions: 2, at: PartitionId(1) };
    let theirs =
        (0..).map(|n| format!("k{n}")).find(|key| ring.owner(ring.place(key.as_bytes())).0 == 1).unwrap();
    let second = ring.stretch(PartitionId(1));
    let mut bench = Bench::new();
    let surveys = |bench: &mut Bench| {
        let survey = |(ticket, asks)| match asks {
            Asks::Step(Step::Survey { ring }) => (ring.at.0, ticket),
            other => panic!("{other:?}"),
        };
        bench.asked.drain(..).map(survey).collect::<Vec<(u16, u64)>>()
    };
    let served = |served: &[(Stretch, u64)]| Some(Says::Told(Told::Served(served.to_vec())));
    bench.ask(1, &[&key, &theirs]);
    bench.ask(2, &[&key]);
    let asked = surveys(&mut bench);
    assert_eq!(asked.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1], "2 waits behind 1");
    bench.tell(0, asked[0].1, served(&[]));
    bench.tell(1, asked[1].1, served(&[(stretch, 1), (second, 0)]));
    assert_eq!(bench.sent().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(bench.answered, []);

    let mut bench = Bench::new();
    bench.ask(1, &[&key, &theirs]);
    let asked = surveys(&mut bench);
    bench.tell(0, asked[0].1, served(&[(stretch, 0)]));
    bench.tell(1, asked[1].1, served(&[(second, 0)]));
    bench.ask(2, &[&key, &theirs]);
    let apart = |number| (number, Outcome::Refused(Refusal::Apart));
    assert_eq!((surveys(&mut bench), bench.answered.as_slice()), (vec![], [apart(1), apart(2)].as_slice()));
    // A partition that does not answer holds nobody up for long.
    bench.pass(bench.divided.service.retry);
    bench.ask(3, &[&key, &theirs]);
    assert_eq!((surveys(&mut bench).len(), bench.answered.len()), (2, 2));
    bench.pass(bench.divided.service.retry * 2);
    assert_eq!((surveys(&mut bench), bench.answered.last()), (vec![], Some(&apart(3))));
}

/// What is not known to have been refused is not asked for elsewhere.
#[test]
fn a_command_in_doubt_stays_in_doubt() {
    let (key, _) = mine();
    let mut bench = Bench::new();
    bench.ask(1, &[&key]);
    bench.ask(2, &[&key]);
    let sent = bench.sent();
    bench.tell(0, sent[0].1, elsewhere(true));
    bench.tell(0, sent[1].1, None);
    assert_eq!(bench.answered, [(2, Outcome::Unknown)]);
    assert_eq!(bench.sent().len(), 1, "only the one that was refused goes on");
}

/// A move whose driver is gone is ended by whoever runs into it, and what waited for it goes on; a command that waits too
/// long is refused, which is true: it was not executed.
#[test]
fn whoever_waits_for_long_ends_the_move() {
    let (key, stretch) = mine();
    let mut bench = Bench::new();
    bench.ask(1, &[&key]);
    let mut ticket = bench.sent()[0].1;
    for _ in 0..200 {
        bench.tell(0, ticket, elsewhere(false));
        bench.pass(Span::from_millis(200));
        if bench.asked.iter().any(|(_, asks)| matches!(asks, Asks::Step(_))) {
            break;
        }
        ticket = bench.sent()[0].1;
    }
    let at = bench.asked.iter().position(|(_, asks)| matches!(asks, Asks::Step(_))).unwrap();
    let (step, asks) = bench.asked.remove(at);
    assert!(matches!(asks, Asks::Step(Step::Release { wish: None, done: 0, .. })), "{asks:?}");
    let of = Move { from: PartitionId(0), to: PartitionId(1), serial: 7, stretch, version: 1 };
    let chunk = Blob::from("all");
    let piece = Piece { from: Cursor::default(), next: Cursor { entry: 1, element: 0 }, last: true, chunk };
    let probe = bench.sent().last().map(|(_, ticket)| *ticket);
    bench.tell(0, step, Some(Says::Told(Told::Leaving { of, keys: 1, bytes: 3, piece })));
    let (step, install) = bench.step();
    assert!(matches!(install, Step::Install { ring, .. } if ring.at == PartitionId(1)), "{install:?}");
    bench.tell(1, step, Some(Says::Told(Told::Installed)));
    let at = bench.asked.iter().position(|(_, asks)| matches!(asks, Asks::Step(_))).unwrap();
    let (_, release) = bench.asked.remove(at);
    assert!(matches!(release, Asks::Step(Step::Release { wish: None, done: 7, .. })), "{release:?}");
    if let Some(probe) = probe {
        bench.tell(0, probe, elsewhere(true));
    }
    bench.pass(Span::from_millis(200));
    let (number, ticket) = bench.sent()[0];
    bench.tell(1, ticket, Some(Says::Done(number)));
    assert_eq!(bench.answered, [(1, Outcome::Replied(Says::Done(1)))]);
}

#[test]
fn a_wish_is_granted_part_by_part_and_two_at_once_are_refused() {
    let (_, stretch) = mine();
    let mut bench = Bench::new();
    let order = |ticket| {
        let request = Request::Move { stretch, from: PartitionId(0), to: PartitionId(1) };
        move |divided: &mut Divided<Machine, Fake>, effects: &mut Effects<_>| {
            divided.request(Ticket(ticket), request, effects);
        }
    };
    bench.input(order(1));
    bench.input(order(2));
    assert_eq!(bench.answered.pop(), Some((2, Outcome::Refused(Refusal::Busy))));
    let middle = stretch.last / 2;
    let parts = [(stretch.first, middle), (middle + 1, stretch.last)];
    for (serial, (first, last)) in (1..).zip(parts) {
        let (ticket, step) = bench.step();
        let Step::Release { wish: Some((wish, _)), done, .. } = step else { panic!("{step:?}") };
        assert_eq!((wish, done), (Stretch { first, last: stretch.last }, serial - 1));
        let part = Stretch { first, last };
        let of = Move { from: PartitionId(0), to: PartitionId(1), serial, stretch: part, version: 1 };
        let (from, next) = (Cursor::default(), Cursor { entry: 1, element: 0 });
        let piece = Piece { from, next, last: false, chunk: Blob::from("1") };
        bench.tell(0, ticket, Some(Says::Told(Told::Leaving { of, keys: 2, bytes: 9, piece })));
        let (ticket, _) = bench.step();
        bench.tell(1, ticket, Some(Says::Told(Told::Expects(next))));
        let (ticket, fetch) = bench.step();
        assert_eq!(fetch, Step::Fetch { serial, from: next });
        // Nobody answers at first; it begins again with what is leaving.
        bench.tell(0, ticket, None);
        bench.pass(Span::from_secs(1));
        let (ticket, step) = bench.step();
        assert!(matches!(step, Step::Release { done: 0, .. }), "{step:?}");
        let piece = Piece { from, next, last: true, chunk: Blob::from("1") };
        bench.tell(0, ticket, Some(Says::Told(Told::Leaving { of, keys: 2, bytes: 9, piece })));
        let (ticket, _) = bench.step();
        bench.tell(1, ticket, Some(Says::Told(Told::Installed)));
    }
    let (ticket, step) = bench.step();
    assert!(matches!(step, Step::Release { wish: None, done: 2, .. }), "{step:?}");
    bench.tell(0, ticket, Some(Says::Told(Told::Nothing)));
    assert_eq!(bench.answered, [(1, Outcome::Moved { keys: 4, bytes: 18, stretches: 2 })]);
}

/// What is under way when a move is asked for may lie in the middle of it: what stands before that goes too.
#[test]
fn a_wish_around_a_move_that_is_under_way_leaves_nothing_behind() {
    let (_, stretch) = mine();
    let mut bench = Bench::new();
    bench.input(|divided, effects| {
        let request = Request::Move { stretch, from: PartitionId(0), to: PartitionId(1) };
        divided.request(Ticket(1), request, effects);
    });
    let third = stretch.last / 3;
    let middle = Stretch { first: stretch.first + third, last: stretch.last - third };
    let front = Stretch { first: stretch.first, last: middle.first - 1 };
    let behind = Stretch { first: middle.last + 1, last: stretch.last };
    for (serial, (part, wished)) in (1..).zip([(middle, stretch), (front, front), (behind, behind)]) {
        let (ticket, step) = bench.step();
        let Step::Release { wish: Some((wish, _)), .. } = step else { panic!("{step:?}") };
        assert_eq!(wish, wished);
        let of = Move { from: PartitionId(0), to: PartitionId(1), serial, stretch: part, version: 1 };
        let (from, next) = (Cursor::default(), Cursor { entry: 1, element: 0 });
        let piece = Piece { from, next, last: true, chunk: Blob::from("1") };
        bench.tell(0, ticket, Some(Says::Told(Told::Leaving { of, keys: 1, bytes: 1, piece })));
        let (ticket, _) = bench.step();
        bench.tell(1, ticket, Some(Says::Told(Told::Installed)));
    }
    let (ticket, step) = bench.step();
    assert!(matches!(step, Step::Release { wish: None, done: 3, .. }), "{step:?}");
    bench.tell(0, ticket, Some(Says::Told(Told::Nothing)));
    assert_eq!(bench.answered, [(1, Outcome::Moved { keys: 3, bytes: 3, stretches: 3 })]);
}
