//! The directory by itself. Over Multi-Paxos it runs in the crate's integration tests.

use super::machine::{Command, Directory, Node, Partition, Refusal, Reply, Version};
use isochrone_core::deployment::Deployment;
use isochrone_core::{Export, KeyspaceId, NodeId, PartitionId, StateMachine, key_hash};

const K: KeyspaceId = KeyspaceId(1);
const P: PartitionId = PartitionId(0);

fn change(partition: u16, at: u64, to: Option<Partition>) -> Command {
    Command::Change { keyspace: K, partition: PartitionId(partition), at: Version(at), to }
}

fn arc(first: u64, node: u16) -> Option<Partition> {
    Some(Partition { first, members: vec![NodeId(node)] })
}

#[test]
fn it_begins_with_what_the_deployment_says() {
    let directory = Directory::of(&Deployment::five_regions());
    let (partition, version, entry) = directory.route(K, key_hash(K, b"user:1")).unwrap();
    assert_eq!((partition, version, entry.members.len()), (P, Version(1), 5));
    assert!(matches!(directory.read(&Command::Nodes), Some(Reply::Nodes(nodes)) if nodes.len() == 5));
    let placement = super::placement(&Deployment::five_regions()).unwrap();
    assert_eq!((placement.keyspace, placement.replicas.len()), (super::KEYSPACE, 5));
}

#[test]
fn a_split_routes_by_place_and_a_stale_change_is_refused() {
    let mut directory = Directory::of(&Deployment::five_regions());
    assert_eq!(directory.apply(&change(1, 0, arc(1 << 63, 2))), Reply::Changed(Version(1)));
    assert_eq!(directory.route(K, (1 << 63) - 1).unwrap().0, P);
    assert_eq!(directory.route(K, 1 << 63).unwrap().0, PartitionId(1));
    let stale = directory.apply(&change(1, 0, arc(1 << 62, 3)));
    assert_eq!(stale, Reply::Refused(Refusal::Outdated(Version(1))));
    // A removed partition's version goes on, so that a change made from before it stays refused.
    assert_eq!(directory.apply(&change(1, 1, None)), Reply::Changed(Version(2)));
    assert_eq!(directory.route(K, u64::MAX).unwrap().0, P);
    assert_eq!(directory.apply(&change(1, 1, arc(5, 1))), Reply::Refused(Refusal::Outdated(Version(2))));
}

#[test]
fn no_change_leaves_a_key_without_a_home() {
    let mut directory = Directory::of(&Deployment::five_regions());
    let homeless = |reply| matches!(reply, Reply::Refused(Refusal::Homeless(_)));
    let before = directory.clone();
    assert!(homeless(directory.apply(&change(0, 1, arc(7, 1)))), "places 0 to 6");
    assert!(homeless(directory.apply(&change(1, 0, arc(0, 1)))), "two at place 0");
    assert!(homeless(directory.apply(&change(1, 0, arc(9, 99)))), "an unknown node");
    let nobody = Some(Partition { first: 9, members: Vec::new() });
    assert!(homeless(directory.apply(&change(1, 0, nobody))), "nobody");
    let leave = Command::ChangeNode { node: NodeId(0), at: Version(1), to: None };
    assert!(homeless(directory.apply(&leave)), "a node in use");
    assert_eq!(directory, before);
    assert_eq!(
        directory.apply(&Command::Members { keyspace: KeyspaceId(9), partition: P }),
        Reply::Refused(Refusal::Unknown)
    );
}

#[test]
fn export_and_absorb_are_inverse() {
    let mut directory = Directory::of(&Deployment::five_regions());
    let region = isochrone_core::RegionId(2);
    let node = Node { name: "new".to_owned(), region, address: "h:1".to_owned() };
    directory.apply(&Command::ChangeNode { node: NodeId(9), at: Version(0), to: Some(node) });
    directory.apply(&change(3, 0, arc(77, 9)));
    directory.apply(&change(3, 1, None));
    let mut copy = Directory::default();
    let view = directory.export();
    (0..).map_while(|index| view.chunk(index)).for_each(|chunk| copy.absorb(&chunk).unwrap());
    assert_eq!(copy, directory);
    assert!(Directory::default().absorb(&[250, 1, 2]).is_err());
}
