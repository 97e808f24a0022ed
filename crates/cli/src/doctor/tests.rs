use super::*;
use expect_test::expect;
use isochrone_core::deployment::ConfigErrors;
use serde_json::json;
use std::path::Path;

/// A deployment with this at its end.
pub(super) fn three_nodes(end: &str) -> Deployment {
    three_at(["10.0.0.1", "10.1.0.1", "10.2.0.1"], end)
}

/// The same, of nodes at these hosts.
pub(super) fn three_at(hosts: [&str; 3], end: &str) -> Deployment {
    let mut text = "cluster = \"shop\"\n".to_owned();
    let names = [("va1", "US East"), ("or1", "US West"), ("fr1", "Euro")];
    for (host, (name, region)) in hosts.into_iter().zip(names) {
        text += &format!(
            "[[region]]\nname = \"{region}\"\n[[node]]\nname = \"{name}\"\nregion = \"{region}\"\n\
             listen = \"{host}:7000\"\nredis = \"{host}:6379\"\n"
        );
    }
    text += &format!("[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\n{end}\n");
    let known = protocols::known().insecure(true);
    Deployment::parse(&text, "shop.toml", Path::new(""), &known).unwrap()
}

pub(super) fn case(deployment: Deployment, told: Option<Told>, locked: Option<bool>) -> Case {
    Case { deployment, me: NodeId(0), data: None, told, locked: locked.map(Ok) }
}

