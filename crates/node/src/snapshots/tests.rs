//! Snapshots against a damaged engine: what a start may and may not make of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use expect_test::{Expect as Golden, expect};
use isochrone_core::wire::RECORDED;
use isochrone_core::{Blob, Snapshot};

use super::*;
use crate::journal::format::seal_sector;
use crate::journal::{
    DataDirectory, Expect, JournalError, JournalOptions, JournalThread, Position, StreamId,
};

const A: StreamId = StreamId(0xa);
const B: StreamId = StreamId(0xb);

/// A process whose state is the text of its records, one after another.
#[derive(Default, Debug, PartialEq, Eq, Clone)]
struct Text(String);

impl Text {
    fn snapshot(&self) -> Snapshot {
        let chunks: Vec<Blob> = self.0.as_bytes().chunks(8).map(Blob::new).collect();
        Box::new(chunks.into_iter())
    }
}

/// A node with two such processes; `A` takes snapshots.
struct Node {
    journal: JournalThread,
    snapshots: SnapshotThread,
    a: Text,
    b: Text,
}

impl Node {
    fn start(path: &Path) -> Result<Self, SnapshotError> {
        Self::start_as(0, path)
    }

    /// Where its directory is known to be of this birth.
    fn start_as(birth: u64, path: &Path) -> Result<Self, SnapshotError> {
        let directory = DataDirectory::open(path, 7, 1, Expect::Anything)?;
        let options = JournalOptions {
            birth,
            segment_first: 4 << 10,
            segment_max: 4 << 10,
            seed: Some(1),
            ..JournalOptions::new(7, 1)
        };
        let mut start = Start::open(directory, options)?;
        let (mut a, mut b) = (Text::default(), Text::default());
        for (stream, text) in [(A, &mut a), (B, &mut b)] {
            if let Some(found) = start.snapshot(stream)? {
                for chunk in found.chunks {
                    text.0 += std::str::from_utf8(&chunk?).unwrap();
                }
            }
        }
        start.replay(|stream, payload| {
            let text = if stream == A { &mut a } else { &mut b };
            text.0 += std::str::from_utf8(payload).unwrap();
        })?;
        let (journal, store) = start.finish();
        let journal = JournalThread::start(journal, Box::new(|| {})).unwrap();
        let snapshots = SnapshotThread::start(store, journal.mark(), Box::new(|| {})).unwrap();
        Ok(Self { journal, snapshots, a, b })
    }

    fn record(&mut self, stream: StreamId, text: &str) {
        let position = self.journal.record(stream, |out| out.extend_from_slice(text.as_bytes()));
        let own = if stream == A { &mut self.a } else { &mut self.b };
        own.0 += text;
        assert!(self.journal.submit().unwrap());
        self.journal.mark().wait(position).unwrap();
    }

    /// Takes a snapshot of `A`, waits for it, and trims the journal as told.
    fn snapshot(&mut self) -> Option<Position> {
        let position = self.journal.next_position();
        assert!(self.snapshots.write(A, position, self.a.snapshot()));
        let (_, trim) = self.written().outcome.unwrap();
        if let Some(position) = trim {
            self.journal.truncate(A, position);
            self.record(B, "");
        }
        trim
    }

    fn written(&mut self) -> Written {
        loop {
            if let Some(written) = self.snapshots.written().pop() {
                return written;
            }
            std::thread::yield_now();
        }
    }
}

fn refusal(path: &Path) -> String {
    let error = Node::start(path).err().expect("the node must refuse to start");
    error.to_string().replace(&path.display().to_string(), "DIR")
}

fn check(golden: Golden, message: &str) {
    golden.assert_eq(&format!("{}\n", message.replace(". ", ".\n")));
}

/// A node that took `count` snapshots with records before, between and after them; with its text.
fn used(count: u64) -> (tempfile::TempDir, Text) {
    used_as(0, count)
}

