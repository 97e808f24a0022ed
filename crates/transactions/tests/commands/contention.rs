//! Keys that everybody changes, or looks at, from every region.

use super::scans::stands;
use isochrone_core::command::{Command, Operation, Response};
use isochrone_core::{Blob, Instant, NodeId, Random, Span, Stamp, Ticket};
use isochrone_sim::{Admin, Driver, FaultPlan, FaultSet, Next, Session, Simulation};
use isochrone_transactions::commands::{Answer, Ask, Served};
use isochrone_transactions::{Family, carousel, tapir, twopc};

/// What the sessions of a node do.
#[derive(Clone, Copy, Default)]
enum Does {
    #[default]
    Counts,
    /// They look at the count.
    Reads,
    /// They count at one of many keys, in turn.
    CountsEach,
    /// They look at the counts of all of these.
    ReadsAll,
    Nothing,
}

/// More than are forwarded: who reads all of them is executed where it was asked for.
const KEYS: usize = 80;

fn each(number: usize) -> Blob {
    Blob::from(format!("total{}", number % KEYS))
}

/// Sessions that count together, or look at the count.
#[derive(Default)]
struct Counters {
    until: Instant,
    /// By node.
    does: [Does; 4],
    /// Between an answer and the next question, by node.
    pause: [Span; 4],
    /// What was answered, by node.
    counted: [u64; 4],
    replies: Vec<i64>,
    /// At which key of many somebody has counted last.
    turn: usize,
    refused: u64,
    asked: Vec<(Session, Instant)>,
    slowest: Span,
}

impl<F: Family> Driver<Served<F>> for Counters {
    fn next(&mut self, session: Session, now: Instant) -> Next<Ask> {
        if now >= self.until {
            return Next::Done;
        }
        let node = usize::from(session.client.node.0);
        let operation = match self.does[node] {
            Does::Counts => Operation::IncrBy { key: "total".into(), by: 1 },
            Does::Reads => Operation::Get { key: "total".into() },
            Does::CountsEach => {
                self.turn += 1;
                Operation::IncrBy { key: each(self.turn), by: 1 }
            }
            Does::ReadsAll => Operation::MGet { keys: (0..KEYS).map(each).collect() },
            Does::Nothing => return Next::Done,
        };
        let at = now + self.pause[node];
        self.asked.push((session, at));
        let stamp = Stamp::from_nanos(1_700_000_000_000_000_000 + at.as_nanos());
        Next::Request { at, request: Ask::Command(Command::new(stamp, operation)) }
    }

    fn completed(&mut self, session: Session, _: Ticket, answer: Answer, now: Instant) {
        let place = self.asked.iter().position(|(other, _)| other.number == session.number).unwrap();
        let (_, since) = self.asked.swap_remove(place);
        self.slowest = self.slowest.max(now.since(since));
        let node = usize::from(session.client.node.0);
        match (self.does[node], answer) {
            (Does::Counts, Answer::Replied(Response::Integer(count))) => {
                self.replies.push(count);
                self.counted[node] += 1;
            }
            (Does::Reads | Does::CountsEach | Does::ReadsAll, Answer::Replied(_)) => self.counted[node] += 1,
            _ => self.refused += 1,
        }
    }

    fn admin(&mut self, _: Instant, _: &mut Random) -> Vec<Admin> {
        Vec::new()
    }
}

fn counts<F: Family>(partitions: usize, crash: Option<u16>) -> Counters {
    let until = Instant::ZERO + Span::from_secs(if crash.is_some() { 80 } else { 60 });
    answered::<F>(partitions, 3, crash, Counters { until, ..Counters::default() })
}

/// With so many sessions a node.
fn answered<F: Family>(
    partitions: usize,
    sessions: u32,
    crash: Option<u16>,
    mut counters: Counters,
) -> Counters {
    let (mut config, placement) = stands::<F>(7, partitions);
    config.sessions = sessions;
    config.horizon = Span::from_secs(3_600);
    let mut simulation = Simulation::<Served<F>>::new(config, &placement);
    let plan = FaultPlan::draw(7, FaultSet::NONE, &simulation.shape(1));
    simulation.set_faults(plan);
    simulation.boot();
    simulation.run_for(Span::from_secs(20), &mut counters);
    if let Some(node) = crash {
        simulation.crash(NodeId(node));
        simulation.run_for(Span::from_secs(20), &mut counters);
        counters.counted = [0; 4];
    }
    simulation.run_for(Span::from_secs(60), &mut counters);
    assert_eq!(simulation.broken(), None);
    counters
}

