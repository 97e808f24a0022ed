use super::*;
use crate::status::told::Peer;
use expect_test::expect;
use isochrone_plan::Demand;
use serde_json::{Value, json};

const MAIN: KeyspaceId = KeyspaceId(1);

fn three_regions() -> Deployment {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml");
    Deployment::load(path.as_ref(), &protocols::known()).unwrap()
}

/// A node as it tells: its links, the median of writes there, and what of the keyspace is otherwise.
fn told(node: &str, links: &[(&str, f64)], waited: Option<f64>, more: &Value) -> Asked {
    let peers: Vec<_> = links
        .iter()
        .map(|(name, trip)| json!({"name": name, "connected": true, "round_trip_ms": trip}))
        .collect();
    let mut keyspace = json!({
        "id": 1, "name": "main", "protocol": "multipaxos", "leaders": ["us-west"],
        "members": [["us-west", "us-east", "euro"]],
        "recent": {"operations_per_second": 12.5, "write_p50_ms": waited},
    });
    for (key, value) in more.as_object().unwrap() {
        keyspace[key] = value.clone();
    }
    let told = json!({"cluster": "three-regions", "node": node, "peers": peers, "keyspaces": [keyspace]});
    let http = Some(format!("{node}:9000"));
    Asked { name: None, http, answer: Ok(serde_json::from_value(told).unwrap()) }
}

/// The same, with these peers to which it has no link.
fn cut_from(mut asked: Asked, names: &[&str]) -> Asked {
    let peer = |name: &&str| Peer { name: (*name).to_owned(), ..Peer::default() };
    asked.answer.as_mut().unwrap().peers.extend(names.iter().map(peer));
    asked
}

fn silent(node: &str) -> Asked {
    let name = Some((node.to_owned(), "Euro".to_owned()));
    Asked { name, http: Some(format!("{node}:9000")), answer: Err("Connection refused".to_owned()) }
}

fn looked(asked: &[Asked]) -> (Deployment, Live, Plan) {
    let (deployment, mut live) = of(asked, three_regions(), MAIN).unwrap();
    let demand = Demand::of(&deployment);
    let plan = isochrone_plan::plan_over(&deployment, &live.matrix, MAIN, &demand).unwrap();
    live.compare(&plan);
    (deployment, live, plan)
}

