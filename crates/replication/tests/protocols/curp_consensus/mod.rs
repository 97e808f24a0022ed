//! CURP's consensus variant.

mod latency;
mod mutations;
mod safety;

use crate::machine::Machine;
use isochrone_core::Random;
use isochrone_replication::curp::consensus::Placement;

/// Draws the knobs.
fn tune(placement: &mut Placement<Machine>, random: &mut Random) {
    let parameters = &mut placement.parameters;
    parameters.log.lease = random.chance(0.7);
    parameters.log.window = [4, 16, 1_024][random.below(3) as usize];
    parameters.log.gather = random.chance(0.3);
    parameters.log.batch_commands = [1, 4, 4_096][random.below(3) as usize];
    parameters.log.keep_slots = [2, 16, 8_192][random.below(3) as usize];
    parameters.witness.slots = [8, 64, 4_096][random.below(3) as usize];
    parameters.witness.ways = [1, 2, 4][random.below(3) as usize];
    parameters.remember = [0, 4, 16_384][random.below(3) as usize];
}
