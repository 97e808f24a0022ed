//! Regions of `isochrone up` cut off and healed from another terminal.

use super::processes::{
    PATIENCE, Process, client, deployment, isochrone, node, nodes, outcome, serves, until,
};
use super::resp::Reply;
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const REGIONS: [&str; 5] = ["US West", "US East", "Euro", "Asia", "Australia"];
/// Where it stands among them.
const EURO: usize = 2;
/// Many times as long as a write takes.
const SILENCE: Duration = Duration::from_millis(500);

struct Up {
    process: Process,
    redis: Vec<SocketAddr>,
    http: Vec<SocketAddr>,
    /// What it says on standard error.
    log: PathBuf,
}

/// Five regions, milliseconds apart.
fn up(folder: &Path) -> Up {
    let mut table = format!("region,{}\n", REGIONS.join(","));
    let mut text = "cluster = \"near\"\n[network]\nrtt = \"near.csv\"\n".to_owned();
    for (from, region) in REGIONS.into_iter().enumerate() {
        let trips: Vec<_> = (0..REGIONS.len()).map(|to| (from.abs_diff(to) * 3).to_string()).collect();
        table += &format!("{region},{}\n", trips.join(","));
        text += &format!(
            "[[region]]\nname = \"{region}\"\n[[node]]\nname = \"node-{from}\"\nregion = \"{region}\"\n"
        );
    }
    text += "[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nleader = \"US East\"\n";
    let (config, log) = (folder.join("near.toml"), folder.join("up.log"));
    fs::write(folder.join("near.csv"), table).unwrap();
    fs::write(&config, text).unwrap();
    let mut command = isochrone(["up", "--plain", "--format", "json", "--port", "0"]);
    command.arg(config).stderr(fs::File::create(&log).unwrap());
    let process = Process::start(command);
    let line = process.line();
    let ready = line.and_then(|line| serde_json::from_str::<Value>(&line).ok());
    let ready = ready.unwrap_or_else(|| panic!("{}", fs::read_to_string(&log).unwrap()));
    let of = |what: &str| -> Vec<SocketAddr> {
        let regions = ready["regions"].as_array().expect("a list");
        regions.iter().map(|region| region[what].as_str().unwrap().parse().unwrap()).collect()
    };
    Up { redis: of("redis"), http: of("http"), log, process }
}

impl Up {
    /// `isochrone net` with these words: exit status, standard output, standard error.
    fn net(&self, words: &[&str]) -> (i32, String, String) {
        outcome([&["net"][..], words, &["--http", &self.http[1].to_string()]].concat())
    }

    /// The network, as JSON tells it, behind these words.
    fn json(&self, words: &[&str]) -> Value {
        let (status, out, err) = self.net(&[words, &["--format", "json"]].concat());
        assert_eq!((status, err.as_str()), (0, ""), "{words:?}: {out}");
        serde_json::from_str(&out).expect("one object")
    }

    /// A line of its own shows Euro so.
    fn shows(&self, state: &str) {
        until(state, || {
            let line: Value = serde_json::from_str(&self.process.line()?).expect("JSON");
            (line["regions"][EURO]["state"] == state).then_some(())
        });
    }

    fn says(&self, what: &str) {
        until(what, || fs::read_to_string(&self.log).ok()?.contains(what).then_some(()));
    }
}

/// A write is done there.
fn set(address: SocketAddr) {
    assert_eq!(client(address).ask(&["SET", "city", "Lisbon"]).unwrap(), Reply::Text("OK".to_owned()));
}

/// Whether a write is answered there, for better or worse, before long.
fn answered(address: SocketAddr) -> bool {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket.write_all(b"*3\r\n$3\r\nSET\r\n$4\r\ncity\r\n$4\r\nRome\r\n").unwrap();
    match socket.read(&mut [0; 64]) {
        Ok(count) => count > 0,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
            false
        }
    }
}

/// What HTTP says to this head, with a body behind it.
fn said(http: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect_timeout(&http, PATIENCE).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = format!("Content-Length: {}\nConnection: close\n\n", body.len());
    socket.write_all((head.to_owned() + &length).replace('\n', "\r\n").as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (head, text) = text.split_once("\r\n\r\n").expect("HTTP");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text.to_owned())
}

