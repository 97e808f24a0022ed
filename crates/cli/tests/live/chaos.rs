//! Real nodes under load that are killed, stopped, started again, cut off from one another in one direction or in both, at
//! random and several at once, all of them too; then everything heals, each must serve, and what clients saw is checked.
//!
//! `KILLS` says after how many SIGKILLs the test of a protocol ends (20), `SEED` what is drawn (1).

use super::cluster::Cluster;
use super::load::Load;
use super::processes::serves;
use super::proxy::Wire;
use super::replace::order;
use isochrone_core::Random;
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a lap lasts, and how long of it nodes are hurt.
const LAP: Duration = Duration::from_secs(14);
const HURT: Duration = Duration::from_secs(10);
/// Laps that the nodes live, with what they have on disk.
const LIFE: usize = 4;
/// No node may take longer than this to serve again when nothing hurts it any more.
const BACK: Duration = Duration::from_secs(20);

/// How many nodes may be hurt at a time.
#[derive(Copy, Clone, Debug)]
enum Reach {
    One,
    Minority,
    All,
}

/// What a nemesis may do next.
#[derive(Copy, Clone)]
enum Deed {
    Kill(usize),
    /// Killed and started, so that it may be killed next while it recovers.
    Bounce(usize),
    Stop(usize),
    Cut(usize),
    Start(usize),
    Continue(usize),
    Mend,
    /// An operator moves the lead there.
    Move(usize),
}

/// What was done.
#[derive(Default, Debug)]
struct Done {
    kills: usize,
    stops: usize,
    cuts: usize,
    moves: usize,
    laps: usize,
    slowest: Duration,
}

/// Hurts the nodes of a cluster. What it draws follows from its seed; when that happens, and what it meets, does not.
struct Nemesis<'a> {
    /// Whether one node leads.
    led: bool,
    cluster: &'a mut Cluster,
    random: &'a mut Random,
    done: &'a mut Done,
    dead: BTreeSet<usize>,
    stopped: BTreeSet<usize>,
    /// Wires that do not carry everything.
    cut: BTreeSet<(usize, usize)>,
}

