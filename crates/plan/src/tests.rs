//! The plan of ready-made deployments.

use std::collections::BTreeMap;
use std::path::Path;

use expect_test::expect;
use isochrone_core::deployment::Known;
use isochrone_core::{Deployment, Guarantee, KeyspaceId, Matrix, RegionId, Span};

use crate::{Demand, Plan, plan};

const MAIN: KeyspaceId = KeyspaceId(1);

fn planned(deployment: &Deployment) -> Plan {
    plan(deployment, MAIN, &Demand::of(deployment)).unwrap()
}

fn ready_made(name: &str) -> Deployment {
    let path = format!("{}/../../deployments/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let known = Known::names(&["multipaxos"]).placing(&["carousel-fast"]);
    Deployment::load(Path::new(&path), &known).unwrap()
}

#[test]
fn the_table_of_five_regions() {
    expect![[r#"
        keyspace "main", 5 replicas: US West, US East, Euro, Asia, Australia
        2 may crash; a decision in two message delays is possible after 2 crashes at most
        commit latency without load, by region of the client, ms

                                                      US West  US East    Euro    Asia  Australia    mean
        floor                                           102.0     88.0   161.0   115.0      161.0   125.4
        epaxos, no conflict                             102.0     88.0   166.0   115.0      161.0   126.4
        sdpaxos, sequencer US West, reply = commit      102.0     88.0   166.0   115.0      161.0   126.4
        mencius, others busy, at least                  102.0     88.0   166.0   115.0      161.0   126.4
        domino, reply = commit                          102.0     88.0   166.0   115.0      161.0   126.4
        sdpaxos, sequencer US East, reply = commit      102.0     88.0   166.0   172.0      205.0   146.6
        sdpaxos, sequencer Asia, reply = commit         102.0    172.0   235.0   115.0      161.0   157.0
        curp-consensus, leader US East                  161.0     88.0   176.0   172.0      205.0   160.4
        curp-consensus, leader US West                  102.0    172.0   235.0   172.0      205.0   177.2
        curp, leader Asia                               102.0    172.0   235.0   172.0      205.0   177.2
        curp-consensus, leader Asia                     161.0    172.0   235.0   115.0      205.0   177.6
        sdpaxos, sequencer Australia, reply = commit    161.0    205.0   290.0   115.0      161.0   186.4
        curp, leader US East                            161.0     88.0   166.0   235.0      290.0   188.0
        sdpaxos, sequencer Euro, reply = commit         166.0     88.0   166.0   235.0      290.0   189.0
        curp, leader US West                            166.0     88.0   166.0   235.0      290.0   189.0
        curp, leader Euro                               166.0     88.0   166.0   235.0      290.0   189.0
        fastpaxos, no collision, reply = commit         161.0    172.0   235.0   172.0      205.0   189.0
        fastpaxos, no collision, reply = execute        161.0    172.0   235.0   172.0      205.0   189.0
        multipaxos, leader US East                      161.0     88.0   176.0   260.0      293.0   195.6
        curp-consensus, leader Australia                161.0    205.0   290.0   172.0      161.0   197.8
        multipaxos, leader US West                      102.0    175.0   268.0   204.0      263.0   202.4
        curp-consensus, leader Euro                     166.0    172.0   166.0   235.0      290.0   205.8
        curp, leader Australia                          161.0    205.0   290.0   172.0      205.0   206.6
        mencius, others idle, at most                   166.0    205.0   290.0   235.0      290.0   237.2
        multipaxos, leader Asia                         217.0    287.0   350.0   115.0      230.0   239.8
        epaxos, conflict, reply = execute, at least     204.0    176.0   332.0   230.0      322.0   252.8
        domino, reply = execute, at most                195.0    200.5   321.0   242.5      316.0   255.0
        multipaxos, leader Australia                    322.0    366.0   451.0   276.0      161.0   315.2
        multipaxos, leader Euro                         332.0    254.0   166.0   401.0      456.0   321.8

        each client is on a machine of its own, a round trip within its region from a replica there

        recommended: epaxos, 1.0 ms over the mean floor
          the lowest mean, with sdpaxos with US West and reply = "commit" as low; with interfering commands epaxos is slower than that
        configured:  multipaxos, leader US East, 69.2 ms slower
    "#]]
    .assert_eq(&planned(&Deployment::five_regions()).to_string());
}

#[test]
fn the_table_of_domino_in_north_america() {
    expect![[r#"
        keyspace "main", 3 replicas: WA, VA, QC
        1 may crash; a decision in two message delays is possible after 1 crash at most
        commit latency without load, by region of the client, ms

                                                         VA      TX      CA      IA      WA      WY      IL      QC     TRT    mean
        floor                                          38.0    42.0    59.0    31.0    66.0    45.0    26.0    38.0    29.0    41.6
        domino, reply = commit                         38.0    51.0    67.0    36.0    67.0    46.0    43.0    38.0    49.0    48.3
        curp-consensus, leader QC                      67.0    51.0    67.0    36.0    68.0    46.0    43.0    38.0    49.0    51.7
        curp-consensus, leader VA                      38.0    51.0    67.0    36.0    68.0    46.0    43.0    68.0    57.0    52.7
        curp-consensus, leader WA                      67.0    51.0    67.0    36.0    67.0    46.0    43.0    68.0    57.0    55.8
        curp, leader WA                                67.0    51.0    67.0    36.0    68.0    46.0    43.0    68.0    57.0    55.9
        curp, leader VA                                67.0    51.0    67.0    36.0    68.0    46.0    43.0    68.0    57.0    55.9
        curp, leader QC                                67.0    51.0    67.0    36.0    68.0    46.0    43.0    68.0    57.0    55.9
        fastpaxos, no collision, reply = commit        67.0    51.0    67.0    36.0    68.0    46.0    43.0    68.0    57.0    55.9
        epaxos, no conflict                            38.0    65.0    90.0    69.0    67.0    88.0    61.0    38.0    49.0    62.8
        epaxos, conflict, reply = execute, at least    38.0    65.0    90.0    69.0    67.0    88.0    61.0    38.0    49.0    62.8
        sdpaxos, sequencer VA, reply = commit          38.0    65.0    90.0    69.0    67.0    88.0    61.0    38.0    49.0    62.8
        mencius, others busy, at least                 38.0    65.0    90.0    69.0    67.0    88.0    61.0    38.0    49.0    62.8
        sdpaxos, sequencer QC, reply = commit          38.0    65.0    91.0    69.0    68.0    89.0    61.0    38.0    49.0    63.1
        fastpaxos, no collision, reply = execute       67.0    68.0    79.0    67.0    68.0    67.0    67.0    68.0    68.0    68.8
        multipaxos, leader VA                          38.0    65.0    97.0    69.0   105.0    84.0    64.0    76.0    67.0    73.9
        multipaxos, leader QC                          76.0    89.0   105.0    70.0   106.0    84.0    61.0    38.0    49.0    75.3
        sdpaxos, sequencer WA, reply = commit          67.0    94.0    90.0    98.0    67.0    88.0    91.0    68.0    79.0    82.4
        mencius, others idle, at most                  67.0    94.0    91.0    98.0    68.0    89.0    91.0    68.0    79.0    82.8
        domino, reply = execute, at most               81.5    90.5    97.0    85.0   111.0    85.5    85.0    82.0    93.0    90.1
        multipaxos, leader WA                         134.0   109.0    90.0   103.0    67.0    88.0   110.0   135.0   124.0   106.7

        each client is on a machine of its own, a round trip within its region from a replica there

        recommended: curp-consensus, leader QC, 10.1 ms over the mean floor
          the lowest mean; curp with WA comes next, 4.2 ms more
        sequenced:   domino with reply = "commit", 3.3 ms faster
          its answers say that a command has its place; results come later
        placement:   epaxos, replicas in IA, WY, IL
          mean 24.4 ms, 27.2 ms less than where the replicas stand now
        configured:  multipaxos, leader WA, 55.0 ms slower
    "#]].assert_eq(&planned(&ready_made("domino-na")).to_string());
}

#[test]
fn clients_weigh_the_means() {
    let deployment = Deployment::five_regions();
    let demand = Demand { clients: vec![0, 0, 3, 0, 1], conflict: 0.0 };
    expect![[r#"
        keyspace "main", 5 replicas: US West, US East, Euro, Asia, Australia
        2 may crash; a decision in two message delays is possible after 2 crashes at most
        commit latency without load, by region of the client, ms

                                                      US West  US East    Euro    Asia  Australia    mean
        clients                                             0        0       3       0          1
        floor                                           102.0     88.0   161.0   115.0      161.0   161.0
        epaxos, no conflict                             102.0     88.0   166.0   115.0      161.0   164.8
        sdpaxos, sequencer US West, reply = commit      102.0     88.0   166.0   115.0      161.0   164.8
        mencius, others busy, at least                  102.0     88.0   166.0   115.0      161.0   164.8
        domino, reply = commit                          102.0     88.0   166.0   115.0      161.0   164.8
        sdpaxos, sequencer US East, reply = commit      102.0     88.0   166.0   172.0      205.0   175.8
        curp-consensus, leader US East                  161.0     88.0   176.0   172.0      205.0   183.2
        sdpaxos, sequencer Euro, reply = commit         166.0     88.0   166.0   235.0      290.0   197.0
        curp-consensus, leader Euro                     166.0    172.0   166.0   235.0      290.0   197.0
        curp, leader US West                            166.0     88.0   166.0   235.0      290.0   197.0
        curp, leader US East                            161.0     88.0   166.0   235.0      290.0   197.0
        curp, leader Euro                               166.0     88.0   166.0   235.0      290.0   197.0
        multipaxos, leader US East                      161.0     88.0   176.0   260.0      293.0   205.2
        sdpaxos, sequencer Asia, reply = commit         102.0    172.0   235.0   115.0      161.0   216.5
        curp-consensus, leader US West                  102.0    172.0   235.0   172.0      205.0   227.5
        curp-consensus, leader Asia                     161.0    172.0   235.0   115.0      205.0   227.5
        curp, leader Asia                               102.0    172.0   235.0   172.0      205.0   227.5
        fastpaxos, no collision, reply = commit         161.0    172.0   235.0   172.0      205.0   227.5
        fastpaxos, no collision, reply = execute        161.0    172.0   235.0   172.0      205.0   227.5
        multipaxos, leader Euro                         332.0    254.0   166.0   401.0      456.0   238.5
        sdpaxos, sequencer Australia, reply = commit    161.0    205.0   290.0   115.0      161.0   257.8
        curp-consensus, leader Australia                161.0    205.0   290.0   172.0      161.0   257.8
        multipaxos, leader US West                      102.0    175.0   268.0   204.0      263.0   266.8
        curp, leader Australia                          161.0    205.0   290.0   172.0      205.0   268.8
        mencius, others idle, at most                   166.0    205.0   290.0   235.0      290.0   290.0
        domino, reply = execute, at most                195.0    200.5   321.0   242.5      316.0   319.8
        multipaxos, leader Asia                         217.0    287.0   350.0   115.0      230.0   320.0
        epaxos, conflict, reply = execute, at least     204.0    176.0   332.0   230.0      322.0   329.5
        multipaxos, leader Australia                    322.0    366.0   451.0   276.0      161.0   378.5

        each client is on a machine of its own, a round trip within its region from a replica there

        recommended: epaxos, 3.8 ms over the mean floor
          the lowest mean, with sdpaxos with US West and reply = "commit" as low; with interfering commands epaxos is slower than that
        configured:  multipaxos, leader US East, 40.5 ms slower
    "#]]
    .assert_eq(&plan(&deployment, MAIN, &demand).unwrap().to_string());
}

#[test]
fn interference_moves_the_choice_away_from_epaxos() {
    let (matrix, replicas) = crate::oracle::domino_globe(&["VA", "WA", "PR", "NSW", "SG"]);
    let deployment = Deployment::of_matrix(matrix, "epaxos", &replicas);
    let choice = |conflict| {
        let demand = Demand { conflict, ..Demand::of(&deployment) };
        let plan = plan(&deployment, MAIN, &demand).unwrap();
        assert!(plan.protocols.is_sorted_by_key(|row| row.mean_ms), "what is sorted by is shown:\n{plan}");
        let best = plan.recommended;
        format!("{best}, {:.1} ms: {}\n", best.mean_ms.unwrap(), best.reason)
    };
    expect![[r#"
        epaxos, 143.3 ms: the lowest mean; sdpaxos with WA and reply = "commit" comes next, 4.7 ms more; with more than 1.0% of interfering commands that may be faster
        sdpaxos, sequencer WA with reply = "commit", 148.0 ms: the lowest mean; epaxos comes next, at most 5.1 ms more; so soon it answers SET and MSET alone, and with reply = "commit" only; all else waits for what other regions write
        sdpaxos, sequencer WA with reply = "commit", 148.0 ms: the lowest mean; curp-consensus with VA comes next, 36.6 ms more; so soon it answers SET and MSET alone, and with reply = "commit" only; all else waits for what other regions write
    "#]].assert_eq(&[0.0, 2.0, 50.0].map(choice).concat());
}

/// A little interference costs a little, and EPaxos is recommended up to the share that the plan without any names.
#[test]
fn a_little_interference_does_not_turn_the_choice() {
    let (matrix, replicas) = crate::oracle::domino_globe(&["VA", "WA", "PR", "NSW", "SG"]);
    let deployment = Deployment::of_matrix(matrix, "epaxos", &replicas);
    let of = |conflict: f64| {
        let demand = Demand { conflict, ..Demand::of(&deployment) };
        plan(&deployment, MAIN, &demand).unwrap()
    };
    let free = of(0.0).recommended;
    let (_, behind) = free.reason.split_once("with more than ").unwrap();
    let share: f64 = behind.split_once('%').unwrap().0.parse().unwrap();
    assert!(share > 0.5, "{free}: {}", free.reason);
    let half = of(share / 2.0);
    assert_eq!(half.recommended.protocol, "epaxos", "{half}");
    assert_eq!(half.configured.mean_ms, half.recommended.mean_ms, "{half}");
    assert_ne!(of(share * 1.5).recommended.protocol, "epaxos");
    let mut last = free.mean_ms.unwrap();
    for step in 0..=50 {
        let mean = of(f64::from(step) / 10.0).recommended.mean_ms.unwrap();
        assert!((last..last + 1.0).contains(&mean), "{mean} ms behind {last} ms in step {step}");
        last = mean;
    }
}

/// Of five regions, three partitions: what the rows of leaders are is said above them.
#[test]
fn that_rows_of_leaders_are_means_over_partitions_is_said() {
    let five = Deployment::five_regions();
    let said =
        "rows with a leader: the mean over the 3 partitions, led by the replicas in turn from that one on\n";
    assert!(!planned(&five).to_string().contains("rows with a leader"));
    let plan = planned(&five.with_partitions(MAIN, 3).unwrap());
    assert!(plan.to_string().contains(said), "{plan}");
    assert!(!plan.recommended.reason.contains("partitions"), "{plan}");
}

#[test]
fn the_json_keeps_its_contract() {
    let json = serde_json::to_value(planned(&Deployment::five_regions())).unwrap();
    assert_eq!(json["floor_ms"]["US East"], 88.0);
    assert_eq!(json["clients"]["Euro"], 1);
    let rows = json["protocols"].as_array().unwrap();
    let row = |protocol: &str, leader: serde_json::Value| {
        rows.iter().find(|row| row["protocol"] == protocol && row["leader"] == leader).unwrap().clone()
    };
    let paxos = row("multipaxos", "US East".into());
    assert_eq!(paxos["regions"][4]["region"], "Australia");
    assert_eq!(paxos["regions"][4]["commit_ms"], 293.0);
    assert_eq!(paxos["mean_ms"], 195.6);
    assert_eq!(paxos["guarantee"], "linearizable");
    assert_eq!(row("domino", serde_json::Value::Null)["guarantee"], "sequenced");
    let means: Vec<f64> = rows.iter().map(|row| row["mean_ms"].as_f64().unwrap()).collect();
    assert!(means.is_sorted(), "{means:?}");
    for protocol in ["multipaxos", "curp-consensus", "mencius", "fastpaxos", "epaxos", "sdpaxos", "domino"] {
        assert!(rows.iter().any(|row| row["protocol"] == protocol), "{protocol}");
    }
    assert_eq!(json["configured"]["mean_ms"], 195.6);
    assert!(json["recommended"]["reason"].as_str().unwrap().contains("lowest mean"));
}

#[test]
fn a_configured_leader_that_is_slower_is_said() {
    let deployment = Deployment::five_regions().with_leader(MAIN, "Euro").unwrap();
    let plan = planned(&deployment);
    // (332 + 254 + 166 + 401 + 456) / 5
    assert_eq!(plan.configured.mean_ms, Some(321.8));
    let slower = 321.8 - plan.recommended.mean_ms.unwrap();
    let text = plan.to_string();
    let last = text.lines().last().unwrap();
    assert_eq!(last, format!("configured:  multipaxos, leader Euro, {slower:.1} ms slower"));
}

#[test]
fn of_a_protocol_without_a_closed_form_it_is_said_that_there_is_none() {
    let five = Deployment::five_regions().with_protocol(MAIN, "chain", &Known::names(&["chain"])).unwrap();
    let text = planned(&five).to_string();
    assert!(text.ends_with("\nconfigured:  chain, no closed form known\n"), "{text}");
}

#[test]
fn what_is_configured_of_domino_is_its_answer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments");
    let text = std::fs::read_to_string(format!("{folder}/five-regions.toml")).unwrap();
    for (reply, mean) in [("", 255.0), ("\nparameters = { reply = \"commit\" }", 126.4)] {
        let text = text.replace("protocol = \"multipaxos\"", &format!("protocol = \"domino\"{reply}"));
        let deployment = Deployment::parse(&text, "x.toml", Path::new(folder), &Known::names(&["domino"]));
        let plan = planned(&deployment.unwrap());
        assert_eq!(plan.configured.mean_ms, Some(mean), "{reply}");
    }
}

/// As `isochrone sim` takes; from US West to Euro and back by way of US East is shorter than straight.
#[test]
fn fast_paxos_is_planned_for_both_answers() {
    let plan = planned(&ready_made("three-regions"));
    let rows = plan.protocols.iter().filter(|row| row.protocol == "fastpaxos");
    let row = |row: &crate::Forecast| {
        let waits: Vec<_> = row.regions.iter().map(|region| region.commit_ms).collect();
        assert!(!row.ranked);
        (row.label(), row.guarantee, waits)
    };
    let named =
        |coordinator: &str, reply: &str| format!("fastpaxos{coordinator}, no collision, reply = {reply}");
    let (straight, around) = (vec![166.0, 88.0, 166.0], vec![163.5, 88.0, 163.5]);
    assert_eq!(
        rows.map(row).collect::<Vec<_>>(),
        [
            (named(", leader US East", "commit"), Guarantee::Sequenced, around.clone()),
            (named("", "execute"), Guarantee::Linearizable, around),
            (named(", leader US West", "commit"), Guarantee::Sequenced, straight.clone()),
            (named(", leader Euro", "commit"), Guarantee::Sequenced, straight),
        ]
    );
}

/// With its default it is as fast only while no other region writes, so a plan names what it has to be told.
#[test]
fn sdpaxos_is_planned_with_answers_at_commit() {
    let text = |settings: &[(&str, &str)]| {
        let settings: Vec<_> =
            settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let five = Deployment::five_regions().with_protocol(MAIN, "sdpaxos", &Known::names(&["sdpaxos"]));
        planned(&five.unwrap().with_parameters(MAIN, &settings).unwrap()).to_string()
    };
    let alone = "configured:  sdpaxos, sequencer US West, 0.0 ms slower\n  \
                 of a client alone: so soon it answers SET and MSET alone, and with reply = \"commit\" only; all else waits for \
                 what other regions write\n";
    let (by_default, at_commit) = (text(&[]), text(&[("reply", "commit")]));
    assert!(by_default.ends_with(alone), "{by_default}");
    assert!(!at_commit.contains("configured:"), "{at_commit}");
}

#[test]
fn partitions_are_led_in_turn_and_the_mean_is_over_them() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml"));
    let text =
        text.unwrap().replace("protocol = \"multipaxos\"", "protocol = \"multipaxos\"\npartitions = 3");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments");
    let deployment = Deployment::parse(&text, "x.toml", Path::new(folder), &Known::names(&["multipaxos"]));
    let plan = planned(&deployment.unwrap());
    let means = plan.protocols.iter().filter(|row| row.protocol == "multipaxos").map(|row| row.mean_ms);
    let means: Vec<f64> = means.collect();
    assert_eq!(means.len(), 3);
    let mean = plan.configured.mean_ms.unwrap();
    assert!((mean - means.iter().sum::<f64>() / 3.0).abs() < 1e-9, "{mean} of {means:?}");
}

/// One replica of `curp` grows into three by naming spares, which serve at once: what clients wait is that of three. The
/// spares of other protocols wait to be added.
#[test]
fn the_spares_of_curp_count_as_replicas() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml"));
    let protocol = "protocol = \"multipaxos\"";
    let begun = text.unwrap().replace("replication = 3", "replicas = [\"us-east\"]\nparameters = SPARES");
    let planned_of = |name: &'static str, text: String| {
        let text = text.replace(protocol, &format!("protocol = {name:?}"));
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments");
        planned(&Deployment::parse(&text, "x.toml", Path::new(folder), &Known::names(&[name])).unwrap())
    };
    let grown = |name: &'static str| {
        let plan = planned_of(name, begun.replace("SPARES", "{ spares = \"us-west, euro\" }"));
        let row = plan.protocols.iter().find(|row| row.label() == "curp, leader US East").unwrap();
        let waits: Vec<_> = row.regions.iter().map(|region| region.commit_ms).collect();
        (plan.replicas.len(), plan.crashes, waits, plan.configured.leader)
    };
    let led = Some("US East".to_owned());
    assert_eq!(grown("curp"), (3, 1, vec![161.0, 88.0, 166.0], led.clone()));
    assert_eq!(grown("multipaxos"), (1, 0, vec![73.0, 0.0, 88.0], led));
}

/// Five regions under `curp` with these parameters.
fn of_curp(settings: &[(&str, &str)]) -> Deployment {
    let settings: Vec<_> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let five = Deployment::five_regions().with_protocol(MAIN, "curp", &Known::names(&["curp"])).unwrap();
    five.with_parameters(MAIN, &settings).unwrap()
}

#[test]
fn curp_is_planned_with_the_copies_that_its_keyspace_has() {
    let waits = |deployment: &Deployment| {
        let plan = planned(deployment);
        let led = |row: &&crate::Forecast| row.protocol == "curp" && row.leader.as_deref() == Some("US East");
        let row = plan.protocols.iter().find(led).unwrap();
        row.regions.iter().map(|region| region.commit_ms).collect::<Vec<_>>()
    };
    let two = [161.0, 88.0, 166.0, 235.0, 290.0];
    assert_eq!(waits(&of_curp(&[])), two);
    // Nobody but the master; a copy in US West; copies in US West, Euro and Asia.
    assert_eq!(waits(&of_curp(&[("f", "0")])), [73.0, 0.0, 88.0, 172.0, 205.0]);
    assert_eq!(waits(&of_curp(&[("f", "1")])), [73.0, 73.0, 161.0, 172.0, 205.0]);
    assert_eq!(waits(&of_curp(&[("f", "3")])), [166.0, 172.0, 235.0, 235.0, 290.0]);
    // Whatever is asked waits for the farther of two backups, which is 88 ms from the master.
    let synced = [("always_synced", "true")];
    assert_eq!(waits(&of_curp(&synced)), [161.0, 88.0, 176.0, 260.0, 293.0]);
    // Of a keyspace that has another protocol, that one's parameters say nothing of CURP.
    let settings = [("f".to_owned(), "1".to_owned())];
    assert_eq!(waits(&Deployment::five_regions().with_parameters(MAIN, &settings).unwrap()), two);

    let leads = |settings: &[(&str, &str)]| {
        let configured = planned(&of_curp(settings)).configured;
        (configured.leader.unwrap(), configured.mean_ms.unwrap())
    };
    assert_eq!(leads(&[]), ("Asia".to_owned(), 177.2));
    // (73 + 73 + 161 + 172 + 205) / 5, and (161 + 88 + 176 + 260 + 293) / 5
    assert_eq!(leads(&[("f", "1")]), ("US East".to_owned(), 136.8));
    assert_eq!(leads(&synced), ("US East".to_owned(), 195.6));
}

/// The floor is that of what survives any minority, which fewer copies do not.
#[test]
fn curp_is_recommended_only_where_it_survives_as_many_crashes_as_others() {
    for f in 0..=4 {
        let copies = f.to_string();
        let plan = planned(&of_curp(&[("f", copies.as_str())]));
        let text = plan.to_string();
        let short = f < 2;
        let mut rows = plan.protocols.iter().filter(|row| row.protocol == "curp" && row.f.is_none());
        let case = short.then(|| format!("survives {f}"));
        assert!(rows.all(|row| row.case == case), "f = {f}:\n{text}");
        // Beside them it is shown with as many copies as are needed.
        let enough: Vec<_> = plan.protocols.iter().filter_map(|row| row.f).collect();
        assert_eq!(enough, if short { vec![2; 5] } else { vec![] }, "f = {f}:\n{text}");
        for row in plan.protocols.iter().filter(|row| !(short && row.protocol == "curp" && row.f.is_none())) {
            let mut cells = row.regions.iter().zip(&plan.floor_ms);
            assert!(cells.all(|(region, (_, floor))| region.commit_ms >= *floor), "f = {f}: {row:?}");
        }
        assert!(plan.recommended.mean_ms.unwrap() >= plan.floor_mean_ms, "f = {f}:\n{text}");
        assert!(!short || plan.recommended.protocol != "curp", "f = {f}:\n{text}");
        let comparable = "not recommended; parameters = { f = 2 } makes it comparable";
        assert_eq!(plan.configured.reason.contains(comparable), short, "f = {f}:\n{text}");
        let first = format!("2 may crash ({f} under curp as configured);");
        assert_eq!(text.contains(&first), short, "f = {f}:\n{text}");
        assert!(plan.placement.is_none_or(|better| better.protocol != "curp"), "f = {f}:\n{text}");
    }
}

/// Two copies, the default, are not enough for seven replicas.
#[test]
fn of_seven_replicas_curp_is_planned_with_as_many_copies_as_they_need() {
    let (matrix, replicas) = crate::oracle::domino_na(&["VA", "TX", "IA", "WA", "WY", "IL", "QC"]);
    let plan_of = |protocol: &str| {
        let deployment = Deployment::of_matrix(matrix.clone(), protocol, &replicas);
        let mut clients = vec![0; matrix.len()];
        for name in ["VA", "TX"] {
            clients[usize::from(matrix.region(name).unwrap().0)] = 1;
        }
        plan(&deployment, MAIN, &Demand { clients, conflict: 0.0 }).unwrap()
    };
    let waits = |plan: &Plan, label: &str| {
        let row = plan.protocols.iter().find(|row| row.label() == label).unwrap();
        [0, 1].map(|region| row.regions[region].commit_ms)
    };
    // With VA, TX and IA as copies: 31 ms from VA to IA, 30 from TX to IL.
    assert_eq!(waits(&plan_of("multipaxos"), "curp, leader IL, f = 3"), [31.0, 30.0]);
    let own = plan_of("curp");
    assert_eq!(waits(&own, "curp, leader IL, survives 2"), [27.0, 30.0]);
    assert_eq!(waits(&own, "curp, leader IL, f = 3"), [31.0, 30.0]);
    let short = "with f = 2 it survives the loss of 2 replicas, the others that of 3: not recommended; parameters = { f = 3 } \
                 makes it comparable";
    assert_eq!(own.configured.reason, short, "{own}");
    assert_eq!(own.configured.f, Some(2), "{own}");
    // What is recommended says what it needs, also of a keyspace that has fewer copies.
    for best in [plan_of("multipaxos").recommended, own.recommended] {
        assert_eq!((best.to_string().as_str(), best.mean_ms), ("curp, leader IL with f = 3", Some(30.5)));
        assert_eq!(serde_json::to_value(&best).unwrap()["f"], 3);
    }
}

#[test]
fn a_file_may_ask_curp_to_survive_as_many_regions_as_it_has_copies() {
    let survives = |survive: usize| {
        let places: String = (0..7)
            .map(|at| {
                format!("[[region]]\nname = \"R{at}\"\n[[node]]\nname = \"n{at}\"\nregion = \"R{at}\"\n")
            })
            .collect();
        let keyspace = "[[keyspace]]\nname = \"main\"\nprotocol = \"curp\"\nreplication = 7\n";
        let text = format!("{places}{keyspace}survive = {survive}\n");
        Deployment::parse(&text, "x.toml", Path::new(""), &Known::names(&["curp"])).is_ok()
    };
    let default = isochrone_core::deployment::CURP_COPIES;
    assert_eq!([default, default + 1].map(survives), [true, false]);
}

/// A replica that leads the first partition leads few of the others: what it reaches is the mean over them, also where it is
/// recommended.
#[test]
fn who_leads_partitions_is_compared_by_the_mean_over_all_of_them() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments");
    let text = std::fs::read_to_string(format!("{folder}/five-regions.toml")).unwrap();
    let protocol = "protocol = \"multipaxos\"";
    let text = text.replace(protocol, &format!("{protocol}\npartitions = 3"));
    let deployment = Deployment::parse(&text, "x.toml", Path::new(folder), &Known::names(&["multipaxos"]));
    let deployment = deployment.unwrap().with_leader(MAIN, "Euro").unwrap();
    let demand = Demand { clients: vec![0, 0, 1, 0, 0], conflict: 0.0 };
    let plan = plan(&deployment, MAIN, &demand).unwrap();
    let row = |leader: &str| {
        let led =
            |row: &&crate::Forecast| row.protocol == "multipaxos" && row.leader.as_deref() == Some(leader);
        plan.protocols.iter().find(led).unwrap()
    };
    // Led from Euro, Asia and Australia: 166, 350 and 451 ms.
    let mean = (166.0 + 350.0 + 451.0) / 3.0;
    assert!((row("Euro").mean_ms - mean).abs() < 1e-5, "{plan}");
    assert!((row("Euro").regions[2].commit_ms - mean).abs() < 1e-5, "{plan}");
    assert_eq!(plan.configured.mean_ms, Some(row("Euro").mean_ms), "{plan}");
    // From US West on: 268, 176 and 166.
    assert!((row("US West").mean_ms - (268.0 + 176.0 + 166.0) / 3.0).abs() < 1e-5, "{plan}");
    assert!(plan.recommended.mean_ms <= plan.configured.mean_ms, "{plan}");
    assert!(plan.placement.is_none(), "all regions have a replica: {plan}");
}

#[test]
fn epaxos_is_planned_with_a_second_round_trip_where_there_is_no_delegate() {
    let rows = |settings: &[(&str, &str)]| {
        let settings: Vec<_> =
            settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let three = ready_made("three-regions").with_protocol(MAIN, "epaxos", &Known::names(&["epaxos"]));
        let plan = planned(&three.unwrap().with_parameters(MAIN, &settings).unwrap());
        let rows = plan.protocols.into_iter().filter(|row| row.protocol == "epaxos");
        let waits = |row: crate::Forecast| {
            (row.case, row.regions.iter().map(|region| region.commit_ms).collect::<Vec<_>>())
        };
        rows.map(waits).collect::<Vec<_>>()
    };
    let (fast, slow) = (vec![73.0, 73.0, 88.0], vec![146.0, 146.0, 176.0]);
    let named = |case: &str| Some(case.to_owned());
    let (free, conflicting) = (named("no conflict"), named("conflict, reply = execute"));
    assert_eq!(rows(&[]), [(free.clone(), fast.clone()), (conflicting.clone(), fast.clone())]);
    assert_eq!(rows(&[("delegate", "false")]), [(free, fast), (conflicting, slow)]);
}

/// Five regions under a protocol with these parameters.
fn five_of(protocol: &'static str, settings: &[(&str, &str)]) -> Deployment {
    let settings: Vec<_> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let five = Deployment::five_regions().with_protocol(MAIN, protocol, &Known::names(&[protocol])).unwrap();
    five.with_parameters(MAIN, &settings).unwrap()
}

/// Answers at execution wait for what interferes, which `isochrone sim --conflict 100` shows to be longer than both rows.
#[test]
fn with_interference_epaxos_is_ranked_by_more_than_the_least_that_it_waits() {
    let rows = |reply: &str, conflict: f64| {
        let five = five_of("epaxos", &[("reply", reply)]);
        let demand = Demand { conflict, ..Demand::of(&five) };
        let plan = plan(&five, MAIN, &demand).unwrap();
        let rows = plan.protocols.iter().filter(|row| row.protocol == "epaxos");
        let rows: Vec<_> =
            rows.map(|row| (row.label(), format!("{:.2}", row.mean_ms), row.ranked, row.guarantee)).collect();
        (rows, plan.recommended.protocol, plan.configured.mean_ms)
    };
    let row = |label: &str, mean: &str, ranked: bool, guarantee: Guarantee| {
        (label.to_owned(), mean.to_owned(), ranked, guarantee)
    };
    let (all, by_key) = (Guarantee::Linearizable, Guarantee::LinearizableByKey);
    let free = row("epaxos, no conflict", "126.40", true, all);
    let least = row("epaxos, conflict, reply = execute, at least", "252.80", false, all);
    let at_commit = row("epaxos, conflict, reply = commit", "252.80", false, by_key);
    let (found, recommended, configured) = rows("execute", 0.0);
    assert_eq!(found, [free.clone(), least.clone()]);
    assert_eq!((recommended.as_str(), configured), ("epaxos", Some(126.4)));
    let (found, recommended, configured) = rows("execute", 10.0);
    // 0.9 * 126.4 + 0.1 * (252.8 + 332), the last of which is the slowest commit: that of Euro.
    assert_eq!(found, [row("epaxos, reply = execute", "172.24", true, all), least]);
    assert_ne!(recommended, "epaxos");
    assert!(configured.is_some_and(|mean| (mean - 172.24).abs() < 1e-6), "{configured:?}");
    assert_eq!(rows("commit", 0.0).0, [free, at_commit.clone()]);
    let (found, recommended, configured) = rows("commit", 10.0);
    // 0.9 * 126.4 + 0.1 * 252.8
    assert_eq!(found, [row("epaxos, reply = commit", "139.04", true, by_key), at_commit]);
    assert_ne!(recommended, "epaxos");
    assert!(configured.is_some_and(|mean| (mean - 139.04).abs() < 1e-6), "{configured:?}");
}

/// `isochrone sim` measures 131.9, 172.2 and 472.0 ms in the mean where 5.6, 30.1 and 100 % of the commands overlap with another.
#[test]
fn the_mean_of_epaxos_with_interference_is_told_as_the_most_that_it_is() {
    let five = five_of("epaxos", &[]);
    for (conflict, measured) in [(5.6, 131.9), (30.1, 172.2), (100.0, 472.0)] {
        let plan = plan(&five, MAIN, &Demand { conflict, ..Demand::of(&five) }).unwrap();
        assert!(plan.configured.mean_ms.is_some_and(|mean| measured <= mean), "{plan}");
        assert_eq!(serde_json::to_value(&plan.configured).unwrap()["bound"], "at most");
        let text = plan.to_string();
        assert!(
            text.contains("of commands that interfere, of epaxos at most; the columns leave it out"),
            "{text}"
        );
        let (own, best) = (plan.configured.mean_ms.unwrap(), plan.recommended.mean_ms.unwrap());
        let last = format!("configured:  epaxos, at most {:.1} ms slower\n", own - best);
        assert!(plan.recommended.protocol == "epaxos" || text.ends_with(&last), "{text}");
    }
    // At three replicas one other settles the order: what interferes is committed as soon as what does not.
    let three =
        ready_made("three-regions").with_protocol(MAIN, "epaxos", &Known::names(&["epaxos"])).unwrap();
    for (reply, bound) in [("commit", None), ("execute", Some("at most"))] {
        let told = three.clone().with_parameters(MAIN, &[("reply".to_owned(), reply.to_owned())]).unwrap();
        let plan = plan(&told, MAIN, &Demand { conflict: 10.0, ..Demand::of(&told) }).unwrap();
        assert_eq!(plan.configured.bound, bound, "{plan}");
    }
}

#[test]
fn a_difference_from_a_bound_is_one() {
    use crate::advice::about;
    let (least, most) = (Some("at least"), Some("at most"));
    assert_eq!(about(None, None), "");
    for (larger, smaller) in [(most, None), (None, least), (most, least)] {
        assert_eq!(about(larger, smaller), "at most ");
        assert_eq!(about(smaller, larger), "at least ");
    }
    assert_eq!([(most, most), (least, least)].map(|(a, b)| about(a, b)), ["by these bounds "; 2]);
}

/// Four regions, between which the triangle inequality does not hold, and replicas in three of them.
fn domino_of_four() -> Deployment {
    let ways = [[0, 197, 69, 103], [27, 0, 48, 75], [131, 264, 0, 112], [210, 20, 240, 0]];
    let way =
        |from: RegionId, to: RegionId| Span::from_micros(ways[usize::from(from.0)][usize::from(to.0)] * 500);
    let matrix = Matrix::from_fn(&["A", "B", "C", "D"], way);
    Deployment::of_matrix(matrix, "domino", &[3, 2, 0].map(RegionId))
}

/// Who coordinates matters where it has the result before the votes are at the client.
#[test]
fn domino_has_a_row_for_each_coordinator_where_one_of_them_is_sooner() {
    let plan = planned(&domino_of_four());
    let rows = plan.protocols.iter().filter(|row| row.protocol == "domino");
    let rows = rows.filter(|row| row.case.as_deref() == Some("reply = commit"));
    let waits = |row: &crate::Forecast| (row.label(), row.regions[1].commit_ms, row.regions[1].bound);
    let mut rows: Vec<_> = rows.map(waits).collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let row = |leader: &str, wait: f64, bound: Option<&'static str>| {
        (format!("domino, leader {leader}, reply = commit"), wait, bound)
    };
    assert_eq!(rows, [row("A", 156.0, None), row("C", 156.0, None), row("D", 113.5, Some("at most"))]);
}

/// Of what clients in B wait a bound is known where D coordinates, and of all others what they wait.
#[test]
fn a_bound_is_told_of_the_figures_that_are_one() {
    let told = |clients: [u32; 4]| {
        let demand = Demand { clients: clients.to_vec(), conflict: 0.0 };
        let plan = plan(&domino_of_four(), MAIN, &demand).unwrap();
        let label = "domino, leader D, reply = commit";
        let row = plan.protocols.iter().find(|row| row.label() == label).unwrap();
        let json = serde_json::to_value(row).unwrap();
        let of = |value: &serde_json::Value| value["bound"].as_str().map(str::to_owned);
        let mut bounds: Vec<_> = json["regions"].as_array().unwrap().iter().map(of).collect();
        bounds.push(of(&json));
        let text = plan.to_string();
        assert!(
            text.contains("\n≤ is before what it takes at most, ≥ before what it takes at least\n"),
            "{text}"
        );
        let line = text.lines().find_map(|line| line.strip_prefix(label)).unwrap();
        (bounds, line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let most = || Some("at most".to_owned());
    let figures = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
    assert_eq!(
        told([1, 1, 1, 1]),
        (vec![None, most(), None, None, most()], figures(["100.0", "≤113.5", "100.0", "156.5", "≤117.5"]))
    );
    // The mean is that of regions with clients, which is exact.
    assert_eq!(
        told([1, 0, 1, 1]),
        (vec![None, most(), None, None, None], figures(["100.0", "≤113.5", "100.0", "156.5", "118.8"]))
    );
    // What is true of a whole row is said once.
    let five = planned(&Deployment::five_regions());
    let text = five.to_string();
    assert!(text.contains("\nmencius, others idle, at most  ") && !text.contains(['≤', '≥']), "{text}");
    let row = five.protocols.iter().find(|row| row.label() == "mencius, others idle, at most").unwrap();
    assert!(row.regions.iter().all(|region| region.bound == row.bound.as_deref()), "{row:?}");
    // Where all are equally far, nobody waits longer for the last than for a majority.
    let even = Matrix::from_fn(&["a", "b", "c"], |_, _| Span::from_millis(5));
    let even = planned(&Deployment::of_matrix(even, "mencius", &[0, 1, 2].map(RegionId)));
    let exact = |row: &crate::Forecast| row.label() == "mencius, others idle" && row.bound.is_none();
    assert!(even.protocols.iter().any(exact), "{even}");
}

#[test]
fn curp_consensus_is_planned_with_the_way_that_its_keyspace_says() {
    let planned = |settings: &[(&str, &str)]| {
        let plan = planned(&five_of("curp-consensus", settings));
        let waits = |protocol: &str| {
            let rows = plan.protocols.iter().filter(|row| row.protocol == protocol);
            let mut rows: Vec<_> = rows.map(|row| (row.leader.clone(), row.mean_ms)).collect();
            rows.sort_by(|a, b| a.0.cmp(&b.0));
            rows
        };
        (waits("curp-consensus"), waits("multipaxos"), plan.configured.mean_ms)
    };
    let (by_default, led, mean) = planned(&[]);
    assert!(by_default != led && mean == Some(160.4), "{by_default:?} {mean:?}");
    let (synced, led, mean) = planned(&[("always_synced", "true")]);
    assert_eq!((synced, mean), (led, Some(195.6)));
}

/// At least what `isochrone sim` takes with one client, as far as that is known only to a heartbeat.
#[test]
fn domino_is_planned_as_its_keyspace_is_told() {
    let waits = |settings: &[(&str, &str)], reply: &str| {
        let plan = planned(&five_of("domino", settings));
        let same = |row: &&crate::Forecast| {
            let led = row.leader.is_none() || row.leader == plan.configured.leader;
            row.protocol == "domino" && row.case.as_ref().is_some_and(|case| case.ends_with(reply)) && led
        };
        let row = plan.protocols.iter().find(same).unwrap();
        row.regions.iter().map(|region| region.commit_ms).collect::<Vec<_>>()
    };
    let usual = [195.0, 200.5, 321.0, 242.5, 316.0];
    // What was measured: 200, 200, 400, 400, 400; 180, 200, 280, 220, 260; 230, 200, 320, 300, 360; 220, 200, 280, 280, 310.
    type Settings = &'static [(&'static str, &'static str)];
    let executed: [(Settings, [f64; 5]); 7] = [
        (&[], usual),
        (&[("way", "led"), ("extra_delay", "auto")], usual),
        (&[("heartbeat", "200ms")], usual.map(|wait| wait + 190.0)),
        (&[("way", "fast")], [181.5, 206.5, 280.5, 221.5, 265.5]),
        (&[("way", "fast"), ("extra_delay", "50ms")], [223.5, 248.5, 322.5, 263.5, 307.5]),
        // US East coordinates.
        (&[("learners", "sole")], [244.5, 200.5, 321.0, 307.0, 369.5]),
        (&[("learners", "sole"), ("way", "fast")], [231.0, 206.5, 280.5, 286.0, 319.0]),
    ];
    for (settings, expected) in executed {
        assert_eq!(waits(settings, "execute"), expected, "{settings:?}");
    }
    let (led, fast) = ([102.0, 88.0, 166.0, 115.0, 161.0], [161.0, 172.0, 235.0, 172.0, 205.0]);
    for (way, expected) in [("auto", led), ("led", led), ("fast", fast)] {
        assert_eq!(waits(&[("way", way)], "commit"), expected, "{way}");
    }
}

#[test]
fn every_ready_made_deployment_can_be_planned_and_nothing_is_below_its_floor() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let plan = planned(&ready_made(path.file_stem().unwrap().to_str().unwrap()));
        for forecast in &plan.protocols {
            for (region, (_, floor)) in forecast.regions.iter().zip(&plan.floor_ms) {
                assert!(region.commit_ms >= *floor, "{}: {forecast:?} is below {floor}", path.display());
            }
        }
        if let Some(better) = &plan.placement {
            assert!(better.mean_ms < plan.recommended.mean_ms, "{}: {better:?}", path.display());
        }
    }
}

#[test]
fn the_table_of_transactions() {
    let deployment = ready_made("carousel-ec2");
    let plan = crate::plan_transactions(&deployment, MAIN, &Demand::of(&deployment)).unwrap();
    expect![[r#"
        keyspace "main", 5 partitions, the leader's region first:
          0: US West, US East, Euro
          1: US East, Asia, Australia
          2: Euro, Asia, Australia
          3: Asia, US West, US East
          4: Australia, US West, Euro

        median latency without load, by region of the client, ms; then of all clients

        retwis                              US West  US East     Euro     Asia  Australia      p50      p90      p99     mean
        carousel-fast, read_only = latest     175.0    260.0    323.0    235.0      322.0    245.0    323.0    323.0    248.0
        carousel-basic, read_only = latest    401.0    377.0    525.0    470.0      525.0    401.0    525.0    525.0    407.0
        tapir                                 268.0    293.0    378.0    337.0      451.0    293.0    451.0    451.0    313.0
        2pc                                   640.0    743.0    976.0    807.0      976.0    743.0    976.0    976.0    726.8

        ycsbt                               US West  US East     Euro     Asia  Australia      p50      p90      p99     mean
        carousel-fast, read_only = latest     175.0    260.0    323.0    235.0      322.0    260.0    323.0    323.0    253.2
        carousel-basic, read_only = latest    401.0    377.0    525.0    470.0      525.0    401.0    525.0    525.0    414.2
        tapir                                 268.0    293.0    378.0    337.0      451.0    337.0    451.0    451.0    325.0
        2pc                                   640.0    743.0    976.0    807.0      976.0    743.0    976.0    976.0    745.4

        smallbank                           US West  US East     Euro     Asia  Australia      p50      p90      p99     mean
        carousel-fast, read_only = latest     166.0    245.0    323.0    235.0      290.0    235.0    323.0    323.0    230.9
        carousel-basic, read_only = latest    322.0    344.0    470.0    344.0      377.0    344.0    525.0    525.0    354.6
        tapir                                 234.0    278.0    323.0    337.0      320.0    290.0    378.0    451.0    282.3
        2pc                                   556.0    618.0    807.0    618.0      743.0    618.0    976.0    976.0    635.8

        each client is at the node of its region; tapir is so fast with self_blocking = false, or where clients pause between transactions

        configured: carousel-fast; lowest mean: retwis carousel-fast, ycsbt carousel-fast, smallbank carousel-fast
    "#]]
    .assert_eq(&plan.to_string());
    let printed = serde_json::to_value(&plan).unwrap();
    assert_eq!(printed["partitions"][3][0], "Asia");
    let retwis = &printed["forecasts"][0];
    assert_eq!((&retwis["protocol"], &retwis["all"]["p50_ms"]), (&"carousel-fast".into(), &245.0.into()));
}

/// The means of a workload by protocol, where the keyspace has this one with these parameters.
fn transaction_means(workload: &str, protocol: &str, settings: &[(&str, &str)]) -> BTreeMap<String, f64> {
    let known = Known::names(&[]).placing(&["carousel-fast", "carousel-basic", "2pc", "tapir"]);
    let settings: Vec<_> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let deployment = ready_made("carousel-ec2").with_protocol(MAIN, protocol, &known).unwrap();
    let deployment = deployment.with_parameters(MAIN, &settings).unwrap();
    let plan = crate::plan_transactions(&deployment, MAIN, &Demand::of(&deployment)).unwrap();
    let rows = plan.forecasts.into_iter().filter(|row| row.workload == workload);
    rows.map(|row| (row.protocol, row.all.mean_ms)).collect()
}

#[test]
fn transactions_are_planned_as_their_keyspace_is_told() {
    let default = transaction_means("retwis", "carousel-fast", &[]);
    let told = |protocol: &str, settings: &[(&str, &str)]| {
        let means = transaction_means("retwis", protocol, settings);
        let others = |means: &BTreeMap<String, f64>| {
            means.clone().into_iter().filter(|(name, _)| name != protocol).collect::<Vec<_>>()
        };
        assert_eq!(others(&means), others(&default), "of {protocol} alone");
        means[protocol]
    };
    let (fast, basic) = (default["carousel-fast"], default["carousel-basic"]);
    // What is not said is as it is served.
    for (protocol, mean) in [("carousel-fast", fast), ("carousel-basic", basic)] {
        assert_eq!(told(protocol, &[("read_only", "latest")]), mean);
    }
    assert_eq!(told("carousel-fast", &[("reads", "nearest")]), fast);
    assert_eq!(told("carousel-fast", &[("fast_path", "false")]), basic);
    assert_eq!(
        told("carousel-basic", &[("fast_path", "true")]),
        told("carousel-fast", &[("reads", "leader")])
    );
    assert_eq!(told("2pc", &[("coordinator", "local")]), default["2pc"]);
    let moment = |protocol: &str, more: &[(&str, &str)]| {
        told(protocol, &[&[("read_only", "moment")][..], more].concat())
    };
    let [local, leader] = ["local", "leader"].map(|reads| moment("carousel-fast", &[("reads", reads)]));
    let (fast_moment, basic_moment) = (moment("carousel-fast", &[]), moment("carousel-basic", &[]));
    let remote = told("2pc", &[("coordinator", "remote")]);
    // Computed apart from this code, over all that transactions may touch.
    let means = [fast_moment, local, leader, basic_moment, fast, basic, default["2pc"], remote];
    let means = means.map(|mean| format!("{mean:.1}"));
    assert_eq!(means, ["225.6", "239.9", "270.1", "303.7", "248.0", "407.0", "726.8", "712.8"]);
}

#[test]
fn where_no_region_has_clients_transactions_are_of_all_regions_alike() {
    let deployment = ready_made("carousel-ec2");
    let planned = |clients: u32| {
        let demand = Demand { clients: vec![clients; 5], conflict: 0.0 };
        crate::plan_transactions(&deployment, MAIN, &demand).unwrap()
    };
    let nobody = planned(0);
    assert_eq!(nobody, planned(1));
    assert!(nobody.forecasts.iter().all(|row| row.all.mean_ms > 0.0), "{nobody}");
}

#[test]
fn each_workload_has_a_lowest_mean_of_its_own() {
    let deployment = ready_made("carousel-ec2");
    let mut plan = crate::plan_transactions(&deployment, MAIN, &Demand::of(&deployment)).unwrap();
    let faster = plan.forecasts.iter_mut().find(|row| (&*row.workload, &*row.protocol) == ("ycsbt", "tapir"));
    faster.unwrap().all.mean_ms = 250.0;
    let text = plan.to_string();
    let last =
        "configured: carousel-fast; lowest mean: retwis carousel-fast, ycsbt tapir, smallbank carousel-fast";
    assert_eq!(text.lines().last(), Some(last));
}

#[test]
fn the_best_leader_is_the_one_of_the_table() {
    let name = |deployment: &Deployment| {
        let node = crate::leader(deployment, deployment.keyspace(MAIN));
        deployment.node(node).name.clone()
    };
    let five = Deployment::five_regions();
    assert_eq!(name(&five), "us-east");
    let known = Known::names(&["sdpaxos"]);
    assert_eq!(name(&five.with_protocol(MAIN, "sdpaxos", &known).unwrap()), "us-west");
    assert_eq!(
        [&[] as &[(&str, &str)], &[("f", "1")]].map(|settings| name(&of_curp(settings))),
        ["asia", "us-east"]
    );
    // With every replica equally far, the first.
    let even = Matrix::from_fn(&["a", "b", "c"], |_, _| Span::from_millis(5));
    let deployment = Deployment::of_matrix(even, "multipaxos", &[RegionId(2), RegionId(0), RegionId(1)]);
    assert_eq!(name(&deployment), "c");
}

#[test]
fn without_round_trips_there_is_no_plan() {
    let text = "[[region]]\nname = \"A\"\n[[region]]\nname = \"B\"\n[[node]]\nname = \"a\"\nregion = \"A\"\n\
                [[node]]\nname = \"b\"\nregion = \"B\"\n[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\n\
                replication = 1\n";
    let known = Known::names(&["multipaxos"]);
    let deployment = Deployment::parse(text, "x.toml", Path::new(""), &known).unwrap();
    assert_eq!(
        plan(&deployment, MAIN, &Demand::of(&deployment)).unwrap_err().to_string(),
        "x.toml: [network] gives no round trips between the regions, which this command needs\n  \
         add rtt = \"matrix.csv\" under [network]"
    );
}

#[test]
fn domino_is_planned_with_the_quorums_that_its_keyspace_has() {
    let known = Known::names(&["multipaxos", "domino"]);
    let of = |settings: &[(&str, &str)]| {
        let settings: Vec<_> =
            settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let deployment = ready_made("domino-na").with_protocol(MAIN, "domino", &known).unwrap();
        let deployment = deployment.with_parameters(MAIN, &settings).unwrap();
        plan(&deployment, MAIN, &Demand::of(&deployment)).map_err(|errors| errors.to_string())
    };
    let commit = |settings: &[(&str, &str)], region: usize| {
        let plan = of(settings).unwrap();
        let row = plan.protocols.iter().find(|row| row.case.as_deref() == Some("reply = commit"));
        let region = &row.unwrap().regions[region];
        (region.commit_ms, region.via.clone().unwrap())
    };
    // From IL: VA 26, QC 23 and WA 43 ms; two of three are enough where three recover.
    let two: &[_] = &[("fast_quorum", "2"), ("extra_delay", "0s")];
    assert_eq!(commit(&[], 6), (43.0, "DFP".to_owned()));
    assert_eq!(commit(two, 6), (26.0, "DFP".to_owned()));
    let refused = of(&[("fast_quorum", "2"), ("classic_quorum", "2")]).unwrap_err();
    assert!(refused.contains("fast_quorum = 2 is too small"), "{refused}");
}