#[test]
fn whoever_changes_a_key_that_all_change_gets_on() {
    fn fair<F: Family>(partitions: usize) {
        let mut found = counts::<F>(partitions, None);
        let [least, most] =
            [found.counted.iter().min(), found.counted.iter().max()].map(|count| *count.unwrap());
        println!("{}: {:?}, {} refused, slowest {}", F::NAME, found.counted, found.refused, found.slowest);
        assert_eq!(found.refused, 0, "{}", F::NAME);
        // The home's own do not wait for the way there and back.
        assert!(found.slowest < Span::from_secs(5), "{}: {}", F::NAME, found.slowest);
        assert!(least * 3 >= most, "{}: {:?}", F::NAME, found.counted);
        found.replies.sort_unstable();
        let all: Vec<i64> = (1..=found.replies.len() as i64).collect();
        assert_eq!(found.replies, all, "{}: each increment once", F::NAME);
    }
    for partitions in [1, 3] {
        fair::<twopc::Family>(partitions);
        fair::<carousel::Basic>(partitions);
        fair::<carousel::Fast>(partitions);
        fair::<tapir::Family>(partitions);
    }
}

/// Nobody but the third node changes the key; two others look at it again and again, so that there is hardly a moment in which
/// nothing of theirs is prepared at the leader, which is at the first node.
#[test]
fn whoever_changes_a_key_that_others_look_at_all_the_time_gets_on() {
    fn gets_on<F: Family>() {
        let counters = Counters {
            until: Instant::ZERO + Span::from_secs(60),
            does: [Does::Nothing, Does::Reads, Does::Counts, Does::Reads],
            pause: [Span::from_millis(20); 4],
            ..Counters::default()
        };
        let mut found = answered::<F>(1, 1, None, counters);
        println!("{}: {:?}, {} refused, slowest {}", F::NAME, found.counted, found.refused, found.slowest);
        assert_eq!(found.refused, 0, "{}", F::NAME);
        // Four tries, with the pauses between them.
        assert!(found.slowest < Span::from_secs(5), "{}: {}", F::NAME, found.slowest);
        let least = found.counted[1..].iter().min();
        assert!(least >= Some(&20), "{}: {:?}", F::NAME, found.counted);
        found.replies.sort_unstable();
        let all: Vec<i64> = (1..=found.replies.len() as i64).collect();
        assert_eq!(found.replies, all, "{}: each increment once", F::NAME);
    }
    gets_on::<carousel::Basic>();
    gets_on::<carousel::Fast>();
}

/// The last node reads all of many keys, each of which somebody changes now and then: where they pause, as often as if nobody went
/// before anybody, and where they do not, of which one is nearly always at one of them, at all.
#[test]
fn whoever_looks_at_many_keys_that_others_change_gets_on() {
    fn gets_on<F: Family>(sessions: u32, pause: Span, scans: u64, refused: u64) {
        let counters = Counters {
            until: Instant::ZERO + Span::from_secs(60),
            does: [Does::CountsEach, Does::CountsEach, Does::CountsEach, Does::ReadsAll],
            pause: [pause, pause, pause, Span::from_millis(20)],
            ..Counters::default()
        };
        let found = answered::<F>(3, sessions, None, counters);
        println!("{}: {:?}, {} refused, slowest {}", F::NAME, found.counted, found.refused, found.slowest);
        assert!(found.refused <= refused, "{}: {}", F::NAME, found.refused);
        let [writers @ .., scanned] = found.counted;
        assert!(scanned >= scans, "{}: {:?}", F::NAME, found.counted);
        assert!(writers.iter().min() >= Some(&10), "{}: {:?}", F::NAME, found.counted);
    }
    for (sessions, pause, scans, refused) in
        [(1, Span::from_secs(1), 15, 0), (2, Span::from_millis(20), 10, 5)]
    {
        gets_on::<carousel::Basic>(sessions, pause, scans, refused);
        gets_on::<carousel::Fast>(sessions, pause, scans, refused);
    }
}

/// The first node leads, and others forward to it what they are asked; the last has no replica.
#[test]
fn who_executes_for_others_or_has_forwarded_may_fail() {
    fn goes_on<F: Family>(gone: u16) {
        let found = counts::<F>(1, Some(gone));
        println!("{}: {:?}, {} refused, slowest {}", F::NAME, found.counted, found.refused, found.slowest);
        let others = (0..4).filter(|node| *node != usize::from(gone)).map(|node| found.counted[node]);
        let (least, most) = (others.clone().min().unwrap(), others.max().unwrap());
        assert!(least > 20 && least * 3 >= most, "{}: {:?}", F::NAME, found.counted);
        assert_eq!(found.counted[usize::from(gone)], 0);
    }
    for gone in [0, 3] {
        goes_on::<twopc::Family>(gone);
        goes_on::<carousel::Basic>(gone);
        goes_on::<carousel::Fast>(gone);
        goes_on::<tapir::Family>(gone);
    }
}
