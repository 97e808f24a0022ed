use super::board::STALE;
use super::*;
use crate::gateway::{Counters, Durability};
use crate::limits::Limits;
use crate::transport::link::{Link, Target};
use isochrone_core::Random;
use mio::Token;

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const PATIENCE: Span = Span::from_secs(5);

fn process(role: u8) -> ProcessId {
    ProcessId { node: NodeId(0), role: Role(role), keyspace: KEYSPACE, ..ProcessId::from_u64(0) }
}

fn peers() -> Peers {
    let data = tempfile::tempdir().unwrap();
    crate::reactor::peers::tests::peers(data.path(), None, Limits::default())
}

/// Of a node that stands alone, of five; or of a protocol that counts majorities.
fn reporter(masterless: Option<Span>) -> Reporter {
    let served = Served {
        id: KEYSPACE,
        protocol: "some",
        led: true,
        metrics: Arc::default(),
        nodes: (0..5).map(NodeId).collect(),
        placement: Vec::new(),
        spares: vec![NodeId(5)],
        partitions: 2,
        servers: vec![process(0)],
        masterless,
    };
    let names = (0..6).map(|node| (format!("n{node}"), "R".to_owned())).collect();
    let board = Arc::new(Board::new(Arc::default()));
    Reporter::new(board, Clock::start(), NodeId(0), 1, Arc::default(), names, vec![served])
}

fn view() -> KeyspaceView {
    KeyspaceView {
        durability: Durability::AllSoon,
        copies: 0,
        ..KeyspaceView::new(KEYSPACE, "main", 0, "some", 5)
    }
}

fn stands(reporter: &Reporter, peers: &Peers, now: Instant) -> (bool, usize, (usize, usize)) {
    let mut view = view();
    let status = reporter.keyspace(&reporter.keyspaces[0], &mut view, peers, now);
    assert_eq!(view.replicas as usize, status.replicas);
    (status.ready, status.replicas, status.reachable)
}

#[test]
fn where_the_protocol_chooses_replicas_a_master_of_each_partition_must_have_been_heard_of() {
    let (mut reporter, mut peers) = (reporter(Some(PATIENCE)), peers());
    let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
    assert_eq!(stands(&reporter, &peers, at(1)), (false, 5, (1, 6)), "as many as in the file");
    for partition in [0, 1] {
        assert!(!stands(&reporter, &peers, at(1)).0);
        let group = (KEYSPACE, PartitionId(partition));
        peers.leaders.insert(group, (3, NodeId(2)));
        peers.claimed.insert(group, at(1));
    }
    assert!(stands(&reporter, &peers, at(1)).0);
    reporter.note(process(1), &Fact::stands(COPIES, 2));
    assert_eq!(stands(&reporter, &peers, at(5)), (true, 3, (1, 6)), "by its client");
    reporter.note(process(0), &Fact::stands(REPLICAS, 4));
    assert_eq!(stands(&reporter, &peers, at(6)), (false, 4, (1, 6)), "by its server; and it is too long ago");
    // Of the first partition this node has the master itself.
    peers.claimed.insert((KEYSPACE, PartitionId(1)), at(6));
    reporter.served.insert((KEYSPACE, PartitionId(0)), at(6));
    assert!(stands(&reporter, &peers, at(7)).0);
}