#[test]
fn what_is_measured_is_shown_beside_what_is_written() {
    let asked = [
        told("us-west", &[("us-east", 73.2), ("euro", 166.1)], Some(75.0), &json!({})),
        told("us-east", &[("us-west", 73.0)], Some(160.0), &json!({})),
        silent("euro"),
    ];
    let (_, live, plan) = looked(&asked);
    let waits: Vec<_> =
        live.clients.iter().map(|wait| (wait.expected_ms.unwrap(), wait.file_expected_ms.unwrap())).collect();
    // To US West, and from there to US East and back.
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
    assert!(near(waits[0].0, 73.1) && near(waits[1].0, 146.2), "{waits:?}");
    assert_eq!(waits.iter().map(|wait| wait.1).collect::<Vec<_>>(), [73.0, 146.0]);
    // (73.1 + 146.2 + 239.2) / 3 against (146.2 + 73.1 + 161.1) / 3
    let better = live.better_leader.as_ref().unwrap();
    assert_eq!(better.leader.as_deref(), Some("US East"));
    assert!(near(better.mean_ms, 126.8) && near(better.less_ms, 152.833333333 - 126.8), "{better:?}");
    assert_eq!(plan.configured.leader.as_deref(), Some("US West"));
    expect![[r#"
        three-regions: 2 of 3 nodes answer
        round trips, which the table below is over; where nobody measures, the file's *

          from     to       measured ms  file ms
          US West  US East         73.1     73.0
          US West  Euro           166.1    166.0
          US East  Euro               -   * 88.0

        (the plan)

        writes of the last seconds beside what is expected without load, of multipaxos, led from us-west

          node     region   ops/s  write p50 ms  expected  ratio  by the file  ratio
          us-west  US West     12          75.0      73.1   1.03         73.0   1.03
          us-east  US East     12         160.0     146.2   1.09        146.0   1.10

        better leader: multipaxos with US East, mean 126.8 ms, 26.0 ms less than now
        better protocol: epaxos, mean 78.1 ms, 74.8 ms less than now

        note
          euro does not tell: Connection refused
          nobody measures the way between US East and Euro: 88.0 ms as in the file
    "#]]
    .assert_eq(&(live.head() + "(the plan)\n" + &live.tail()));
    expect![[r#"{"cluster":"three-regions","asked":3,"answered":2,"links":[{"from":"US West","to":"US East","measured_ms":73.1,"file_ms":73.0},{"from":"US West","to":"Euro","measured_ms":166.1,"file_ms":166.0},{"from":"US East","to":"Euro","measured_ms":null,"file_ms":88.0}],"protocol":"multipaxos","leaders":["us-west"],"clients":[{"node":"us-west","region":"US West","operations_per_second":12.5,"write_p50_ms":75.0,"expected_ms":73.1,"ratio":1.0259917920656636,"file_expected_ms":73.0,"file_ratio":1.0273972602739727},{"node":"us-east","region":"US East","operations_per_second":12.5,"write_p50_ms":160.0,"expected_ms":146.2,"ratio":1.094391244870041,"file_expected_ms":146.0,"file_ratio":1.095890410958904}],"better_leader":{"protocol":"multipaxos","leader":"US East","mean_ms":126.8,"less_ms":26.033333333333346},"better_protocol":{"protocol":"epaxos","leader":null,"mean_ms":78.06666666666666,"less_ms":74.76666666666668},"better_for_clients":null,"notes":["euro does not tell: Connection refused","nobody measures the way between US East and Euro: 88.0 ms as in the file"]}"#]].assert_eq(&serde_json::to_string(&live).unwrap());
}

#[test]
fn a_cluster_that_runs_another_protocol_is_planned_with_that() {
    let all = |node, links: &[(&str, f64)]| {
        told(node, links, None, &json!({"protocol": "epaxos", "leaders": [null]}))
    };
    let asked = [all("us-west", &[("us-east", 73.0), ("euro", 166.0)]), all("us-east", &[("euro", 88.0)])];
    let (deployment, live, plan) = looked(&asked);
    assert_eq!(deployment.keyspace(MAIN).protocol, "epaxos");
    assert_eq!(plan.configured.protocol, "epaxos");
    assert_eq!(
        live.notes,
        ["the nodes run epaxos with its defaults, taken as such; the file says multipaxos"]
    );
    assert_eq!(live.clients[0].expected_ms, Some(73.0));
    assert!(live.better_leader.is_none() && live.better_protocol.is_none(), "{live:?}");
    assert!(live.tail().contains("no other leader or protocol is faster in the mean\n"));
}

#[test]
fn what_is_a_bound_is_told_as_one() {
    let of = |node, links: &[(&str, f64)]| {
        told(node, links, Some(80.0), &json!({"protocol": "mencius", "leaders": [null]}))
    };
    let asked = [of("us-west", &[("us-east", 73.0), ("euro", 166.0)]), of("us-east", &[("euro", 88.0)])];
    let (_, live, _) = looked(&asked);
    // It waits for Euro at most, and for US East at least.
    let waits: Vec<_> = live.clients.iter().map(|wait| (wait.expected_ms, wait.expected_bound)).collect();
    assert_eq!(waits, [(Some(166.0), Some("at most")), (Some(88.0), Some("at most"))]);
    let tail = live.tail();
    assert!(tail.contains("  ≤166.0  "), "{tail}");
    // (166 + 88 + 166) / 3 at most, against (73 + 73 + 88) / 3
    assert!(
        tail.contains("better protocol: epaxos, mean 78.0 ms, at most 62.0 ms less than now\n"),
        "{tail}"
    );
    let better = live.better_protocol.as_ref().unwrap();
    assert_eq!((better.bound.as_deref(), better.less_bound), (None, Some("at most")));
}

#[test]
fn of_transactions_it_is_what_a_set_takes() {
    let more = json!({"protocol": "2pc", "leaders": ["us-west"]});
    let asked = [told("us-west", &[("us-east", 73.0), ("euro", 166.0)], Some(150.0), &more)];
    let (deployment, live) = of(&asked, three_regions(), MAIN).unwrap();
    assert!(deployment.keyspace(MAIN).protocol == "2pc");
    // It is prepared, and then decided.
    assert_eq!(live.clients[0].expected_ms, Some(146.0));
    assert!(!live.tail().contains("faster"), "{}", live.tail());
}

#[test]
fn members_that_have_changed_are_reckoned_with() {
    let more = json!({"members": [["us-west"]]});
    let asked = [told("us-west", &[("us-east", 73.0), ("euro", 166.0)], Some(0.4), &more)];
    let (_, live, _) = looked(&asked);
    assert_eq!(live.clients[0].expected_ms, Some(0.0));
    assert_eq!(live.clients[0].ratio, None);
    assert!(
        live.notes.iter().any(|note| note.starts_with("members have changed since the file: ")),
        "{live:?}"
    );
}

#[test]
fn another_leader_is_told_of_where_it_pays_for_those_who_ask() {
    let file = three_regions();
    let of = |node, links: &[(&str, f64)], rate: f64| {
        told(node, links, None, &json!({"recent": {"operations_per_second": rate, "write_p50_ms": 150.0}}))
    };
    let asked = |west, east| {
        [of("us-west", &[("us-east", 73.0), ("euro", 166.0)], west), of("us-east", &[("euro", 88.0)], east)]
    };
    // (5 * 73 + 45 * 146) / 50 against (5 * 146 + 45 * 73) / 50
    let line = format!(
        "keyspace main is led from US West; from US East commits would take 58.4 ms less, 80.3 in the mean over what clients \
         asked in the last ten seconds: isochrone plan {} --live",
        file.file()
    );
    assert_eq!(off_plan(&asked(5.0, 45.0), Some(&file)), [line]);
    assert_eq!(off_plan(&asked(5.0, 45.0), None), [""; 0], "it is not the one that is built in");
    assert_eq!(off_plan(&asked(0.9, 8.1), Some(&file)), [""; 0], "hardly anybody asks");
    // (45 * 73 + 55 * 146) / 100 = 113.15 against 105.85: who asks is told, and nobody else.
    let close = asked(45.0, 55.0);
    assert_eq!(off_plan(&close, Some(&file)), [""; 0]);
    let (_, live, _) = looked(&close);
    let better = live.better_for_clients.as_ref().unwrap();
    assert_eq!(better.leader.as_deref(), Some("US East"));
    assert!((better.less_ms - 7.3).abs() < 1e-6, "{better:?}");
    let better =
        "better leader for what clients asked in the last seconds: multipaxos with US East, mean 105.";
    assert!(live.tail().contains(better), "{}", live.tail());
    // What a copy nearby answers is nothing to who leads, and what the leader answers at once is as much as a commit.
    let reads = |west: (f64, Option<f64>), east: (f64, Option<f64>)| {
        let of = |node, links: &[(&str, f64)], (rate, p50): (f64, Option<f64>)| {
            let recent = json!({"operations_per_second": rate, "p50_ms": p50, "write_p50_ms": 150.0});
            told(node, links, None, &json!({"recent": recent}))
        };
        let west = of("us-west", &[("us-east", 73.0), ("euro", 166.0)], west);
        looked(&[west, of("us-east", &[("euro", 88.0)], east)]).1
    };
    let advised = |west, east| reads(west, east).better_for_clients.is_some();
    assert!(!advised((5.0, None), (45.0, Some(0.4))));
    assert!(advised((5.0, None), (45.0, Some(73.0))) && advised((5.0, Some(0.4)), (45.0, None)));
    assert!(!advised((55.0, Some(0.4)), (45.0, Some(73.0))));
    assert!((reads((5.0, None), (45.0, Some(0.4))).asked_for - 5.0).abs() < 1e-9);
    // None is better than the one that leads, and nobody but a member can.
    for (west, east) in [(50.0, 50.0), (55.0, 45.0), (0.0, 0.0)] {
        assert!(looked(&asked(west, east)).1.better_for_clients.is_none(), "{west} {east}");
    }
    let alone = json!({"members": [["us-west"]], "recent": {"operations_per_second": 50.0}});
    let alone = [told("us-west", &[("us-east", 73.0), ("euro", 166.0)], None, &alone)];
    assert!(looked(&alone).1.better_for_clients.is_none());
}

#[test]
fn who_is_cut_off_neither_votes_nor_is_to_lead() {
    let file = three_regions();
    let of = |node, links: &[(&str, f64)], rate: f64, more: Value| {
        let mut keyspace = json!({"recent": {"operations_per_second": rate, "write_p50_ms": 170.0}});
        keyspace.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        told(node, links, None, &keyspace)
    };
    let none = || json!({});
    let east = [
        cut_from(of("us-west", &[("euro", 166.0)], 5.0, none()), &["us-east"]),
        cut_from(of("us-east", &[], 40.0, none()), &["us-west", "euro"]),
        cut_from(of("euro", &[("us-west", 166.0)], 45.0, none()), &["us-east"]),
    ];
    let waits = |live: &Live| -> Vec<(Option<f64>, Option<f64>)> {
        live.clients.iter().map(|wait| (wait.expected_ms, wait.file_expected_ms)).collect()
    };
    let (_, live, _) = looked(&east);
    let both = |wait| (Some(wait), Some(wait));
    assert_eq!(
        waits(&live),
        [both(166.0), (None, None), both(332.0)],
        "US West waits for Euro, and US East for ever"
    );
    // (5 * 166 + 45 * 332) / 50 against (5 * 332 + 45 * 166) / 50; US East would have been 159.5.
    let better = live.better_for_clients.as_ref().unwrap();
    assert_eq!(better.leader.as_deref(), Some("Euro"));
    assert!((better.mean_ms - 182.6).abs() < 1e-6 && (better.less_ms - 132.8).abs() < 1e-6, "{better:?}");
    assert!((live.asked_for - 50.0).abs() < 1e-9, "{live:?}");
    assert!(live.better_leader.is_none() && live.better_protocol.is_none(), "{live:?}");
    assert!(!live.tail().contains("faster"), "{}", live.tail());
    let note = "nobody reaches us-east: the table is as if all answered, what clients should wait is not";
    assert!(live.notes.iter().any(|said| said == note), "{live:?}");
    let lines = off_plan(&east, Some(&file));
    assert!(
        lines.len() == 1 && lines[0].contains("from Euro commits would take 132.8 ms less, 182.6"),
        "{lines:?}"
    );

    // Mencius goes on without who has crashed; TAPIR has another way then, which is not reckoned.
    for (protocol, wait) in [("mencius", Some(73.0)), ("tapir", None)] {
        let more = || json!({"protocol": protocol, "leaders": [null]});
        let euro = [
            cut_from(of("us-west", &[("us-east", 73.0)], 5.0, more()), &["euro"]),
            cut_from(of("us-east", &[("us-west", 73.0)], 5.0, more()), &["euro"]),
        ];
        let (_, live) = super::of(&euro, three_regions(), MAIN).unwrap();
        assert_eq!(waits(&live), [(wait, wait); 2], "{protocol}");
    }
    // Nobody is answered where no majority is reached: a master of CURP puts no copies elsewhere then.
    for protocol in ["multipaxos", "curp"] {
        let more = json!({"protocol": protocol});
        let alone = [cut_from(told("us-west", &[], None, &more), &["us-east", "euro"])];
        let (_, live) = super::of(&alone, three_regions(), MAIN).unwrap();
        assert_eq!(waits(&live), [(None, None)], "{protocol}");
    }
}

/// `d` has taken the place of `c`, which is switched off and stays in the file.
#[test]
fn a_node_that_was_replaced_is_not_missed() {
    let mut text = "cluster = \"three-regions\"\n".to_owned();
    for region in ["A", "B", "C"] {
        text += &format!("[[region]]\nname = \"{region}\"\n");
    }
    for (node, region) in [("a", "A"), ("b", "B"), ("c", "A"), ("d", "C")] {
        text += &format!("[[node]]\nname = \"{node}\"\nregion = \"{region}\"\n");
    }
    text += "[[keyspace]]\nname = \"main\"\nprotocol = \"curp\"\nreplicas = [\"a\", \"b\", \"c\"]\n\
             parameters = { spares = \"d\" }\n";
    let looked = |members: Value| {
        let more = json!({"protocol": "curp", "leaders": ["a"], "members": [members]});
        let of = |node, links: &[(&str, f64)]| cut_from(told(node, links, None, &more), &["c"]);
        let asked = [
            of("a", &[("b", 10.0), ("d", 20.0)]),
            of("b", &[("a", 10.0), ("d", 30.0)]),
            of("d", &[("a", 20.0), ("b", 30.0)]),
        ];
        let file = Deployment::parse(&text, "t.toml", "".as_ref(), &protocols::known()).unwrap();
        let (deployment, mut live) = super::of(&asked, file, MAIN).unwrap();
        let plan = isochrone_plan::plan_over(&deployment, &live.matrix, MAIN, &Demand::of(&deployment));
        live.compare(&plan.unwrap());
        let missed = live.notes.iter().any(|note| note.starts_with("nobody reaches c: "));
        (missed, live.compared)
    };
    assert_eq!(looked(json!(["a", "b", "d"])), (false, true));
    assert_eq!(looked(json!(["a", "b", "c"])), (true, false), "it has a copy");
}

#[test]
fn what_cannot_be_planned_says_what_would_be_right() {
    let refused = |asked: &[Asked], deployment: Deployment| match of(asked, deployment, MAIN) {
        Ok((_, live)) => panic!("{live:?}"),
        Err(error) => error,
    };
    let error = refused(&[told("mars", &[], None, &json!({}))], three_regions());
    assert!(
        error.is::<Usage>() && error.to_string().contains("none of the nodes that answer is in it"),
        "{error}"
    );
    let error = refused(&[told("us-west", &[], None, &json!({"name": "other"}))], three_regions());
    assert_eq!(
        error.to_string(),
        "no node that answers has a keyspace main\n  there are other: --keyspace NAME"
    );
    let error = refused(&[told("us-west", &[], None, &json!({"protocol": "later\u{1b}"}))], three_regions());
    assert!(error.to_string().contains("it says multipaxos, and the nodes run later?"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mute.toml");
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml");
    fs_text(text, &path);
    let mute = Deployment::load(&path, &protocols::known()).unwrap();
    let error = refused(&[told("us-west", &[("us-east", 1.0)], None, &json!({}))], mute);
    assert!(!error.is::<Usage>(), "a node is down, and nothing was asked wrongly");
    assert!(
        error.to_string().starts_with("nobody measures the way between US West and Euro, and "),
        "{error}"
    );

    let other = [told("us-west", &[], None, &json!({}))];
    of_this_cluster(&other, Some(&three_regions())).unwrap();
    let error = of_this_cluster(&other, None).unwrap_err().to_string();
    assert!(
        error.contains("nodes of cluster three-regions answer, and without a file it is five-regions"),
        "{error}"
    );
}

/// The same deployment without round trips.
fn fs_text(from: &str, to: &std::path::Path) {
    let text = std::fs::read_to_string(from).unwrap().replace("rtt = ", "# ");
    std::fs::write(to, text).unwrap();
}

#[test]
fn what_is_no_measurement_is_none() {
    let links = [("us-east", -1.0), ("euro", 1e12), ("nobody", 3.0)];
    let (_, live, _) = looked(&[told("us-west", &links, None, &json!({}))]);
    assert!(live.links.iter().all(|link| link.measured_ms.is_none()), "{live:?}");
    assert_eq!(live.notes.len(), 3, "{live:?}");
    assert_eq!(live.clients[0].expected_ms, Some(73.0));
}
