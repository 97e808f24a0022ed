//! Without load a command waits what the closed form says, at every member.

use crate::latency::{Measured, Slow, groups, matrices};
use crate::machine::Machine;
use isochrone_core::{NodeId, RegionId, Span};
use isochrone_plan::{Client, Group, sdpaxos};
use isochrone_replication::sdpaxos::Family;
use isochrone_replication::service::Reply;

fn at_commit(placement: &mut isochrone_replication::Placement<Machine, Family>) {
    placement.service.reply = Reply::Commit;
    placement.parameters.reply = Reply::Commit;
}

#[test]
fn every_region_waits_what_the_closed_form_says_on_every_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for leader in [replicas[0], replicas[replicas.len() - 1]] {
                for thrifty in [true, false] {
                    let tune: fn(&mut isochrone_replication::Placement<_, Family>) = match thrifty {
                        true => at_commit,
                        false => |placement| {
                            at_commit(placement);
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

#[test]
fn with_dead_replicas_it_is_the_closed_form_of_those_who_live() {
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for gone in [vec![replicas.len() - 1], vec![0], vec![0, 1], vec![1, 2]] {
                if gone.len() > replicas.len() / 2 {
                    continue;
                }
                let dead: Vec<NodeId> = gone.iter().map(|rank| NodeId(replicas[*rank].0)).collect();
                let measured =
                    Measured::<Family> { tune: at_commit, ..Measured::without(&matrix, &replicas, &dead) };
                let run = measured.run();
                // Who follows a dead sequencer is drawn.
                let sequencer = run.leader.unwrap();
                let kept = gone.contains(&0) != (sequencer == replicas[0]);
                assert!(kept, "{name}: without {gone:?} {} orders", matrix.name(sequencer));
                let group = Group::from(&replicas).without(&gone);
                measured.follow(&run.waits, |client| {
                    sdpaxos::commit(&matrix, Client::At(client), sequencer, group)
                });
            }
        }
    }
}

/// specs/sdpaxos.md 8, L3: when a command is ready depends neither on what it meets nor on how much others ask.
#[test]
fn neither_conflicts_nor_the_load_of_others_cost_a_command_anything() {
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for one_key in [true, false] {
                let measured = Measured::<Family> { tune: at_commit, ..Measured::new(&matrix, &replicas) };
                for (node, _, wait) in measured.together(100, Span::from_millis(5), one_key) {
                    let client = Client::At(RegionId(node.0));
                    let form = sdpaxos::commit(&matrix, client, replicas[0], &replicas);
                    assert!(
                        wait.as_nanos().abs_diff(form.as_nanos()) <= 100_000,
                        "{name}, {} replicas, one key {one_key}: {node} waits {wait}, not {form}",
                        replicas.len()
                    );
                }
            }
        }
    }
}

/// The other half of L3: of one that does not order and is slow, nobody but its own clients notices anything. Where all
/// are asked to accept, that is so at once; with thrifty messages when it has left the quorum, being far away.
#[test]
fn a_slow_replica_that_does_not_order_is_not_waited_for() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for thrifty in [true, false] {
                let (slow, long) = (replicas.len() - 1, Span::from_millis(400));
                let node = NodeId(replicas[slow].0);
                let mut measured = Measured::<Family>::new(&matrix, &replicas);
                measured.tune = at_commit;
                measured.slow = Some(Slow::Ways(node, long));
                if !thrifty {
                    measured.slow = Some(Slow::Disk(node, long * 3));
                    measured.tune = |placement| {
                        at_commit(placement);
                        placement.parameters.thrifty = false;
                    };
                }
                let gone = [slow];
                let group = Group::from(&replicas).without(&gone);
                let own = |client: RegionId| {
                    let without = sdpaxos::read(&matrix, Client::At(client), replicas[0], group);
                    sdpaxos::read(&matrix, Client::At(client), replicas[0], &replicas) != without
                };
                let (waits, _) = measured.waits();
                let mut count = 0;
                for (client, wait) in waits.into_iter().map(|(node, wait)| (RegionId(node.0), wait)) {
                    if client == replicas[slow] || own(client) {
                        continue;
                    }
                    let form = sdpaxos::commit(&matrix, Client::At(client), replicas[0], group);
                    let at = matrix.name(client);
                    assert!(
                        wait.as_nanos().abs_diff(form.as_nanos()) <= 100_000,
                        "{at} waits {wait}, not {form}"
                    );
                    count += 1;
                }
                assert!(count >= 3 * (replicas.len() - 1), "only {count} were measured");
            }
        }
    }
}

#[test]
fn executed_it_is_as_soon_where_nobody_else_asks() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let leader = replicas[0];
            Measured::<Family>::new(&matrix, &replicas)
                .equals(|client| sdpaxos::commit(&matrix, Client::At(client), leader, &replicas));
        }
    }
}
