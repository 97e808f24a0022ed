//! What holds the lines together, and what happens where some are missing.

use super::*;
use chain::{NOTHING, end};
use expect_test::expect;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use tempfile::TempDir;

/// A folder, and a log in it that is not there yet.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    (folder, path)
}

/// Of a node that has come to serve.
fn served(path: &Path, metrics: Arc<AuditMetrics>) -> (Audit, Keeper) {
    let (audit, mut keeper) = open(path).unwrap().start("va1", metrics).unwrap();
    keeper.serves();
    (audit, keeper)
}

/// What a node writes that is told this.
fn write(path: &Path, acts: &[&str]) -> Arc<AuditMetrics> {
    let metrics = Arc::new(AuditMetrics::default());
    let (audit, keeper) = served(path, Arc::clone(&metrics));
    for act in acts {
        audit.tell(Act { user: Some("eve".to_owned()), ..Act::new("redis", *act, Decision::Allowed) });
    }
    drop(keeper);
    metrics
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn records(path: &Path) -> Vec<Record> {
    lines(path).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Of a log of these lines.
fn verdict(lines: &[String], digest: Option<&str>) -> Result<Summary, String> {
    let text: String = lines.iter().map(|line| line.clone() + "\n").collect();
    verify(text.as_bytes(), digest).map_err(|fault| fault.to_string())
}

#[test]
fn a_line_says_who_did_what_and_carries_the_digest_of_the_line_before() {
    let (_folder, path) = place();
    write(&path, &["FLUSHALL"]);
    let text = lines(&path);
    assert_eq!(text.len(), 3);
    let mut second: Record = serde_json::from_str(&text[1]).unwrap();
    assert_eq!(second.previous, sha256(text[0].as_bytes()));
    assert!(second.time.starts_with("20") && second.time.ends_with('Z'), "{}", second.time);
    (second.time, second.previous) = ("T".to_owned(), "P".to_owned());
    expect![[r#"{"time":"T","node":"va1","via":"redis","user":"eve","act":"FLUSHALL","decision":"allowed","previous":"P"}"#]]
        .assert_eq(&serde_json::to_string(&second).unwrap());
    let acts: Vec<_> = records(&path).into_iter().map(|record| record.act).collect();
    assert_eq!(acts, ["START", "FLUSHALL", "STOP"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn times_are_those_of_rfc_3339() {
    for (seconds, micros, expected) in
        [(0, 0, "1970-01-01T00:00:00.000000Z"), (1_709_210_096, 12, "2024-02-29T12:34:56.000012Z")]
    {
        assert_eq!(time(UNIX_EPOCH + Duration::new(seconds, micros * 1_000)), expected);
    }
}

#[test]
fn what_was_written_is_whole_also_over_restarts() {
    let (_folder, path) = place();
    write(&path, &["A", "B"]);
    let first = verdict(&lines(&path), None).unwrap();
    write(&path, &["C"]);
    let all = verdict(&lines(&path), None).unwrap();
    assert_eq!((first.lines, all.lines, all.allowed, all.lost, all.torn), (4, 7, 7, 0, 0));
    assert_eq!(all.nodes.iter().collect::<Vec<_>>(), ["va1"]);
    assert_eq!(all.digest, sha256(lines(&path)[6].as_bytes()));
    // What was told of it before is still there.
    assert_eq!(verdict(&lines(&path), Some(&first.digest)).unwrap(), all);
    assert_eq!(verdict(&lines(&path), Some(NOTHING)).unwrap(), all);
    assert_eq!(verdict(&[], None).unwrap().digest, NOTHING);
}

#[test]
fn a_line_that_was_changed_removed_moved_or_added_is_found() {
    let (_folder, path) = place();
    write(&path, &["A", "B", "C"]);
    let whole = lines(&path);
    let digest = verdict(&whole, None).unwrap().digest;
    for line in 0..whole.len() - 1 {
        let broken = format!("line {} does not follow line {}: ", line + 2, line + 1);
        let mut changed = whole.clone();
        changed[line] = changed[line].replace("va1", "or1");
        let mut moved = whole.clone();
        moved.swap(line, line + 1);
        let mut twice = whole.clone();
        twice.insert(line, whole[line].clone());
        let mut removed = whole.clone();
        removed.remove(line);
        assert!(verdict(&changed, None).unwrap_err().starts_with(&broken), "{line}");
        assert!(verdict(&twice, None).unwrap_err().starts_with(&broken), "{line}");
        for (lines, what) in [(moved, "moved"), (removed, "removed")] {
            let error = verdict(&lines, None).unwrap_err();
            match line {
                0 => assert!(error.starts_with("line 1 is not the first"), "{what}: {error}"),
                _ => assert!(error.starts_with(&format!("line {} does not", line + 1)), "{what}: {error}"),
            }
        }
    }
    // The last line is held by its digest alone.
    let mut changed = whole.clone();
    changed[4] = changed[4].replace("va1", "or1");
    for lines in [&changed[..], &whole[..4]] {
        verdict(lines, None).unwrap();
        assert!(verdict(lines, Some(&digest)).unwrap_err().starts_with("no line has the digest "));
    }
    let mut strange = whole;
    strange[2] = "{}".to_owned();
    assert_eq!(verdict(&strange, None).unwrap_err(), "line 3 is none of an audit log");
    strange[2] = "x".repeat(100_000);
    assert_eq!(verdict(&strange, None).unwrap_err(), "line 3 is none of an audit log");
}

#[test]
fn what_a_crash_has_left_of_a_line_is_cut_off_and_told() {
    for rest in ["{\"time\":\"2026", "\0\0\0\0", "{\"time\":\"20\n\0\0\n\0"] {
        let (_folder, path) = place();
        write(&path, &["A"]);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, whole.clone() + rest).unwrap();
        if !rest.contains('\n') {
            let found = verify(fs::read(&path).unwrap().as_slice(), None).unwrap();
            assert_eq!((found.lines, found.torn), (3, rest.len() as u64), "{rest:?}");
        }
        write(&path, &["B"]);
        assert!(fs::read_to_string(&path).unwrap().starts_with(&whole));
        let found = verdict(&lines(&path), None).unwrap();
        assert_eq!((found.lines, found.failed), (7, 1));
        let told = &records(&path)[3];
        let why = told.why.as_ref().unwrap();
        assert!(told.act == "AUDIT" && why.starts_with(&format!("{} bytes", rest.len())), "{told:?}");
    }
    // Also of the first.
    let (_folder, path) = place();
    fs::write(&path, "{\"time\":\"2026-01").unwrap();
    write(&path, &[]);
    assert_eq!(records(&path)[0].act, "AUDIT");
    verdict(&lines(&path), None).unwrap();
}

/// The pages of one write come to the disk in any order.
#[test]
fn what_a_crash_has_left_of_a_long_write_is_cut_off_from_where_it_is_not_whole() {
    let (_folder, path) = place();
    write(&path, &["A"]);
    let whole = fs::read(&path).unwrap();
    write(&path, &["B", "C"]);
    // Whole lines behind a page that is lost.
    let mut lost = fs::read(&path).unwrap();
    lost[whole.len() + 20..whole.len() + 40].fill(0);
    // No whole line in the end that is looked at first.
    let long = [&whole[..], &vec![b'x'; 2 << 20]].concat();
    for left in [lost, long] {
        fs::write(&path, &left).unwrap();
        write(&path, &["D"]);
        assert!(fs::read(&path).unwrap().starts_with(&whole));
        let found = verdict(&lines(&path), None).unwrap();
        assert_eq!((found.lines, found.failed), (7, 1));
        let why = records(&path)[3].why.clone().unwrap();
        assert!(why.starts_with(&format!("{} bytes", left.len() - whole.len())), "{why}");
    }
}

#[test]
fn no_other_file_is_taken_for_an_audit_log_and_none_has_two_writers() {
    let (folder, path) = place();
    for other in ["[security]\n", "{\"client\":0}\n", "\0\0\0\0\0\0\0\0\0\0\0\0"] {
        fs::write(&path, other).unwrap();
        let error = open(&path).err().unwrap();
        assert!(error.starts_with("this is no audit log"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), other);
        let fault = verify(other.as_bytes(), None).unwrap_err();
        assert_eq!(fault.to_string(), "line 1 is none of an audit log");
    }
    fs::remove_file(&path).unwrap();
    let held = open(&path).unwrap();
    let error = open(&path).err().unwrap();
    assert!(error.contains("another node writes this audit log; write {node}"), "{error}");
    drop(held);
    let error = open(&folder.path().join("none/audit.jsonl")).err().unwrap();
    assert!(error.starts_with("the audit log cannot be opened: No such file"), "{error}");
}

/// Of the log at this path, as one that has written it goes on.
fn writer(path: &Path, metrics: &Arc<AuditMetrics>, untold: u64) -> Writer {
    let file = OpenOptions::new().read(true).append(true).open(path).unwrap();
    let end = end(&file).unwrap().unwrap();
    Writer {
        file,
        path: path.to_owned(),
        length: end.length,
        previous: end.previous,
        node: "va1".to_owned(),
        unfit: false,
        failing: false,
        losses: Arc::new(Losses { metrics: Arc::clone(metrics), untold: AtomicU64::new(untold) }),
    }
}

fn flush() -> Act {
    Act::new("redis", "FLUSHALL", Decision::Allowed)
}

/// What is told meanwhile is missing, and a line says how much.
#[test]
fn what_could_not_be_written_is_counted_and_told_when_it_goes_on() {
    let (_folder, path) = place();
    write(&path, &[]);
    let before = lines(&path).len();
    let metrics = Arc::new(AuditMetrics::default());
    let mut writer = writer(&path, &metrics, 2);
    // One that may not be written.
    let file = std::mem::replace(&mut writer.file, File::open(&path).unwrap());
    let acts = [(); 3].map(|()| writer.record(SystemTime::now(), flush()));
    writer.write(acts.into());
    assert_eq!((lines(&path).len(), writer.failing), (before, true));
    writer.file = file;
    let act = writer.record(SystemTime::now(), flush());
    writer.write(vec![act]);
    let records = records(&path);
    assert_eq!((records.len(), writer.failing), (before + 2, false));
    assert_eq!((records[before].lost, records[before].act.as_str()), (Some(5), "AUDIT"));
    assert_eq!(verdict(&lines(&path), None).unwrap().lost, 5);
    let mut page = Page::default();
    metrics.show(&mut page);
    let page = page.finish();
    // Those that were lost before were counted then.
    for line in ["acts_total{outcome=\"kept\"} 2\n", "acts_total{outcome=\"lost\"} 3\n"] {
        assert!(page.contains(line), "{page}");
    }
}

/// What is written to the one is gone when it is closed, and the other would be filled up with zeros.
#[test]
fn a_file_that_was_removed_or_cut_takes_nothing() {
    let (_folder, path) = place();
    write(&path, &[]);
    let metrics = Arc::new(AuditMetrics::default());
    let mut writer = writer(&path, &metrics, 0);
    let length = writer.length - 1;
    writer.file.set_len(length).unwrap();
    // What was written last has failed.
    writer.unfit = true;
    let act = writer.record(SystemTime::now(), flush());
    writer.write(vec![act.clone()]);
    assert_eq!((fs::metadata(&path).unwrap().len(), writer.failing), (length, true));
    fs::remove_file(&path).unwrap();
    (writer.unfit, writer.failing) = (false, false);
    writer.write(vec![act]);
    assert!(writer.failing);
    assert_eq!((metrics.kept.load(Relaxed), metrics.lost.load(Relaxed)), (0, 2));
}

#[test]
fn what_comes_one_after_the_other_is_written_together_until_the_end() {
    let (_folder, path) = place();
    write(&path, &[]);
    let writer = writer(&path, &Arc::default(), 0);
    let (queue, told) = sync_channel(1);
    let act = || Told::Act(SystemTime::now(), Box::new(flush()));
    queue.send(act()).unwrap();
    let teller = std::thread::spawn(move || {
        // Once the one before it was taken.
        queue.send(act()).unwrap();
        queue.send(Told::End(Box::new(Act::new("node", "STOP", Decision::Allowed)))).unwrap();
    });
    let (acts, last) = writer.gather(&told, Duration::from_secs(600));
    teller.join().unwrap();
    let acts: Vec<_> = acts.into_iter().map(|record| record.act).collect();
    assert_eq!(acts, ["FLUSHALL", "FLUSHALL", "STOP"]);
    assert!(last);
}

#[test]
fn of_a_node_that_fails_the_last_line_says_why() {
    let (_folder, path) = place();
    let (_audit, mut keeper) = served(&path, Arc::default());
    keeper.fails("the disk is gone".to_owned());
    drop(keeper);
    // Another start comes to nothing.
    drop(open(&path).unwrap().start("va1", Arc::default()).unwrap());
    let stops = records(&path).into_iter().filter(|record| record.act == "STOP");
    let told: Vec<_> = stops.map(|record| (record.decision, record.why.unwrap())).collect();
    let failed = |why: &str| (Decision::Failed, why.to_owned());
    assert_eq!(told, [failed("the disk is gone"), failed("it did not come to serve")]);
}

#[test]
fn strangers_have_no_more_written_than_so_much_and_keep_nobody_out() {
    let (_folder, path) = place();
    let metrics = Arc::new(AuditMetrics::default());
    let (audit, keeper) = served(&path, Arc::clone(&metrics));
    let mut allowance = Allowance { left: 2, since: Instant::now() };
    let start = allowance.since;
    let taken = [0, 0, 0, 100, 100, 200].map(|at| allowance.take(start + Duration::from_millis(at)));
    assert_eq!(taken, [true, true, false, true, false, true]);
    let later = Instant::now() + Duration::from_secs(3_600);
    *audit.0.allowances.lock().unwrap() = [(); KINDS].map(|()| Allowance { left: 1, since: later });
    for _ in 0..3 {
        let order = |act: &str| Pending::new(&audit, Act::new("http", act, Decision::Allowed));
        audit.tell(Act { login: true, ..Act::new("redis", "AUTH", Decision::Denied) });
        order("GET /admin/ranges").of_stranger().ends(Decision::Denied, None);
        audit.tell(Act { login: true, ..Act::new("redis", "AUTH", Decision::Allowed) });
        audit.tell(Act::new("redis", "GET", Decision::Denied));
        order("POST /admin/stop").ends(Decision::Failed, None);
        audit.tell(Act::new("redis", "ACL SAVE", Decision::Allowed));
    }
    drop(keeper);
    let found = verdict(&lines(&path), None).unwrap();
    let acts: Vec<_> = records(&path).into_iter().map(|record| record.act).collect();
    let count = |act: &str| acts.iter().filter(|other| *other == act).count();
    let each = ["AUTH", "GET /admin/ranges", "GET", "POST /admin/stop", "ACL SAVE"].map(count);
    assert_eq!((each, found.lost), ([2, 0, 1, 1, 3], 11), "{acts:?}");
}

#[test]
fn texts_are_cut_and_whatever_they_are_a_line_is_one() {
    let (_folder, path) = place();
    let (audit, keeper) = served(&path, Arc::default());
    for bytes in [&b"a\nb\r\"\\"[..], &[0; 5_000], &[0xff; 5_000], "é".repeat(5_000).as_bytes()] {
        let part = Some(String::from_utf8_lossy(bytes).into_owned());
        let act = Act::new("redis", text(bytes), Decision::Denied);
        audit.tell(Act { user: part.clone(), object: part.clone(), why: part, ..act });
    }
    drop(keeper);
    verdict(&lines(&path), None).unwrap();
    let records = records(&path);
    assert_eq!((records.len(), records[1].act.as_str()), (6, "a\nb\r\"\\"));
    assert!(records[2..5].iter().all(|record| record.act.ends_with("...") && record.act.len() < 300));
}

/// However long the disk hangs, so many acts that wait take little room.
#[test]
fn texts_are_cut_before_they_wait() {
    let (queue, told) = sync_channel(1);
    let losses = Losses { metrics: Arc::default(), untold: AtomicU64::new(0) };
    let allowances = Mutex::new([(); KINDS].map(|()| Allowance::new()));
    let audit = Audit(Arc::new(Shared { queue, allowances, losses: Arc::new(losses) }));
    let long = || Some("x".repeat(1 << 20));
    audit.tell(Act { user: long(), keyspace: long(), object: long(), why: long(), ..flush() });
    let Ok(Told::Act(_, act)) = told.recv() else { panic!("no act is told") };
    for part in [act.user, act.keyspace, act.object, act.why] {
        assert!(part.is_some_and(|part| part.len() < 300));
    }
}
