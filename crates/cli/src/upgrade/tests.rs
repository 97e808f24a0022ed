use super::view::{Goal, Progress, Reached, Request, View, Way, reached};
use super::{floor, screen};
use crate::status::view::Asked;
use expect_test::{Expect, expect};
use isochrone_core::Deployment;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The moment at which nodes are asked.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

/// A file of so many nodes, of one keyspace with these lines more, and of a second one that names them all.
fn file(nodes: usize, more: &str) -> Deployment {
    let mut text = "cluster = \"shop\"\n".to_owned();
    for node in 0..nodes {
        text += &format!("[[region]]\nname = \"R{node}\"\n");
    }
    for node in 0..nodes {
        text += &format!(
            "[[node]]\nname = \"n{node}\"\nregion = \"R{node}\"\nlisten = \"127.0.0.1:{}\"\nhttp = \"127.0.0.1:{}\"\n",
            7000 + node,
            9000 + node
        );
    }
    text += &format!("[[keyspace]]\nname = \"main\"\n{more}");
    Deployment::parse(&text, "cluster.toml", Path::new(""), &crate::protocols::known()).unwrap()
}

const PLAIN: &str = "protocol = \"multipaxos\"\n";

/// What nodes of a keyspace of this protocol tell, all of them members, as they should; `n1` leads.
fn healthy(nodes: usize, protocol: &str) -> Vec<Value> {
    let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
    let tells = |me: usize| {
        let peers = names.iter().filter(|name| **name != names[me]);
        json!({
            "version": "8.0.0", "frames": 11, "cluster": "shop", "node": names[me], "region": format!("R{me}"),
            "uptime_seconds": 7_200, "uptime_ms": 7_200_400, "serves_ms": 7_199_900, "ready": true, "orders": 0,
            "peers": peers.map(|name| json!({"name": name, "connected": true})).collect::<Vec<_>>(),
            "keyspaces": [{
                "id": 1, "name": "main", "protocol": protocol, "chosen": protocol == "curp", "leaders": ["n1"],
                "members": [names], "spares": [], "reachable": [nodes, nodes], "ready": true, "moving": [],
            }],
            "processes": [{"process": format!("n{me}/k1/p0/role0/0"), "keyspace": 1, "applied": 100}],
        })
    };
    (0..nodes).map(tells).collect()
}

/// The nodes as they were asked; one of which nothing is told does not answer.
fn asked(told: &[Value]) -> Vec<Asked> {
    let one = |(node, told): (usize, &Value)| Asked {
        name: Some((format!("n{node}"), format!("R{node}"))),
        http: Some(format!("127.0.0.1:{}", 9000 + node)),
        answer: match told {
            Value::Null => Err("Connection refused".to_owned()),
            told => Ok(serde_json::from_value(told.clone()).unwrap()),
        },
    };
    told.iter().enumerate().map(one).collect()
}

fn view(file: &Deployment, told: &[Value], goal: Goal, floor: Option<&Reached>) -> View {
    let asked = asked(told);
    let request = Request { deployment: file, goal, without: &[], interrupt: &[] };
    let reached = reached(&asked);
    View::of(&request, &asked, &[], now(), floor.unwrap_or(&reached))
}

/// To another version than that of this program, whose frames it knows.
fn later() -> Goal {
    Goal::Version("9.0.0".to_owned())
}

#[test]
fn followers_are_stopped_before_the_leader_and_none_twice() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    for (node, next) in [(0, "n0"), (2, "n2"), (1, "n1")] {
        let view = view(&file, &told, later(), None);
        assert_eq!((view.next.as_deref(), view.way), (Some(next), Way::OneByOne), "{view:?}");
        assert!(view.waits.is_empty() && !view.done(), "{view:?}");
        told[node]["version"] = json!("9.0.0");
        told[node]["uptime_seconds"] = json!(13);
        told[node]["uptime_ms"] = json!(13_250);
        told[node]["serves_ms"] = json!(12_750);
    }
    let view = view(&file, &told, later(), None);
    assert!(view.next.is_none() && view.done() && view.way == Way::Done, "{view:?}");
}