#[test]
fn checks_are_a_table_and_one_object() {
    let checks = vec![
        Check::ok("file", "shop.toml: va1 is one of 3 nodes"),
        Check::warn("disk sync", "median 12.0 ms", "use one\n  that is quicker"),
        Check::fail("round trip to or1", "cannot be\u{1b}[2J", "see"),
    ];
    let (cluster, node) = ("shop".to_owned(), "va1".to_owned());
    let view = View { cluster, node, verdict: Verdict::Fail, checks };
    expect![[r#"
        va1 of shop

          ok    file               shop.toml: va1 is one of 3 nodes
          warn  disk sync          median 12.0 ms
                                     use one
                                     that is quicker
          fail  round trip to or1  cannot be?[2J
                                     see

        1 failed, 1 warning
    "#]]
    .assert_eq(&text(&view));
    expect![[r#"{"cluster":"shop","node":"va1","verdict":"fail","checks":[{"name":"file","verdict":"ok","found":"shop.toml: va1 is one of 3 nodes","advice":null},{"name":"disk sync","verdict":"warn","found":"median 12.0 ms","advice":"use one\n  that is quicker"},{"name":"round trip to or1","verdict":"fail","found":"cannot be\u001b[2J","advice":"see"}]}"#]]
    .assert_eq(&serde_json::to_string(&view).unwrap());
    let good = View { verdict: Verdict::Ok, checks: Vec::new(), ..view };
    assert!(text(&good).ends_with("\nnothing has failed, 0 warnings\n"), "{}", text(&good));
}

#[test]
fn what_makes_a_deployment_unsafe_is_told() {
    let told = |end: &str| -> Vec<(String, Verdict)> {
        let case = case(three_nodes(end), None, None);
        file(&case).into_iter().map(|check| (check.name, check.verdict)).collect()
    };
    let check = |name: &str, verdict| (name.to_owned(), verdict);
    let (good, plain) = (check("file", Verdict::Ok), check("plain text", Verdict::Warn));
    let node = check("node", Verdict::Ok);
    assert_eq!(told(""), [good.clone(), plain.clone(), node.clone()]);
    let off = "[journal]\nfsync = \"off\"";
    assert_eq!(told(off), [good.clone(), check("fsync", Verdict::Warn), plain.clone(), node.clone()]);
    let none = "[security]\nclient_cert = \"none.pem\"\nclient_key = \"none.key\"";
    assert_eq!(told(none), [good, plain, check("certificates", Verdict::Fail), node]);
}

#[test]
fn certificates_are_told_of_a_month_before_they_run_out() {
    let now = 1_000 * DAY;
    let check = |days: &[u64]| {
        let names = ["authority", "peer", "client"];
        let ends: Vec<_> = names.into_iter().zip(days).map(|(name, left)| (name, now + left * DAY)).collect();
        let check = certificates(&Validity { begins: now, ends }, now);
        (check.verdict, check.found)
    };
    let found = "authority is good for 3000 days, peer is good for 31 days".to_owned();
    assert_eq!(check(&[3_000, 31]), (Verdict::Ok, found));
    let found = "authority is good for 3000 days, peer is good for 1 day".to_owned();
    assert_eq!(check(&[3_000, 1]), (Verdict::Warn, found));
    assert_eq!(check(&[3_000, 31, 0]).0, Verdict::Fail);
    assert_eq!(check(&[]).0, Verdict::Ok);
    // By a clock that is two days behind.
    let early = Validity { begins: now + 2 * DAY, ends: vec![("peer", now + 40 * DAY)] };
    let check = certificates(&early, now);
    let found = "by this machine's clock they are good in 2 days only".to_owned();
    assert_eq!((check.verdict, check.found), (Verdict::Fail, found));
}

#[test]
fn an_audit_log_that_cannot_be_written_is_told_of_and_none_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let check = |place: &str| {
        let path = folder.path().join(place).join("{node}.jsonl");
        let end = format!("[security]\naudit = {:?}", path.to_str().unwrap());
        audit(&case(three_nodes(&end), None, None)).unwrap()
    };
    assert_eq!(check("").verdict, Verdict::Ok);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "it was made");
    std::fs::write(folder.path().join("va1.jsonl"), "other\n").unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for (place, told) in [
        ("none", "none/va1.jsonl: the audit log cannot be opened: "),
        ("file", "file/va1.jsonl: the audit log cannot be opened: "),
        ("", "va1.jsonl: this is no audit log; "),
    ] {
        let check = check(place);
        assert!(check.verdict == Verdict::Fail && check.found.contains(told), "{}", check.found);
    }
    assert_eq!(audit(&case(three_nodes(""), None, None)), None);
    assert_eq!(folder.path().read_dir().unwrap().count(), 2, "something was made");
}

#[test]
fn a_node_runs_that_says_so_or_has_its_directory_open() {
    let told = |ready: bool, stopping: bool| -> Option<Told> {
        let told = json!({"node": "va1", "version": "0.1.0", "ready": ready, "stopping": stopping});
        Some(serde_json::from_value(told).unwrap())
    };
    let found = |told, locked| {
        let case = case(three_nodes(""), told, locked);
        let Check { verdict, found, .. } = running(&case);
        (case.runs(), verdict, found)
    };
    let says = |text: &str| text.to_owned();
    assert_eq!(found(None, None), (false, Verdict::Ok, says("is not seen to run here")));
    assert_eq!(found(None, Some(false)), (false, Verdict::Ok, says("is not seen to run here")));
    assert_eq!(found(None, Some(true)), (true, Verdict::Ok, says("runs, and tells nothing over HTTP")));
    assert_eq!(found(told(true, false), None), (true, Verdict::Ok, says("runs, version 0.1.0, ready")));
    assert_eq!(found(told(false, true), None), (true, Verdict::Ok, says("runs, version 0.1.0, stopping")));
    assert_eq!(
        found(told(false, false), None),
        (true, Verdict::Warn, says("runs, version 0.1.0, not ready"))
    );
}

#[test]
fn what_a_node_would_not_start_for_is_told_in_its_words() {
    let errors = [
        StartError::Journal(JournalError::NotIsochrone { path: "/data".into(), entry: "photos.zip".into() }),
        StartError::Config(ConfigErrors::one("shop.toml", 7, "it is wrong", "make it right")),
        StartError::Layout {
            path: "/data/KEYSPACES".into(),
            cause: "it is another; write it as it was".into(),
        },
    ];
    let told = errors.map(|error| Check::refused("it", error));
    assert!(told.iter().all(|check| check.verdict == Verdict::Fail));
    let lines = told.map(|check| format!("{} | {}\n", check.found, check.advice.unwrap_or_default()));
    expect![[r#"
        /data: not an isochrone data directory: found `photos.zip` but no IDENTITY file | Name this node's own directory; an empty or a new one only where it has never run.
        shop.toml:7: it is wrong | make it right
        /data/KEYSPACES: it is another; write it as it was | 
    "#]]
    .assert_eq(&lines.concat());
}

#[test]
fn what_hangs_is_left_to_itself() {
    let (hold, held) = sync_channel::<()>(0);
    let begun = begin(move || held.recv().is_err());
    assert_eq!(within(&begun, Instant::now()), None);
    drop(hold);
    assert_eq!(within(&begun, Instant::now() + REST), Some(true));
}