/// The same in a directory of this birth.
fn used_as(birth: u64, count: u64) -> (tempfile::TempDir, Text) {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start_as(birth, dir.path()).unwrap();
    for round in 0..count {
        node.record(A, &format!("<round {round}: {}>", "x".repeat(1500)));
        node.snapshot();
    }
    node.record(A, "<after>");
    let text = node.a.clone();
    drop(node);
    (dir, text)
}

/// The files that hold the snapshots' chunks, in the order of writing.
fn tables(path: &Path) -> Vec<PathBuf> {
    let files = files_below(&path.join("snapshots")).into_iter();
    files.filter(|file| file.parent().unwrap().ends_with("keyspaces/1/tables")).collect()
}

fn damage(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(5).position(|window| window == b"xxxxx").unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_snapshot_and_the_records_since_make_the_state_again() {
    let (dir, text) = used(3);
    let node = Node::start(dir.path()).unwrap();
    assert_eq!(node.a, text);
    assert_eq!(tables(dir.path()).len(), 2, "two generations are kept");
}

#[test]
fn the_journal_is_trimmed_to_the_snapshot_before_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path()).unwrap();
    node.record(A, "one");
    let first = node.journal.next_position();
    assert_eq!(node.snapshot(), None);
    node.record(A, "two");
    assert_eq!(node.snapshot(), Some(first));
}

#[test]
fn one_damaged_snapshot_is_survived_on_the_spot() {
    let (dir, text) = used(3);
    damage(tables(dir.path()).last().unwrap());
    let mut node = Node::start(dir.path()).unwrap();
    assert_eq!(node.a, text);
    assert_eq!(node.snapshots.metrics().unusable.load(Relaxed), 1);
    // The damaged one does not count as a generation: the older one is still the one to fall back to.
    node.record(A, "<again>");
    let trim = node.snapshot();
    let text = node.a.clone();
    drop(node);
    assert!(trim.is_some());
    damage(tables(dir.path()).last().unwrap());
    assert_eq!(Node::start(dir.path()).unwrap().a, text);
}