#[test]
fn where_no_copy_of_the_last_list_is_reached_it_is_told_who_must_come() {
    let (mut reporter, peers) = (reporter(Some(PATIENCE)), peers());
    let served = &mut reporter.keyspaces[0];
    // This node is most of those that may have a replica.
    (served.nodes, served.spares, served.partitions) = (vec![NodeId(0)], Vec::new(), 1);
    let awaited = |reporter: &Reporter| {
        let status = reporter.keyspace(&reporter.keyspaces[0], &mut view(), &peers, Instant::ZERO);
        assert!(!status.ready);
        status.awaited.join(" ")
    };
    assert_eq!(awaited(&reporter), "", "the list is not known");
    let mut list = |nodes: &[u16]| {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        reporter.note(process(0), &Fact::Members { partition: PartitionId(0), version: 0, nodes });
        awaited(&reporter)
    };
    assert_eq!(list(&[1]), "n1", "a master without copies");
    assert_eq!(list(&[0]), "");
    assert_eq!(list(&[1, 2, 0]), "", "this node is a copy");
    assert_eq!(list(&[0, 1, 2]), "n1 n2");
    reporter.keyspaces[0].nodes = vec![NodeId(0), NodeId(1)];
    assert_eq!(awaited(&reporter), "", "others may have agreed on another list");
    reporter.keyspaces[0].nodes = vec![NodeId(0)];
    reporter.note(process(0), &Fact::Leads { reign: 3 });
    assert_eq!(awaited(&reporter), "", "it goes on with other copies");
}

#[test]
fn a_master_whose_copies_are_silent_is_none_that_serves() {
    let mut reporter = reporter(Some(PATIENCE));
    assert!(reporter.note(process(0), &Fact::Leads { reign: 3 }));
    assert_eq!(reporter.claims(), [(KEYSPACE, PartitionId(0), 3)]);
    assert!(!reporter.note(process(0), &Fact::stands(SILENT, 0)));
    assert!(reporter.note(process(0), &Fact::stands(SILENT, 1)));
    assert!(!reporter.note(process(0), &Fact::stands(SILENT, 2)), "known");
    assert_eq!((reporter.claims(), reporter.led()), (vec![], vec![KEYSPACE]));
    assert!(reporter.note(process(0), &Fact::stands(SILENT, 0)));
    assert!(!reporter.claims().is_empty());
}

#[test]
fn who_leads_and_what_stands_is_told_by_the_processes_of_that_group_alone() {
    let (mut reporter, peers) = (reporter(None), peers());
    let in_group = |keyspace, partition, of_all| ProcessId {
        keyspace: KeyspaceId(keyspace),
        partition: PartitionId(partition),
        role: Role(of_all),
        instance: of_all,
        ..process(0)
    };
    let partitions = [0, 1, u16::MAX];
    let ends = || partitions.into_iter().flat_map(|partition| [(partition, 0), (partition, u8::MAX)]);
    for keyspace in 0..3_u16 {
        for (partition, of_all) in ends() {
            let value = u64::from(partition) + 100_000 * u64::from(keyspace);
            let process = in_group(keyspace, partition, of_all);
            reporter.note(process, &Fact::stands(COPIES, value));
        }
    }
    for keyspace in 0..3_u16 {
        let lowest = 100_000 * u64::from(keyspace);
        let told: Vec<u64> = reporter.stands(KeyspaceId(keyspace), COPIES).collect();
        let all = [0, 0, 1, 1, 65_535, 65_535];
        assert_eq!(told, all.map(|value| lowest + value));
        for (partition, of_all) in ends() {
            let process = in_group(keyspace, partition, of_all);
            reporter.note(process, &Fact::Leads { reign: 1 });
            let served = &reporter.keyspaces[0];
            let led = partitions.map(|at| reporter.leader(served, PartitionId(at), &peers).is_some());
            assert_eq!(led, partitions.map(|at| (keyspace, partition) == (KEYSPACE.0, at)), "{process}");
            reporter.note(process, &Fact::Follows);
        }
    }
}

