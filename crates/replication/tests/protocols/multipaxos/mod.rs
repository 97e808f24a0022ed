//! Multi-Paxos.

pub mod bridge;
mod conversations;
mod failover;
mod latency;
mod mutations;
mod placement;
mod safety;
mod speed;

use crate::machine::Machine;
use isochrone_core::Random;
use isochrone_replication::multipaxos::Placement;

/// Draws the knobs.
fn tune(placement: &mut Placement<Machine>, random: &mut Random) {
    let parameters = &mut placement.parameters;
    parameters.lease = random.chance(0.7);
    parameters.window = [4, 16, 1_024][random.below(3) as usize];
    parameters.gather = random.chance(0.5);
    parameters.batch_commands = [1, 4, 4_096][random.below(3) as usize];
    parameters.keep_slots = [2, 16, 8_192][random.below(3) as usize];
}