#[test]
fn a_node_whose_snapshots_are_all_damaged_never_starts_emptier() {
    let (dir, _) = used(3);
    for table in tables(dir.path()) {
        damage(&table);
    }
    let message = refusal(dir.path());
    let (before, rest) = message.split_once(" and none is readable (").unwrap();
    let (reasons, after) = rest.rsplit_once("). ").unwrap();
    assert_eq!(reasons.split("; ").count(), 2, "{reasons}");
    let golden = expect![[r#"
        DIR/snapshots: process 000000000000000a needs a snapshot at position 3 or later, because the journal no longer holds its earlier records, Nothing was changed.
        Starting would forget acknowledged writes; do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
    "#]];
    check(golden, &format!("{before} {after}"));
}

#[test]
fn a_lost_engine_costs_a_replay_while_the_journal_is_whole_and_a_refusal_once_it_is_trimmed() {
    let (dir, text) = used(1);
    fs::remove_dir_all(dir.path().join("snapshots")).unwrap();
    assert_eq!(Node::start(dir.path()).unwrap().a, text);

    let (dir, _) = used(2);
    fs::remove_dir_all(dir.path().join("snapshots")).unwrap();
    let golden = expect![[r#"
        DIR/snapshots: process 000000000000000a needs a snapshot at position 2 or later, because the journal no longer holds its earlier records, and none is readable (there is none).
        Nothing was changed.
        Starting would forget acknowledged writes; do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
    "#]];
    check(golden, &refusal(dir.path()));
}

#[test]
fn a_snapshot_ahead_of_the_journal_proves_that_records_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path()).unwrap();
    node.record(A, "<one>");
    drop(node);
    let short = fs::read(dir.path().join("journal/segment-0000000000000001.journal")).unwrap();
    let mut node = Node::start(dir.path()).unwrap();
    node.record(A, "<two>");
    node.snapshot();
    drop(node);
    fs::write(dir.path().join("journal/segment-0000000000000001.journal"), short).unwrap();
    let golden = expect![[r#"
        DIR: the journal ends at position 1, but a snapshot of process 000000000000000a proves that it was durable up to position 2.
        Nothing was changed.
        Acknowledged records are missing; do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
    "#]];
    check(golden, &refusal(dir.path()));
}

#[test]
fn what_was_made_in_another_directory_is_refused_and_stays() {
    // Of one snapshot, which comes too early to be needed, and of two.
    for count in [1, 3] {
        let ((one, text), (other, others)) = (used_as(7, 3), used_as(8, count));
        for what in ["snapshots", "journal"] {
            let exchange = || {
                let (mine, theirs, aside) =
                    (one.path().join(what), other.path().join(what), one.path().join("aside"));
                fs::rename(&mine, &aside).unwrap();
                fs::rename(&theirs, &mine).unwrap();
                fs::rename(&aside, &theirs).unwrap();
            };
            let names = || {
                let entries = fs::read_dir(one.path().join("snapshots")).unwrap();
                let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                names
            };
            exchange();
            let before = names();
            for _ in 0..2 {
                let refused = refusal(one.path());
                assert!(refused.contains(": this was made in another data directory than what"), "{refused}");
            }
            assert_eq!(names(), before, "none is removed");
            exchange();
        }
        assert_eq!(Node::start_as(7, one.path()).unwrap().a, text);
        assert_eq!(Node::start_as(8, other.path()).unwrap().a, others);
    }
}

#[test]
fn a_snapshot_that_says_nothing_of_its_directory_is_taken_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SnapshotStore::open(dir.path()).unwrap();
    let chunks = || ["one", "two"].into_iter().map(Ok);
    let (first, _) = store.write(A, Position(5), chunks()).unwrap();
    store.bind(7);
    assert_eq!(store.newest(A, Position::ZERO).unwrap(), Some(first));
    let (second, _) = store.write(A, Position(9), chunks()).unwrap();
    assert_eq!(store.newest(A, Position::ZERO).unwrap(), Some(second));
    store.bind(8);
    let error = store.newest(A, Position::ZERO).unwrap_err();
    assert!(matches!(error, SnapshotError::Journal(JournalError::OtherDirectory { .. })), "{error}");
}

#[test]
fn what_the_system_denies_is_no_damage() {
    use rustix::io::Errno;
    let denied = |errno: Errno| {
        let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
        let told = super::store::denied(Path::new("SNAPSHOT"), &fjall::Error::Io(error));
        told.map(|error| error.to_string())
    };
    for errno in [Errno::ACCESS, Errno::PERM] {
        let told = denied(errno).unwrap();
        assert!(told.starts_with("SNAPSHOT: cannot open: ") && told.contains("Start the node as"), "{told}");
    }
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN] {
        let told = denied(errno).unwrap();
        assert!(told.contains("LimitNOFILE"), "{told}");
    }
    let told = denied(Errno::NOSPC).unwrap();
    assert!(told.starts_with("SNAPSHOT: the disk is full: there is no room. "), "{told}");
    assert_eq!([Errno::IO, Errno::NOENT].map(denied), [None, None]);
}

#[test]
fn a_snapshot_that_cannot_be_opened_is_named_and_what_is_none_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let snapshots = dir.path().join("snapshots");
    let openable = || SnapshotStore::openable(&snapshots);
    openable().unwrap();
    let name = format!("{A}-{:016x}-{:016x}", 1, 2);
    // Permissions would not keep the system's own user out.
    let shut = |folder: &str| {
        fs::create_dir_all(snapshots.join(folder)).unwrap();
        std::os::unix::fs::symlink("lock", snapshots.join(folder).join("lock")).unwrap();
    };
    shut("lost+found");
    shut(&format!("{name}.new"));
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::write(elsewhere.join("table"), b"").unwrap();
    fs::create_dir(snapshots.join(&name)).unwrap();
    // One that lies elsewhere, and one that is gone.
    std::os::unix::fs::symlink(&elsewhere, snapshots.join(&name).join("tables")).unwrap();
    std::os::unix::fs::symlink("gone", snapshots.join(&name).join("a")).unwrap();
    openable().unwrap();
    shut(&format!("{name}/keyspaces"));
    let error = openable().unwrap_err().to_string();
    assert!(error.contains(&format!("{name}/keyspaces/lock: cannot open: ")), "{error}");
}

#[test]
fn a_snapshot_waits_for_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path()).unwrap();
    node.journal.record(A, |out| out.extend_from_slice(b"not yet handed over"));
    let position = node.journal.next_position();
    assert!(node.snapshots.write(A, position, node.a.snapshot()));
    assert!(!node.snapshots.write(A, position, node.a.snapshot()), "one at a time for each stream");
    assert!(node.snapshots.written().is_empty());
    node.journal.submit().unwrap();
    assert_eq!(node.written().outcome.unwrap().0.position, position);

    // It never comes: neither a stopped journal nor a stopping node leaves anybody waiting.
    let position = node.journal.next_position().next();
    assert!(node.snapshots.write(A, position, node.a.snapshot()));
    drop(node.journal);
    assert!(matches!(
        node.snapshots.written_blocking().outcome,
        Err(SnapshotError::Journal(JournalError::ThreadGone))
    ));
}