#[test]
fn a_keyspace_is_full_where_this_node_is_or_a_member_that_has_said_so_of_late() {
    let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
    let told = |reporter: &Reporter, peers: &Peers, second| {
        let mut view = view();
        let status = reporter.keyspace(&reporter.keyspaces[0], &mut view, peers, at(second));
        let names: Vec<_> = view.full.iter().map(|full| full.node.clone()).collect();
        assert_eq!(names, status.full);
        names.join(" ")
    };
    // The last one is a spare, which the protocol may choose.
    for (masterless, spare) in [(None, ""), (Some(PATIENCE), "n5")] {
        let (mut reporter, mut peers) = (reporter(masterless), peers());
        assert_eq!(told(&reporter, &peers, 10), "");
        peers.without_memory.insert(NodeId(5), (1_000, at(10)));
        assert_eq!(told(&reporter, &peers, 10), spare);
        peers.without_memory = [(NodeId(2), (1_000, at(10)))].into();
        assert_eq!(told(&reporter, &peers, 14), "n2");
        assert_eq!(told(&reporter, &peers, 15), "", "it was not heard of late");
        let memory = Arc::clone(&reporter.board.metrics.memory);
        memory.set_limit(1_000);
        memory.note(1_001);
        assert_eq!(told(&reporter, &peers, 14), "n0 n2");
        memory.note(1_000);
        assert_eq!(told(&reporter, &peers, 14), "n2");
        for number in [0, 1] {
            let partition = PartitionId(number);
            let nodes = [NodeId(0), NodeId(1)].into();
            let process = ProcessId { partition, ..process(0) };
            reporter.note(process, &Fact::Members { partition, version: 1, nodes });
        }
        let left = if masterless.is_some() { "n2" } else { "" };
        assert_eq!(told(&reporter, &peers, 14), left, "it may come back where the protocol chooses");
    }
}

#[test]
fn elsewhere_a_majority_is_enough_and_needed() {
    let (mut reporter, mut peers) = (reporter(None), peers());
    let group = (KEYSPACE, PartitionId(0));
    peers.leaders.insert(group, (3, NodeId(2)));
    peers.claimed.insert(group, Instant::ZERO);
    let at = Instant::ZERO;
    assert_eq!(stands(&reporter, &peers, at), (false, 5, (1, 5)));
    // Of the members of now, in each partition.
    let members = |partition, nodes: &[u16]| {
        let process = ProcessId { partition: PartitionId(partition), ..process(0) };
        let nodes = nodes.iter().copied().map(NodeId).collect();
        (process, Fact::Members { partition: process.partition, version: 0, nodes })
    };
    let mut note = |(process, fact)| {
        reporter.note(process, &fact);
        stands(&reporter, &peers, at)
    };
    assert_eq!(note(members(0, &[0])), (false, 5, (1, 5)), "the other partition has all of them still");
    assert_eq!(note(members(1, &[0, 5, 4])), (false, 3, (1, 3)));
    assert_eq!(note(members(1, &[0])), (true, 1, (1, 1)));
    assert_eq!(note(members(1, &[5])), (false, 1, (0, 1)), "removed here, it counts the others");
}

#[test]
fn a_leader_that_is_silent_for_longer_than_a_failover_takes_is_missed() {
    let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
    let group = (KEYSPACE, PartitionId(1));
    for led in [true, false] {
        let (mut reporter, mut peers) = (reporter(None), peers());
        let served = &mut reporter.keyspaces[0];
        // This node is a majority alone, whoever else is away.
        (served.nodes, served.spares, served.led) = (vec![NodeId(0)], Vec::new(), led);
        let ready = |reporter: &Reporter, peers: &Peers, now| stands(reporter, peers, at(now)).0;
        assert!(ready(&reporter, &peers, 60), "nobody was heard to lead");
        let mut claims = |reporter: &Reporter, reign, node, second| {
            peers.leaders.insert(group, (reign, NodeId(node)));
            peers.claimed.insert(group, at(second));
            assert!(ready(reporter, &peers, second + 9), "another may be found");
            assert_eq!(ready(reporter, &peers, second + 10), !led);
        };
        claims(&reporter, 3, 1, 100);
        claims(&reporter, 3, 1, 200);
        claims(&reporter, 4, 2, 300);
        // What this node leads itself, it need not hear.
        let own = ProcessId { partition: PartitionId(1), ..process(0) };
        reporter.note(own, &Fact::Leads { reign: 5 });
        assert!(ready(&reporter, &peers, 400));
    }
}