#[test]
fn a_region_is_cut_off_while_the_others_go_on_and_is_healed() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = up(folder.path());
    set(up.redis[EURO]);
    let (status, out, err) = up.net(&[]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("near: 5 regions, none is cut off\n") && out.contains("3.00"), "{out}");

    let (status, out, err) = up.net(&["cut", "Euro"]);
    let heals = format!("what heals it: isochrone net heal Euro --http {}\n", up.http[1]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert_eq!(out, format!("Euro: cut off, no message comes in or out; {heals}"));
    set(up.redis[1]);
    assert!(!answered(up.redis[EURO]), "it is cut off");
    let shown = up.json(&["show"]);
    assert_eq!((&shown["cluster"], &shown["changed"]), (&"near".into(), &Value::Null));
    let cut: Vec<_> = shown["regions"].as_array().unwrap().iter().map(|row| row["cut"] == true).collect();
    assert_eq!(cut, [false, false, true, false, false]);
    let links = shown["links"].as_array().unwrap();
    assert_eq!((links.len(), &links[0]["round_trip_ms"]), (10, &Value::from(3.0)));
    for link in links {
        assert_eq!(link["cut"] == true, link["from"] == "Euro" || link["to"] == "Euro", "{link}");
    }
    up.shows("cut");
    up.says("isochrone: Euro: cut off by `isochrone net`, no message comes in or out\n");

    let (status, out, _) = up.net(&["cut", "Euro"]);
    assert_eq!((status, out), (0, format!("Euro is cut off already; {heals}")));
    for words in [["cut", "euro"], ["heal", "Mars"]] {
        let (status, out, err) = up.net(&words);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.contains("no region is called so; there are US West, US East, Euro, Asia"), "{err}");
    }

    assert_eq!(up.json(&["heal"])["changed"], Value::from(vec!["Euro"]));
    serves(up.redis[EURO]);
    up.shows("up");
    up.says("isochrone: Euro: healed by `isochrone net`\n");
    up.process.signal("TERM");
    assert_eq!(up.process.end(), Some(0));
}

#[test]
fn no_page_and_nobody_by_another_name_changes_the_network_and_nodes_that_run_for_real_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let http = up.http[0];
    let cut = r#"{"region": "Euro"}"#;
    let json = "Content-Type: application/json\n";
    for (head, body, status) in [
        (format!("Host: {http}\nOrigin: http://evil\n{json}"), cut, 403),
        (format!("Host: evil:8001\nOrigin: http://evil:8001\n{json}"), cut, 403),
        (format!("Host: evil:8001\n{json}"), cut, 403),
        (format!("Host: {http}\nContent-Type: text/plain\n"), cut, 403),
        (format!("Host: {http}\n{json}"), "{}", 400),
        (format!("Host: {http}\n{json}"), r#"{"region": "Mars"}"#, 400),
    ] {
        let (got, text) = said(http, &format!("POST /net/cut HTTP/1.1\n{head}"), body);
        assert_eq!(got, status, "{head}{body}: {text}");
    }
    let (status, text) = said(http, &format!("GET /net/cut HTTP/1.1\nHost: {http}\n"), "");
    assert_eq!(status, 405, "{text}");
    assert!(text.contains("POST /net/cut"), "{text}");
    let shown = up.json(&[]);
    assert!(shown["regions"].as_array().unwrap().iter().all(|row| row["cut"] == false), "{shown}");
    // The same, as it should be.
    let (status, text) = said(http, &format!("POST /net/cut HTTP/1.1\nHost: {http}\n{json}"), cut);
    assert_eq!(status, 200, "{text}");
    assert_eq!(up.json(&[])["regions"][EURO]["cut"], true);

    let addresses = nodes(1);
    let http = addresses[0].http;
    let file = deployment(folder.path(), "one.toml", "real", &addresses);
    let _node = node(&file, 0, folder.path());
    for head in [
        format!("GET /net HTTP/1.1\nHost: {http}\n"),
        format!("POST /net/cut HTTP/1.1\nHost: {http}\n{json}"),
    ] {
        let (status, text) = said(http, &head, "");
        assert!(status == 404 && !text.contains("/net"), "{status} {text}");
    }
    let (status, out, err) = outcome(["net", "cut", "R0", "--http", &http.to_string()]);
    assert_eq!((status, out.as_str()), (2, ""), "{err}");
    assert!(err.starts_with("isochrone: the network of real is a real one: n0, which answers at "), "{err}");
}
