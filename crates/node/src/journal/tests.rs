//! The journal against a disk that fails, and against directories that are not its own.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use expect_test::{Expect as Golden, expect};
use proptest::prelude::*;

use super::faulty::{Crash, Faults, FaultyDisk};
use super::format::{self, FORMAT, Kind, SECTOR};
use super::*;

type Records = Vec<(StreamId, Position, Vec<u8>)>;
type Opened = Result<(Journal<FaultyDisk>, Recovered), JournalError>;

const A: StreamId = StreamId(0xa);
const B: StreamId = StreamId(0xb);

fn options() -> JournalOptions {
    // Segments of 8 KiB, so that a few batches fill one.
    JournalOptions {
        segment_first: 8 << 10,
        segment_max: 16 << 10,
        seed: Some(1),
        ..JournalOptions::new(7, 1)
    }
}

fn open(disk: &FaultyDisk) -> (Opened, Records) {
    let mut records = Records::new();
    let fresh = !disk.lengths().keys().any(|name| name.starts_with("segment-"));
    let mut opened = Journal::open_on(disk.clone(), options(), fresh);
    if let Ok((journal, recovered)) = &mut opened {
        journal
            .replay(|stream, position, payload| records.push((stream, position, payload.to_vec())))
            .unwrap();
        assert!(recovered.records >= records.len() as u64, "what the start found, less what it gave back");
    }
    (opened, records)
}

fn reopen(disk: &FaultyDisk) -> (Journal<FaultyDisk>, Recovered, Records) {
    let (opened, records) = open(disk);
    let (journal, recovered) = opened.unwrap();
    (journal, recovered, records)
}

fn refusal(disk: &FaultyDisk) -> String {
    open(disk).0.err().expect("the journal must refuse").to_string()
}

fn batch(stream: StreamId, payloads: &[&[u8]]) -> Batch {
    let mut batch = Batch::default();
    for payload in payloads {
        batch.record(stream, payload);
    }
    batch
}

fn check(golden: Golden, message: &str) {
    golden.assert_eq(&format!("{}\n", message.replace(". ", ".\n")));
}

/// Where the frame written last begins in the newest segment, found by its header.
fn newest_frame(disk: &FaultyDisk) -> (String, u64) {
    let name = disk.lengths().into_keys().rfind(|name| name.starts_with("segment-")).unwrap();
    let bytes = disk.bytes(&name);
    let salt = format::SegmentHeader::decode(&bytes).unwrap().salt;
    let mut frames =
        (0..bytes.len()).step_by(SECTOR).filter(|at| format::decode_frame(&bytes[*at..], salt).is_ok());
    (name, frames.next_back().unwrap() as u64)
}

#[test]
fn an_emptied_batch_keeps_little_memory() {
    let mut batch = batch(A, &[&[7; 100]]);
    batch.clear();
    assert!(batch.is_empty() && batch.bytes.capacity() >= 100);
    batch.record(A, &vec![7; 8 << 20]);
    batch.clear();
    assert!(batch.is_empty() && batch.bytes.capacity() <= super::batch::KEEP);
}

#[test]
fn records_come_back_in_order_with_their_positions() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    assert_eq!(journal.append_sync(&[batch(A, &[b"one", b""]), batch(B, &[b"two"])]).unwrap(), Position(3));
    assert_eq!(journal.append_sync(&[batch(A, &[b"three"])]).unwrap(), Position(4));
    disk.crash(Crash::Clean);
    let (_, recovered, records) = reopen(&disk);
    let expected = [(A, 1, "one"), (A, 2, ""), (B, 3, "two"), (A, 4, "three")];
    assert_eq!(records, expected.map(|(s, p, text)| (s, Position(p), text.as_bytes().to_vec())));
    assert_eq!((recovered.records, recovered.last, recovered.torn), (4, Position(4), None));
}

#[test]
fn the_incarnation_rises_at_each_start_and_is_durable_before_anything_else() {
    let disk = FaultyDisk::default();
    for expected in 1..=3 {
        let (journal, ..) = reopen(&disk);
        assert_eq!(journal.incarnation(), expected);
        disk.crash(Crash::Clean);
    }
}

#[test]
fn one_write_and_one_sync_carry_all_batches() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    let before = disk.syncs();
    journal.append_sync(&[batch(A, &[b"x"]), batch(B, &[b"y"]), batch(A, &[b"z"])]).unwrap();
    assert_eq!(disk.syncs() - before, 1);
}

#[test]
fn segments_are_given_back_when_their_streams_no_longer_need_them() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    let mut last = Position::ZERO;
    while journal.metrics().segments.load(Relaxed) < 4 {
        last = journal.append_sync(&[batch(A, &[&[1; 3000]])]).unwrap();
    }
    journal.append_sync(&[batch(B, &[b"late"])]).unwrap();
    let holder = journal.oldest_segment_holder().unwrap();
    assert_eq!((holder.stream, holder.mark, holder.segment), (A, Position::ZERO, 1));

    let mut done = Batch::default();
    done.truncate(A, last.next());
    journal.append_sync(&[done]).unwrap();
    assert_eq!(journal.metrics().recycled.load(Relaxed), 3);
    assert_eq!(journal.oldest_segment_holder().map(|holder| holder.stream), Some(B));
    let spares = disk.lengths().into_iter().filter(|(name, _)| name.starts_with("spare-"));
    assert_eq!(spares.map(|(_, length)| length).collect::<Vec<_>>(), [16 << 10, 16 << 10]);

    // The marks outlive the segments they were first written to.
    for _ in 0..20 {
        journal.append_sync(&[batch(B, &[&[2; 3000]])]).unwrap();
    }
    disk.crash(Crash::Clean);
    let (_, recovered, records) = reopen(&disk);
    assert_eq!(recovered.marks, BTreeMap::from([(A, last.next())]));
    assert_eq!(records.iter().filter(|record| record.0 == B).count(), 21);
}

#[test]
fn a_used_file_does_not_give_back_its_earlier_life() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    for round in 0..30 {
        let last = journal.append_sync(&[batch(A, &[&[round; 3000]])]).unwrap();
        let mut done = Batch::default();
        done.truncate(A, last);
        journal.append_sync(&[done]).unwrap();
        disk.crash(Crash::Clean);
        let (again, recovered, records) = reopen(&disk);
        assert_eq!((recovered.last, recovered.torn), (last, None));
        assert_eq!(records.last().unwrap(), &(A, last, vec![round; 3000]));
        journal = again;
    }
    assert!(journal.metrics().segments.load(Relaxed) <= 2);
}

#[test]
fn an_incomplete_last_frame_is_dropped_and_reported() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    journal.append_sync(&[batch(A, &[b"kept"])]).unwrap();
    disk.fail(Faults { power: Some(1000), ..Faults::default() });
    journal.append_sync(&[batch(A, &[&[9; 2000]])]).unwrap_err();
    disk.crash(Crash::Process);
    let (_, recovered, records) = reopen(&disk);
    assert_eq!(records, [(A, Position(1), b"kept".to_vec())]);
    let torn = recovered.torn.unwrap();
    assert_eq!((torn.entries, torn.bytes), (Some(1), Some(2560)));
}

