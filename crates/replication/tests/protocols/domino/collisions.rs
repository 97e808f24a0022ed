//! Two clients at once, by Fast Paxos and by Domino (`specs/domino.md` 8, P1).

use super::lab::Listener;
use crate::cluster::placement;
use crate::machine::Machine;
use crate::talk::set;
use isochrone_core::{NodeId, Path, Random, Span, Ticket};
use isochrone_replication::{Family, Placement, Replicated, Request, domino, fastpaxos};
use isochrone_sim::{Config, Simulation};

const MS: fn(u64) -> Span = Span::from_millis;

/// Of two hundred commands of two clients far from each other, asked at the same times whatever the protocol, how many
/// took another way than the fast one.
fn slow<F: Family>(seed: u64, tune: impl FnOnce(&mut Placement<Machine, F>)) -> usize {
    // Replicas in WA, VA and QC, clients in IA and WA (E2): one-way delays, milliseconds.
    let delays =
        [[0, 33, 34, 18, 1], [33, 0, 8, 15, 33], [34, 8, 0, 16, 34], [18, 15, 16, 0, 18], [1, 33, 34, 18, 0]];
    let mut placement = placement::<Machine, F>(5, 3, 0, MS(68));
    tune(&mut placement);
    let names = ["WA", "VA", "QC", "IA", "near WA"];
    let mut config = Config::new(
        seed,
        &names,
        delays.iter().map(|row| row.iter().map(|way| MS(*way)).collect()).collect(),
    );
    config.sessions = 0;
    let mut cluster = Simulation::<Replicated<Machine, F>>::new(config, &placement);
    cluster.boot();
    let mut heard = Listener::default();
    cluster.run_for(MS(1_500), &mut heard);
    let mut random = Random::seeded(seed);
    for number in 0..200 {
        let client = placement.client(NodeId(3 + random.below(2) as u16));
        cluster.request(client, Ticket(number), Request::Command(set("x")));
        cluster.run_for(Span::from_micros(random.between(100, 8_000)), &mut heard);
    }
    cluster.run_for(MS(3_000), &mut heard);
    assert_eq!((cluster.broken(), heard.done.len()), (None, 200));
    heard.done.iter().filter(|done| done.path != Path::Fast).count()
}

/// P1: in Fast Paxos whoever is nearer to a replica has its next index, so two clients collide; in Domino each has a
/// stamp of its own.
#[test]
fn two_clients_collide_in_fast_paxos_and_not_in_domino() {
    for seed in 0..5 {
        let plain = slow::<fastpaxos::Family>(seed, |_| {});
        let stamped = slow::<domino::Family>(seed, |placement| placement.parameters.way = domino::Way::Fast);
        println!("seed {seed}: {plain} and {stamped} of 200 are slow");
        assert!(plain >= 40 && stamped == 0, "seed {seed}: {plain} and {stamped} of 200");
    }
}
