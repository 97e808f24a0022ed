//! One replica handles everything ten times slower than the others: what that costs those who ask the others.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::{Instant, Span, Ticket};
use isochrone_replication::{Family, Outcome, Placement, Replicated, Request, mencius, multipaxos, sdpaxos};
use isochrone_sim::{Config, Cost, Driver, Next, Session, Simulation};

/// Closed loops, counted after the first quarter of the run.
struct Busy {
    from: Instant,
    until: Instant,
    done: u64,
}

impl<F: Family> Driver<Replicated<Machine, F>> for Busy {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        if now >= self.until {
            return Next::Done;
        }
        let command = Command::Set(key(session.number as u8), "sixteen bytes of".to_owned());
        Next::Request { at: now, request: Request::Command(command) }
    }

    fn completed(&mut self, _: Session, _: Ticket, outcome: Outcome<Reply>, now: Instant) {
        self.done +=
            u64::from(matches!(outcome, Outcome::Replied(_)) && (self.from..self.until).contains(&now));
    }
}

/// Commands a second that the clients at the first two of three replicas are answered, when the third
/// handles everything at this share of the common cost, percent.
fn throughput<F: Family>(percent: u64, tune: fn(&mut Placement<Machine, F>)) -> f64 {
    let length = Span::from_millis(400);
    let delays = vec![vec![Span::from_micros(50); 3]; 3];
    let mut config = Config::new(1, &["a", "b", "c"], delays);
    config.cost = Cost { fixed: Span::from_micros(5), send: Span::from_micros(5), picos_per_byte: 3_500 };
    config.horizon = length;
    config.sessions = 40;
    config.nodes[2].sessions = Some(0);
    config.nodes[2].cost_percent = percent;
    let mut placement = placement(3, 3, 0, Span::from_micros(100));
    tune(&mut placement);
    let (from, until) = (Instant::ZERO + length / 4, Instant::ZERO + length);
    let mut busy = Busy { from, until, done: 0 };
    let mut cluster: Cluster<F> = Simulation::new(config, &placement);
    let report = cluster.run(&mut busy);
    assert_eq!(report.violations, []);
    busy.done as f64 / (until.since(from).as_nanos() as f64 / 1e9)
}

/// With and without the straggler, and the share that is left.
fn slowed<F: Family>(tune: fn(&mut Placement<Machine, F>)) -> f64 {
    let (healthy, slow) = (throughput::<F>(100, tune), throughput::<F>(1_000, tune));
    println!("{:<12} {healthy:>8.0} a second, with a straggler {slow:>8.0}, {:.2}", F::NAME, slow / healthy);
    slow / healthy
}

/// The known flaw of Mencius: everyone waits for the skips of the slowest, who skips no faster than it hears
/// of suggestions. Others need a majority only.
#[test]
fn mencius_runs_at_the_pace_of_the_slowest() {
    let mencius = slowed::<mencius::Family>(|placement| placement.parameters.batch_commands = 1);
    let multipaxos = slowed::<multipaxos::Family>(|placement| placement.parameters.batch_commands = 1);
    let sdpaxos = slowed::<sdpaxos::Family>(|placement| placement.parameters.batch_commands = 1);
    assert!(mencius < 0.5, "skipping cures it: {mencius}");
    assert!(multipaxos > 0.9 && sdpaxos > 1.5 * mencius, "{multipaxos}, {sdpaxos}");
}
