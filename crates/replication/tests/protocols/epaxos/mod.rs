//! EPaxos.

mod commit;
mod latency;
mod mutations;
mod safety;

use crate::machine::Machine;
use isochrone_core::Random;
use isochrone_replication::epaxos::Placement;

/// Draws the knobs.
fn tune(placement: &mut Placement<Machine>, random: &mut Random) {
    let parameters = &mut placement.parameters;
    parameters.thrifty = random.chance(0.3);
    parameters.delegate = random.chance(0.7);
    parameters.ahead = [1, 4, 32][random.below(3) as usize];
    parameters.window = [1, 4, 256][random.below(3) as usize];
    parameters.batch_commands = [1, 4, 1_024][random.below(3) as usize];
    parameters.keep_instances = [2, 16, 8_192][random.below(3) as usize];
}
