use super::screen;
use super::told::Told;
use super::view::{Asked, View};
use super::{of_addresses, of_one_cluster, of_those_there_are};
use expect_test::expect;
use isochrone_core::Deployment;
use isochrone_core::deployment::Address;
use serde_json::{Value, json};

fn peer(name: &str, trip: Option<f64>) -> Value {
    json!({"name": name, "connected": trip.is_some(), "round_trip_ms": trip, "trouble": if trip.is_none() { "Connection refused" } else { "" }})
}

/// A node of three regions as it tells, with what `more` says otherwise.
fn told(node: &str, region: &str, peers: &[Value], more: &Value) -> Told {
    let mut status = json!({
        "version": "0.1.0", "cluster": "three-regions", "node": node, "region": region, "uptime_seconds": 273_907, "ready": true, "stopping": false,
        "unsafe_fsync_off": false, "clients": 12, "memory": {"used_bytes": 9, "limit_bytes": 10, "full": false}, "peers": peers, "of another version": 7,
        "keyspaces": [{
            "id": 1, "name": "main", "index": 0, "protocol": "multipaxos", "guarantee": "linearizable",
            "leaders": ["us-east"], "members": [["us-west", "us-east", "euro"]], "reachable": [3, 3], "ready": true,
            "applied": 123_456,
            "recent": {"operations_per_second": 812.4, "p50_ms": 75.3, "p99_ms": 81.0, "write_p50_ms": 76.1},
            "bound_ms": 73.0,
        }],
        "processes": [],
    });
    for (key, value) in more.as_object().unwrap() {
        match status.pointer_mut(key) {
            Some(place) => *place = value.clone(),
            None => panic!("there is no {key}"),
        }
    }
    serde_json::from_value(status).unwrap()
}

fn asked(answer: Result<Told, &str>, name: &str, region: &str) -> Asked {
    let http = Some(format!("{name}:9000"));
    Asked { name: Some((name.to_owned(), region.to_owned())), http, answer: answer.map_err(str::to_owned) }
}

fn three_regions() -> Deployment {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml");
    Deployment::load(path.as_ref(), &crate::protocols::known()).unwrap()
}

