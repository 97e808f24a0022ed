//! Mencius.

mod conversations;
mod latency;
mod mutations;
mod safety;

use crate::machine::Machine;
use isochrone_core::{Random, Span};
use isochrone_replication::mencius::Placement;
use isochrone_replication::service::Reply;

/// Draws the knobs.
fn tune(placement: &mut Placement<Machine>, random: &mut Random) {
    let parameters = &mut placement.parameters;
    parameters.window = [4, 16, 1_024][random.below(3) as usize];
    parameters.batch_commands = [1, 4, 4_096][random.below(3) as usize];
    parameters.keep_slots = [2, 16, 8_192][random.below(3) as usize];
    parameters.revoke_turns = [2, 20, 1_000][random.below(3) as usize];
    parameters.skip_limit = [0, 20, 1_000][random.below(3) as usize];
    parameters.skip_delay = Span::from_millis([0, 50][random.below(2) as usize]);
    if random.chance(0.5) {
        parameters.early = true;
        placement.service.reply = Reply::Commit;
    }
}
