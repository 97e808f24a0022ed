//! Without load a command waits what the closed form says, at every member.

use crate::latency::{Measured, groups, matrices};
use isochrone_core::RegionId;
use isochrone_plan::{Client, sdpaxos};
use isochrone_replication::sdpaxos::Family;
use isochrone_replication::service::Reply;

#[test]
fn every_region_waits_what_the_closed_form_says_on_every_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for leader in [replicas[0], replicas[replicas.len() - 1]] {
                for thrifty in [true, false] {
                    let tune: fn(&mut isochrone_replication::Placement<_, Family>) = match thrifty {
                        true => |placement| placement.service.reply = Reply::Commit,
                        false => |placement| {
                            placement.service.reply = Reply::Commit;
                            placement.parameters.thrifty = false;
                        },
                    };
                    let measured = Measured::<Family> { leader, tune, ..Measured::new(&matrix, &replicas) };
                    measured.equals(|client| sdpaxos::commit(&matrix, Client::At(client), leader, &replicas));
                }
            }
        }
    }
}

#[test]
fn a_read_waits_for_the_sequencer_only() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let leader: RegionId = replicas[0];
            let measured = Measured::<Family> { reads: true, ..Measured::new(&matrix, &replicas) };
            measured.equals(|client| sdpaxos::read(&matrix, Client::At(client), leader, &replicas));
        }
    }
}
