//! Domino.

mod collisions;
mod commit;
mod conversations;
mod degraded;
mod failover;
mod lab;
mod latency;
mod mutations;
mod quorums;
mod real_time;
mod safety;
mod status;
mod timing;

use crate::machine::Machine;
use isochrone_core::{NodeId, Random, RegionId, Span};
use isochrone_replication::domino::{Extra, Learners, Placement, Way};

/// Draws the knobs.
fn tune(placement: &mut Placement<Machine>, random: &mut Random) {
    let ms = Span::from_millis;
    let parameters = &mut placement.parameters;
    parameters.heartbeat = ms([10, 20, 50][random.below(3) as usize]);
    parameters.probe = ms([10, 20, 50][random.below(3) as usize]);
    parameters.learners = [Learners::Sole, Learners::All][random.below(2) as usize];
    parameters.way = [Way::Auto, Way::Auto, Way::Fast, Way::Led][random.below(4) as usize];
    let extra = [Extra::Fixed(Span::ZERO), Extra::Fixed(ms(8)), Extra::Auto];
    parameters.extra = extra[random.below(3) as usize];
    parameters.hysteresis = ms([0, 2][random.below(2) as usize]);
    parameters.reserve = ms([50, 1_000][random.below(2) as usize]);
    parameters.revoke = ms([500, 2_000][random.below(2) as usize]);
    parameters.slow_window = [5, 200][random.below(2) as usize];
    parameters.link_messages = [50, 4_096][random.below(2) as usize];
    parameters.keep_commands = [2, 16, 65_536][random.below(3) as usize];
    parameters.batch_commands = [1, 4, 1_024][random.below(3) as usize];
    if parameters.batch_commands == 4 {
        // Not drawn for itself, so that what else a seed stands for stays. However far away, it does no harm.
        let last = placement.clients.len() as u16 - 1;
        placement.regions.insert(NodeId(last), RegionId(0));
    }
}