impl Nemesis<'_> {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u64) as usize]
    }

    /// Hurts for a while, at most as far as it may reach.
    fn hurt(&mut self, reach: Reach) {
        let count = self.cluster.addresses.len();
        let most = match reach {
            Reach::One => 1,
            Reach::Minority => (count - 1) / 2,
            Reach::All => count,
        };
        let begun = Instant::now();
        while begun.elapsed() < HURT {
            let pause = self.one_of(&[20, 50, 200, 500, 1_200]);
            sleep(Duration::from_millis(pause));
            self.step(most);
            for (index, process) in self.cluster.processes.iter_mut().enumerate() {
                let ended = !self.dead.contains(&index) && process.state() != "it runs";
                assert!(!ended, "n{index} ended by itself: {}", process.state());
            }
        }
    }

    fn step(&mut self, most: usize) {
        let cut: BTreeSet<_> = self.cut.iter().map(|(from, _)| *from).collect();
        let hurt = &(&self.dead | &self.stopped) | &cut;
        let room = hurt.len() < most;
        let mut deeds = Vec::new();
        for index in 0..self.cluster.addresses.len() {
            if self.dead.contains(&index) {
                deeds.extend([Deed::Start(index); 4]);
            } else if room || hurt.contains(&index) {
                // One that is hurt already may be hurt in another way too.
                deeds.extend([Deed::Kill(index), Deed::Bounce(index)]);
            }
            if self.stopped.contains(&index) {
                deeds.extend([Deed::Continue(index); 4]);
            }
            if room && !hurt.contains(&index) {
                deeds.extend([Deed::Stop(index), Deed::Cut(index)]);
            }
            if self.led {
                deeds.push(Deed::Move(index));
            }
        }
        if !self.cut.is_empty() {
            deeds.extend([Deed::Mend; 4]);
        }
        match self.one_of(&deeds) {
            Deed::Kill(victim) => self.kill(victim),
            Deed::Bounce(victim) => {
                self.kill(victim);
                self.start(victim);
            }
            Deed::Stop(victim) => {
                self.cluster.processes[victim].signal("STOP");
                self.stopped.insert(victim);
                self.done.stops += 1;
            }
            Deed::Cut(victim) => self.cut(victim),
            Deed::Start(index) => self.start(index),
            Deed::Continue(index) => {
                self.cluster.processes[index].signal("CONT");
                self.stopped.remove(&index);
            }
            Deed::Mend => self.mend(),
            Deed::Move(heir) => {
                let asked = self.random.below(self.cluster.addresses.len() as u64) as usize;
                let asked = self.cluster.addresses[asked].http;
                // It may be refused, or never answered.
                std::thread::spawn(move || order(asked, "move-leader", &format!("n{heir}")));
                self.done.moves += 1;
            }
        }
    }

    fn start(&mut self, index: usize) {
        self.cluster.spawn(index);
        self.dead.remove(&index);
    }

    fn kill(&mut self, victim: usize) {
        self.cluster.kill(victim);
        self.stopped.remove(&victim);
        self.dead.insert(victim);
        self.done.kills += 1;
    }

    /// What a node sends to the others, or only to one, does not arrive; half of the time what they send to it neither.
    fn cut(&mut self, victim: usize) {
        let wire = self.one_of(&[Wire::Broken, Wire::Silent]);
        let others: Vec<_> = (0..self.cluster.addresses.len()).filter(|index| *index != victim).collect();
        let chosen = if self.random.below(2) == 0 { vec![self.one_of(&others)] } else { others };
        let ways = 1 + self.random.below(2) as usize;
        for other in chosen {
            for (from, to) in [(victim, other), (other, victim)].into_iter().take(ways) {
                self.cut.insert((from, to));
                self.cluster.wire(from, to, wire);
            }
        }
        self.done.cuts += 1;
    }

    fn mend(&mut self) {
        for (from, to) in std::mem::take(&mut self.cut) {
            self.cluster.wire(from, to, Wire::Whole);
        }
    }

    /// Everything runs and is connected again.
    fn heal(&mut self) {
        self.mend();
        for index in std::mem::take(&mut self.stopped) {
            self.cluster.processes[index].signal("CONT");
        }
        for index in std::mem::take(&mut self.dead) {
            self.cluster.spawn(index);
        }
        let begun = Instant::now();
        for node in &self.cluster.addresses {
            serves(node.redis);
        }
        self.done.slowest = self.done.slowest.max(begun.elapsed());
        assert!(begun.elapsed() < BACK, "it took {:?} until each node served again", begun.elapsed());
    }
}

fn chaos(protocol: &str, led: bool) {
    let number = |name: &str, usual: u64| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("KILLS and SEED are numbers"))
    };
    let (kills, seed) = (number("KILLS", 20) as usize, number("SEED", 1));
    let mut random = Random::seeded(seed);
    let mut done = Done::default();
    while done.kills < kills {
        let folder = tempfile::tempdir().unwrap();
        let count = if random.below(3) == 0 { 5 } else { 3 };
        let mut cluster = Cluster::start(folder.path(), protocol, count);
        serves(cluster.addresses[0].redis);
        for lap in 0..LIFE {
            let reach = [Reach::One, Reach::Minority, Reach::All][random.below(3) as usize];
            let load = Load::start(&cluster, protocol, lap, LAP);
            let mut nemesis = Nemesis {
                led,
                cluster: &mut cluster,
                random: &mut random,
                done: &mut done,
                dead: BTreeSet::new(),
                stopped: BTreeSet::new(),
                cut: BTreeSet::new(),
            };
            nemesis.hurt(reach);
            nemesis.heal();
            load.finish(&cluster);
            done.laps += 1;
            println!("{protocol}, {count} nodes, {reach:?}: {done:?}");
            if done.kills >= kills {
                break;
            }
        }
    }
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_multipaxos() {
    chaos("multipaxos", true);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_curp() {
    chaos("curp", true);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_curp_unified() {
    chaos("curp unified", true);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_curp_consensus() {
    chaos("curp-consensus", true);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_mencius() {
    chaos("mencius", false);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_fastpaxos() {
    chaos("fastpaxos", false);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_epaxos() {
    chaos("epaxos", false);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_sdpaxos() {
    chaos("sdpaxos", false);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_domino() {
    chaos("domino", false);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_carousel_fast() {
    chaos("carousel-fast 3", false);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_carousel_basic() {
    chaos("carousel-basic", true);
}

#[test]
#[ignore = "long; make chaos"]
fn chaos_of_two_phase_commit() {
    chaos("2pc 3", false);
}