impl SnapshotThread {
    fn written_blocking(&mut self) -> Written {
        loop {
            if let Some(written) = self.written().pop() {
                return written;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_snapshot_that_is_given_up_leaves_the_earlier_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SnapshotStore::open(dir.path()).unwrap();
    let good = || ["one", "two"].into_iter().map(Ok);
    let (first, _) = store.write(A, Position(5), good()).unwrap();
    let broken = good().chain([Err(SnapshotError::Stopping)]);
    assert!(matches!(store.write(A, Position(9), broken), Err(SnapshotError::Stopping)));
    drop(store);
    let mut store = SnapshotStore::open(dir.path()).unwrap();
    assert_eq!(store.newest(A, Position::ZERO).unwrap(), Some(first));
    assert_eq!(store.write(A, Position(9), good()).unwrap().1, Some(Position(5)));
    let read: Result<Vec<Blob>, _> = store.read(&first).unwrap().collect();
    assert_eq!(read.unwrap(), [Blob::from("one"), Blob::from("two")]);
}

#[test]
fn an_empty_snapshot_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SnapshotStore::open(dir.path()).unwrap();
    let (info, _) = store.write(A, Position(1), std::iter::empty::<Result<Blob, _>>()).unwrap();
    assert_eq!((info.chunks, info.bytes), (0, 0));
    assert_eq!(store.newest(A, Position(1)).unwrap(), Some(info));
    assert_eq!(store.newest(A, Position(2)).unwrap(), None);
}

#[test]
fn a_stream_that_ended_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path()).unwrap();
    for round in 0..3 {
        node.record(A, &format!("<old {round}>"));
        node.snapshot();
    }
    let end = node.journal.next_position();
    node.journal.end(A);
    node.record(B, "<b>");
    // The node crashes before it has removed the snapshots.
    drop(node);
    let mut node = Node::start(dir.path()).unwrap();
    assert_eq!((node.a.0.as_str(), node.b.0.as_str()), ("", "<b>"));
    node.record(A, "<new>");
    node.snapshot();
    node.snapshots.forget(A, end);
    drop(node);
    let mut node = Node::start(dir.path()).unwrap();
    assert_eq!(node.a.0, "<new>");
    // What is damaged of the new life stays damaged, wherever the former one ended.
    node.record(A, &"x".repeat(1500));
    node.snapshot();
    let text = node.a.clone();
    drop(node);
    damage(tables(dir.path()).last().unwrap());
    let node = Node::start(dir.path()).unwrap();
    assert_eq!(node.a, text);
    assert_eq!(node.snapshots.metrics().unusable.load(Relaxed), 1);
}