#[test]
fn a_damaged_frame_that_a_later_frame_proves_durable_is_refused() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    journal.append_sync(&[batch(A, &[b"acknowledged"])]).unwrap();
    let (name, at) = newest_frame(&disk);
    journal.append_sync(&[batch(A, &[b"later"])]).unwrap();
    drop(journal);
    disk.flip(&name, at * 8 + 8 * 100);
    let golden = expect![[r#"
        data/journal/segment-0000000000000001.journal: corrupt at byte 1024: frame 2 cannot be read (its checksum does not match), but frame 3 at byte 1536 says that it was durable.
        Nothing was changed.
        Records that this node acknowledged are damaged; do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
    "#]];
    check(golden, &refusal(&disk));
}

#[test]
fn a_seal_proves_even_the_newest_frame() {
    for (sealed, refused) in [(true, true), (false, false)] {
        let disk = FaultyDisk::default();
        let (mut journal, ..) = reopen(&disk);
        journal.append_sync(&[batch(A, &[b"acknowledged"])]).unwrap();
        let (name, at) = newest_frame(&disk);
        if sealed {
            journal.close().unwrap();
        }
        disk.flip(&name, at * 8 + 8 * 100);
        // Without the seal the bytes cannot tell damage from a torn write: the limit named in the module.
        assert_eq!(open(&disk).0.is_err(), refused);
    }
}

#[test]
fn every_single_bit_of_a_sealed_journal_is_guarded() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    while journal.metrics().segments.load(Relaxed) < 3 {
        journal.append_sync(&[batch(A, &[&[1; 900]]), batch(B, &[b"b"])]).unwrap();
    }
    journal.close().unwrap();
    let (_, _, whole) = { reopen_copy(&disk) };
    for (name, length) in disk.lengths() {
        for bit in (0..length * 8).step_by(37) {
            let copy = copy_of(&disk, &name, Some(bit));
            let (opened, records) = open(&copy);
            // Bits behind the last frame and in the closing frames and the seal carry nothing; all else must refuse.
            assert!(opened.is_err() || records == whole, "{name} bit {bit}: {} records", records.len());
        }
    }
}

/// A disk with the same files, one bit of one of them flipped.
fn copy_of(disk: &FaultyDisk, name: &str, bit: Option<u64>) -> FaultyDisk {
    let copy = FaultyDisk::default();
    for (file, length) in disk.lengths() {
        let mut made = copy.create(&file, length).unwrap();
        made.write_at(0, &disk.bytes(&file)).unwrap();
        made.sync().unwrap();
    }
    copy.sync_names().unwrap();
    if let Some(bit) = bit {
        copy.flip(name, bit);
    }
    copy
}

fn reopen_copy(disk: &FaultyDisk) -> (Journal<FaultyDisk>, Recovered, Records) {
    reopen(&copy_of(disk, "", None))
}

fn three_segments() -> FaultyDisk {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    while journal.metrics().segments.load(Relaxed) < 3 {
        journal.append_sync(&[batch(A, &[&[1; 900]])]).unwrap();
    }
    disk
}

