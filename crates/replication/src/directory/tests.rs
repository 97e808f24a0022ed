//! The directory by itself. Over Multi-Paxos it runs in the crate's integration tests.

use super::{Command, Directory, Keyspace, Node, Partition, Refusal, Reply, Route, Routes, Version};
use isochrone_core::deployment::{Deployment, Known};
use isochrone_core::{Export, KeyspaceId, NodeId, PartitionId, Random, RegionId, StateMachine, key_hash};
use std::collections::BTreeMap;
use std::path::Path;

const K: KeyspaceId = KeyspaceId(1);
const P: PartitionId = PartitionId(0);

fn change(partition: u16, at: u64, to: Option<Partition>) -> Command {
    Command::Change { keyspace: K, partition: PartitionId(partition), at: Version(at), to }
}

fn arc(first: u64, node: u16) -> Option<Partition> {
    Some(Partition { first, members: vec![NodeId(node)] })
}

fn create(keyspace: u16, name: &str, firsts: &[u64]) -> Command {
    let to = Keyspace { name: name.to_owned(), protocol: "multipaxos".to_owned() };
    let partitions = firsts.iter().filter_map(|first| arc(*first, 1)).collect();
    Command::Create { keyspace: KeyspaceId(keyspace), to, partitions }
}

#[test]
fn it_begins_with_what_the_deployment_says() {
    let directory = Directory::of(&Deployment::five_regions());
    let route = directory.route(K, key_hash(K, b"user:1")).unwrap();
    assert_eq!((route.partition, route.version, route.members.len()), (P, Version(1), 5));
    let orders = directory.orders(NodeId(2));
    assert_eq!((orders[0].protocol.as_str(), &orders[0].route), ("multipaxos", &route));
    assert!(matches!(directory.read(&Command::Nodes), Some(Reply::Nodes(nodes)) if nodes.len() == 5));
    let placement = super::placement(&Deployment::five_regions()).unwrap();
    assert_eq!((placement.keyspace, placement.replicas.len()), (super::KEYSPACE, 5));
}

#[test]
fn a_split_routes_by_place_and_a_stale_change_is_refused() {
    let mut directory = Directory::of(&Deployment::five_regions());
    assert_eq!(directory.apply(&change(1, 0, arc(1 << 63, 2))), Reply::Changed(Version(1)));
    assert_eq!(directory.route(K, (1 << 63) - 1).unwrap().partition, P);
    assert_eq!(directory.route(K, 1 << 63).unwrap().partition, PartitionId(1));
    let stale = directory.apply(&change(1, 0, arc(1 << 62, 3)));
    assert_eq!(stale, Reply::Refused(Refusal::Outdated(Version(1))));
    // A removed partition's version goes on, so that a change made from before it stays refused.
    assert_eq!(directory.apply(&change(1, 1, None)), Reply::Changed(Version(2)));
    assert_eq!(directory.route(K, u64::MAX).unwrap().partition, P);
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
    let twice = Some(Partition { first: 9, members: vec![NodeId(1), NodeId(1)] });
    assert!(homeless(directory.apply(&change(1, 0, twice))), "one node twice");
    assert!(homeless(directory.apply(&change(0, 1, None))), "the last partition");
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
    let node = Node { name: "new".to_owned(), region: RegionId(2), address: "h:1".to_owned() };
    directory.apply(&Command::ChangeNode { node: NodeId(9), at: Version(0), to: Some(node) });
    directory.apply(&change(3, 0, arc(77, 9)));
    directory.apply(&change(3, 1, None));
    directory.apply(&create(7, "more", &[0, 9]));
    let mut copy = Directory::default();
    let view = directory.export();
    (0..).map_while(|index| view.chunk(index)).for_each(|chunk| copy.absorb(&chunk).unwrap());
    assert_eq!(copy, directory);
    assert!(Directory::default().absorb(&[250, 1, 2]).is_err());
}

#[test]
fn a_keyspace_is_made_once_and_whole() {
    let mut directory = Directory::of(&Deployment::five_regions());
    let taken = Reply::Refused(Refusal::Exists);
    assert!(matches!(directory.apply(&create(7, "more", &[1])), Reply::Refused(Refusal::Homeless(_))));
    assert!(matches!(directory.apply(&create(7, "more", &[])), Reply::Refused(Refusal::Homeless(_))));
    assert_eq!(directory.apply(&create(7, "more", &[0, 1 << 63])), Reply::Changed(Version(1)));
    assert_eq!(directory.apply(&create(7, "other", &[0])), taken, "its number");
    assert_eq!(directory.apply(&create(8, "more", &[0])), taken, "its name");
    assert_eq!(directory.apply(&create(0, "zero", &[0])), taken, "the directory's own number");
    let Some(Reply::Keyspace(_, made, ring)) = directory.read(&Command::Keyspace(KeyspaceId(7))) else {
        panic!("the keyspace is not there");
    };
    assert_eq!((made.name.as_str(), ring.len(), ring[0].last), ("more", 2, (1 << 63) - 1));
    assert_eq!(directory.orders(NodeId(1)).len(), 3, "one partition of the first keyspace, two of this");
    assert_eq!(directory.orders(NodeId(3)).len(), 1);
    assert_eq!(directory.orders(NodeId(99)), []);
}

