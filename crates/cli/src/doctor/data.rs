//! The data directory: whose it is, what it lies on, and how long its disk takes to sync.

use super::{Case, Check, count, median, size, time};
use crate::{output, protocols};
use isochrone_node::journal::{Disk, DiskFile, RealDisk, TRIAL};
use isochrone_node::node::{StartError, examine};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So many writes are synced, each of so many bytes, unless it takes this long.
const WRITES: u64 = 64;
const WRITE: usize = 4 << 10;
const LONGEST: Duration = Duration::from_secs(5);
/// Whoever wrote for that was ended long before it is this old.
const ABANDONED: Duration = Duration::from_secs(60);

/// A disk whose median sync takes longer is told of.
const SLOW: Duration = Duration::from_millis(10);
/// No disk has anything safe within less.
const IMPOSSIBLE: Duration = Duration::from_micros(5);

/// Less room than for two of the largest segments of a journal is none, bytes.
const ROOM_LEAST: u64 = 128 << 20;
/// What is to be planned for where there is little data, bytes.
const ROOM_PLANNED: u64 = 400 << 20;

/// Where the system tells what is mounted where.
const MOUNTS: &str = "/proc/self/mountinfo";

pub(super) fn look(case: &Case) -> Vec<Check> {
    let Some(data) = &case.data else {
        let advice = "name it with --data to have it and its disk looked at";
        return vec![Check::warn("directory", "left out, as none is named", advice)];
    };
    let place = match place(data) {
        Ok(place) => place,
        Err(check) => return vec![check],
    };
    let mut checks = vec![directory(case, data, &place), file_system(&place), room(&place)];
    match measure(&place) {
        Ok(times) => checks.push(sync_time(&times)),
        Err(cause) => {
            let found = format!("{}: cannot be written: {}", place.display(), cause.kind());
            checks.push(Check::fail("disk sync", found, output::another_directory(&cause)));
        }
    }
    checks
}

/// Where the journal lies; as long as it does not, the directory above in which it would be made.
fn place(data: &Path) -> Result<PathBuf, Check> {
    let journal = data.join("journal");
    // What is above a relative path ends with one of no name: where this process runs.
    let mut above = journal.ancestors().map(|above| match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    });
    // What this user may not look at is there.
    let absent = |cause: io::Error| matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    let there = above.find(|above| !above.metadata().is_err_and(absent)).unwrap_or(data);
    let shown = there.display();
    match there.metadata() {
        Ok(found) if found.is_dir() => Ok(there.to_owned()),
        Ok(_) => {
            let found = format!("{shown} is no directory, and a node's data needs one");
            Err(Check::fail("directory", found, "name a directory, or one that does not exist yet"))
        }
        Err(cause) => {
            let found = format!("{shown} cannot be looked at: {cause}");
            Err(Check::fail("directory", found, "do this as the user that runs the node"))
        }
    }
}

/// Whose the directory is.
fn directory(case: &Case, data: &Path, place: &Path) -> Check {
    let (name, shown, me) = ("directory", data.display(), &case.node().name);
    let first = format!("right only where {me} has never run: else mount its disk, or name its directory");
    if !data.is_dir() {
        if case.told.is_some() {
            let found = format!("{shown} does not exist, and {me} runs here: on another directory");
            return Check::warn(name, found, "name with --data the one that it was started with");
        }
        let found = format!("{shown} does not exist yet, and would be made in {}", place.display());
        return Check { advice: Some(first), ..Check::ok(name, found) };
    }
    if let Some(Err(error)) = &case.locked {
        return Check::refused(name, StartError::Journal(error.clone()));
    }
    let (locked, free) = (matches!(case.locked, Some(Ok(true))), matches!(case.locked, Some(Ok(false))));
    match examine(data, &case.deployment, case.me, &protocols::served()) {
        Err(error) => Check::refused(name, error),
        Ok(_) if case.told.is_some() && free => {
            let found = format!("no node has {shown} open, and {me} runs here: on another directory");
            Check::warn(name, found, "name with --data the one that it was started with")
        }
        Ok(false) if !locked => {
            Check { advice: Some(first), ..Check::ok(name, format!("{shown} holds no data of a node yet")) }
        }
        Ok(_) => {
            let open = if locked { "a node runs on it" } else { "no node runs on it" };
            let cluster = case.deployment.cluster();
            Check::ok(name, format!("{shown} belongs to {me} of {cluster}; {open}"))
        }
    }
}

