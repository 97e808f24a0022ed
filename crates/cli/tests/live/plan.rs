//! A plan of a running cluster, and a deployment from answers.

use crate::processes::{Process, client, isochrone, outcome, until};
use crate::resp::Reply;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

const FIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");
const REGIONS: [&str; 3] = ["North", "South", "East"];

#[test]
fn a_running_cluster_is_planned_over_what_its_nodes_measure() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("far.csv"), "region,North,South,East\nNorth,0,40,60\nSouth,40,0,80\nEast,60,80,0\n")
        .unwrap();
    let mut text = "cluster = \"far\"\n".to_owned();
    for region in REGIONS {
        let name = region.to_lowercase();
        text += &format!("[[region]]\nname = {region:?}\n[[node]]\nname = {name:?}\nregion = {region:?}\n");
    }
    text += "[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nleader = \"East\"\n";
    fs::write(path("mute.toml"), &text).unwrap();
    let file = path("far.toml");
    fs::write(&file, text + "[network]\nrtt = \"far.csv\"\n").unwrap();

    let up = isochrone(["up", "--plain", "--format", "json", "--port", "0", &file]);
    let cluster = Process::start(up);
    let ready: Value = serde_json::from_str(&cluster.line().expect("a line")).expect("JSON");
    let at = |region: usize, what: &str| ready["regions"][region][what].as_str().unwrap().to_owned();
    let places: Vec<_> = (0..3).flat_map(|region| ["--http".to_owned(), at(region, "http")]).collect();
    let words = |file: &str, places: &[String], more: &[&str]| {
        let words = ["plan", file, "--live"].into_iter().map(str::to_owned);
        words
            .chain(places.iter().cloned())
            .chain(more.iter().map(|word| (*word).to_owned()))
            .collect::<Vec<_>>()
    };

    let mut south = client(at(1, "redis").parse::<SocketAddr>().unwrap());
    let shown = until("figures of a healthy cluster", || {
        assert!(matches!(south.ask(&["INCR", "count"]).unwrap(), Reply::Number(_)));
        let (status, out, err) = outcome(words(&file, &places, &["--format", "json"]));
        assert_eq!(status, 0, "{out}\n{err}");
        let shown: Value = serde_json::from_str(&out).unwrap();
        let live = &shown["live"];
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        // A machine that is busy measures more than there is, for a while.
        let near = |value: &Value, least: f64| (least..least * 1.3).contains(&number(value));
        let links = live["links"].as_array()?;
        let measured = links.iter().all(|link| near(&link["measured_ms"], number(&link["file_ms"])));
        let south = &live["clients"][1];
        // To East and back, and from there to North and back.
        let waited = near(&south["write_p50_ms"], 139.0) && near(&south["expected_ms"], 140.0);
        (links.len() == 3 && measured && waited && live["leaders"][0] == "east").then(|| shown.clone())
    });
    let live = &shown["live"];
    assert_eq!((&live["cluster"], &live["asked"], &live["answered"]), (&"far".into(), &3.into(), &3.into()));
    assert_eq!(live["notes"], Value::Array(Vec::new()), "{live}");
    assert_eq!(live["clients"][1]["file_expected_ms"], 140.0);
    assert!(live["clients"][1]["ratio"].as_f64().is_some_and(|ratio| (0.7..1.4).contains(&ratio)), "{live}");
    assert_eq!(live["clients"][0]["write_p50_ms"], Value::Null, "nobody wrote in North: {live}");
    // (120 + 140 + 60) / 3 led from East, (40 + 80 + 100) / 3 from North.
    assert_eq!(live["better_leader"]["leader"], "North", "{live}");
    assert!(live["better_leader"]["less_ms"].as_f64().is_some_and(|less| less > 15.0), "{live}");
    assert_eq!(live["better_protocol"]["protocol"], shown["recommended"]["protocol"]);
    // The only clients are in South: 140 led from East, 40 from there.
    assert_eq!(live["better_for_clients"]["leader"], "South", "{live}");
    assert!(live["better_for_clients"]["less_ms"].as_f64().is_some_and(|less| less > 70.0), "{live}");
    assert_eq!((&shown["configured"]["leader"], &shown["keyspace"]), (&"East".into(), &"main".into()));

    let (status, out, err) = outcome(words(&file, &places, &[]));
    assert_eq!(status, 0, "{out}\n{err}");
    for line in
        ["far: 3 of 3 nodes answer\n", ", led from east\n", "better leader: multipaxos with North, mean "]
    {
        assert!(out.contains(line), "{line}\n{out}");
    }

    // Where so much is asked that it matters, status tells without being asked for it.
    let mut places_too = fs::read_to_string(&file).unwrap();
    for (region, name) in REGIONS.iter().map(|region| region.to_lowercase()).enumerate() {
        let line = format!("name = {name:?}\n");
        places_too = places_too.replace(&line, &format!("{line}http = {:?}\n", at(region, "http")));
    }
    let told = path("told.toml");
    fs::write(&told, places_too).unwrap();
    let line = "  keyspace main is led from East; from South commits would take ";
    until("status tells of the leader", || {
        let many = [&["INCR", "count"][..]; 300];
        assert_eq!(south.pipeline(&many).unwrap().len(), many.len());
        let (status, out, err) = outcome(["status", &told]);
        assert_eq!(status, 0, "{out}\n{err}");
        out.contains(line).then_some(())
    });

    // Who is not asked measures nothing that anybody hears of: the file's, or none where it has none.
    let (status, out, err) = outcome(words(&file, &places[..2], &[]));
    assert_eq!(status, 0, "{out}\n{err}");
    assert!(
        out.contains("  nobody measures the way between South and East: 80.0 ms as in the file\n"),
        "{out}"
    );
    let (status, _, err) = outcome(words(&path("mute.toml"), &places[..2], &[]));
    assert_eq!(status, 1, "{err}");
    assert!(err.contains("nobody measures the way between South and East, and "), "{err}");
    let (status, out, err) = outcome(words(&path("mute.toml"), &places, &["--format", "json"]));
    assert_eq!(status, 0, "{out}\n{err}");
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown["live"]["clients"][1]["file_expected_ms"], Value::Null);

    // Of whom it is the plan has to be known.
    let without: Vec<_> = words(&file, &places, &[]).into_iter().filter(|word| *word != file).collect();
    let (status, _, err) = outcome(without);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("nodes of cluster far answer, and without a file it is five-regions"), "{err}");
    let (status, _, err) = outcome(words(FIVE, &places, &[]));
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("it is of cluster five-regions, and nodes of far answer"), "{err}");
}