/// One that crashes again and again is up in between.
#[test]
fn who_has_come_back_must_stay_before_another_one_goes() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    told[2]["version"] = json!("9.0.0");
    // It has read its journal for long; or is of a version that does not say how long it serves.
    for (up, serves, since) in [(300_000, json!(3_400), 3), (9_000, Value::Null, 9)] {
        (told[2]["uptime_ms"], told[2]["serves_ms"]) = (json!(up), serves);
        let view = view(&file, &told, later(), None);
        let waits = format!("n2 began to serve {since} s ago: whether it stays is seen after 10 s");
        assert_eq!(view.waits, [waits]);
        assert!(view.next.is_none() && view.obstacles.is_empty(), "{view:?}");
    }
    told[2]["serves_ms"] = json!(10_000);
    assert_eq!(view(&file, &told, later(), None).next.as_deref(), Some("n0"));
}

#[test]
fn what_was_started_before_a_moment_is_started_anew_whatever_it_runs() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    told[0]["uptime_ms"] = json!(59_999);
    let minute = now() - Duration::from_secs(60);
    let view = view(&file, &told, Goal::StartedBefore(minute), None);
    assert_eq!(view.next.as_deref(), Some("n2"));
    let stands: Vec<_> = view.nodes.iter().map(|node| node.progress).collect();
    assert_eq!(stands, [Progress::Done, Progress::ToDo, Progress::Next]);
    // Without the milliseconds by the seconds.
    told[0]["uptime_ms"] = Value::Null;
    let long_ago = Goal::StartedBefore(now() - Duration::from_secs(7_201));
    let request = Request { deployment: &file, goal: long_ago, without: &[], interrupt: &[] };
    assert!(View::of(&request, &asked(&told), &[], now(), &Reached::new()).done());
}