#[test]
fn a_leader_to_which_there_is_no_link_is_told_where_others_are_reached() {
    let (reporter, mut peers) = (reporter(None), peers());
    let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
    for node in [1, 2].map(NodeId) {
        let (target, random) = (Target::new("127.0.0.1", 1), Random::seeded(1));
        let (name, hello) = (format!("n{}", node.0), peers.hello.clone());
        let mut link = Link::new(node, name, target, Token(0), hello, None, random);
        link.down = Some(at(100));
        peers.links.insert(node, link);
    }
    let all = [0, 1, 2, 3].map(NodeId);
    let told = |leaders: &[u16], reached: u16, second| {
        let leaders: Vec<_> = leaders.iter().map(|leader| Some(NodeId(*leader))).collect();
        let members = vec![&all[..]; leaders.len()];
        let reaches = |node: &NodeId| node.0 <= reached;
        let found = reporter.cut_off(&leaders, &members, &peers, at(second), &reaches);
        found.into_iter().map(|node| node.0).collect::<Vec<_>>()
    };
    assert_eq!(told(&[2], 1, 110), [2]);
    assert_eq!(told(&[2], 1, 109), [0; 0], "another may be found");
    assert_eq!(told(&[2], 0, 110), [0; 0], "this node reaches nobody");
    assert_eq!(told(&[0, 3], 1, 110), [0; 0], "to neither a link is down");
    assert_eq!(told(&[2, 0, 1, 2], 1, 110), [1, 2], "of partitions");
}

#[test]
fn a_spare_that_was_not_added_knows_what_the_file_says() {
    let (mut reporter, peers) = (reporter(None), peers());
    let served = &mut reporter.keyspaces[0];
    (served.nodes, served.spares, served.partitions) = (vec![NodeId(1)], vec![NodeId(0)], 1);
    let members = |nodes: &[u16]| Fact::Members {
        partition: PartitionId(0),
        version: 0,
        nodes: nodes.iter().copied().map(NodeId).collect(),
    };
    reporter.note(process(0), &members(&[1]));
    let at = Instant::ZERO;
    assert_eq!(stands(&reporter, &peers, at), (false, 1, (0, 1)), "of both a majority is both");
    reporter.note(process(0), &members(&[1, 0]));
    assert_eq!(stands(&reporter, &peers, at), (false, 2, (1, 2)));
    reporter.note(process(0), &members(&[0]));
    assert_eq!(stands(&reporter, &peers, at), (true, 1, (1, 1)));
}

/// Where the protocol chooses replicas: a founder has gone, and the spare has come.
#[test]
fn who_has_a_replica_now_is_told_and_who_serves_beside_them() {
    let (mut reporter, peers) = (reporter(Some(PATIENCE)), peers());
    let told = |reporter: &Reporter| {
        let status = reporter.keyspace(&reporter.keyspaces[0], &mut view(), &peers, Instant::ZERO);
        (status.members.iter().map(|names| names.join(" ")).collect::<Vec<_>>(), status.spares.join(" "))
    };
    assert_eq!(told(&reporter), (vec!["n0 n1 n2 n3 n4".to_owned(); 2], "n5".to_owned()));
    for (partition, nodes) in [(0, vec![2, 5, 3]), (1, vec![5, 3])] {
        let nodes = nodes.into_iter().map(NodeId).collect();
        let fact = Fact::Members { partition: PartitionId(partition), version: 0, nodes };
        reporter.note(process(0), &fact);
    }
    assert_eq!(told(&reporter), (vec!["n2 n5 n3".to_owned(), "n5 n3".to_owned()], "n0 n1 n4".to_owned()));
}