/// Runs `plan --ask` in a folder with these answers: exit status, standard output, standard error.
fn asked(folder: &Path, more: &[&str], answers: &str) -> (i32, String, String) {
    let mut command = isochrone(["plan", "--ask"]);
    command.args(more).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut asking = command.spawn().expect("the program starts");
    // Where an answer is wrong it does not read on.
    let _ = asking.stdin.take().expect("it is piped").write_all(answers.as_bytes());
    let done = asking.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code().expect("no signal"), text(done.stdout), text(done.stderr))
}

#[test]
fn answers_become_a_deployment_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (here, path) = (folder.path(), folder.path().join("new.toml"));
    let file = path.to_str().unwrap();
    let answers = "US East=70, Euro=30\n\n1\n\nworst\n";
    let (status, out, err) = asked(here, &["--out", file], answers);
    assert_eq!((status, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("1 of 5  ") && err.contains("5 of 5  ") && err.contains("[mean] worst\n"), "{err}");
    let written = fs::read_to_string(&path).unwrap();
    assert!(here.join("carousel-ec2.csv").is_file());
    let (status, out, err) = outcome(["plan", file, "--format", "json"]);
    assert_eq!(status, 0, "{out}{err}\n{written}");
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&plan["crashes"], &plan["clients"]["US East"]), (&1.into(), &70.into()), "{written}");
    let (status, out, err) = outcome(["sim", file, "--duration", "2s"]);
    assert_eq!(status, 0, "{out}{err}\n{written}");
    let (status, out, err) = outcome(["up", "--plain", file, "--port", "0", "--for", "1s"]);
    assert_eq!(status, 0, "{out}{err}\n{written}");

    // What is there stays.
    let (status, _, err) = asked(here, &["--out", file], answers);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("new.toml: it is there already") && !err.contains("1 of 5"), "{err}");
    assert_eq!(fs::read_to_string(&path).unwrap(), written);

    // Nothing but the file on standard output; what is not answered is as in brackets.
    let (status, out, err) = asked(here, &[], "");
    assert_eq!(status, 0, "{err}");
    fs::write(here.join("default.toml"), &out).unwrap();
    let (status, planned, err) = outcome(["plan", here.join("default.toml").to_str().unwrap()]);
    assert_eq!(status, 0, "{planned}{err}\n{out}");
    assert!(!planned.contains("configured:"), "nothing is faster than what was written:\n{planned}");

    let (status, out, err) = asked(here, &[], "Mars\n");
    assert_eq!((status, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("question 1 of `plan --ask`: no map has \"Mars\""), "{err}");
    fs::write(here.join("carousel-ec2.csv"), "mine").unwrap();
    let (status, out, err) = asked(here, &[], "");
    assert_eq!((status, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("carousel-ec2.csv: the round trips would be there, and something else is"), "{err}");
    for words in [&["plan", "--ask", file][..], &["plan", "--out", file], &["plan", "--http", "127.0.0.1:1"]]
    {
        assert_eq!(outcome(words).0, 2, "{words:?}");
    }
}

#[test]
fn without_a_file_it_is_the_plan_of_what_up_runs() {
    let (status, out, err) = outcome(["plan"]);
    assert_eq!(status, 0, "{err}");
    assert_eq!(out, outcome(["plan", FIVE]).1);
}
