//! Fast Paxos.

mod certain;
mod conversations;
mod latency;
mod mutations;
mod safety;

use crate::machine::Machine;
use isochrone_core::Random;
use isochrone_replication::fastpaxos::{Learners, Placement};

/// Draws the knobs.
fn tune(placement: &mut Placement<Machine>, random: &mut Random) {
    let parameters = &mut placement.parameters;
    parameters.window = [4, 16, 16_384][random.below(3) as usize];
    parameters.batch_commands = [1, 4, 4_096][random.below(3) as usize];
    parameters.keep_slots = [2, 16, 65_536][random.below(3) as usize];
    parameters.learners = [Learners::Sole, Learners::All][random.below(2) as usize];
}
