//! The link between the leader and another node is cut, or one direction of it, and the third reaches both.

use super::cluster::Cluster;
use super::processes::{client, serves};
use super::proxy::Wire;
use super::resp::Reply;

fn is_served(protocol: &str) {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path(), protocol, 3);
    cluster.addresses.iter().for_each(|node| serves(node.redis));
    let leader = cluster.leader(None);
    let far = (leader + 1) % 3;
    let mut asked = client(cluster.addresses[far].redis);
    let mut count = 0;
    let mut counts = |what: &str| {
        count += 1;
        assert_eq!(asked.ask(&["INCR", "count"]).unwrap(), Reply::Number(count), "{what}");
    };
    for wire in [Wire::Broken, Wire::Silent] {
        for ways in [vec![(leader, far), (far, leader)], vec![(leader, far)], vec![(far, leader)]] {
            let what = format!("{protocol}, {wire:?}, {ways:?}");
            ways.iter().for_each(|(from, to)| cluster.wire(*from, *to, wire));
            (0..20).for_each(|_| counts(&what));
            ways.iter().for_each(|(from, to)| cluster.wire(*from, *to, Wire::Whole));
            (0..20).for_each(|_| counts("whole again"));
        }
    }
}

#[test]
fn who_does_not_reach_the_leader_is_served_by_way_of_the_third() {
    is_served("multipaxos");
}

/// The other node may hold a copy, which is given up first.
#[test]
fn who_does_not_reach_the_master_is_served_by_way_of_the_third() {
    is_served("curp");
}
