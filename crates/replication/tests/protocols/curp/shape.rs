//! The shape of the source's figures where servers stand in one rack and the master's processor is what they have least of
//! (T52 to T54; Park and Ousterhout, NSDI 2019, figures 6 to 9). `isochrone reproduce curp` has the figures themselves.

use crate::cluster::placement;
use crate::machine::{Command, Machine, Reply};
use isochrone_core::{Blob, Instant, Random, Span, Ticket};
use isochrone_replication::curp::primary;
use isochrone_replication::{Family, Outcome, Placement, Replicated, Request, multipaxos};
use isochrone_sim::{Config, Cost, Driver, Next, Session, Simulation};
use std::collections::BTreeMap;

/// What is measured against what.
#[derive(Copy, Clone, PartialEq, Debug)]
enum System {
    Unreplicated,
    /// Every write is answered when copies have it, and goes there by itself, as it does in the source: Multi-Paxos with
    /// one command a place, whose leader has three followers.
    Synchronous,
    /// What the master does is what one does that answers without witnesses and replicates later: nothing is collected.
    Asynchronous,
    Curp(u16),
}
use System::{Asynchronous, Curp, Synchronous, Unreplicated};

/// Closed loops.
struct Load {
    until: Instant,
    reads: u64,
    /// Bytes of a value.
    size: usize,
    /// The popularity of keys, summed up; evenly drawn where there is none.
    keys: Option<Vec<f64>>,
    random: Random,
    invoked: BTreeMap<Ticket, Instant>,
    writes: Vec<Span>,
    all: Vec<Span>,
}

/// A master is there long before, and what is counted begins later than the load.
const BEGIN: Instant = Instant::from_nanos(2_000_000_000);
const COUNTED: Instant = Instant::from_nanos(2_010_000_000);
const LENGTH: Span = Span::from_millis(40);

impl Load {
    fn key(&mut self) -> Blob {
        let number = match &self.keys {
            None => self.random.below(1 << 20),
            Some(summed) => {
                let drawn = self.random.unit() * summed.last().copied().unwrap_or(1.0);
                summed.partition_point(|sum| *sum < drawn) as u64
            }
        };
        Blob::new(&number.to_le_bytes())
    }
}

impl<F: Family> Driver<Replicated<Machine, F>> for Load {
    fn next(&mut self, _: Session, now: Instant) -> Next<Request<Command>> {
        if now >= self.until {
            return Next::Done;
        }
        let key = self.key();
        let command = match self.random.below(100) < self.reads {
            true => Command::Get(key),
            false => Command::Set(key, "x".repeat(self.size)),
        };
        Next::Request { at: now.max(BEGIN), request: Request::Command(command) }
    }

    fn invoked(&mut self, _: Session, ticket: Ticket, now: Instant) {
        self.invoked.insert(ticket, now);
    }