#[test]
fn a_missing_segment_is_refused_wherever_it_was() {
    let goldens = [
        expect![[r#"
            data/journal/: segment 1 of the journal is missing: the journal says that it begins there, but the first one found is 2.
            Nothing was changed.
            Put the file back; if it is lost, do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
        "#]],
        expect![[r#"
            data/journal/: segment 2 of the journal is missing: segment-0000000000000003.journal follows it.
            Nothing was changed.
            Put the file back; if it is lost, do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
        "#]],
        expect![[r#"
            data/journal/: segment 3 of the journal is missing: segment-0000000000000002.journal says that it was durable.
            Nothing was changed.
            Put the file back; if it is lost, do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
        "#]],
    ];
    for (sequence, golden) in (1..).zip(goldens) {
        let disk = three_segments();
        disk.lose(&format!("segment-{sequence:016x}.journal"));
        check(golden, &refusal(&disk));
    }
}

#[test]
fn a_journal_that_is_gone_is_refused() {
    let gone = Journal::open_on(FaultyDisk::default(), options(), false);
    let golden = expect![[r#"
        data/journal/: no data of this node is here, but this node has run before.
        Mount the right disk; if the disk is lost, do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
    "#]];
    check(golden, &gone.err().unwrap().to_string());
}

#[test]
fn a_damaged_segment_header_is_refused() {
    let disk = three_segments();
    disk.flip("segment-0000000000000003.journal", 300);
    let golden = expect![[r#"
        data/journal/segment-0000000000000003.journal: corrupt at byte 0: the segment's header cannot be read: its checksum does not match.
        Nothing was changed.
        Records that this node acknowledged are damaged; do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
    "#]];
    check(golden, &refusal(&disk));
}

#[test]
fn segments_of_another_cluster_node_or_format_are_refused() {
    let refusal_as = |change: fn(&mut JournalOptions)| {
        let mut options = options();
        change(&mut options);
        Journal::open_on(three_segments(), options, false).err().unwrap().to_string()
    };
    let other = refusal_as(|options| options.cluster = 8);
    assert!(other.starts_with(
        "data/journal/segment-0000000000000001.journal: this data directory belongs to another cluster"
    ));
    let other = refusal_as(|options| options.node = 2);
    assert!(other.starts_with(
        "data/journal/segment-0000000000000001.journal: this data directory belongs to another node"
    ));

    let disk = three_segments();
    let name = "segment-0000000000000002.journal";
    let mut sector = disk.bytes(name)[..SECTOR].to_vec();
    sector[8] = (format::SEGMENT_FORMAT + 1) as u8;
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&sector[..SECTOR - 8], 0);
    sector[SECTOR - 8..].copy_from_slice(&sum.to_le_bytes());
    disk.open(name).unwrap().write_at(0, &sector).unwrap();
    let golden = expect![[r#"
        data/journal/segment-0000000000000002.journal: written by a newer version of isochrone: found format 3, this version reads up to 2.
        Nothing was changed.
        Start the version that wrote it, or a later one.
    "#]];
    check(golden, &refusal(&disk));
}

fn born_as(birth: u64) -> JournalOptions {
    JournalOptions { birth, ..options() }
}

#[test]
fn segments_of_another_directory_are_refused_and_left_as_they_are() {
    let disk = FaultyDisk::default();
    let (mut journal, _) = Journal::open_on(disk.clone(), born_as(7), true).unwrap();
    journal.append_sync(&[batch(A, &[b"acknowledged"])]).unwrap();
    drop(journal);
    let name = "segment-0000000000000001.journal";
    let before = disk.bytes(name);
    let opened = Journal::open_on(disk.clone(), born_as(8), false).err().unwrap();
    let looked_at = newest(&disk, &born_as(8)).unwrap_err();
    for error in [opened, looked_at] {
        let told =
            format!("data/journal/{name}: this was made in another data directory than what lies beside it");
        assert!(error.to_string().starts_with(&told), "{error}");
    }
    assert!(disk.bytes(name) == before, "it was changed");
    // Where nothing beside it says it, it is the journal that does.
    assert_eq!(reopen(&disk).0.birth(), 7);
}

fn segments(disk: &FaultyDisk) -> impl Iterator<Item = String> {
    disk.lengths().into_keys().filter(|name| name.starts_with("segment-"))
}

/// Makes the segments those of another version.
fn written_by(disk: &FaultyDisk, change: fn(&mut [u8])) {
    for name in segments(disk) {
        let mut sector = disk.bytes(&name)[..SECTOR].to_vec();
        change(&mut sector);
        let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&sector[..SECTOR - 8], 0);
        sector[SECTOR - 8..].copy_from_slice(&sum.to_le_bytes());
        let mut file = disk.open(&name).unwrap();
        file.write_at(0, &sector).unwrap();
        file.sync().unwrap();
    }
}

/// Makes the segments those of a version that knew nothing of births.
fn forget_births(disk: &FaultyDisk) {
    written_by(disk, |sector| {
        sector[8] = 1;
        sector[16 + 9 * 8..][..8].fill(0);
    });
}

#[test]
fn nothing_is_recorded_in_a_segment_of_an_earlier_format() {
    let disk = three_segments();
    written_by(&disk, |sector| sector[8] = (format::SEGMENT_FORMAT - 1) as u8);
    let old: Vec<String> = segments(&disk).collect();
    let (mut journal, _, records) = reopen(&disk);
    journal.append_sync(&[batch(A, &[b"of today"])]).unwrap();
    drop(journal);
    let format_of =
        |name: &String| format::SegmentHeader::decode(&disk.bytes(name)[..SECTOR]).unwrap().format;
    let new: Vec<String> = segments(&disk).filter(|name| !old.contains(name)).collect();
    assert_eq!(new.iter().map(format_of).collect::<Vec<_>>(), [format::SEGMENT_FORMAT]);
    let holds = |name: &&String| disk.bytes(name).windows(8).any(|bytes| bytes == b"of today");
    assert_eq!(segments(&disk).collect::<Vec<_>>().iter().filter(holds).collect::<Vec<_>>(), [&new[0]]);
    // Once, and not at every start.
    let found = reopen(&disk).2;
    assert_eq!((found.len(), &found[..records.len()]), (records.len() + 1, &records[..]));
    assert_eq!(segments(&disk).filter(|name| !old.contains(name)).collect::<Vec<_>>(), new);
}

#[test]
fn a_journal_that_knows_no_birth_is_taken_as_it_is_and_told_it_wherever_that_is_cut_short() {
    let old = copy_of(&three_segments(), "", None);
    forget_births(&old);
    let records = reopen_copy(&old).2;
    assert!(records.len() > 5);
    for power in [None].into_iter().chain((0..5_000).step_by(250).map(Some)) {
        let disk = copy_of(&old, "", None);
        disk.fail(Faults { power, ..Faults::default() });
        let opened = Journal::open_on(disk.clone(), born_as(7), false);
        assert!(opened.is_ok() || power.is_some());
        let bound = opened.is_ok_and(|(journal, _)| journal.birth() == 7);
        disk.crash(Crash::Torn(power.unwrap_or(0)));
        let refused = Journal::open_on(disk.clone(), born_as(8), false).err();
        match refused {
            Some(error) => assert!(matches!(error, JournalError::OtherDirectory { .. }), "{error}"),
            None => assert!(!bound, "it was bound, and is another's"),
        }
        assert_eq!(reopen(&disk).2, records, "{power:?}");
    }
}

#[test]
fn the_first_error_is_final() {
    let error = |faults: Faults| {
        let disk = FaultyDisk::default();
        let (mut journal, ..) = reopen(&disk);
        journal.append_sync(&[batch(A, &[b"durable"])]).unwrap();
        disk.fail(faults);
        let first = journal.append_sync(&[batch(A, &[b"lost"])]).unwrap_err();
        // The disk works again; the journal does not, and never acknowledges anything.
        let second = journal.append_sync(&[batch(A, &[b"refused"])]).unwrap_err();
        assert!(matches!(second, JournalError::Poisoned(_)), "{second}");
        assert!(journal.seal().is_err() && journal.close().is_err());
        disk.crash(Crash::Clean);
        let (_, _, records) = reopen(&disk);
        assert_eq!(records, [(A, Position(1), b"durable".to_vec())]);
        format!("{first}\n{second}")
    };
    let write = error(Faults { write: Some(0), ..Faults::default() });
    let short = error(Faults { short_write: Some(0), ..Faults::default() });
    let sync = error(Faults { sync: Some(0), ..Faults::default() });
    assert!(write.contains("injected write error") && short.contains("injected short write"));
    let golden = expect![[r#"
        data/journal/segment-0000000000000001.journal: cannot sync: injected sync error.
        The node stops: after a failed sync nobody knows what the disk holds; check the disk, then start the node again.
        the journal stopped after an earlier error: data/journal/segment-0000000000000001.journal: cannot sync: injected sync error.
        The node stops: after a failed sync nobody knows what the disk holds; check the disk, then start the node again.
    "#]];
    check(golden, &sync);
}

#[test]
fn what_only_the_cache_holds_after_a_failed_sync_is_written_again_at_the_next_start() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    disk.fail(Faults { sync: Some(0), ..Faults::default() });
    journal.append_sync(&[batch(A, &[b"only in the cache"])]).unwrap_err();
    // The process restarts, the machine does not: reads show the frame, the disk does not have it.
    let (_, _, records) = reopen(&disk);
    assert_eq!(records.len(), 1);
    disk.crash(Crash::Clean);
    assert_eq!(reopen(&disk).2, records);
}

#[test]
fn a_name_that_only_the_cache_holds_is_made_durable_at_the_next_start() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    // The segment after the first has its name, and that is not durable.
    disk.fail(Faults { names: Some(0), ..Faults::default() });
    (0..).find_map(|_| journal.append_sync(&[batch(A, &[&[1; 900]])]).err()).unwrap();
    drop(journal);
    let (mut journal, ..) = reopen(&disk);
    journal.append_sync(&[batch(A, &[b"acknowledged"])]).unwrap();
    drop(journal);
    disk.crash(Crash::Clean);
    assert_eq!(reopen(&disk).2.last().unwrap().2, b"acknowledged");
}

#[test]
fn a_full_disk_says_what_it_needs() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    disk.fail(Faults { space: Some(1000), ..Faults::default() });
    let error = (0..).find_map(|_| journal.append_sync(&[batch(A, &[&[1; 900]])]).err()).unwrap();
    let golden = expect![[r#"
        data/journal/spare-0000000000000002.journal: the disk is full: 39960 more bytes are needed for the journal.
        Free space on this disk or move the data directory to a larger one, then start the node again; nothing acknowledged is lost.
    "#]];
    check(golden, &error.to_string());
}

#[test]
fn on_a_disk_that_is_nearly_full_segments_are_smaller_and_a_start_finds_room() {
    const KIB: u64 = 1 << 10;
    let disk = FaultyDisk::default();
    let open = |fresh| {
        let options =
            JournalOptions { segment_first: 64 * KIB, segment_max: 128 * KIB, seed: Some(1), ..options() };
        let mut journal = Journal::open_on(disk.clone(), options, fresh).unwrap().0;
        let mut records = 0;
        journal.replay(|_, _, _| records += 1).unwrap();
        (journal, records)
    };
    // What is acknowledged until the disk is full.
    let fill = |mut journal: Journal<FaultyDisk>| {
        let mut acknowledged = 0;
        loop {
            match journal.append_sync(&[batch(A, &[&[1; 900]])]) {
                Ok(_) => acknowledged += 1,
                Err(JournalError::DiskFull { needed, .. }) => return (acknowledged, needed),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let (mut journal, _) = open(true);
    journal.make_spares_ahead();
    let metrics = journal.metrics();
    disk.fail(Faults { space: Some(480 * KIB), ..Faults::default() });
    let (mut acknowledged, needed) = fill(journal);
    // Beside the first one of 64 KiB the usual one, a smaller one, and none that would take of the 256 KiB in reserve.
    assert_eq!(disk.lengths().into_values().collect::<Vec<_>>(), [64 * KIB, 128 * KIB, 64 * KIB]);
    assert_eq!((disk.free(), needed), (Some(288 * KIB), 32 * KIB));
    assert!(metrics.spare_failures.load(Relaxed) > 0);
    for life in 1..=3 {
        let (journal, records) = open(false);
        assert_eq!(records, acknowledged, "life {life}");
        let (more, _) = fill(journal);
        assert!(more > 5, "life {life}: {more} records fit");
        acknowledged += more;
        assert_eq!(disk.free(), Some((288 - life * 16) * KIB), "life {life}");
    }
    // With room they are of the usual size again.
    disk.fail(Faults { space: Some(1024 * KIB), ..Faults::default() });
    let (journal, records) = open(false);
    assert_eq!(records, acknowledged);
    fill(journal);
    assert!(disk.lengths().into_values().filter(|length| *length == 128 * KIB).count() > 3);
}

#[test]
fn what_the_disk_is_not_to_blame_for_is_told_so() {
    use rustix::io::Errno;
    let told = |cause: std::io::Error| JournalError::io("FILE", "open", 0, cause).to_string();
    let [files, threads] =
        [Errno::MFILE, Errno::AGAIN].map(|errno| std::io::Error::from_raw_os_error(errno.raw_os_error()));
    for cause in [files, threads, std::io::ErrorKind::OutOfMemory.into()] {
        let told = told(cause);
        assert!(
            told.contains("LimitNOFILE") && told.contains("TasksMax") && !told.contains("check the disk"),
            "{told}"
        );
    }
    let full = told(std::io::ErrorKind::StorageFull.into());
    assert!(full.starts_with("FILE: the disk is full: there is no room. Free space"), "{full}");
}

#[test]
fn a_record_above_the_limit_stops_the_journal() {
    let (mut journal, ..) = reopen(&FaultyDisk::default());
    let mut large = Batch::default();
    large.record_with(A, |out| out.resize(out.len() + format::PAYLOAD_MAX + 1, 0));
    let golden = expect![[r#"
        a record of 671088641 bytes is larger than the journal's limit of 671088640 bytes: lower `bulk` under [limits] of the deployment file
    "#]];
    check(golden, &journal.append_sync(&[large]).unwrap_err().to_string());
}

#[test]
fn a_record_larger_than_a_segment_gets_a_segment_of_its_own() {
    let disk = FaultyDisk::default();
    let (mut journal, ..) = reopen(&disk);
    journal.append_sync(&[batch(A, &[&[7; 100_000]])]).unwrap();
    disk.crash(Crash::Clean);
    assert_eq!(reopen(&disk).2, [(A, Position(1), vec![7; 100_000])]);
}

// --- The data directory ------------------------------------------------------------------------------------------

/// The message of opening `path`, with the path replaced by `DIR`.
fn directory_refusal(path: &std::path::Path, cluster: u64, node: u16, expect: Expect) -> String {
    let error = DataDirectory::open(path, cluster, node, expect).expect_err("the directory must be refused");
    error.to_string().replace(&path.display().to_string(), "DIR")
}

/// Of a directory of the file system: longer than one write past the page cache is, and at odd places.
#[test]
fn a_file_holds_what_was_written_past_the_page_cache_and_through_it() {
    let dir = tempfile::tempdir().unwrap();
    let past = RealDisk::new(dir.path());
    let through = past.clone().cached();
    assert!(!through.create("through", 512).unwrap().is_direct());
    for disk in [past, through] {
        let capacity = 1_000 * SECTOR as u64;
        let mut file = disk.create("file", capacity).unwrap();
        let bytes: Vec<u8> = (0..900 * SECTOR as u32).map(|at| (at / 7) as u8).collect();
        file.write_at(SECTOR as u64, &bytes).unwrap();
        file.sync().unwrap();
        // No file system takes these past its cache; what lies around them stays.
        file.write_at(3 * SECTOR as u64 + 5, b"odd").unwrap();
        file.write_at(4 * SECTOR as u64, &[9; SECTOR]).unwrap();
        file.sync().unwrap();
        let mut wanted = vec![0; capacity as usize];
        wanted[SECTOR..901 * SECTOR].copy_from_slice(&bytes);
        wanted[3 * SECTOR + 5..][..3].copy_from_slice(b"odd");
        wanted[4 * SECTOR..5 * SECTOR].fill(9);
        for file in [file, disk.open("file").unwrap()] {
            let mut found = vec![1; capacity as usize];
            file.read_at(0, &mut found).unwrap();
            assert_eq!(file.length().unwrap(), capacity);
            assert!(found == wanted, "the file holds something else than was written");
        }
    }
}

fn used_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path(), 7, 1, Expect::Anything).unwrap();
    let (mut journal, _) = Journal::open(directory, options()).unwrap();
    journal.append_sync(&[batch(A, &[b"on a real disk"])]).unwrap();
    journal.close().unwrap();
    dir
}

#[test]
fn nobody_else_may_look_into_what_a_first_start_makes() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("above/data");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for _ in 0..2 {
        drop(DataDirectory::open(&data, 7, 1, Expect::Anything).unwrap());
        let modes = [&data, &data.join("journal"), &data.join("snapshots")].map(|made| mode(made));
        assert_eq!(modes, [0o700; 3], "{modes:?}");
    }
    // What others have made is theirs to say.
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o750)).unwrap();
    drop(DataDirectory::open(&data, 7, 1, Expect::Anything).unwrap());
    assert_eq!(mode(&data), 0o750);
}

#[test]
fn a_journal_that_is_removed_while_it_is_written_stops() {
    let opened = |dir: &tempfile::TempDir| {
        let directory = DataDirectory::open(dir.path(), 7, 1, Expect::Existing).unwrap();
        Journal::open(directory, options()).unwrap().0
    };
    let remove = |dir: &tempfile::TempDir, what: &str| {
        for entry in dir.path().join(what).read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::remove_file(path).unwrap();
            }
        }
    };
    let dir = used_directory();
    let mut journal = opened(&dir);
    journal.look().unwrap();
    assert!(journal.metrics().free_bytes.load(Relaxed) > 0);
    remove(&dir, "journal");
    journal.append_sync(&[batch(A, &[b"the system takes it"])]).unwrap();
    let error = journal.look().unwrap_err();
    let told = "segment-0000000000000001.journal: it was removed while the node ran";
    assert!(error.is_removed() && error.to_string().contains(told), "{error}");
    journal.append_sync(&[batch(A, &[b"and so does nobody else"])]).unwrap_err();
    // The thread looks by itself, whether anything is written or not.
    let dir = used_directory();
    let (woken, wake) = counting_wake();
    let thread = JournalThread::start(opened(&dir), wake).unwrap();
    remove(&dir, "journal");
    let error = thread.mark().wait(Position(99)).unwrap_err();
    assert!(matches!(error, JournalError::Removed { .. }), "{error}");
    assert!(thread.close().is_err() && woken.load(Relaxed) > 0);
}

#[test]
fn a_node_that_has_lost_its_lock_alone_stops_and_goes_on_where_it_was() {
    let dir = used_directory();
    let open = || {
        let directory = DataDirectory::open(dir.path(), 7, 1, Expect::Existing).unwrap();
        Journal::open(directory, options()).unwrap().0
    };
    let mut journal = open();
    std::fs::remove_file(dir.path().join("LOCK")).unwrap();
    journal.append_sync(&[batch(A, &[b"acknowledged"])]).unwrap();
    let error = journal.look().unwrap_err();
    let told = "LOCK: it was removed while the node ran, or another was put in its place, so that a second process could open \
                the directory. The node stops; nothing is lost. Start it again.";
    assert!(error.to_string().ends_with(told), "{error}");
    let later = journal.append_sync(&[batch(A, &[b"refused"])]).unwrap_err();
    assert!(!error.is_removed() && !later.is_removed(), "it is to be started again");
    drop(journal);
    let mut records = Vec::new();
    open().replay(|_, _, payload| records.push(payload.to_vec())).unwrap();
    assert_eq!(records, [b"on a real disk".to_vec(), b"acknowledged".to_vec()]);
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        copy_all(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn a_journal_that_is_exchanged_while_it_is_written_stops() {
    let segment = "segment-0000000000000001.journal";
    for what in ["data", "data/journal", "data/journal/segment-0000000000000001.journal", "data/LOCK"] {
        let above = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(&above.path().join("data"), 7, 1, Expect::Anything).unwrap();
        let (mut journal, _) = Journal::open(directory, options()).unwrap();
        journal.append_sync(&[batch(A, &[b"acknowledged"])]).unwrap();
        journal.look().unwrap();
        let (place, aside) = (above.path().join(what), above.path().join("aside"));
        std::fs::rename(&place, &aside).unwrap();
        copy_all(&aside, &place);
        let error = journal.look().unwrap_err();
        let (name, other) =
            if what.ends_with("LOCK") { ("LOCK", "another") } else { (segment, "something else") };
        let told = format!("{name}: it was removed while the node ran, or {other} was put in its place");
        assert!(error.to_string().contains(&told), "{what}: {error}");
        assert_eq!(error.is_removed(), name == segment, "{what}");
    }
}

#[test]
fn the_newest_segment_alone_knows_how_often_the_node_has_started_and_the_last_record() {
    let disk = FaultyDisk::default();
    assert!(newest(&disk, &options()).unwrap().is_none());
    for start in 1..=20 {
        let (mut journal, ..) = reopen(&disk);
        for _ in 0..3 {
            journal.append_sync(&[batch(A, &[&[7; 900]])]).unwrap();
        }
        let last = journal.last();
        disk.crash(Crash::Clean);
        let newest = newest(&disk, &options()).unwrap().unwrap();
        assert_eq!((newest.incarnation, newest.last), (start, last));
    }
    assert!(disk.lengths().len() > 4, "{:?}", disk.lengths());
}

#[test]
fn a_directory_is_used_again_by_the_same_node() {
    let dir = used_directory();
    let directory = DataDirectory::open(dir.path(), 7, 1, Expect::Existing).unwrap();
    let mut records = Vec::new();
    let (mut journal, _) = Journal::open(directory, options()).unwrap();
    journal.replay(|_, _, payload| records.push(payload.to_vec())).unwrap();
    assert_eq!((records, journal.incarnation()), (vec![b"on a real disk".to_vec()], 2));
}

#[test]
fn a_directory_of_another_cluster_or_node_is_refused() {
    let dir = used_directory();
    let golden = expect![[r#"
        DIR/IDENTITY: this data directory belongs to another cluster: found cluster 0000000000000007, expected 0000000000000008.
        Name this node's own directory; a new one only where it has never run.
    "#]];
    check(golden, &directory_refusal(dir.path(), 8, 1, Expect::Anything));
    let golden = expect![[r#"
        DIR/IDENTITY: this data directory belongs to another node: found node 1, expected node 2.
        Two nodes must never share a directory: name this node's own with --data.
    "#]];
    check(golden, &directory_refusal(dir.path(), 7, 2, Expect::Anything));
}

#[test]
fn a_directory_of_a_newer_format_is_refused() {
    let dir = used_directory();
    let path = dir.path().join("IDENTITY");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = (FORMAT + 1) as u8;
    let check_sum = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..SECTOR - 8], 0);
    bytes[SECTOR - 8..].copy_from_slice(&check_sum.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let golden = expect![[r#"
        DIR/IDENTITY: written by a newer version of isochrone: found format 2, this version reads up to 1.
        Nothing was changed.
        Start the version that wrote it, or a later one.
    "#]];
    check(golden, &directory_refusal(dir.path(), 7, 1, Expect::Anything));
}

#[test]
fn an_identity_that_is_lost_or_damaged_is_made_again_from_the_segments() {
    for damage in [None, Some(&b"ISOCHDIR"[..])] {
        let dir = used_directory();
        let path = dir.path().join("IDENTITY");
        let whole = std::fs::read(&path).unwrap();
        // What else lies there makes it nobody else's.
        std::fs::write(dir.path().join("PEERS"), b"").unwrap();
        match damage {
            None => std::fs::remove_file(&path).unwrap(),
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
        }
        assert!(DataDirectory::is_used(dir.path(), 7, 1).unwrap());
        assert_eq!(DataDirectory::cluster_of(dir.path()).unwrap(), Some(7));
        let refused = directory_refusal(dir.path(), 8, 1, Expect::Existing);
        assert!(
            refused.starts_with("DIR/journal: this data directory belongs to another cluster"),
            "{refused}"
        );
        let directory = DataDirectory::open(dir.path(), 7, 1, Expect::Existing).unwrap();
        let (mut journal, _) = Journal::open(directory, options()).unwrap();
        let mut records = Vec::new();
        journal.replay(|_, _, payload| records.push(payload.to_vec())).unwrap();
        assert_eq!((records, journal.incarnation()), (vec![b"on a real disk".to_vec()], 2));
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }
}

#[test]
fn a_lost_identity_beside_a_journal_of_a_newer_format_is_not_called_damage() {
    for damage in [None, Some(&b"ISOCHDIR"[..])] {
        let dir = used_directory();
        let identity = dir.path().join("IDENTITY");
        match damage {
            None => std::fs::remove_file(&identity).unwrap(),
            Some(bytes) => std::fs::write(&identity, bytes).unwrap(),
        }
        let path = dir.path().join("journal/segment-0000000000000001.journal");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = (format::SEGMENT_FORMAT + 1) as u8;
        let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..SECTOR - 8], 0);
        bytes[SECTOR - 8..SECTOR].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let golden = expect![[r#"
            DIR/journal/segment-0000000000000001.journal: written by a newer version of isochrone: found format 3, this version reads up to 2.
            Nothing was changed.
            Start the version that wrote it, or a later one.
        "#]];
        check(golden, &directory_refusal(dir.path(), 7, 1, Expect::Existing));
    }
}

#[test]
fn a_segment_that_is_given_back_while_it_is_looked_at_is_passed_over() {
    let dir = used_directory();
    std::fs::remove_file(dir.path().join("IDENTITY")).unwrap();
    // Listed, and not there when it is opened.
    std::os::unix::fs::symlink("gone", dir.path().join("journal/segment-0000000000000002.journal")).unwrap();
    assert_eq!(DataDirectory::cluster_of(dir.path()).unwrap(), Some(7));
}

#[test]
fn a_damaged_identity_without_a_journal_is_refused() {
    let dir = used_directory();
    std::fs::write(dir.path().join("IDENTITY"), b"ISOCHDIR").unwrap();
    std::fs::remove_dir_all(dir.path().join("journal")).unwrap();
    let golden = expect![[r#"
        DIR/IDENTITY: corrupt at byte 0: this is no readable identity (it ends too early), and no segment of a journal beside it says whose it is.
        Nothing was changed.
        Records that this node acknowledged are damaged; do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
    "#]];
    check(golden, &directory_refusal(dir.path(), 7, 1, Expect::Anything));
}

#[test]
fn a_strangers_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("photos.zip"), b"").unwrap();
    let golden = expect![[r#"
        DIR: not an isochrone data directory: found `photos.zip` but no IDENTITY file.
        Name this node's own directory; an empty or a new one only where it has never run.
    "#]];
    check(golden, &directory_refusal(dir.path(), 7, 1, Expect::Anything));
}

#[test]
fn an_empty_directory_of_a_node_that_has_run_before_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let golden = expect![[r#"
        DIR: no data of this node is here, but this node has run before.
        Mount the right disk; if the disk is lost, do not start this node again with another directory, which would be without what it has promised: put a node of another name in its place (docs/operations.md, "A node that has lost its disk, or whose journal is damaged").
    "#]];
    check(golden, &directory_refusal(dir.path(), 7, 1, Expect::Existing));
}

#[test]
fn whose_a_directory_is_is_told_without_opening_it() {
    let (used, other) = (used_directory(), tempfile::tempdir().unwrap());
    let is_used = |dir: &tempfile::TempDir| DataDirectory::is_used(dir.path(), 7, 1).unwrap();
    let is_locked = |dir: &tempfile::TempDir| DataDirectory::is_locked(dir.path()).unwrap();
    assert_eq!((is_used(&used), is_locked(&used)), (true, false));
    assert!(DataDirectory::is_used(used.path(), 7, 2).is_err());
    // What is left of something that was tried there makes it nobody's.
    std::fs::create_dir(other.path().join(format!("{TRIAL}left"))).unwrap();
    assert_eq!((is_used(&other), is_locked(&other)), (false, false));
    assert_eq!(other.path().read_dir().unwrap().count(), 1, "something was made");
    let held = DataDirectory::open(used.path(), 7, 1, Expect::Existing).unwrap();
    assert_eq!((is_used(&used), is_locked(&used)), (true, true));
    drop(held);
    assert!(!is_locked(&used));
}

#[test]
fn a_directory_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let held = DataDirectory::open(dir.path(), 7, 1, Expect::Anything).unwrap();
    let golden = expect![[r#"
        DIR/LOCK: locked by another process: an isochrone node is already running on this data directory.
        Stop it first.
    "#]];
    check(golden, &directory_refusal(dir.path(), 7, 1, Expect::Anything));
    drop(held);
    DataDirectory::open(dir.path(), 7, 1, Expect::Anything).unwrap();
}

// --- The thread --------------------------------------------------------------------------------------------------

fn counting_wake() -> (Arc<AtomicU64>, Box<dyn Fn() + Send>) {
    let woken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&woken);
    (woken, Box::new(move || _ = count.fetch_add(1, Relaxed)))
}

#[test]
fn the_thread_makes_durable_wakes_and_closes_sealed() {
    let disk = FaultyDisk::default();
    let (woken, wake) = counting_wake();
    let mut thread = JournalThread::start(reopen(&disk).0, wake).unwrap();
    for round in 0..100_u64 {
        let position = thread.record(A, |out| out.extend_from_slice(&round.to_le_bytes()));
        assert_eq!(position, Position(round + 1));
        while !thread.submit().unwrap() {
            thread.mark().wait(Position(thread.durable().unwrap().0 + 1)).unwrap();
        }
    }
    thread.mark().wait(Position(100)).unwrap();
    assert_eq!(thread.durable().unwrap(), Position(100));
    assert!(woken.load(Relaxed) > 0);
    assert_eq!(thread.metrics().records.load(Relaxed), 100);
    assert!(thread.metrics().syncs.count() > 0);
    thread.record(A, |out| out.push(1));
    thread.close().unwrap();
    disk.crash(Crash::Clean);
    assert_eq!(reopen(&disk).2.len(), 101, "close writes what was not yet submitted");
}

#[test]
fn what_waits_for_the_disk_for_long_is_several_batches() {
    let disk = FaultyDisk::default();
    let gate = Arc::new(std::sync::Mutex::new(()));
    let shut = gate.lock().unwrap();
    let theirs = Arc::clone(&gate);
    let mut thread = JournalThread::start(reopen(&disk).0, Box::new(move || drop(theirs.lock()))).unwrap();
    let metrics = thread.metrics();
    // Behind its first write the thread stands at the gate.
    thread.record(A, |out| out.push(0));
    assert!(thread.submit().unwrap());
    thread.mark().wait(Position(1)).unwrap();
    let mut taken = 1;
    let mut last;
    loop {
        last = thread.record(A, |out| out.push(1)).0;
        if !thread.submit().unwrap() {
            break;
        }
        taken += 1;
    }
    let large = 64 << 20;
    thread.record(A, |out| out.resize(out.len() + large, 2));
    assert!(!thread.submit().unwrap());
    thread.record(A, |out| out.push(3));
    assert!(!thread.submit().unwrap() && !thread.better_here() && !thread.write_here().unwrap());
    assert!(thread.backlog() > large);
    drop(shut);
    thread.close().unwrap();
    assert_eq!(metrics.batches.load(Relaxed), taken + 2, "what comes behind a large one is another");
    let firsts: Vec<u8> = reopen(&disk).2.iter().map(|(.., payload)| payload[0]).collect();
    let small = (1..last).map(|_| 1);
    assert!(firsts.into_iter().eq([0].into_iter().chain(small).chain([2, 3])));
}

#[test]
fn an_error_in_the_thread_reaches_the_shard_and_every_waiter() {
    let disk = FaultyDisk::default();
    let (woken, wake) = counting_wake();
    let mut thread = JournalThread::start(reopen(&disk).0, wake).unwrap();
    disk.fail(Faults { sync: Some(0), ..Faults::default() });
    let position = thread.record(A, |out| out.push(1));
    thread.submit().unwrap();
    let mark = thread.mark();
    assert!(mark.wait(position).unwrap_err().to_string().contains("injected sync error"));
    assert!(thread.durable().is_err() && thread.submit().is_err());
    assert!(thread.close().unwrap_err().to_string().contains("injected sync error"));
    assert_eq!(woken.load(Relaxed), 1);
}

#[test]
fn the_shard_writes_what_is_little_behind_what_was_handed_over() {
    let disk = FaultyDisk::default();
    let (woken, wake) = counting_wake();
    let mut thread = JournalThread::start(reopen(&disk).0, wake).unwrap();
    assert!(thread.better_here());
    thread.record(A, |out| out.push(1));
    assert!(thread.write_here().unwrap());
    assert_eq!((thread.durable().unwrap(), woken.load(Relaxed)), (Position(1), 0), "nobody need be woken");

    // Much is the thread's; whatever comes behind it waits for it.
    thread.record(A, |out| out.resize(out.len() + 5000, 2));
    assert!(!thread.better_here());
    thread.submit().unwrap();
    thread.record(A, |out| out.push(3));
    while !thread.write_here().unwrap() {
        thread.mark().wait(Position(2)).unwrap();
    }
    assert_eq!((thread.durable().unwrap(), thread.backlog()), (Position(3), 0));
    thread.record(A, |out| out.push(4));
    assert!(!thread.better_here(), "little once is not little for a while");
    drop(thread);
    disk.crash(Crash::Clean);
    let firsts: Vec<u8> = reopen(&disk).2.iter().map(|(.., payload)| payload[0]).collect();
    assert_eq!(firsts, [1, 2, 3]);
}

#[test]
fn what_the_shard_wrote_last_is_sealed_too() {
    let disk = FaultyDisk::default();
    let mut thread = JournalThread::start(reopen(&disk).0, Box::new(|| {})).unwrap();
    thread.record(A, |out| out.push(1));
    assert!(thread.write_here().unwrap());
    let syncs = disk.syncs();
    let sealed = std::time::Instant::now();
    while disk.syncs() == syncs {
        assert!(sealed.elapsed().as_secs() < 60, "an idle journal was not sealed");
        std::thread::yield_now();
    }
    drop(thread);
    disk.flip("segment-0000000000000001.journal", 1024 * 8 + 900);
    assert!(refusal(&disk).contains("corrupt"), "a sealed frame is known to have been durable");
}

#[test]
fn an_error_of_the_shards_own_write_is_final() {
    let disk = FaultyDisk::default();
    let mut thread = JournalThread::start(reopen(&disk).0, Box::new(|| {})).unwrap();
    disk.fail(Faults { sync: Some(0), ..Faults::default() });
    let position = thread.record(A, |out| out.push(1));
    assert!(thread.write_here().unwrap_err().to_string().contains("injected sync error"));
    assert!(thread.mark().wait(position).unwrap_err().to_string().contains("injected sync error"));
    assert!(thread.durable().is_err() && thread.submit().is_err() && thread.write_here().is_err());
    assert!(thread.close().is_err());
}

#[test]
fn a_slow_disk_is_left_to_the_thread() {
    let disk = FaultyDisk::default();
    let mut thread = JournalThread::start(reopen(&disk).0, Box::new(|| {})).unwrap();
    thread.mark().note_pace(std::time::Duration::from_millis(20));
    assert!(!thread.better_here());
    // Its average forgets: the disk is asked through the thread until it is quick again.
    while !thread.better_here() {
        let position = thread.record(A, |out| out.push(1));
        thread.submit().unwrap();
        thread.mark().wait(position).unwrap();
    }
}

#[test]
fn what_gives_segments_back_is_left_to_the_thread() {
    let marks: [fn(&mut JournalThread); 2] =
        [|thread| thread.truncate(A, thread.next_position()), |thread| thread.end(A)];
    for mark in marks {
        let (mut journal, ..) = reopen(&FaultyDisk::default());
        while journal.metrics().segments.load(Relaxed) < 4 {
            journal.append_sync(&[batch(A, &[&[1; 3000]])]).unwrap();
        }
        let mut thread = JournalThread::start(journal, Box::new(|| {})).unwrap();
        assert!(thread.better_here());
        mark(&mut thread);
        let position = thread.record(B, |out| out.push(1));
        assert!(!thread.better_here());
        thread.submit().unwrap();
        thread.mark().wait(position).unwrap();
        assert_eq!(thread.metrics().recycled.load(Relaxed), 3);
    }
}

#[test]
fn a_dropped_thread_has_let_go_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let directory = DataDirectory::open(dir.path(), 7, 1, Expect::Anything).unwrap();
        let (journal, _) = Journal::open(directory, options()).unwrap();
        let mut thread = JournalThread::start(journal, Box::new(|| {})).unwrap();
        thread.record(A, |out| out.resize(out.len() + 5000, 1));
        thread.submit().unwrap();
    }
}

#[test]
fn without_fsync_nothing_is_synced_and_it_says_so() {
    let disk = FaultyDisk::default();
    let options = JournalOptions { fsync: Fsync::Off, ..options() };
    let (mut journal, _) = Journal::open_on(disk.clone(), options, true).unwrap();
    assert!(journal.unsafe_no_fsync());
    assert_eq!(journal.metrics().unsafe_no_fsync.load(Relaxed), 1);
    let before = disk.syncs();
    for _ in 0..4 {
        journal.append_sync(&[batch(A, &[b"unsafe"])]).unwrap();
    }
    assert_eq!(disk.syncs(), before);
    drop(journal);
    // A hole that a power loss left is an incomplete tail here, never called corrupt: nothing claims it was durable.
    disk.flip("segment-0000000000000001.journal", (1024 + 512) * 8 + 900);
    let (_, recovered, records) = reopen(&disk);
    assert_eq!(records.len(), 1);
    assert!(recovered.torn.is_some());
}

// --- Whatever happens ------------------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    /// Records of these streams and sizes, as one frame.
    Append(Vec<(u8, u16)>),
    /// The stream lets go of all but its last few records.
    Truncate(u8, u8),
    /// The stream ends; the next record of that number is another life's.
    End(u8),
    Seal,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let record = (0..3_u8, prop_oneof![0..64_u16, 0..4000_u16]);
    let step = prop_oneof![
        8 => prop::collection::vec(record, 1..6).prop_map(Step::Append),
        2 => (0..3_u8, 0..4_u8).prop_map(|(stream, keep)| Step::Truncate(stream, keep)),
        1 => (0..3_u8).prop_map(Step::End),
        1 => Just(Step::Seal),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// What the journal was told, and how much of it was acknowledged.
#[derive(Default)]
struct Model {
    written: Records,
    acknowledged: usize,
    /// How many records were acknowledged before the newest frame with records, or all once sealed.
    proven: usize,
    marks: BTreeMap<StreamId, Position>,
    ended: BTreeMap<StreamId, Position>,
    incarnation: u32,
}

impl Model {
    fn run(&mut self, disk: &FaultyDisk, steps: &[Step]) -> Result<(), JournalError> {
        let mut journal = self.open(disk)?;
        for step in steps {
            match step {
                Step::Append(records) => {
                    let mut batch = Batch::default();
                    for (stream, size) in records {
                        let position = Position(self.written.len() as u64 + 1);
                        let payload: Vec<u8> = (0..*size).map(|i| (i ^ position.0 as u16) as u8).collect();
                        batch.record(StreamId(u64::from(*stream)), &payload);
                        self.written.push((StreamId(u64::from(*stream)), position, payload));
                    }
                    self.proven = self.acknowledged;
                    journal.append_sync(&[batch])?;
                    self.acknowledged = self.written.len();
                }
                Step::Truncate(stream, keep) => {
                    let stream = StreamId(u64::from(*stream));
                    let own: Vec<_> = self.written.iter().filter(|record| record.0 == stream).collect();
                    let Some(kept) = own.iter().rev().nth(usize::from(*keep)) else { continue };
                    let mut batch = Batch::default();
                    batch.truncate(stream, kept.1);
                    let mark = self.marks.entry(stream).or_default();
                    *mark = kept.1.max(*mark);
                    journal.append_sync(&[batch])?;
                    self.proven = self.acknowledged;
                }
                Step::End(stream) => {
                    let stream = StreamId(u64::from(*stream));
                    let mut batch = Batch::default();
                    batch.end(stream, journal.last().next());
                    self.ended.insert(stream, journal.last().next());
                    journal.append_sync(&[batch])?;
                    self.proven = self.acknowledged;
                }
                Step::Seal => {
                    journal.seal()?;
                    self.proven = self.acknowledged;
                }
                Step::Restart => {
                    drop(journal);
                    journal = self.open(disk)?;
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, disk: &FaultyDisk) -> Result<Journal<FaultyDisk>, JournalError> {
        let (opened, records) = open(disk);
        let (journal, _) = opened?;
        self.accept(&records, self.acknowledged).unwrap();
        assert!(journal.incarnation() > self.incarnation, "an incarnation came twice");
        self.incarnation = journal.incarnation();
        // What was never acknowledged may be gone; from here on it never was.
        let last = journal.last().0 as usize;
        self.written.truncate(last);
        self.acknowledged = last;
        self.proven = last;
        Ok(journal)
    }

    /// Recovered records are exactly what was written, from some point on to some point, except what a stream let go;
    /// and the first `least` are among them.
    fn accept(&self, records: &Records, least: usize) -> Result<(), String> {
        for record in records {
            if self.written.get(record.1.0 as usize - 1) != Some(record) {
                return Err(format!("record {} was never written like that", record.1));
            }
        }
        let before = |marks: &BTreeMap<_, _>, record: &(StreamId, Position, Vec<u8>)| {
            marks.get(&record.0).is_some_and(|mark| record.1 < *mark)
        };
        let back: BTreeSet<_> = records.iter().map(|record| record.1).collect();
        let (first, last) =
            (back.first().copied().unwrap_or(Position(1)), back.last().copied().unwrap_or_default());
        for (index, record) in self.written.iter().enumerate() {
            let inside = record.1 >= first && record.1 <= last;
            let may_miss = before(&self.ended, record) || (!inside && before(&self.marks, record));
            if (inside || index < least) && !back.contains(&record.1) && !may_miss {
                return Err(format!("record {} is missing: {first} to {last} came back", record.1));
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 3000 }))]

    #[test]
    fn a_crash_at_any_byte_loses_nothing_acknowledged(
        steps in steps(), cut in 0.0..1.0_f64, seed in any::<u64>(), torn in any::<bool>(),
    ) {
        // Once without a crash, to know how many bytes there are to choose from.
        let whole = FaultyDisk::default();
        Model::default().run(&whole, &steps).unwrap();
        let disk = FaultyDisk::default();
        disk.fail(Faults { power: Some((whole.written() as f64 * cut) as u64), ..Faults::default() });
        let mut model = Model::default();
        model.run(&disk, &steps).unwrap_err();
        disk.crash(if torn { Crash::Torn(seed) } else { Crash::Process });
        model.open(&disk).unwrap();
        // It goes on working, and recovers again.
        model.run(&disk, &[Step::Append(vec![(1, 100)]), Step::Restart, Step::Append(vec![(2, 3000)])]).unwrap();
    }

    #[test]
    fn a_failing_disk_loses_nothing_acknowledged(
        steps in steps(), at in 0..80_u64, kind in 0..4_u8, seed in any::<u64>(),
    ) {
        let disk = FaultyDisk::default();
        let fault = Some(at);
        disk.fail(match kind {
            0 => Faults { write: fault, ..Faults::default() },
            1 => Faults { short_write: fault, ..Faults::default() },
            2 => Faults { sync: fault, ..Faults::default() },
            _ => Faults { space: Some(at << 10), ..Faults::default() },
        });
        let mut model = Model::default();
        let _ = model.run(&disk, &steps);
        disk.crash(Crash::Torn(seed));
        model.open(&disk).unwrap();
    }

    #[test]
    fn flipped_bits_give_a_refusal_or_the_truth(
        steps in steps(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..6),
    ) {
        let disk = FaultyDisk::default();
        let mut model = Model::default();
        model.run(&disk, &steps).unwrap();
        let names: Vec<_> = disk.lengths().into_iter().collect();
        for (file, bit) in &flips {
            let (name, length) = file.get(&names);
            disk.flip(name, bit % (length * 8));
        }
        let (opened, records) = open(&disk);
        if opened.is_ok() {
            // One flip: only the newest frame, which nothing later proves, may be gone. Several may hit the newest frame
            // and its only proof; even then no record is wrong and none is missing in the middle.
            let least = if flips.len() == 1 { model.proven } else { 0 };
            prop_assert_eq!(model.accept(&records, least), Ok(()));
        }
    }

    #[test]
    fn decoders_take_anything(bytes in prop::collection::vec(any::<u8>(), 0..2000), salt in any::<u64>()) {
        let _ = format::decode_entry(&bytes);
        let _ = format::decode_frame(&bytes, salt);
        let _ = format::SegmentHeader::decode(&bytes);
        let _ = format::IdentityFile::decode(&bytes);
    }

    #[test]
    fn an_entry_survives_the_round_trip_and_no_single_flip(
        stream in any::<u64>(), payload in prop::collection::vec(any::<u8>(), 0..300), bit in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        format::encode_entry(&mut bytes, StreamId(stream), Kind::Record, &payload);
        let (entry, length) = format::decode_entry(&bytes).unwrap();
        prop_assert_eq!((entry.stream, entry.payload, length), (StreamId(stream), &payload[..], bytes.len()));
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(format::decode_entry(&bytes).is_err());
    }
}