#[test]
fn a_healthy_cluster_is_one_screen() {
    let voters = json!([
        {"keyspace": 1, "leads": 3, "last_voters": {"us-west": 970, "euro": 30}},
        {"keyspace": 2, "leads": 3, "last_voters": {"euro": 1_000}},
        {"keyspace": 1, "leads": null, "last_voters": {"euro": 1_000}},
    ]);
    let nodes = [
        told("us-west", "US West", &[peer("us-east", Some(73.1)), peer("euro", Some(166.2))], &json!({})),
        told(
            "us-east",
            "US East",
            &[peer("us-west", Some(73.0)), peer("euro", Some(88.1))],
            &json!({"/processes": voters}),
        ),
        told(
            "euro",
            "Euro",
            &[peer("us-west", Some(166.0)), peer("us-east", Some(88.0))],
            &json!({"/keyspaces/0/recent": {"operations_per_second": 0.0}, "/uptime_seconds": 59}),
        ),
    ];
    let all: Vec<_> = nodes.iter().map(|told| asked(Ok(told.clone()), &told.node, &told.region)).collect();
    let view = View::of(&all, Some(&three_regions()));
    assert!(view.ready);
    expect![[r#"
        three-regions: 3 of 3 nodes answer, all are ready

        keyspace main · SELECT 0 · multipaxos · linearizable · led from us-east · waits for us-west 97 %, euro 3 %
          node     region   role     applied  ops/s  p50 ms  p99 ms  write p50  bound  ratio
          us-west  US West  replica   123456    812    75.3    81.0       76.1   73.0   1.04
          us-east  US East  leader    123456    812    75.3    81.0       76.1   73.0   1.04
          euro     Euro     replica   123456      0       -       -          -   73.0      -

          node     region   state      up  clients  version  round trips, ms
          us-west  US West  ready  3d 04h       12  0.1.0    euro 166.2, us-east 73.1
          us-east  US East  ready  3d 04h       12  0.1.0    euro 88.1, us-west 73.0
          euro     Euro     ready     59s       12  0.1.0    us-east 88.0, us-west 166.0
    "#]].assert_eq(&screen::text(&view));
    expect![[r#"{"cluster":"three-regions","ready":true,"keyspaces":[{"keyspace":"main","index":0,"protocol":"multipaxos","guarantee":"linearizable","leaders":["us-east"],"members":[["euro","us-east","us-west"]],"last_voters":{"euro":30,"us-west":970},"nodes":[{"node":"us-west","region":"US West","role":"replica","applied":123456,"operations_per_second":812.4,"p50_ms":75.3,"p99_ms":81.0,"write_p50_ms":76.1,"bound_ms":73.0},{"node":"us-east","region":"US East","role":"leader","applied":123456,"operations_per_second":812.4,"p50_ms":75.3,"p99_ms":81.0,"write_p50_ms":76.1,"bound_ms":73.0},{"node":"euro","region":"Euro","role":"replica","applied":123456,"operations_per_second":0.0,"p50_ms":null,"p99_ms":null,"write_p50_ms":null,"bound_ms":73.0}]}],"nodes":[{"node":"us-west","region":"US West","http":"us-west:9000","state":"ready","member":true,"trouble":null,"version":"0.1.0","uptime_seconds":273907,"clients":12,"round_trips_ms":{"euro":166.2,"us-east":73.1}},{"node":"us-east","region":"US East","http":"us-east:9000","state":"ready","member":true,"trouble":null,"version":"0.1.0","uptime_seconds":273907,"clients":12,"round_trips_ms":{"euro":88.1,"us-west":73.0}},{"node":"euro","region":"Euro","http":"euro:9000","state":"ready","member":true,"trouble":null,"version":"0.1.0","uptime_seconds":59,"clients":12,"round_trips_ms":{"us-east":88.0,"us-west":166.0}}],"notes":[]}"#]].assert_eq(&serde_json::to_string(&view).unwrap());
}

#[test]
fn what_is_wrong_is_told() {
    let west = told(
        "us-west",
        "US West",
        &[peer("us-east", Some(140.0)), peer("euro", None)],
        &json!({"/keyspaces/0/leaders": [null], "/keyspaces/0/ready": false, "/keyspaces/0/reachable": [1, 3], "/ready": false}),
    );
    let mut slow = peer("us-west", Some(140.0));
    slow["queued_bytes"] = json!(5_300_000);
    slow["clock_ahead_ms"] = json!(-2_300.0);
    let east = told(
        "us-east",
        "US East",
        &[slow, peer("euro", None)],
        &json!({"/keyspaces/0/leaders": [null], "/unsafe_fsync_off": true, "/version": "0.2.0", "/stopping": true,
            "/memory": {"used_bytes": 6_979_321_856_u64, "limit_bytes": 6_442_450_944_u64, "full": true}}),
    );
    let all = [
        asked(Ok(west), "us-west", "US West"),
        asked(Ok(east), "us-east", "US East"),
        asked(Err("Connection refused (os error 111)"), "euro", "Euro"),
    ];
    let view = View::of(&all, Some(&three_regions()));
    assert!(!view.ready);
    expect![[r#"
        three-regions: 2 of 3 nodes answer, 0 ready

        keyspace main · SELECT 0 · multipaxos · linearizable
          node     region   role     applied  ops/s  p50 ms  p99 ms  write p50  bound  ratio
          us-west  US West  replica   123456    812    75.3    81.0       76.1   73.0   1.04
          us-east  US East  replica   123456    812    75.3    81.0       76.1   73.0   1.04

          node     region   state          up  clients  version  round trips, ms
          us-west  US West  not ready  3d 04h       12  0.1.0    us-east 140.0
          us-east  US East  stopping   3d 04h       12  0.2.0    us-west 140.0
          euro     Euro     no answer       -        -  -        -

        look at
          euro does not tell how it stands, at euro:9000: Connection refused (os error 111)
          UNSAFE: fsync is off at us-east, a power failure loses acknowledged writes
          us-east is full: it uses 6.50 GiB of memory and may use 6.00, so commands that may make data grow are refused in its keyspaces (docs/operations.md, "Memory that runs out")
          us-east is stopping
          us-west runs version 0.1.0, us-east 0.2.0
          keyspace main is not ready at us-west, which reaches 1 of 3
          keyspace main has no leader
          from us-west to us-east and back takes 140.0 ms, and 73.0 in the file: `isochrone plan` reckons with the file
          us-west has no link to euro: Connection refused
          the clock of us-west is 2.3 s behind that of us-east
          5.3 MB wait at us-east for us-west: the link carries less than is sent
          us-east has no link to euro: Connection refused
    "#]].assert_eq(&screen::text(&view));
}

#[test]
fn what_is_cut_off_for_what_files_differ_in_is_told_of_a_link_that_there_is() {
    let mut west = peer("us-west", Some(73.0));
    let why = "the deployment files of us-east and us-west differ in what must be the same on all nodes: ...";
    west["trouble"] = json!(why);
    let east = told("us-east", "US East", &[west], &json!({}));
    let view = View::of(&[asked(Ok(east), "us-east", "US East")], None);
    assert_eq!(view.notes, [why]);
}

#[test]
fn partitions_are_counted_and_another_leader_is_told() {
    let leaders = json!({"/keyspaces/0/leaders": ["us-east", "us-east", "euro"], "/keyspaces/0/protocol": "carousel-fast"});
    let other = json!({"/keyspaces/0/leaders": ["us-east", "euro", "euro"], "/keyspaces/0/protocol": "carousel-fast"});
    let trip = |name| peer(name, Some(1.0));
    let all = [
        asked(Ok(told("us-east", "US East", &[trip("euro")], &leaders)), "us-east", "US East"),
        asked(Ok(told("us-west", "US West", &[trip("euro")], &leaders)), "us-west", "US West"),
        asked(Ok(told("euro", "Euro", &[trip("us-east")], &other)), "euro", "Euro"),
    ];
    let view = View::of(&all, None);
    let shown = &view.keyspaces[0];
    let roles: Vec<_> = shown.nodes.iter().map(|row| row.role.as_str()).collect();
    assert_eq!(roles, ["leads 2 of 3", "replica", "leads 1 of 3"]);
    assert_eq!(view.notes, ["euro takes euro for the leader of partition 1 of main"]);
    assert!(screen::text(&view).contains(" · linearizable · 3 partitions\n"));
    // Who leads from elsewhere than the file says.
    let one = json!({"/keyspaces/0/leaders": ["euro"]});
    let all = [asked(Ok(told("euro", "Euro", &[], &one)), "euro", "Euro")];
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("led.toml");
    let matrix = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/rtt/carousel-ec2.csv");
    let text = text.unwrap().replace("../reference/rtt/carousel-ec2.csv", matrix) + "leader = \"us-west\"\n";
    std::fs::write(&path, text).unwrap();
    let file = Deployment::load(&path, &crate::protocols::known()).unwrap();
    assert_eq!(
        View::of(&all, Some(&file)).notes,
        ["keyspace main is led from euro, not from us-west, which the file names"]
    );
}

/// Of a keyspace of `us-west`, `us-east` and `euro`, `asia` has taken the place of `euro`, as the members and those who have none
/// tell it; `africa` has no replica and knows the file.
fn replaced(euro: Result<Told, &str>) -> Vec<Asked> {
    let more = json!({"/keyspaces/0/members": [["us-east", "us-west", "asia"]]});
    let peers = |name: &str| {
        let others =
            ["us-west", "us-east", "euro", "asia", "africa"].into_iter().filter(|other| *other != name);
        others.map(|other| peer(other, (other != "euro").then_some(1.0))).collect::<Vec<_>>()
    };
    let member = |name: &str| {
        let mut told = told(name, "R", &peers(name), &more);
        told.keyspaces[0].spares = vec!["euro".to_owned()];
        asked(Ok(told), name, "R")
    };
    let mut all: Vec<_> = ["us-west", "us-east", "asia"].into_iter().map(member).collect();
    all.push(asked(euro, "euro", "R"));
    let mut africa = told("africa", "R", &peers("africa"), &json!({}));
    africa.keyspaces[0].applied = None;
    all.push(asked(Ok(africa), "africa", "R"));
    all
}

#[test]
fn a_node_that_is_a_member_of_nothing_and_is_away_is_missed_by_nobody() {
    let view = View::of(&replaced(Err("Connection refused")), None);
    assert!(view.ready, "{:?}", view.notes);
    expect![[r#"
        three-regions: 4 of 5 nodes answer, 4 ready

        keyspace main · SELECT 0 · multipaxos · linearizable · led from us-east
          node     region  role     applied  ops/s  p50 ms  p99 ms  write p50  bound  ratio
          us-west  R       replica   123456    812    75.3    81.0       76.1   73.0   1.04
          us-east  R       leader    123456    812    75.3    81.0       76.1   73.0   1.04
          asia     R       replica   123456    812    75.3    81.0       76.1   73.0   1.04
          africa   R       client         -    812    75.3    81.0       76.1   73.0   1.04

          node     region  state                             up  clients  version  round trips, ms
          us-west  R       ready                         3d 04h       12  0.1.0    africa 1.00, asia 1.00, us-east 1.00
          us-east  R       ready                         3d 04h       12  0.1.0    africa 1.00, asia 1.00, us-west 1.00
          asia     R       ready                         3d 04h       12  0.1.0    africa 1.00, us-east 1.00, us-west 1.00
          euro     R       no answer, member of nothing       -        -  -        -
          africa   R       ready                         3d 04h       12  0.1.0    asia 1.00, us-east 1.00, us-west 1.00
    "#]].assert_eq(&screen::text(&view));
    // Of whom only the address is known may be anybody; and where nobody tells who is a member, everybody is missed.
    let mut unnamed = replaced(Err("Connection refused"));
    unnamed[3].name = None;
    assert!(!View::of(&unnamed, None).ready);
    let mut older = replaced(Err("Connection refused"));
    for asked in &mut older {
        if let Ok(told) = &mut asked.answer {
            told.keyspaces[0].members.clear();
        }
    }
    let view = View::of(&older, None);
    assert!(!view.ready && view.notes.len() == 5, "{:?}", view.notes);
}

/// Of `curp` with a copy at each of three nodes, `euro` has crashed: the others go on without it, and say how many there are to be.
#[test]
fn a_node_that_was_lost_is_missed_where_a_keyspace_has_too_few_replicas() {
    let of = |name: &str, other: &str, wanted: &Value| {
        let mut lost = peer("euro", None);
        lost["down_seconds"] = json!(200);
        let process = json!([{"process": "n0/k1/p0/role0/0", "keyspace": 1, "stands": wanted}]);
        let members = json!([["us-west", "us-east"]]);
        let more =
            json!({"/keyspaces/0/protocol": "curp", "/keyspaces/0/members": members, "/processes": process});
        let mut told = told(name, "R", &[peer(other, Some(1.0)), lost], &more);
        told.keyspaces[0].spares = vec!["euro".to_owned()];
        asked(Ok(told), name, "R")
    };
    let view = |wanted: Value| {
        let mut all = vec![of("us-west", "us-east", &wanted), of("us-east", "us-west", &wanted)];
        all.push(asked(Err("Connection refused"), "euro", "R"));
        View::of(&all, None)
    };
    let short = view(json!({"replicas": 2, "replicas_wanted": 3}));
    assert!(!short.ready);
    assert_eq!(
        short.notes,
        [
            "euro does not tell how it stands, at euro:9000: Connection refused",
            "keyspace main has 2 of 3 replicas, and none at euro: the fewer there are, the fewer crashes it survives",
            "us-west has no link to euro for 3m 20s: Connection refused",
            "us-east has no link to euro for 3m 20s: Connection refused",
        ]
    );
    assert!(!screen::text(&short).contains("member of nothing"));
    // Where it was removed by an order there are to be no more; another version says nothing of it.
    for wanted in [json!({"replicas": 2, "replicas_wanted": 2}), json!({"replicas": 2})] {
        let view = view(wanted);
        assert!(view.ready && view.notes.is_empty(), "{:?}", view.notes);
        assert!(screen::text(&view).contains("no answer, member of nothing"));
    }
}

#[test]
fn of_partitions_it_is_told_which_has_too_few_replicas() {
    let stands = json!([{"keyspace": 1, "stands": {"replicas_wanted": 3, "replicas_wanted/1": 3}}]);
    let members = json!([["us-west", "us-east", "euro"], ["us-west"]]);
    let leaders = json!(["us-west", "us-west"]);
    let more =
        json!({"/keyspaces/0/leaders": leaders, "/keyspaces/0/members": members, "/processes": stands});
    let view = View::of(&[asked(Ok(told("us-west", "R", &[], &more)), "us-west", "R")], None);
    assert!(!view.ready);
    assert_eq!(
        view.notes,
        [
            "partition 1 of main has 1 of 3 replicas, and none at euro, us-east: the fewer there are, the fewer crashes it survives"
        ]
    );
}

#[test]
fn who_does_not_hear_of_the_leader_says_so() {
    let more = json!({"/keyspaces/0/reachable": [2, 3], "/keyspaces/0/ready": false, "/ready": false});
    let told = told("us-west", "R", &[peer("us-east", None), peer("euro", Some(1.0))], &more);
    let view = View::of(&[asked(Ok(told), "us-west", "R")], None);
    let expected = "keyspace main is not ready at us-west, which reaches 2 of 3, but does not hear of us-east, which led it";
    assert_eq!(view.notes, [expected, "us-west has no link to us-east: Connection refused"]);
}

/// Who is told could lead, where these links of five nodes are down for so many seconds; `c` is farther from the others than `d`.
fn leaders_told(down: &[(&str, &str, u64)], more: &Value) -> Vec<String> {
    let names = ["a", "b", "c", "d", "e"];
    let of = |name: &&str| {
        let others = names.iter().enumerate().filter(|(_, other)| *other != name);
        let peers = others.map(|(far, other)| {
            let is = |(one, another, _): &&(&str, &str, u64)| {
                [(one, another), (another, one)].contains(&(name, other))
            };
            match down.iter().find(is) {
                Some((_, _, seconds)) => {
                    let mut lost = peer(other, None);
                    lost["down_seconds"] = json!(seconds);
                    lost
                }
                None => peer(other, Some(if *name == "c" { 50.0 } else { 10.0 * far as f64 })),
            }
        });
        let told = told(name, "R", &peers.collect::<Vec<_>>(), more);
        asked(Ok(told), name, "R")
    };
    let view = View::of(&names.iter().map(of).collect::<Vec<_>>(), None);
    view.notes.into_iter().filter(|note| note.contains("move-leader")).collect()
}

#[test]
fn who_lacks_a_link_to_the_leader_is_told_who_could_lead() {
    let led = json!({"/keyspaces/0/leaders": ["a"], "/keyspaces/0/members": [["a", "b", "c", "d"]]});
    let note = |gained: &str, heir: &str| {
        format!(
            "a leads main, and has no link with {gained}: what is asked there takes longer, or waits in vain; {heir} reaches all of \
             them: isochrone move-leader --to {heir}"
        )
    };
    for (down, expected) in [
        (vec![("a", "b", 10)], Some(("b", "d"))),
        (vec![("a", "b", 9)], None),
        (vec![("c", "d", 99)], None),
        // Who has no replica asks too; and whoever leads in the place of the leader is to lose nobody.
        (vec![("a", "e", 99), ("a", "b", 99)], Some(("b, e", "d"))),
        (vec![("a", "b", 99), ("d", "e", 1)], Some(("b", "c"))),
        (vec![("a", "b", 99), ("d", "e", 1), ("c", "e", 1)], None),
        // One whom nobody reaches does not keep others from being served.
        (
            vec![("a", "b", 99), ("a", "e", 99), ("b", "e", 99), ("c", "e", 99), ("d", "e", 99)],
            Some(("b", "d")),
        ),
    ] {
        let expected: Vec<String> = expected.iter().map(|(gained, heir)| note(gained, heir)).collect();
        assert_eq!(leaders_told(&down, &led), expected, "{down:?}");
    }
    let members = json!([["a", "d"], ["a", "c"], ["a", "d"], ["b", "d"]]);
    let partitions = json!({"/keyspaces/0/leaders": ["a", "a", "a", "b"], "/keyspaces/0/members": members, "/keyspaces/0/protocol": "2pc"});
    expect![[r#"
        a leads partition 1 of main, and has no link with b: what is asked there takes longer, or waits in vain; c reaches all of them: isochrone move-leader --partition 1 --to c
        a leads partitions 0, 2 of main, and has no link with b: what is asked there takes longer, or waits in vain; d reaches all of them: isochrone move-leader --partition N --to d, for each
        b leads partition 3 of main, and has no link with a: what is asked there takes longer, or waits in vain; d reaches all of them: isochrone move-leader --partition 3 --to d
    "#]].assert_eq(&(leaders_told(&[("a", "b", 99)], &partitions).join("\n") + "\n"));
}

#[test]
fn who_waits_for_a_copy_says_whose() {
    let more = json!({"/keyspaces/0/protocol": "curp", "/keyspaces/0/reachable": [3, 5], "/keyspaces/0/ready": false, "/ready": false});
    let mut told = told("us-west", "R", &[], &more);
    told.keyspaces[0].chosen = true;
    told.keyspaces[0].awaited = vec!["us-east".to_owned(), "euro".to_owned()];
    let view = View::of(&[asked(Ok(told), "us-west", "R")], None);
    let expected =
        "keyspace main is not ready at us-west, which reaches 3 of 5, and waits for us-east or euro";
    assert_eq!(view.notes, [expected]);
}

#[test]
fn a_replica_that_was_removed_and_runs_is_a_spare_whatever_it_believes() {
    for members in [json!([["us-west", "us-east", "euro"]]), json!([["us-east", "us-west", "asia"]])] {
        let euro = told("euro", "R", &[], &json!({"/keyspaces/0/members": members, "/ready": false}));
        let view = View::of(&replaced(Ok(euro)), None);
        let roles: Vec<_> = view.keyspaces[0].nodes.iter().map(|row| row.role.as_str()).collect();
        assert_eq!(roles, ["replica", "leader", "replica", "spare", "client"]);
        assert_eq!(view.keyspaces[0].members, [["asia", "us-east", "us-west"]]);
        assert!(!view.ready, "it runs, and clients may ask it");
        assert!(view.notes.contains(&"us-west has no link to euro: Connection refused".to_owned()));
    }
}

#[test]
fn a_move_that_nobody_carries_on_is_told() {
    let of = |node: &str, moving: Value| {
        let mut told = told(node, "R", &[], &json!({}));
        told.keyspaces[0].moving = serde_json::from_value(moving).unwrap();
        asked(Ok(told), node, "R")
    };
    let moving = |from, seconds, driven| json!({"from": from, "seconds": seconds, "driven": driven});
    let all = [
        of("us-west", json!([moving(0, 20, false), moving(1, 40, false), moving(2, 29, false)])),
        of("us-east", json!([moving(0, 35, false), moving(1, 40, true)])),
        of("euro", json!([])),
    ];
    assert_eq!(
        View::of(&all, None).notes,
        [
            "a move of keys from partition 0 of main is known for 35 s, and no node that answers carries it on: where that lasts, give the order again at any node (/admin/ranges?keyspace=main has where they go)"
        ]
    );
}

#[test]
fn one_cluster_and_each_node_once() {
    let of =
        |node: &str, cluster: &str| asked(Ok(told(node, "R", &[], &json!({"/cluster": cluster}))), node, "R");
    of_one_cluster(&[of("a", "x"), asked(Err("no"), "b", "R"), of("c", "x")]).unwrap();
    let twice = of_one_cluster(&[of("a", "x"), of("b", "x"), of("a", "x")]).unwrap_err().to_string();
    assert_eq!(twice, "a answers at a:9000 and at a:9000\n  name each node once");
    let two = of_one_cluster(&[of("a", "x"), of("b", "y")]).unwrap_err().to_string();
    assert_eq!(two, "a of x answers at a:9000, b of y at b:9000\n  ask nodes of one cluster");
}

/// Of five places three are the cluster's, of which the first is down; whoever is at the others is not asked about.
#[test]
fn as_many_are_shown_as_there_are_also_where_the_first_is_down() {
    let nobody = || asked(Err("Connection refused"), "x", "R");
    let of =
        |node| asked(Ok(told(node, "R", &[peer("a", None), peer("b", Some(1.0))], &json!({}))), node, "R");
    let shown = of_those_there_are(vec![nobody(), of("b"), of("c"), nobody(), nobody()]);
    assert_eq!(shown.iter().map(|asked| asked.answer.is_ok()).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(of_those_there_are(vec![nobody(), nobody()]).len(), 1);
}

#[test]
fn what_strangers_say_moves_no_cursor() {
    let bad = asked(Ok(told("a\u{1b}[2J", "R", &[], &json!({}))), "a", "R");
    let text = screen::text(&View::of(&[bad], None));
    assert!(text.contains("a?[2J") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_file_without_round_trips_is_compared_with_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live.toml");
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml"));
    std::fs::write(&path, text.unwrap().replace("rtt = ", "# ")).unwrap();
    let file = Deployment::load(&path, &crate::protocols::known()).unwrap();
    let far = told("us-west", "US West", &[peer("us-east", Some(73.1))], &json!({}));
    let all = [asked(Ok(far), "us-west", "US West")];
    assert_eq!(View::of(&all, Some(&file)).notes, [""; 0]);
}

#[test]
fn nobody_answers_where_nobody_listens() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    drop(taken);
    let asked = of_addresses(&[Address::loopback(port)]).unwrap();
    let why = asked[0].answer.as_ref().unwrap_err();
    assert!(why.contains("refused"), "{why}");
}