#[test]
fn it_is_shown_and_told_to_programs() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    told[0]["version"] = json!("9.0.0");
    told[0]["uptime_seconds"] = json!(59);
    let next = view(&file, &told, later(), None);
    expect![[r#"
        shop: 1 of 3 nodes run version 9.0.0, the rest one by one

          node  region  version  frames      up  state  leads
          n0    R0      9.0.0        11     59s  ready  -      done
          n1    R1      8.0.0        11  2h 00m  ready  main   to do
          n2    R2      8.0.0        11  2h 00m  ready  -      next

        n2 may be stopped: every keyspace is served without it
          nothing is stopped or started from here: start it anew, with what is new, and ask again
    "#]]
    .assert_eq(&screen::text(&next));
    assert_eq!(screen::next(&next), "n2 may be stopped; 1 of 3 nodes run version 9.0.0");
    expect![[r#"{"cluster":"shop","to":"9.0.0","started_before":null,"way":"one-by-one","next":"n2","waits":[],"obstacles":[],"nodes":[{"node":"n0","region":"R0","version":"9.0.0","frames":11,"uptime_seconds":59,"state":"ready","leads":[],"progress":"done"},{"node":"n1","region":"R1","version":"8.0.0","frames":11,"uptime_seconds":7200,"state":"ready","leads":["main"],"progress":"to-do"},{"node":"n2","region":"R2","version":"8.0.0","frames":11,"uptime_seconds":7200,"state":"ready","leads":[],"progress":"next"}],"notes":[]}"#]]
        .assert_eq(&serde_json::to_string(&next).unwrap());
    told[0] = Value::Null;
    let waits = view(&file, &told, later(), None);
    expect![[r#"
        shop: 0 of 3 nodes run version 9.0.0, the rest one by one

          node  region  version  frames      up  state      leads
          n0    R0      -             -       -  no answer  -
          n1    R1      8.0.0        11  2h 00m  ready      main   to do
          n2    R2      8.0.0        11  2h 00m  ready      -      to do

        to be waited for
          n0 does not tell how it stands: Connection refused
    "#]]
    .assert_eq(&screen::text(&waits));
}

/// A thing that is wrong at a node, by its place in what that tells, and what is waited for then.
#[test]
fn no_node_may_be_stopped_while_something_is_wrong() {
    let file = file(3, PLAIN);
    let cases: &[(&str, Value, &[&str])] = &[
        ("/stopping", json!(true), &["n2 is stopping"]),
        ("/ready", json!(false), &["n2 is not ready: its disk hangs, or it gets no processor"]),
        ("/orders", json!(1), &["n2 carries out an administrator's order"]),
        (
            "/keyspaces/0/ready",
            json!(false),
            &[
                "keyspace main is not ready at n2, which reaches 3 of 3, but does not hear of n1, which led it",
            ],
        ),
        ("/keyspaces/0/leaders", json!([null]), &["n2 has not heard that n1 leads keyspace main"]),
        ("/keyspaces/0/leaders", json!(["n0"]), &["n2 has not heard that n1 leads keyspace main"]),
        (
            "/keyspaces/0/members",
            json!([["n0", "n2"]]),
            &["the members of keyspace main change: n2 knows others than most do"],
        ),
        (
            "/keyspaces/0/moving",
            json!([{"from": 3, "seconds": 1, "driven": true}]),
            &["keys of keyspace main move from partition 3"],
        ),
        (
            "/processes/0/applied",
            json!(99),
            &["n2 is behind in keyspace main: it has applied 99, and others 100"],
        ),
        (
            "/processes/0/applied",
            Value::Null,
            &["n2 is behind in keyspace main: it has applied 0, and others 100"],
        ),
        (
            "/peers/0",
            json!({"name": "n0", "connected": false, "trouble": "Connection refused"}),
            &["n2 has no link to n0: Connection refused"],
        ),
    ];
    for (place, value, expected) in cases {
        let mut told = healthy(3, "multipaxos");
        match told[2].pointer_mut(place) {
            Some(found) => *found = value.clone(),
            None => told[2][place.trim_start_matches('/')] = value.clone(),
        }
        let view = view(&file, &told, later(), None);
        assert_eq!(view.waits, *expected, "{place}");
        assert!(view.next.is_none() && view.obstacles.is_empty() && !view.done(), "{view:?}");
        assert_eq!(view.lags, place.ends_with("applied"), "{place}");
    }
    let mut told = healthy(3, "multipaxos");
    for node in &mut told {
        node["keyspaces"][0]["leaders"] = json!([null]);
    }
    assert_eq!(view(&file, &told, later(), None).waits, ["keyspace main has no leader"]);
    // Also where all are done: the last one has to be back.
    let mut told = healthy(3, "multipaxos");
    told[1] = Value::Null;
    let this = view(&file, &told, Goal::Version("8.0.0".to_owned()), None);
    assert!(!this.done() && this.next.is_none() && this.waits.len() == 1, "{this:?}");
}

#[test]
fn whoever_has_what_others_had_some_time_ago_is_not_behind() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    let before = reached(&asked(&told));
    for (node, applied) in [(0, 500), (1, 500), (2, 100)] {
        told[node]["processes"][0]["applied"] = json!(applied);
    }
    assert!(view(&file, &told, later(), None).lags);
    let next = view(&file, &told, later(), Some(&before));
    assert!(!next.lags && next.next.as_deref() == Some("n0"), "{next:?}");
    // Where nothing is applied by a log, nobody is behind.
    let mut told = healthy(3, "tapir");
    for node in &mut told {
        node["processes"][0]["applied"] = Value::Null;
        node["keyspaces"][0]["leaders"] = json!([null]);
    }
    assert_eq!(view(&file, &told, later(), None).next.as_deref(), Some("n0"));
}

#[test]
fn what_counts_is_the_first_look_of_two_seconds_or_else_the_last_one() {
    let (mut looks, begun) = (VecDeque::new(), Instant::now());
    let mut seen = |millis, position| {
        let main = ("main".to_owned(), 0);
        let reached = Reached::from([(main.clone(), position)]);
        floor(&mut looks, begun + Duration::from_millis(millis), reached)[&main]
    };
    assert_eq!([seen(0, 1), seen(1_000, 2), seen(2_000, 3), seen(2_100, 4)], [1, 1, 1, 2]);
    // Looks that take long.
    assert_eq!([seen(7_000, 5), seen(12_000, 6), seen(12_250, 7)], [4, 5, 6]);
}

#[test]
fn nodes_of_other_frames_are_stopped_all_at_once() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    told[2]["frames"] = json!(12);
    let view = view(&file, &told, later(), None);
    assert_eq!((view.way, view.next.as_deref()), (Way::AllAtOnce, None));
    assert_eq!(
        view.obstacles,
        [
            "n0 speaks frames 11, n2 speaks frames 12: nodes of different frames do not understand each other\n  stop all \
          nodes, then start all with the new program"
        ]
    );
    assert!(screen::text(&view).contains(", the rest all at once\n"), "{}", screen::text(&view));
}

/// Nodes of this program's version would speak other frames than those that run.
#[test]
fn the_frames_of_this_program_count_where_it_is_what_is_to_run() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    for node in &mut told {
        node["version"] = json!("0.0.9");
        node["frames"] = json!(1);
    }
    let view = view(&file, &told, Goal::Version(env!("CARGO_PKG_VERSION").to_owned()), None);
    assert_eq!(view.way, Way::AllAtOnce);
    assert!(view.obstacles[0].contains(concat!("version ", env!("CARGO_PKG_VERSION"), " speaks frames ")));
}

#[test]
fn a_node_that_was_just_started_with_the_wrong_version_is_not_started_again() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    // It has read its journal for two hours.
    told[2]["serves_ms"] = json!(3_000);
    let view = view(&file, &told, later(), None);
    assert!(view.next.is_none() && view.way == Way::OneByOne, "{view:?}");
    assert!(
        view.obstacles[0].starts_with("n2 began to serve 3 s ago and runs version 8.0.0, not 9.0.0\n"),
        "{view:?}"
    );
}

fn stopped(file: &Deployment, told: &[Value], without: &[&str], interrupt: &[&str], expected: Expect) {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (without, interrupt) = (owned(without), owned(interrupt));
    let request = Request { deployment: file, goal: later(), without: &without, interrupt: &interrupt };
    let is_gone = |asked: &Asked| without.iter().any(|name| *name == *super::view::name(asked));
    let (gone, asked): (Vec<_>, Vec<_>) = asked(told).into_iter().partition(is_gone);
    let reached = reached(&asked);
    let view = View::of(&request, &asked, &gone, now(), &reached);
    let lines = view.waits.iter().chain(&view.obstacles).cloned();
    let text: Vec<String> = view.next.iter().map(|name| format!("stop {name}")).chain(lines).collect();
    expected.assert_eq(&text.join("\n"));
}

#[test]
fn enough_must_be_left_for_a_quorum() {
    let mut told = healthy(5, "multipaxos");
    told[0] = Value::Null;
    let five = file(5, PLAIN);
    stopped(&five, &told, &[], &[], expect!["n0 does not tell how it stands: Connection refused"]);
    stopped(&five, &told, &["n0"], &[], expect!["stop n2"]);
    told[4] = Value::Null;
    stopped(
        &five,
        &told,
        &["n0", "n4"],
        &[],
        expect![[r#"
            while n2 is down, keyspace main has 2 of 5 replicas left and needs 3
              where main may be without service meanwhile: --interrupt main"#]],
    );
    stopped(&five, &told, &["n0", "n4"], &["main"], expect!["stop n2"]);
    // Others have not heard yet that who led is gone.
    told.iter_mut().skip(1).take(3).for_each(|node| node["keyspaces"][0]["leaders"] = json!(["n0"]));
    stopped(&five, &told, &["n0", "n4"], &[], expect!["keyspace main has no leader"]);
    // The quorums that the file gives.
    let mut told = healthy(5, "domino");
    let four = file(5, "protocol = \"domino\"\nparameters = { classic_quorum = 5, fast_quorum = 3 }\n");
    stopped(
        &four,
        &told,
        &[],
        &[],
        expect![[r#"
            while n0 is down, keyspace main has 4 of 5 replicas left and needs 5
              where main may be without service meanwhile: --interrupt main"#]],
    );
    told.truncate(1);
    told[0]["keyspaces"][0]["members"] = json!([["n0"]]);
    told[0]["keyspaces"][0]["leaders"] = json!(["n0"]);
    let one = file(1, "protocol = \"domino\"\nreplication = 1\n");
    stopped(
        &one,
        &told,
        &[],
        &[],
        expect![[r#"
            while n0 is down, keyspace main has 0 of 1 replicas left and needs 1
              where main may be without service meanwhile: --interrupt main"#]],
    );
    stopped(&one, &told, &[], &["main"], expect!["stop n0"]);
}

/// Partitions on nodes of their own: what is lost without a node is looked for where it has replicas.
#[test]
fn who_is_not_a_member_of_the_partition_that_lacks_one_may_be_stopped() {
    let file =
        file(4, "protocol = \"2pc\"\nplacement = [[\"n0\", \"n1\", \"n2\"], [\"n1\", \"n2\", \"n3\"]]\n");
    let mut told = healthy(4, "2pc");
    for node in &mut told {
        node["keyspaces"][0]["members"] = json!([["n0", "n1", "n2"], ["n1", "n2", "n3"]]);
        node["keyspaces"][0]["leaders"] = json!(["n1", "n2"]);
        node["processes"] = json!([]);
    }
    stopped(&file, &told, &[], &[], expect!["stop n0"]);
    told[0] = Value::Null;
    stopped(&file, &told, &["n0"], &[], expect!["stop n3"]);
    told[3]["version"] = json!("9.0.0");
    stopped(
        &file,
        &told,
        &["n0"],
        &[],
        expect![[r#"
            while n1 is down, partition 0 of keyspace main has 1 of 3 replicas left and needs 2
              where main may be without service meanwhile: --interrupt main"#]],
    );
}

#[test]
fn of_curp_all_copies_are_there_and_hear_of_each_other_before_one_goes() {
    let file = file(3, "protocol = \"curp\"\n");
    let mut told = healthy(3, "curp");
    stopped(&file, &told, &[], &[], expect!["stop n0"]);
    // One that has come back has no copy yet.
    for node in &mut told {
        node["keyspaces"][0]["members"] = json!([["n1", "n2"]]);
        node["keyspaces"][0]["spares"] = json!(["n0"]);
    }
    told[0]["processes"][0]["applied"] = Value::Null;
    stopped(
        &file,
        &told,
        &[],
        &[],
        expect![
            "keyspace main has 2 of 3 replicas, and none yet at n0; --without is for a node from which it was removed"
        ],
    );
    let mut told = healthy(3, "curp");
    told[1]["processes"][0]["stands"] = json!({"copies_silent": 1, "reign": 7});
    stopped(&file, &told, &[], &[], expect!["the master of keyspace main at n1 does not hear of a copy"]);
    // It has its copy and nothing was written since it started.
    let mut told = healthy(3, "curp");
    told[2]["processes"][0]["applied"] = Value::Null;
    stopped(&file, &told, &[], &[], expect!["stop n0"]);
    // Two nodes are no majority of three managers without one of them.
    told[0] = Value::Null;
    for node in told.iter_mut().skip(1) {
        node["keyspaces"][0]["members"] = json!([["n1", "n2"]]);
        node["keyspaces"][0]["spares"] = json!(["n0"]);
    }
    stopped(
        &file,
        &told,
        &["n0"],
        &[],
        expect![[r#"
            while n2 is down, keyspace main has 1 of 3 nodes left and needs 2
              where main may be without service meanwhile: --interrupt main"#]],
    );
}

#[test]
fn one_copy_of_a_master_is_enough_where_others_can_be_made() {
    let file = file(5, "protocol = \"curp\"\nparameters = { f = 1 }\n");
    let mut told = healthy(5, "curp");
    for node in &mut told {
        node["keyspaces"][0]["members"] = json!([["n1", "n3"]]);
        node["keyspaces"][0]["spares"] = json!(["n0", "n2", "n4"]);
    }
    stopped(&file, &told, &[], &[], expect!["stop n0"]);
    for node in [0, 2, 4] {
        told[node]["version"] = json!("9.0.0");
    }
    stopped(&file, &told, &[], &[], expect!["stop n3"]);
}

/// A new file is given to nodes one after the other, and a keyspace that it adds serves when most have it.
#[test]
fn a_keyspace_that_not_all_know_is_not_waited_for() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    let new = json!({"id": 2, "name": "new", "protocol": "curp", "chosen": true, "leaders": [null], "members": [["n0", "n1", "n2"]], "ready": false});
    told[0]["keyspaces"].as_array_mut().unwrap().push(new);
    told[0]["ready"] = json!(false);
    told[0]["version"] = json!("9.0.0");
    let view = view(&file, &told, later(), None);
    assert_eq!((view.next.as_deref(), view.waits.len()), (Some("n2"), 0), "{view:?}");
    assert_eq!(view.notes, ["keyspace new is not looked at: it is known to n0 alone"]);
}

/// It is started first, and nodes of the old file refuse it until they are given the new one.
#[test]
fn a_spare_that_not_all_nodes_have_in_their_file_is_not_waited_for() {
    let file = file(
        4,
        "protocol = \"curp\"\nreplicas = [\"n0\", \"n1\", \"n2\"]\nparameters = { spares = \"n3\" }\n",
    );
    let since = || Goal::StartedBefore(now() - Duration::from_secs(60));
    let mut told = healthy(4, "curp");
    for node in &mut told {
        node["keyspaces"][0]["members"] = json!([["n0", "n1", "n2"]]);
        node["keyspaces"][0]["reachable"] = json!([3, 3]);
        node["peers"].as_array_mut().unwrap().retain(|peer| peer["name"] != "n3");
    }
    let refused = "it refused us: the deployment file that it was started with does not have you, n3";
    let new = &mut told[3];
    (new["uptime_ms"], new["serves_ms"], new["ready"]) = (json!(31_000), json!(30_000), json!(false));
    new["keyspaces"][0]["ready"] = json!(false);
    new["keyspaces"][0]["reachable"] = json!([1, 4]);
    new["keyspaces"][0]["spares"] = json!(["n3"]);
    new["processes"] = json!([]);
    for peer in new["peers"].as_array_mut().unwrap() {
        (peer["connected"], peer["trouble"]) = (json!(false), json!(refused));
    }
    for (node, next) in [(0, "n0"), (2, "n2"), (1, "n1")] {
        let view = view(&file, &told, since(), None);
        assert_eq!((view.next.as_deref(), view.waits.len()), (Some(next), 0), "{view:?}");
        (told[node]["uptime_ms"], told[node]["serves_ms"]) = (json!(13_250), json!(12_750));
        told[node]["keyspaces"][0]["spares"] = json!(["n3"]);
        told[node]["peers"].as_array_mut().unwrap().push(json!({"name": "n3", "connected": true}));
        (told[3]["peers"][node]["connected"], told[3]["peers"][node]["trouble"]) = (json!(true), json!(""));
    }
    // Now it counts as the others do.
    let not_ready = view(&file, &told, since(), None);
    assert_eq!(not_ready.waits, ["keyspace main is not ready at n3, which reaches 1 of 4"]);
    (told[3]["ready"], told[3]["keyspaces"][0]["ready"]) = (json!(true), json!(true));
    assert!(view(&file, &told, since(), None).done());
}

/// While a node is started anew, who leads may have put a copy on the spare.
#[test]
fn a_link_that_is_refused_until_a_node_is_started_anew_is_not_waited_for() {
    let file = file(
        4,
        "protocol = \"curp\"\nreplicas = [\"n0\", \"n1\", \"n2\"]\nparameters = { spares = \"n3\" }\n",
    );
    let mut told = healthy(4, "curp");
    for node in &mut told {
        node["keyspaces"][0]["members"] = json!([["n0", "n1", "n3"]]);
        node["keyspaces"][0]["spares"] = json!(["n2"]);
    }
    told[0]["peers"].as_array_mut().unwrap().retain(|peer| peer["name"] != "n3");
    told[0]["keyspaces"][0]["members"] = json!([["", "n0", "n1"]]);
    told[3]["peers"][0]["connected"] = json!(false);
    for node in [1, 2, 3] {
        told[node]["version"] = json!("9.0.0");
    }
    stopped(&file, &told, &[], &[], expect!["stop n0"]);
    told[0]["peers"].as_array_mut().unwrap().push(json!({"name": "n3", "connected": true}));
    told[0]["keyspaces"][0]["members"] = json!([["n0", "n1", "n3"]]);
    stopped(&file, &told, &[], &[], expect!["n3 has no link to n0: it is being made"]);
}

#[test]
fn what_strangers_say_moves_no_cursor() {
    let file = file(3, PLAIN);
    let mut told = healthy(3, "multipaxos");
    told[0]["version"] = json!("0.1\u{1b}[2J");
    told[2]["peers"][0] = json!({"name": "n0", "connected": false, "trouble": "\u{1b}[2J"});
    let text = screen::text(&view(&file, &told, later(), None));
    assert!(text.contains("0.1?[2J") && !text.contains('\u{1b}'), "{text}");
}