/// What the directory lies on.
fn file_system(place: &Path) -> Check {
    let mounts = std::fs::read(MOUNTS).unwrap_or_default();
    let path = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    suits(kind(&String::from_utf8_lossy(&mounts), &path))
}

/// Whether what is written to a file system of this kind lasts.
fn suits(kind: Option<&str>) -> Check {
    let name = "file system";
    let local = "name a directory on a disk of this machine";
    match kind {
        None => Check::warn(name, "of which kind is not known", "see that it is none of memory"),
        Some(kind @ ("tmpfs" | "ramfs")) => {
            let found = format!("{kind}: memory, which the machine loses when it stops");
            Check::warn(name, found, local)
        }
        Some(kind @ ("overlay" | "aufs")) => {
            let found = format!("{kind}: a container's own layer, which goes with the container");
            Check::warn(name, found, "mount a volume there, and name a directory on it")
        }
        Some(kind)
            if ["nfs", "cifs", "smb", "9p", "ceph", "glusterfs", "fuse"]
                .iter()
                .any(|far| kind.starts_with(far)) =>
        {
            let found = format!("{kind}: whether a sync or a lock holds is another program's word");
            Check::warn(name, found, local)
        }
        Some(kind) => Check::ok(name, kind),
    }
}

/// The kind of the file system that a path lies on, by the system's table of mounts.
fn kind<'t>(mounts: &'t str, path: &Path) -> Option<&'t str> {
    let mut found: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (left.split(' ').nth(4), right.split(' ').next()) else { continue };
        let point =
            point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\");
        let depth = Path::new(&point).components().count();
        // Of two at one place the later hides the earlier.
        if path.starts_with(&point) && found.is_none_or(|(deepest, _)| depth >= deepest) {
            found = Some((depth, kind));
        }
    }
    found.map(|(_, kind)| kind)
}

fn room(place: &Path) -> Check {
    match rustix::fs::statvfs(place) {
        Ok(found) => {
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            enough(bytes(found.f_bavail), bytes(found.f_blocks))
        }
        Err(cause) => {
            let found = format!("not known: {}", io::Error::from(cause));
            Check::warn("free space", found, "see that there are 400 MiB, or five times the data")
        }
    }
}

/// Whether so much of a disk is room for a node.
fn enough(free: u64, all: u64) -> Check {
    let name = "free space";
    let found = format!("{} of {}", size(free), size(all));
    let advice =
        "plan for 400 MiB, or five times the data where that is more: a node whose disk is full ends";
    match free {
        0..ROOM_LEAST => Check::fail(name, found, advice),
        ROOM_LEAST..ROOM_PLANNED => Check::warn(name, found, advice),
        _ => Check::ok(name, found),
    }
}

/// How long each write took until it was durable, as the journal writes.
fn measure(place: &Path) -> io::Result<Vec<Duration>> {
    tidy(place);
    // It goes with all that is in it. Its name does no harm where this ends too early for that.
    let folder = tempfile::Builder::new().prefix(TRIAL).tempdir_in(place)?;
    let mut file = RealDisk::new(folder.path()).create("trial", WRITES * WRITE as u64)?;
    let (begin, mut times) = (Instant::now(), Vec::new());
    for at in 0..WRITES {
        let start = Instant::now();
        file.write_at(at * WRITE as u64, &[0x5a; WRITE])?;
        file.sync()?;
        times.push(start.elapsed());
        if begin.elapsed() > LONGEST {
            break;
        }
    }
    Ok(times)
}

