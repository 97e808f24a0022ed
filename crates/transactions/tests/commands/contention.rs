//! One key that everybody changes, from every region.

use super::scans::stands;
use isochrone_core::command::{Command, Operation, Response};
use isochrone_core::{Instant, NodeId, Random, Span, Stamp, Ticket};
use isochrone_sim::{Admin, Driver, FaultPlan, FaultSet, Next, Session, Simulation};
use isochrone_transactions::commands::{Answer, Ask, Served};
use isochrone_transactions::{Family, carousel, tapir, twopc};

/// Sessions that count together.
#[derive(Default)]
struct Counters {
    until: Instant,
    /// By node.
    counted: [u64; 4],
    replies: Vec<i64>,
    refused: u64,
    asked: Vec<(Session, Instant)>,
    slowest: Span,
}

impl<F: Family> Driver<Served<F>> for Counters {
    fn next(&mut self, session: Session, now: Instant) -> Next<Ask> {
        if now >= self.until {
            return Next::Done;
        }
        self.asked.push((session, now));
        let stamp = Stamp::from_nanos(1_700_000_000_000_000_000 + now.as_nanos());
        let operation = Operation::IncrBy { key: "total".into(), by: 1 };
        Next::Request { at: now, request: Ask::Command(Command::new(stamp, operation)) }
    }

    fn completed(&mut self, session: Session, _: Ticket, answer: Answer, now: Instant) {
        let place = self.asked.iter().position(|(other, _)| other.number == session.number).unwrap();
        let (_, since) = self.asked.swap_remove(place);
        self.slowest = self.slowest.max(now.since(since));
        match answer {
            Answer::Replied(Response::Integer(count)) => {
                self.replies.push(count);
                self.counted[usize::from(session.client.node.0)] += 1;
            }
            _ => self.refused += 1,
        }
    }

    fn admin(&mut self, _: Instant, _: &mut Random) -> Vec<Admin> {
        Vec::new()
    }
}

fn counts<F: Family>(partitions: usize, crash: Option<u16>) -> Counters {
    let (mut config, placement) = stands::<F>(7, partitions);
    config.sessions = 3;
    config.horizon = Span::from_secs(3_600);
    let mut simulation = Simulation::<Served<F>>::new(config, &placement);
    let plan = FaultPlan::draw(7, FaultSet::NONE, &simulation.shape(1));
    simulation.set_faults(plan);
    let until = Instant::ZERO + Span::from_secs(if crash.is_some() { 80 } else { 60 });
    let mut counters = Counters { until, ..Counters::default() };
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
