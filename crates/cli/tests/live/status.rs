//! One screen of how a cluster stands.

use crate::processes::{
    Process, client, deployment, isochrone, leader, node, nodes, outcome, page, serves, until,
};
use crate::resp::Reply;
use serde_json::Value;

#[test]
fn status_shows_who_leads_what_clients_wait_for_and_who_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment(path, "three.toml", "screen", &addresses);
    let file = file.to_str().unwrap();
    let (status, out, err) = outcome(["status", file]);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("no node tells how it stands") && err.contains("n2, 127.0.0.1:"), "{err}");

    let mut processes: Vec<Process> = (0..3).map(|index| node(file.as_ref(), index, path)).collect();
    serves(addresses[1].redis);
    let mut asker = client(addresses[1].redis);
    for count in 1..=20 {
        assert_eq!(asker.ask(&["INCR", "count"]).unwrap(), Reply::Number(count));
    }
    let lead = until("a leader that all know", || {
        let known: Option<Vec<_>> = addresses.iter().map(|place| leader(place.http)).collect();
        known.filter(|known| known.windows(2).all(|pair| pair[0] == pair[1])).map(|mut known| known.remove(0))
    });
    let shown = until("figures of what was asked", || {
        let (status, out, _) = outcome(["status", file, "--format", "json"]);
        let shown: Value = serde_json::from_str(&out).ok()?;
        let row = shown["keyspaces"][0]["nodes"][1].clone();
        (status == 0 && row["write_p50_ms"].is_number() && shown["notes"].as_array()?.is_empty())
            .then_some(shown)
    });
    assert_eq!((&shown["cluster"], &shown["ready"]), (&"screen".into(), &true.into()));
    let keyspace = &shown["keyspaces"][0];
    assert_eq!(keyspace["leaders"], Value::from(vec![lead.clone()]));
    assert_eq!(keyspace["protocol"], "multipaxos");
    let roles: Vec<_> =
        keyspace["nodes"].as_array().unwrap().iter().map(|row| row["role"].as_str().unwrap()).collect();
    assert_eq!(roles.iter().filter(|role| **role == "leader").count(), 1, "{shown}");
    assert_eq!(roles.iter().filter(|role| **role == "replica").count(), 2, "{shown}");
    assert!(keyspace["nodes"][1]["bound_ms"].is_number(), "{shown}");
    assert_eq!(shown["nodes"][0]["round_trips_ms"].as_object().unwrap().len(), 2);

    // Without a file, by addresses; text.
    let places: Vec<_> =
        addresses.iter().flat_map(|place| ["--http".to_owned(), place.http.to_string()]).collect();
    let words: Vec<_> = std::iter::once("status".to_owned()).chain(places).collect();
    let (status, out, err) = outcome(&words);
    assert_eq!(status, 0, "{out}\n{err}");
    assert!(out.starts_with("screen: 3 of 3 nodes answer, all are ready\n"), "{out}");
    assert!(out.contains(&format!("linearizable · led from {lead}")), "{out}");
    let twice: Vec<_> = words.iter().chain(&words[1..3]).collect();
    let (status, _, err) = outcome(twice);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("name each node once"), "{err}");

    // One that is not the leader is away.
    let away = (0..3).find(|index| format!("n{index}") != lead).unwrap();
    processes[away].signal("KILL");
    assert_eq!(processes[away].end(), None);
    until("its peers miss it", || {
        let others = addresses.iter().enumerate().filter(|(index, _)| *index != away);
        others
            .map(|(_, place)| page(place.http, "/status"))
            .all(|page| page.is_some_and(|page| page.contains("\"connected\": false")))
            .then_some(())
    });
    let (status, out, _) = outcome(["status", file]);
    assert_eq!(status, 1, "{out}");
    assert!(out.starts_with("screen: 2 of 3 nodes answer, 2 ready\n"), "{out}");
    assert!(
        out.contains(&format!("  n{away} does not tell how it stands, at {}: ", addresses[away].http)),
        "{out}"
    );
    assert!(out.contains(&format!(" has no link to n{away}")), "{out}");
}

#[test]
fn status_without_a_place_to_ask_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = nodes(1);
    let file = deployment(folder.path(), "one.toml", "mute", &addresses);
    let text = std::fs::read_to_string(&file).unwrap();
    let mute: Vec<_> = text.lines().filter(|line| !line.starts_with("http")).collect();
    std::fs::write(&file, mute.join("\n")).unwrap();
    let (status, _, err) = outcome(["status", file.to_str().unwrap()]);
    assert_eq!(status, 2, "{err}");
    assert!(
        err.contains("no node of this deployment has an `http`") && err.contains("give each one"),
        "{err}"
    );
    let (status, _, err) = outcome(["status", "--http", "nowhere"]);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("has no port"), "{err}");
    let mut both = isochrone(["status", "--http", "127.0.0.1:1"]);
    both.arg(&file);
    assert_eq!(both.output().unwrap().status.code(), Some(2));
}