/// Removes what others have left that were killed: here, and further up, where they wrote as long as this did not exist.
fn tidy(place: &Path) {
    let place = std::path::absolute(place).unwrap_or_else(|_| place.to_owned());
    for folder in place.ancestors() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
            if entry.file_name().to_string_lossy().starts_with(TRIAL)
                && age().is_some_and(|age| age > ABANDONED)
            {
                // It does no harm, and the next may try again.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn sync_time(times: &[Duration]) -> Check {
    let median = median(times);
    let longest = times.iter().max().copied().unwrap_or_default();
    let found = format!(
        "median {}, longest {}, of {} of 4 KiB",
        time(median),
        time(longest),
        count(times.len() as u64, "write")
    );
    let advice = if median > SLOW {
        "every write waits for the disks of a majority: use one that syncs sooner, as an SSD whose memory survives a power \
         failure"
    } else if median < IMPOSSIBLE {
        "no disk is that quick: something on the way ignores syncs, as a hypervisor's cache or `eatmydata`, and a power \
         failure loses what was acknowledged"
    } else {
        return Check::ok("disk sync", found);
    };
    Check::warn("disk sync", found, advice)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_path_lies_on_the_deepest_mount_and_of_two_there_on_the_later() {
        const MOUNTS: &str = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            30 27 0:30 / /var/lib rw shared:1 - xfs /dev/vdb rw\n\
            31 27 0:31 / /var/lib/a\\040b rw - tmpfs tmpfs rw\n\
            32 27 0:32 / /srv rw - ext4 /dev/vdc rw\n\
            33 27 0:33 / /srv rw master:3 propagate_from:2 - nfs4 far:/srv rw\n\
            a line of another kind\n";
        for (path, wanted) in [
            ("/home", "ext4"),
            ("/var/lib", "xfs"),
            ("/var/library", "ext4"),
            ("/var/lib/isochrone", "xfs"),
            ("/var/lib/a b/c", "tmpfs"),
            ("/srv/va1", "nfs4"),
        ] {
            assert_eq!(kind(MOUNTS, Path::new(path)), Some(wanted), "{path}");
        }
        assert_eq!(kind("", Path::new("/")), None);
    }

    #[test]
    fn only_what_lasts_suits() {
        for (kind, verdict) in [
            (Some("ext4"), Verdict::Ok),
            (Some("xfs"), Verdict::Ok),
            (Some("tmpfs"), Verdict::Warn),
            (Some("overlay"), Verdict::Warn),
            (Some("nfs4"), Verdict::Warn),
            (Some("fuse.sshfs"), Verdict::Warn),
            (None, Verdict::Warn),
        ] {
            assert_eq!(suits(kind).verdict, verdict, "{kind:?}");
        }
    }

    #[test]
    fn room_is_for_two_segments_at_least() {
        let verdict = |free| enough(free, 1 << 40).verdict;
        assert_eq!(verdict(0), Verdict::Fail);
        assert_eq!(verdict(ROOM_LEAST - 1), Verdict::Fail);
        assert_eq!(verdict(ROOM_LEAST), Verdict::Warn);
        assert_eq!(verdict(ROOM_PLANNED), Verdict::Ok);
    }

    #[test]
    fn a_disk_is_too_slow_or_too_quick_by_its_median() {
        let check = |micros: &[u64]| {
            let times: Vec<_> = micros.iter().map(|micros| Duration::from_micros(*micros)).collect();
            sync_time(&times)
        };
        let good = check(&[400, 300, 90_000]);
        assert_eq!(
            (good.verdict, good.found.as_str()),
            (Verdict::Ok, "median 400 us, longest 90.0 ms, of 3 writes of 4 KiB")
        );
        let slow = check(&[12_000, 300, 90_000]);
        assert_eq!(slow.verdict, Verdict::Warn);
        assert!(slow.advice.unwrap().contains("every write waits"), "{}", slow.found);
        let quick = check(&[3, 2, 90_000]);
        assert_eq!(quick.verdict, Verdict::Warn);
        assert!(quick.advice.unwrap().contains("ignores syncs"), "{}", quick.found);
    }

    #[test]
    fn syncs_are_timed_where_the_directory_is_or_would_be_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        assert_eq!(place(&data).unwrap(), folder.path());
        let times = measure(folder.path()).unwrap();
        assert!((1..=WRITES).contains(&(times.len() as u64)), "{times:?}");
        assert!(times.iter().all(|time| *time > Duration::ZERO), "{times:?}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "something is left");
        std::fs::create_dir_all(data.join("journal")).unwrap();
        assert_eq!(place(&data).unwrap(), data.join("journal"));
        // Of those that were killed, one while there was no journal; one that goes on stays.
        let left = |above: &Path, name: &str, age: Duration| {
            let left = above.join(format!("{TRIAL}{name}"));
            std::fs::create_dir(&left).unwrap();
            std::fs::write(left.join("trial"), "x").unwrap();
            let at = std::time::SystemTime::now() - age;
            std::fs::File::open(&left).unwrap().set_modified(at).unwrap();
            left
        };
        let (up, here) = (left(folder.path(), "up", 2 * ABANDONED), left(&data, "here", 2 * ABANDONED));
        let beside = left(&data, "beside", Duration::ZERO);
        measure(&data.join("journal")).unwrap();
        assert_eq!([&up, &here, &beside].map(|left| left.exists()), [false, false, true]);
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = place(&folder.path().join("file/data")).unwrap_err();
        assert_eq!(error.verdict, Verdict::Fail);
        assert!(
            error.found.ends_with("file is no directory, and a node's data needs one"),
            "{}",
            error.found
        );
        assert!(measure(&folder.path().join("none")).is_err());
    }
}