    fn completed(&mut self, _: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        let Some(begun) = self.invoked.remove(&ticket) else { return };
        if begun < COUNTED || now > self.until {
            return;
        }
        let wait = now.since(begun);
        self.all.push(wait);
        match outcome {
            Outcome::Replied(Reply::Ok) => self.writes.push(wait),
            Outcome::Replied(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

struct Found {
    per_second: f64,
    median_write_us: f64,
    mean_us: f64,
}

/// What clients do: how many they are, percent of reads, the exponent of Zipf's law, and bytes of a value.
#[derive(Copy, Clone, Debug)]
struct Mix {
    clients: u16,
    reads: u64,
    theta: Option<f64>,
    size: usize,
}

/// Writes of random keys.
fn writes(clients: u16) -> Mix {
    Mix { clients, reads: 0, theta: None, size: 100 }
}

fn measure(system: System, mix: Mix) -> Found {
    let f = match system {
        Unreplicated => 0,
        Synchronous | Asynchronous => 3,
        Curp(f) => f,
    };
    match system {
        Synchronous => run::<multipaxos::Family>(system, f, mix, |placement| {
            let parameters = &mut placement.parameters;
            (parameters.batch_commands, parameters.gather) = (1, false);
        }),
        _ => run::<primary::Family>(system, f, mix, |placement| {
            let parameters = &mut placement.parameters;
            (parameters.f, parameters.hot_window, parameters.batch_max) = (usize::from(f), 0, 50);
            parameters.unified = system == Asynchronous;
        }),
    }
}

/// All machines are three microseconds from each other, there and back.
fn run<F: Family>(system: System, f: u16, mix: Mix, tune: impl FnOnce(&mut Placement<Machine, F>)) -> Found {
    // Clients have a machine each: what several of one process ask at once would travel together.
    let nodes = f + 1 + mix.clients;
    let mut placement: Placement<Machine, F> = placement(nodes, f + 1, 0, Span::from_micros(3));
    tune(&mut placement);
    let delays = (0..nodes).map(|_| (0..nodes).map(|_| Span::from_nanos(1_500)).collect()).collect();
    let mut config = Config::new(3, &vec!["rack"; usize::from(nodes)], delays);
    // As measured from the runtime (`bench/cpu`); the processors of clients are not what is looked at.
    config.cost =
        Cost { fixed: Span::from_nanos(1_220), send: Span::from_nanos(1_220), picos_per_byte: 3_500 };
    config.sessions = 0;
    for client in &mut config.nodes[usize::from(f + 1)..] {
        (client.cost_percent, client.sessions) = (0, Some(1));
    }
    config.horizon = Span::from_secs(3);
    config.check = false;
    let keys = mix.theta.map(|theta| {
        let mut sum = 0.0;
        let popularity = (1..=100_000_u32).map(|rank| f64::from(rank).powf(-theta));
        let summed = popularity.map(|one| {
            sum += one;
            sum
        });
        summed.collect()
    });
    let mut load = Load {
        until: COUNTED + LENGTH,
        reads: mix.reads,
        size: mix.size,
        keys,
        random: Random::seeded(5),
        invoked: BTreeMap::new(),
        writes: Vec::new(),
        all: Vec::new(),
    };
    let mut simulation = Simulation::<Replicated<Machine, F>>::new(config, &placement);
    assert_eq!(simulation.run(&mut load).violations, []);
    load.writes.sort_unstable();
    let micros = |span: Span| span.as_nanos() as f64 / 1e3;
    let found = Found {
        per_second: load.all.len() as f64 / LENGTH.as_secs_f64(),
        median_write_us: load.writes.get(load.writes.len() / 2).copied().map_or(0.0, micros),
        mean_us: load.all.iter().copied().map(micros).sum::<f64>() / load.all.len().max(1) as f64,
    };
    println!(
        "{system:?}, {mix:?}: {:.0} a second, median write {:.2} us, mean {:.2} us",
        found.per_second, found.median_write_us, found.mean_us
    );
    found
}

/// T52: the source has 7.1, 6.1 and 14 us.
#[test]
fn a_write_takes_hardly_longer_than_without_copies_and_half_as_long_as_with_synchronous_ones() {
    let [curp, alone, synchronous] =
        [Curp(3), Unreplicated, Synchronous].map(|system| measure(system, writes(1)).median_write_us);
    assert!(alone > 3.0 && curp <= 1.25 * alone, "{curp} us, {alone} without copies");
    assert!(curp <= 0.65 * synchronous, "{curp} us, {synchronous} synchronous");
}

/// T53: the source has four times and a loss of 10 %.
#[test]
fn a_master_takes_three_times_what_a_synchronous_one_takes_and_hardly_less_than_without_witnesses() {
    // Small, since each byte of a value costs the copies of it.
    let small = Mix { size: 8, ..writes(60) };
    let [curp, synchronous, asynchronous] =
        [Curp(3), Synchronous, Asynchronous].map(|system| measure(system, small).per_second);
    assert!(curp >= 3.0 * synchronous, "{curp} a second, {synchronous} synchronous");
    assert!(curp >= 0.85 * asynchronous && curp < asynchronous, "{curp}, {asynchronous} without witnesses");
}

/// T54: with more skew there are more conflicts, and less is gained.
#[test]
fn what_is_gained_shrinks_with_skew() {
    let gain = |theta: f64| {
        let [curp, synchronous] = [Curp(3), Synchronous]
            .map(|system| measure(system, Mix { reads: 50, theta: Some(theta), ..writes(30) }).per_second);
        curp / synchronous
    };
    let gains = [0.5, 0.8, 0.9, 0.99].map(gain);
    assert!(gains.is_sorted_by(|less, more| less > more), "{gains:?}");
    let lost = |at: usize| (gains[0] - gains[at]) / gains[0];
    // Less than in the source, since a conflict has the log sent and holds up nobody else's sync here.
    assert!(lost(1) < 0.1 && lost(3) > 0.05, "{gains:?}");
    let [curp, synchronous] = [Curp(3), Synchronous]
        .map(|system| measure(system, Mix { reads: 50, theta: Some(0.99), ..writes(10) }).mean_us);
    // The source has 42 % less.
    assert!(curp <= 0.7 * synchronous, "{curp} us, {synchronous} synchronous");
}
