//! The audit log of a node: what its clients and administrators have done is in it, whoever they asked through, and no
//! secret; and who changes it is found out.

use super::grpc::wait;
use super::processes::{
    Addresses, PATIENCE, TOKEN, client, node, nodes, order, outcome, page_within, until, writes,
};
use super::resp::Reply;
use isochrone_client::Client;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

/// What the lines say, the node's own among them, one each.
fn told(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let part = |line: &Value, part: &str| line[part].as_str().unwrap_or("-").to_owned();
    let shown = |line: Value| {
        let from = line["address"].as_str().is_none_or(|from| from.starts_with("127.0.0.1"));
        assert!(from && line["node"] == "n0", "{line}");
        ["via", "user", "act", "object", "decision"].map(|name| part(&line, name)).join(" ")
    };
    lines.map(shown).collect()
}

/// The verdict on a log, as a program reads it.
fn verdict(words: &[&str]) -> (i32, Value) {
    let (status, out, err) = outcome([&["audit", "--format", "json"], words].concat());
    (status, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}")))
}

#[test]
fn what_is_done_through_every_gateway_is_kept_and_cannot_be_changed_unnoticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let Addresses { redis, grpc, http, .. } = nodes(1).remove(0);
    let users =
        "user default off\nuser root on >toor ~* &* +@all\nuser app on >secret ~app:* +@all -@dangerous\n";
    fs::write(path.join("users.acl"), users).unwrap();
    let file = path.join("one.toml");
    let text = format!(
        "cluster = \"audit\"\n[[region]]\nname = \"R0\"\n[[node]]\nname = \"n0\"\nregion = \"R0\"\nredis = \"{redis}\"\n\
         grpc = \"{grpc}\"\nhttp = \"{http}\"\n[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\n[security]\n\
         aclfile = \"users.acl\"\naudit = \"{{node}}-audit.jsonl\"\n"
    );
    fs::write(&file, text).unwrap();
    let log = path.join("n0-audit.jsonl");
    let mut process = node(&file, 0, path);

    let ok = || Reply::Text("OK".to_owned());
    let mut root = client(redis);
    assert!(matches!(root.ask(&["AUTH", "root", "guess"]), Ok(Reply::Error(_))));
    // Of a name that is no text.
    let mut raw = TcpStream::connect(redis).unwrap();
    raw.write_all(b"*3\r\n$4\r\nAUTH\r\n$1\r\n\xff\r\n$5\r\nguess\r\n").unwrap();
    let mut answer = [0; 10];
    raw.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"-WRONGPASS");
    assert_eq!(root.ask(&["AUTH", "root", "toor"]).unwrap(), ok());
    until("a write", || writes(&mut root));
    let mut app = client(redis);
    assert_eq!(app.ask(&["AUTH", "app", "secret"]).unwrap(), ok());
    assert!(matches!(app.ask(&["GET", "other"]), Ok(Reply::Error(_))));
    assert_eq!(root.ask(&["ACL", "SETUSER", "eve", "on", ">planted", "~*"]).unwrap(), ok());
    assert_eq!(root.ask(&["CONFIG", "SET", "slowlog-max-len", "7"]).unwrap(), ok());
    assert_eq!(root.ask(&["FLUSHALL"]).unwrap(), ok());
    wait(async {
        let keyspace = async |password: &str| {
            let builder = Client::builder([grpc.to_string()]).login("app", password);
            builder.connect().await.unwrap().keyspace("main")
        };
        keyspace("guess").await.get("app:1").await.unwrap_err();
        let app = keyspace("secret").await;
        app.get("app:1").await.unwrap();
        let denied = app.get("other".repeat(40)).await.unwrap_err().to_string();
        assert!(denied.contains("key: \"otherotherotherotherotherotherot\"..200B"), "{denied}");
    });
    assert!(page_within(http, "/admin/ranges?keyspace=main", PATIENCE).unwrap().contains("Bearer"));
    let metrics = page_within(http, "/metrics", PATIENCE).unwrap();
    assert!(metrics.contains("isochrone_audit_acts_total{outcome=\"lost\"} 0\n"), "{metrics}");
    assert_eq!(order(http, "/admin/move-leader", "{\"keyspace\": \"hidden\", \"node\": \"n0\"}").0, 400);
    assert_eq!(order(http, "/admin/stop", "{}").0, 202);
    assert_eq!(process.end(), Some(0));

    expect_test::expect![[r#"
        node - START isochrone VERSION allowed
        redis root AUTH - denied
        redis � AUTH - denied
        redis root AUTH - allowed
        redis app AUTH - allowed
        redis app GET other denied
        redis root ACL SETUSER eve on >(redacted) ~* allowed
        redis root CONFIG SET slowlog-max-len 7 allowed
        redis root FLUSHALL - allowed
        grpc app Get - denied
        grpc app Get - allowed
        grpc app Get - denied
        http - GET /admin/ranges - denied
        http - POST /admin/move-leader - failed
        http - POST /admin/stop {} allowed
        node - STOP - allowed
    "#]]
    .assert_eq(&(told(&log).join("\n") + "\n").replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    let whole = fs::read_to_string(&log).unwrap();
    for secret in ["toor", "secret", "planted", "guess", "hidden", TOKEN] {
        assert!(!whole.contains(secret), "{secret}: {whole}");
    }
    let shown = log.to_str().unwrap();
    let (status, before) = verdict(&[shown]);
    assert_eq!((status, &before["whole"], &before["lines"]), (0, &true.into(), &16.into()), "{before}");
    let digest = before["digest"].as_str().unwrap();

    // It goes on where it was.
    process = node(&file, 0, path);
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));
    let (status, after) = verdict(&[shown, "--digest", digest]);
    assert_eq!((status, &after["lines"], &after["lost"]), (0, &18.into(), &0.into()), "{after}");

    let changed = path.join("changed.jsonl");
    fs::write(&changed, whole.replacen("\"root\"", "\"toor\"", 1)).unwrap();
    let (status, found) = verdict(&[changed.to_str().unwrap()]);
    assert_eq!((status, &found["whole"], &found["line"]), (1, &false.into(), &3.into()), "{found}");
    let (status, out, _) = outcome(["audit", changed.to_str().unwrap()]);
    assert!(status == 1 && out.contains("changed.jsonl: line 3 does not follow line 2"), "{out}");
    // Cut off behind a whole line, it passes for who has kept no digest.
    let short: String = whole.lines().take(7).map(|line| line.to_owned() + "\n").collect();
    fs::write(&changed, short).unwrap();
    assert_eq!(verdict(&[changed.to_str().unwrap()]).0, 0);
    assert_eq!(verdict(&[changed.to_str().unwrap(), "--digest", digest]).0, 1);
    assert_eq!(outcome(["audit", path.to_str().unwrap()]).0, 2);
    // No node writes behind what is none.
    fs::write(&log, "other\n").unwrap();
    let data = path.join("other").to_str().unwrap().to_owned();
    let (status, _, err) = outcome(["node", file.to_str().unwrap(), "--name", "n0", "--data", &data]);
    assert!(status == 2 && err.contains("n0-audit.jsonl: this is no audit log"), "{err}");
}