#[test]
fn every_place_has_one_partition_and_a_version_tells_its_arc() {
    let mut random = Random::seeded(7);
    let mut directory = Directory::of(&Deployment::five_regions());
    let mut told: BTreeMap<(PartitionId, Version), Route> = BTreeMap::new();
    let (mut routes, mut late) = (Routes::default(), Vec::new());
    let mut made = 0;
    for _ in 0..2_000 {
        let partition = random.below(8) as u16;
        let at = directory.partitions.get(&(K, PartitionId(partition))).map_or(0, |(version, _)| version.0);
        let first = if random.chance(0.1) { 0 } else { random.below(64) << 58 };
        let to = if random.chance(0.3) { None } else { arc(first, random.below(5) as u16) };
        let before = directory.clone();
        match directory.apply(&change(partition, at, to)) {
            Reply::Changed(version) => assert_eq!((version, made += 1).0, Version(at + 1)),
            refused => assert_eq!((matches!(refused, Reply::Refused(_)), &directory), (true, &before)),
        }
        let ring = directory.ring(K);
        assert_eq!((ring[0].first, ring[ring.len() - 1].last), (0, u64::MAX));
        assert!(ring.windows(2).all(|pair| pair[0].last + 1 == pair[1].first), "{ring:?}");
        for route in &ring {
            let places = [route.first, route.last, random.between(route.first, route.last)];
            assert!(places.iter().all(|place| directory.route(K, *place).as_ref() == Some(route)));
            assert_eq!(directory.members(K, route.partition).as_ref(), Some(route));
            let first = told.entry((route.partition, route.version)).or_insert_with(|| route.clone());
            assert_eq!(first, route, "one version, two routes");
        }
        // A client with old routes is refused and asks again until it arrives; answers may come late.
        let key = random.below(1_000).to_string();
        let home = directory.route(K, key_hash(K, key.as_bytes())).unwrap();
        while routes.route(K, key.as_bytes()) != Some(&home) {
            if let Some(wrong) = routes.route(K, key.as_bytes()).cloned() {
                routes.forget(K, wrong.partition, wrong.version);
            } else {
                let place = key_hash(K, key.as_bytes());
                routes.learn(&directory.read(&Command::Route { keyspace: K, place }).unwrap());
            }
        }
        late.push(Reply::Route(home));
        if random.chance(0.2) {
            routes.learn(&late[random.below(late.len() as u64) as usize]);
        }
    }
    assert!(made > 300, "only {made} changes");
}

#[test]
fn a_client_keeps_the_newest_route() {
    let route = |partition, version, first, last| {
        let partition = PartitionId(partition);
        Route { keyspace: K, partition, version: Version(version), first, last, members: vec![NodeId(0)] }
    };
    let place = key_hash(K, b"a");
    let mut routes = Routes::default();
    assert_eq!(routes.route(K, b"a"), None);
    let (whole, half) = (route(0, 1, 0, u64::MAX), route(0, 2, 0, place));
    routes.learn(&Reply::Route(half.clone()));
    routes.learn(&Reply::Route(whole));
    assert_eq!(routes.route(K, b"a"), Some(&half), "what is older teaches nothing");
    assert_eq!(routes.route(KeyspaceId(2), b"a"), None);
    routes.forget(K, P, Version(1));
    assert_eq!(routes.route(K, b"a"), Some(&half), "version 2 was not at fault");
    let split = route(1, 1, place, u64::MAX);
    routes.learn(&Reply::Route(split.clone()));
    assert_eq!(routes.route(K, b"a"), Some(&split), "what overlaps is replaced");
    routes.forget(K, PartitionId(1), Version(1));
    assert_eq!(routes.route(K, b"a"), None);
}

#[test]
fn a_small_deployment_has_as_many_replicas_as_it_can() {
    for (regions, nodes, replicas) in [(1, 1, 1), (1, 3, 3), (2, 3, 3), (3, 3, 3), (4, 4, 3), (3, 6, 5)] {
        let mut text = String::from("cluster = \"t\"\n");
        for region in 0..regions {
            text += &format!("[[region]]\nname = \"r{region}\"\n");
        }
        for node in 0..nodes {
            let region = node * regions / nodes;
            text += &format!("[[node]]\nname = \"n{node}\"\nregion = \"r{region}\"\n");
        }
        text += "[[keyspace]]\nname = \"k\"\nprotocol = \"multipaxos\"\nreplication = 1\n";
        let placement = super::placement(
            &Deployment::parse(&text, "t", Path::new(""), &Known::names(&["multipaxos"])).unwrap(),
        )
        .unwrap();
        let firsts: Vec<u16> = placement.replicas.iter().map(|node| node.0).collect();
        assert_eq!((firsts.len(), placement.clients.len()), (replicas, nodes), "{firsts:?}");
        if (regions, nodes) == (3, 6) {
            assert_eq!(firsts, [0, 2, 4, 1, 3]);
        }
    }
}