#[test]
fn a_flipped_bit_anywhere_in_one_snapshot_costs_nothing() {
    let (dir, text) = used(3);
    let files = files_below(&dir.path().join("snapshots"));
    for (which, file) in files.iter().enumerate() {
        let length = fs::metadata(file).unwrap().len().min(8 << 10);
        for part in 0..2 {
            let copy = tempfile::tempdir().unwrap();
            copy_all(dir.path(), copy.path());
            let target = copy.path().join(file.strip_prefix(dir.path()).unwrap());
            let mut bytes = fs::read(&target).unwrap();
            let Some(byte) = bytes.get_mut((length * part / 2 + which as u64) as usize) else { continue };
            *byte ^= 1 << part;
            fs::write(&target, bytes).unwrap();
            assert_eq!(Node::start(copy.path()).unwrap().a, text, "{} {part}", file.display());
        }
    }
}

fn files_below(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Copies a directory; a file's length is kept, its holes too.
fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_all(&source, &target);
        } else {
            fs::copy(&source, &target).unwrap();
        }
    }
}

#[test]
fn a_snapshot_of_a_newer_format_is_refused_and_not_called_damaged() {
    let (dir, _) = used(3);
    let path = dir.path().join(format!("snapshots/{A}-{:016x}-{:016x}", 9, 1));
    let database = fjall::Database::builder(&path).open().unwrap();
    let keyspace = database.keyspace("snapshot", fjall::KeyspaceCreateOptions::default).unwrap();
    let mut ingestion = keyspace.start_ingestion().unwrap();
    // Magic, format and check have their places in every format.
    let manifest = seal_sector(*b"ISOCHSNP", RECORDED + 1, &[]);
    ingestion.write(u32::MAX.to_be_bytes(), manifest.as_slice()).unwrap();
    ingestion.finish().unwrap();
    drop((keyspace, database));
    let golden = expect![[r#"
        DIR/snapshots/000000000000000a-0000000000000009-0000000000000001: snapshots written by a newer version of isochrone: found format 3, this version reads up to 2.
        Start the version that wrote them, or a later one.
    "#]];
    check(golden, &refusal(dir.path()));
}

#[test]
fn the_other_messages() {
    let path: PathBuf = "DIR/snapshots".into();
    let errors = [
        SnapshotError::Engine {
            path: path.clone(),
            action: "write a snapshot",
            cause: "disk quota exceeded".into(),
        },
        SnapshotError::Damaged {
            path: path.clone(),
            stream: A,
            number: 3,
            what: "it has no manifest".into(),
        },
        SnapshotError::NewerFormat { path, found: 2, supported: 1 },
        SnapshotError::Stopping,
    ];
    let golden = expect![[r#"
        DIR/snapshots: the snapshot engine cannot write a snapshot: disk quota exceeded
        DIR/snapshots: snapshot 3 of process 000000000000000a is damaged: it has no manifest
        DIR/snapshots: snapshots written by a newer version of isochrone: found format 2, this version reads up to 1. Start the version that wrote them, or a later one.
        the snapshot was given up because the node is stopping
    "#]];
    golden.assert_eq(&errors.map(|error| format!("{error}\n")).concat());
}

#[test]
fn what_a_start_reads_of_snapshots_is_the_newest_of_each_stream() {
    let (dir, _) = used(3);
    let path = dir.path().join("snapshots");
    let newest = SnapshotStore::newest_bytes(&path);
    assert!(newest > 0, "{newest}");
    // Neither one that is not finished, nor those before the newest.
    let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    let unfinished = path.join("000000000000000b-0000000000000001-0000000000000001.new");
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("table"), vec![1; 100_000]).unwrap();
    fs::write(names[0].join("more"), vec![1; 100_000]).unwrap();
    assert_eq!(SnapshotStore::newest_bytes(&path), newest);
    fs::write(names[1].join("more"), vec![1; 100_000]).unwrap();
    assert!(SnapshotStore::newest_bytes(&path) >= newest + 100_000);
    assert_eq!(SnapshotStore::newest_bytes(&dir.path().join("none")), 0);
}
