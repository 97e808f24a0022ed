//! Every kind of fault really happens.

use crate::toy::{Bug, Writers, busy, simulation};
use isochrone_sim::{FaultKind, FaultPlan, FaultSet, Histogram};

#[test]
fn every_kind_happens_in_a_hundred_seeds() {
    let mut all = Histogram::default();
    for seed in 0..100 {
        let mut simulation = simulation(busy(seed), Bug::None);
        let plan = FaultPlan::draw(seed, FaultSet::EVERY, &simulation.shape(1));
        assert!(plan.kinds.kinds().count() < FaultKind::ALL.len(), "half the kinds are off");
        simulation.set_faults(plan);
        all.merge(&simulation.run(&mut Writers::new(60)).faults);
    }
    let missing: Vec<&str> =
        all.iter().filter(|(_, count)| *count == 0).map(|(kind, _)| kind.name()).collect();
    assert_eq!(missing, [] as [&str; 0], "{all}");
}

#[test]
fn a_kind_alone_happens_alone() {
    for kind in FaultKind::ALL {
        let mut all = Histogram::default();
        // A torn or corrupt tail needs a crash that leaves one.
        let mut set = FaultSet::NONE.with(kind);
        if matches!(kind, FaultKind::DiskTorn | FaultKind::DiskCorrupt | FaultKind::Tears) {
            set = set.with(FaultKind::PowerLoss);
        }
        for seed in 0..20 {
            let mut simulation = simulation(busy(seed), Bug::None);
            let plan = FaultPlan::draw(seed, set, &simulation.shape(1));
            simulation.set_faults(plan);
            all.merge(&simulation.run(&mut Writers::new(60)).faults);
        }
        assert!(all.count(kind) > 0, "{} never happens alone: {all}", kind.name());
        let others = all.iter().filter(|(other, count)| *count > 0 && !set.contains(*other)).count();
        assert_eq!(others, 0, "only {} was asked for: {all}", kind.name());
    }
}
