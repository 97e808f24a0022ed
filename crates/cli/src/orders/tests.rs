use super::arguments::Target;
use super::ask::{Answer, Given, Place, Unsent};
use super::site::Keyspace;
use super::told::{Change, Changed, Ended, Outcome, Partition, Ranges, Stopped};
use super::{Moved, listed, no_leader, no_member, nobody};
use crate::arguments::Format;
use crate::status::told::Told;
use crate::status::view::{Asked, View};
use expect_test::expect;
use hyper::StatusCode;
use isochrone_core::deployment::Address;
use serde_json::json;
use std::time::Duration;

fn place(node: &str) -> Place {
    Place { node: node.to_owned(), http: Address::parse(&format!("{node}:9000")).unwrap() }
}

fn given(answer: Answer) -> Given {
    Given { place: place("n0"), answer, took: Duration::from_micros(8_200) }
}

fn said(status: u16, text: &str) -> Answer {
    Answer::Said(StatusCode::from_u16(status).unwrap(), text.to_owned())
}

fn done(text: &str) -> Ended {
    Ended::of(&given(said(200, text))).unwrap()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A partition whose leader and members are these before the order, and those behind it.
fn partition(partition: u16, before: (&str, &[&str]), behind: (&str, &[&str])) -> Partition {
    Partition {
        partition,
        leader_before: Some(before.0.to_owned()),
        leader: Some(behind.0.to_owned()),
        members_before: names(before.1),
        members: names(behind.1),
    }
}

fn changed(order: Change, node: &str, partitions: Vec<Partition>) -> Changed {
    let (cluster, keyspace) = ("shop".to_owned(), "main".to_owned());
    Changed { order, cluster, keyspace, node: node.to_owned(), ended: done("done"), partitions }
}

const THREE: &[&str] = &["n0", "n1", "n2"];
const FOUR: &[&str] = &["n0", "n1", "n2", "n3"];

#[test]
fn it_is_told_who_leads_and_who_did() {
    let one = changed(Change::Lead, "n2", vec![partition(0, ("n0", THREE), ("n2", THREE))]);
    expect![[r#"
        main: n2 leads, before it n0; took 8.20 ms, asked at n0
    "#]]
    .assert_eq(&one.text());
    expect![[r#"{"order":"move-leader","cluster":"shop","keyspace":"main","node":"n2","asked":"n0","outcome":"done","said":"done","took_ms":8.2,"partitions":[{"partition":0,"leader_before":"n0","leader":"n2","members_before":["n0","n1","n2"],"members":["n0","n1","n2"]}]}"#]]
        .assert_eq(&serde_json::to_string(&one).unwrap());
    let several = vec![
        partition(0, ("n0", THREE), ("n2", THREE)),
        partition(1, ("n2", THREE), ("n2", THREE)),
        partition(2, ("n0", THREE), ("n1", THREE)),
        Partition { leader: None, ..partition(3, ("n0", THREE), ("", THREE)) },
    ];
    expect![[r#"
        main: took 8.20 ms, asked at n0
          partition 0: n2 leads, before it n0
          partition 1: n2 leads, as before
          partition 2: done, and n0 takes n1 for the leader now
          partition 3: done, and n0 has not heard yet who leads
    "#]]
    .assert_eq(&changed(Change::Lead, "n2", several).text());
}

#[test]
fn it_is_told_who_is_a_replica_and_who_is_none() {
    let of = |order, before, behind| {
        changed(order, "n3", vec![partition(1, ("n0", before), ("n0", behind))]).text()
    };
    let text = [
        of(Change::Add, THREE, FOUR),
        of(Change::Add, FOUR, FOUR),
        of(Change::Add, THREE, THREE),
        of(Change::Remove, FOUR, THREE),
        of(Change::Remove, THREE, THREE),
        of(Change::Remove, FOUR, FOUR),
    ];
    expect![[r#"
        main, partition 1: n3 is a replica now; members n0, n1, n2, n3; took 8.20 ms, asked at n0
        main, partition 1: n3 is a replica, as before; members n0, n1, n2, n3; took 8.20 ms, asked at n0
        main, partition 1: n3 may hold a replica; members n0, n1, n2; took 8.20 ms, asked at n0
        main, partition 1: n3 is no replica any more; members n0, n1, n2; took 8.20 ms, asked at n0
        main, partition 1: n3 is no replica, as before; members n0, n1, n2; took 8.20 ms, asked at n0
        main, partition 1: done, and n0 has not heard of it yet; members n0, n1, n2, n3; took 8.20 ms, asked at n0
    "#]]
    .assert_eq(&text.concat());
}

#[test]
fn keys_that_moved_are_counted() {
    let main = Keyspace { name: "main".to_owned(), partitions: 3 };
    let of = |text: &str| Moved::of("shop".to_owned(), &main, (0, 2), done(text));
    let parts = of(r#"{"keys": 81920, "bytes": 9830400, "parts": 40}"#);
    expect![[r#"
        main: 81920 keys, 9830400 bytes moved from partition 0 to 2; took 8.20 ms, asked at n0
    "#]]
    .assert_eq(&parts.text());
    let printed = serde_json::to_value(&parts).unwrap();
    assert_eq!((&printed["parts"], &printed["outcome"]), (&json!(40), &json!("done")));
    let carried = of(r#"{"keys": 7, "bytes": 70}"#);
    assert_eq!(serde_json::to_value(&carried).unwrap()["parts"], json!(null));
    let mut long = done("{}");
    long.lasted(Duration::from_millis(83_400));
    let text = Moved::of("shop".to_owned(), &main, (0, 2), long).text();
    assert_eq!(text, "main: keys moved from partition 0 to 2; took 83.4 s, asked at n0\n");
}

#[test]
fn ranges_are_a_table() {
    let of = |ranges: serde_json::Value| Ranges {
        cluster: "shop".to_owned(),
        keyspace: "main".to_owned(),
        asked: "n0".to_owned(),
        ranges: serde_json::from_value(ranges).unwrap(),
    };
    let ring = json!([
        {"first": "0000000000000000", "last": "5555555555555555", "partition": 2, "version": 1},
        {"first": "5555555555555556", "last": "ffffffffffffffff", "partition": 1, "moving_to": 0, "version": 12},
    ]);
    expect![[r#"
        main, as n0 knows it
          first             last              partition  moves to  version
          0000000000000000  5555555555555555          2         -        1
          5555555555555556  ffffffffffffffff          1         0       12
    "#]]
    .assert_eq(&of(ring).text());
    let keys = of(json!([
        {"first_key": "", "end_key": "m\u{1b}", "partition": 0, "version": 0},
        {"first_key": "m\u{1b}", "end_key": null, "partition": 1, "version": 0},
    ]));
    expect![[r#"
        main, as n0 knows it
          first key  end key    partition  moves to  version
          ""         "m\u{1b}"          0         -        0
          "m\u{1b}"  -                  1         -        0
    "#]]
    .assert_eq(&keys.text());
    let printed = serde_json::to_value(&keys).unwrap();
    assert_eq!(printed["ranges"][1], json!({"first_key": "m\u{1b}", "partition": 1, "version": 0}));
}

#[test]
fn what_came_of_an_order_is_what_the_node_says_and_never_more() {
    let of = |answer: Answer| Ended::of(&given(answer)).map(|ended| (ended.outcome, ended.held("look")));
    for (status, text) in [(200, "done"), (202, "stopping")] {
        let (outcome, held) = of(said(status, text)).unwrap();
        assert!(outcome == Outcome::Done && held.is_ok(), "{status} {text}");
    }
    let cases = [
        (409, "this replica does not lead", Outcome::Refused, "n0 at n0:9000: this replica does not lead"),
        (409, "", Outcome::Refused, "n0 at n0:9000: no word"),
        (409, "no answer; it may still happen", Outcome::Unknown, "given to nobody else; look"),
        (
            409,
            "partition 0: done; partition 1: n0/k1 was stopped; it may still happen",
            Outcome::Unknown,
            "look",
        ),
        (
            409,
            "no answer in time; what was begun is ended by whoever needs it",
            Outcome::Unknown,
            "the order may still be carried out",
        ),
        (401, "send the header", Outcome::Refused, "the token is not that with which this node was started"),
        (
            403,
            "started without an administration token",
            Outcome::Refused,
            "start the node, or `isochrone up`, with ISOCHRONE_ADMIN_TOKEN",
        ),
        (
            403,
            "administration is served on loopback only",
            Outcome::Refused,
            "run this on the node's own machine",
        ),
        (503, "reading the journal", Outcome::Refused, "give the order again when it serves"),
        (404, "not found", Outcome::Refused, "n0 at n0:9000: not found\n  is that a node of this version?"),
    ];
    for (status, text, outcome, expected) in cases {
        let (found, held) = of(said(status, text)).unwrap();
        let error = held.unwrap_err();
        assert!(found == outcome && error.to_string().contains(expected), "{status} {text}: {error}");
        assert!(!error.is::<crate::Usage>());
    }
    let (outcome, held) = of(Answer::Lost("connection closed".to_owned())).unwrap();
    assert!(outcome == Outcome::Unknown && held.is_err());
    let error = of(said(400, "there is no node \"n9\"")).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("n0 at n0:9000: there is no node \"n9\""));
}

#[test]
fn who_has_nobody_to_pass_an_order_on_to_is_not_the_only_one_to_give_it_to() {
    let of = |text, nodes: &[&str]| no_leader(&given(said(409, text)), &names(nodes));
    assert_eq!(
        of("this replica does not lead", &["n1", "n0", "n2"]),
        "\n  it may have no link to who leads; give this order on the machine of n1 or n2"
    );
    assert_eq!(of("this replica does not lead", &["n0"]), "");
    assert_eq!(of("n9 has no copy", &["n0", "n1"]), "");
    assert_eq!(no_leader(&given(Answer::Lost("closed".to_owned())), &names(&["n1"])), "");
}

#[test]
fn members_are_in_one_order_before_and_behind() {
    let tells = |members: &[&str]| -> Told {
        let keyspaces = json!([{"name": "main", "leaders": ["va1"], "members": [members]}]);
        serde_json::from_value(json!({"cluster": "shop", "node": "va1", "keyspaces": keyspaces})).unwrap()
    };
    let told = tells(&["va1", "or1"]);
    let view = View::of(&[Asked { name: None, http: None, answer: Ok(told) }], None);
    let now = tells(&["va1", "or1", "fr1"]);
    let partition = Partition::of(0, "main", view.keyspaces.first(), Some(&now));
    assert_eq!(partition.members_before, ["or1", "va1"]);
    assert_eq!(partition.members, ["fr1", "or1", "va1"]);
}

#[test]
fn a_node_that_was_stopped_may_run_again() {
    let of = |runs_again| {
        let (cluster, node) = ("shop".to_owned(), "n1".to_owned());
        Stopped { order: "stop", cluster, node, ended: done("it has stopped"), runs_again }.text()
    };
    assert_eq!(of(false), "n1 has stopped; took 8.20 ms\n");
    assert_eq!(of(true), "n1 has stopped, and whoever supervises it has started it again; took 8.20 ms\n");
}

#[test]
fn who_cannot_be_given_an_order_is_told_with_where_to_give_it() {
    let silent = |node: &str, why: &str| Asked {
        name: Some((node.to_owned(), "R".to_owned())),
        http: Some(format!("{node}:9000")),
        answer: Err(why.to_owned()),
    };
    let asked = [silent("n2", "Connection refused (os error 111)")];
    let (n0, n1) = (place("n0"), place("n1"));
    let tried = [(&n0, &Unsent::Nobody), (&n1, &Unsent::Elsewhere)];
    let words = |text: &str| names(&text.split(' ').collect::<Vec<_>>());
    let command = words("move-leader cluster.toml --to n1");
    expect![[r#"
        nobody who could take this order is reached from here; nothing was sent
          n0, n0:9000: nobody listens there any more
          n1, n1:9000: it is on another machine
          n2, n2:9000: Connection refused (os error 111)
          n3: it was not asked
          a node takes orders from its own machine only; on that of n1 run: isochrone move-leader cluster.toml --to n1"#]]
    .assert_eq(&nobody(&names(FOUR), &tried, &asked, &command));
    let text = nobody(&names(&["n0"]), &tried, &asked, &command);
    assert!(text.ends_with("\n  start one of them"), "{text}");

    // Who was asked by --http is not the one to ask.
    let by_http = words("move-leader --http 127.0.0.1:9000 --to n1 --http=127.0.0.1:9001");
    let right = |node: &str| {
        let text = nobody(&names(&[node]), &tried, &asked, &by_http);
        text.rsplit_once(" run: ").map(|(_, command)| command.to_owned())
    };
    assert_eq!(right("n1").as_deref(), Some("isochrone move-leader --to n1 --http n1:9000"));
    let unknown = "isochrone move-leader --to n1 --http HOST:PORT, where its `http` is";
    assert_eq!(right("n3").as_deref(), Some(unknown));
}

#[test]
fn who_is_to_lead_and_is_no_member_is_named_with_those_who_are() {
    let keyspaces =
        json!([{"name": "main", "leaders": ["n0", "n1"], "members": [["n0", "n1"], ["n1", "n2"]]}]);
    let told = json!({"cluster": "shop", "node": "n0", "keyspaces": keyspaces});
    let told: Told = serde_json::from_value(told).unwrap();
    let view = View::of(&[Asked { name: None, http: None, answer: Ok(told) }], None);
    let shown = view.keyspaces.first();
    let text = "\n  n2 is no member now; those who could lead are n0, n1";
    assert_eq!(no_member("n2", shown, &[0]), text);
    assert_eq!(no_member("n2", shown, &[0, 1]), text, "of the partition where it is none");
    assert_eq!(no_member("n1", shown, &[0, 1]), "");
    assert_eq!(no_member("n1", None, &[0]), "");
}

#[test]
fn a_command_is_told_as_a_shell_takes_it() {
    let file = Some("cluster.toml".into());
    let target = Target { file, http: Vec::new(), token_file: None, format: Format::Text };
    assert_eq!(listed(&target, "a b"), "isochrone range list cluster.toml --keyspace 'a b'");
}