/// This node is n0, which is in the first partition alone, and hears of nobody.
#[test]
fn of_placed_partitions_each_has_its_own_members() {
    let (mut reporter, peers) = (reporter(None), peers());
    let nodes = |nodes: [u16; 3]| nodes.map(NodeId).to_vec();
    let served = &mut reporter.keyspaces[0];
    served.placement = vec![nodes([0, 1, 2]), nodes([2, 3, 4])];
    served.spares = vec![NodeId(0), NodeId(5)];
    let told = |reporter: &Reporter| {
        let status = reporter.keyspace(&reporter.keyspaces[0], &mut view(), &peers, Instant::ZERO);
        let members: Vec<_> = status.members.iter().map(|names| names.join(" ")).collect();
        (members.join(", "), status.spares.join(" "), status.reachable, status.ready)
    };
    let begun = ("n0 n1 n2, n2 n3 n4".to_owned(), "n5".to_owned(), (0, 3), false);
    assert_eq!(told(&reporter), begun);
    // By its client, as in the file; and when one has been removed.
    let mut note = |version, nodes: Vec<NodeId>| {
        let nodes = nodes.into();
        reporter.note(process(1), &Fact::Members { partition: PartitionId(1), version, nodes });
        told(&reporter)
    };
    assert_eq!(note(0, nodes([2, 3, 4])), begun);
    assert_eq!(note(1, vec![NodeId(2), NodeId(3)]).0, "n0 n1 n2, n2 n3");
}

#[test]
fn who_applies_nothing_by_a_log_tells_of_no_place_in_it() {
    let (mut reporter, peers) = (reporter(None), peers());
    let applied = |reporter: &Reporter| {
        reporter.keyspace(&reporter.keyspaces[0], &mut view(), &peers, Instant::ZERO).applied
    };
    reporter.note(process(0), &Fact::stands("keys", 7));
    assert_eq!(applied(&reporter), None);
    for (position, expected) in [(0, 0), (3, 3)] {
        reporter.note(process(0), &Fact::Applied { position, digest: None });
        assert_eq!(applied(&reporter), Some(expected));
    }
}

#[test]
fn of_a_move_that_is_not_over_it_is_told_since_when_and_whether_it_is_carried_on_here() {
    let mut reporter = reporter(None);
    let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
    let mut told = |seconds, what, from, value| {
        let partition = PartitionId(from);
        reporter.note(process(1), &Fact::Stands { what, partition, value });
        reporter.see_moves(at(seconds));
        let told = reporter.moves(KEYSPACE, at(seconds));
        assert!(reporter.moves(KeyspaceId(2), at(seconds)).is_empty());
        told.into_iter().map(|moving| (moving.from, moving.seconds, moving.driven)).collect::<Vec<_>>()
    };
    assert!(told(1, UNENDED, 1, 0).is_empty());
    assert_eq!(told(2, UNENDED, 1, 1), [(1, 0, false)]);
    assert_eq!(told(5, DRIVEN, 1, 1), [(1, 3, true)]);
    assert_eq!(told(6, UNENDED, 0, 2), [(0, 0, false), (1, 4, true)]);
    assert_eq!(told(9, DRIVEN, 1, 0), [(0, 3, false), (1, 7, false)]);
    assert_eq!(told(9, UNENDED, 1, 0), [(0, 3, false)]);
    assert!(told(9, UNENDED, 0, 0).is_empty());
    assert_eq!(told(10, UNENDED, 1, 1), [(1, 0, false)], "another");
}

#[test]
fn the_time_of_syncs_is_that_of_the_last_ones() {
    let mut reporter = reporter(None);
    assert_eq!(reporter.sync_micros(), None);
    for (syncs, mean) in [(vec![100, 300], Some(200)), (vec![5_000], Some(5_000)), (vec![], None)] {
        for micros in syncs {
            reporter.journal.syncs.record(std::time::Duration::from_micros(micros));
        }
        assert_eq!(reporter.sync_micros(), mean);
    }
}

#[test]
fn a_node_that_tells_nothing_is_not_ready() {
    let board = Board::new(Arc::default());
    let now = std::time::Instant::now();
    for (at, ready) in [(now, true), (now.checked_sub(STALE).unwrap(), false), (now, true)] {
        board.post(Status { ready: true, able: true, ..Status::default() }, Counters::default(), at);
        assert_eq!((board.status().ready, board.status().able), (ready, ready));
    }
}
