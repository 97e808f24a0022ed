//! SDPaxos.

mod drift;
mod failover;
mod latency;
mod mutations;
mod safety;

use crate::machine::Machine;
use isochrone_core::Random;
use isochrone_replication::Placement;
use isochrone_replication::sdpaxos::Family;
use isochrone_replication::service::Reply;

/// Draws the knobs.
fn tune(placement: &mut Placement<Machine, Family>, random: &mut Random) {
    let parameters = &mut placement.parameters;
    parameters.lease = random.chance(0.7);
    parameters.thrifty = random.chance(0.7);
    parameters.batch = random.chance(0.7);
    parameters.batch_commands = [1, 4, 4_096][random.below(3) as usize];
    parameters.order_batch = [1, 2, 1_024][random.below(3) as usize];
    parameters.window = [4, 16, 1_024][random.below(3) as usize];
    parameters.keep_slots = [2, 16, 8_192][random.below(3) as usize];
    if random.chance(0.3) {
        placement.service.reply = Reply::Commit;
        placement.parameters.reply = Reply::Commit;
    }
}
