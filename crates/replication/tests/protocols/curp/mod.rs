//! CURP over primary-backup, in the simulator.

mod actor;
mod alone;
mod bridge;
mod by_hand;
mod crashes;
mod garbage;
mod lab;
mod latency;
mod members;
mod moves;
mod mutations;
mod nearby;
mod paths;
mod placement;
mod recovery;
mod replay;
mod safety;
mod script;
mod shape;
mod small;
mod unified;
mod world;
mod zombies;

use crate::machine::Machine;
use isochrone_core::{Random, Span};
use isochrone_replication::curp::primary::Placement;

/// Draws the knobs.
fn tune(placement: &mut Placement<Machine>, random: &mut Random) {
    let parameters = &mut placement.parameters;
    parameters.f = 1 + random.below(2) as usize;
    parameters.lease = random.chance(0.7);
    parameters.batch_max = [1, 4, 50][random.below(3) as usize];
    parameters.sync_delay = Span::from_micros([0, 1_000, 5_000, 50_000][random.below(4) as usize]);
    parameters.hot_window = [0, 100][random.below(2) as usize];
    parameters.keep_slots = [2, 16, 8_192][random.below(3) as usize];
}
