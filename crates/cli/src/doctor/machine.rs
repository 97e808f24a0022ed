//! What the machine gives: open files, memory, processors.

use super::{Case, Check, count, size};
use isochrone_core::Deployment;
use isochrone_core::deployment::{Limit, Node};
use isochrone_node::limits::{self, Limits, group_memory, open_files};
use isochrone_node::shard::SNAPSHOT_BYTES;
use isochrone_node::snapshots::SnapshotStore;
use std::fs;
use std::path::Path;

pub(super) fn look(case: &Case) -> Vec<Check> {
    let most = limits::memory();
    let mut checks = vec![
        files(&case.deployment, case.node(), open_files()),
        memory(&case.deployment),
        bound(limits::data_memory(case.deployment.limits(), most), most),
        processors(),
    ];
    let held = case.data.as_deref().map(Held::of);
    checks.extend(held.and_then(|held| fits(held, most)));
    checks
}

/// Whether there is a file for each client of which the deployment speaks.
fn files(deployment: &Deployment, me: &Node, most: Option<u64>) -> Check {
    let name = "open files";
    let wanted = Limits::from(deployment.limits()).clients;
    let mut limits = Limits::from(deployment.limits());
    limits.heed_files(most, usize::from(me.redis.is_some()) + usize::from(me.grpc.is_some()));
    let most = most.map_or_else(|| "any number".to_owned(), |most| most.to_string());
    let found = format!("{most}: room for {} of {wanted} `clients`", limits.clients);
    let advice = "raise the limit (`ulimit -n`; a service has its own, LimitNOFILE), or lower `clients` under [limits]";
    match limits.clients {
        _ if !limits.too_few(wanted) => Check::ok(name, found),
        // The one that there always is.
        1 => Check::fail(name, found, advice),
        _ => Check::warn(name, found, advice),
    }
}

fn memory(deployment: &Deployment) -> Check {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let peers = (deployment.nodes().len() as u64).saturating_sub(1);
    let bound = |limit| deployment.limits().get(limit);
    let queues = bound(Limit::PeerQueue).saturating_mul(peers);
    suffices(available(&told), group_memory(), bound(Limit::JournalQueue).saturating_add(queues))
}

/// Whether so many bytes suffice where a control group may have no more than its limit, for what may wait for the disk and
/// for peers.
fn suffices(available: Option<u64>, limit: Option<u64>, waiting: u64) -> Check {
    let name = "memory";
    let beside = "all data is held in memory, and the answers that clients wait for";
    let bound = format!("{} may wait for the disk and for peers", size(waiting));
    let Some(available) = available else {
        return Check::warn(name, format!("not known; {bound}"), format!("see that there is more: {beside}"));
    };
    let least = limit.unwrap_or(u64::MAX).min(available);
    let found = match limit {
        Some(limit) if limit < available => {
            format!("{} is the limit of this control group; {bound}", size(limit))
        }
        _ => format!("{} available; {bound}", size(available)),
    };
    if least < waiting {
        let advice = format!("lower journal_queue and peer_queue under [limits], or have more: {beside}");
        return Check::warn(name, found, advice);
    }
    Check::ok(name, format!("{found}; beside it {beside}"))
}

/// Bytes that can be had without swapping, as the system tells.
fn available(told: &str) -> Option<u64> {
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What a data directory holds of which a start makes its data, bytes.
#[derive(Copy, Clone)]
struct Held {
    /// The newest snapshots.
    snapshots: u64,
    /// The journal's segments.
    journal: u64,
}

impl Held {
    /// What cannot be looked at counts as nothing: other checks say so.
    fn of(data: &Path) -> Held {
        let entries = fs::read_dir(data.join("journal")).into_iter().flatten().flatten();
        let segments = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"));
        Held {
            snapshots: SnapshotStore::newest_bytes(&data.join("snapshots")),
            journal: segments.map(|entry| entry.metadata().map_or(0, |about| about.len())).sum(),
        }
    }
}

/// Whether a start has memory for what is on the disk; nothing where there is nothing, or nobody tells how much memory there is.
fn fits(held: Held, limit: Option<u64>) -> Option<Check> {
    let (name, limit) = ("memory for data", limit?);
    // The next snapshot is written once so much has been recorded since the last.
    let since = held.journal.min(held.snapshots.max(SNAPSHOT_BYTES));
    let all = held.snapshots.saturating_add(since);
    if all == 0 {
        return None;
    }
    let found = format!(
        "a start reads {} of snapshots and up to {} of the journal, and may have {}",
        size(held.snapshots),
        size(since),
        size(limit)
    );
    Some(if all > limit {
        let advice = "as far as none of it is overwritten or deleted, it does not fit: give it more (a service has its own \
                      limit, MemoryMax), or have less data (docs/operations.md, \"Memory that runs out\")";
        Check::warn(name, found, advice)
    } else {
        Check::ok(name, found)
    })
}

/// Whether a node refuses to take more before it is killed for it; `limit` is 0 where it refuses nothing.
fn bound(limit: u64, most: Option<u64>) -> Check {
    let name = "memory limit";
    let may =
        most.map_or_else(|| "what there is is not known".to_owned(), |most| format!("of {}", size(most)));
    if limit == 0 {
        let advice = "set `memory` under [limits]: a node that needs more than there is is killed, and again at each start";
        return Check::warn(name, format!("none, {may}"), advice);
    }
    let found = format!("{}, {may}: above it, what may make data grow is refused", size(limit));
    if most.is_some_and(|most| most < limit) {
        let advice = "lower `memory` under [limits]: the node would be killed before it refuses anything";
        return Check::warn(name, found, advice);
    }
    if most.is_some_and(|most| most / 7 * 6 < limit) {
        let advice = "lower `memory` under [limits]: a start needs up to a sixth more than the node had";
        return Check::warn(name, found, advice);
    }
    Check::ok(name, found)
}

fn processors() -> Check {
    let found = std::thread::available_parallelism().map_or(0, |number| number.get() as u64);
    let found = if found == 0 { "not known".to_owned() } else { count(found, "processor") };
    Check::ok("processors", found)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::super::tests::three_nodes;
    use super::*;

    #[test]
    fn files_are_held_against_clients() {
        let [default, deployment] =
            ["", "clients = 1000"].map(|line| three_nodes(&format!("[limits]\n{line}")));
        let of = |deployment: &Deployment, most| {
            let check = files(deployment, &deployment.nodes()[0], most);
            (check.verdict, check.found)
        };
        let found = |most| of(&deployment, most);
        let told = |text: &str| text.to_owned();
        assert_eq!(found(None), (Verdict::Ok, told("any number: room for 1000 of 1000 `clients`")));
        assert_eq!(found(Some(4096)), (Verdict::Ok, told("4096: room for 1000 of 1000 `clients`")));
        assert_eq!(found(Some(1024)), (Verdict::Warn, told("1024: room for 640 of 1000 `clients`")));
        assert_eq!(found(Some(256)), (Verdict::Fail, told("256: room for 1 of 1000 `clients`")));
        let most = "10000: room for 9616 of 10000 `clients`";
        assert_eq!(of(&default, Some(10_000)), (Verdict::Ok, told(most)));
        assert_eq!(of(&default, Some(4_096)).0, Verdict::Warn);
    }

    #[test]
    fn memory_is_what_the_machine_has_or_what_its_control_group_may() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        const MIB: u64 = 1 << 20;
        let verdict = |available, limit| suffices(available, limit, 384 * MIB).verdict;
        assert_eq!(verdict(Some(1024 * MIB), None), Verdict::Ok);
        assert_eq!(verdict(Some(1024 * MIB), Some(512 * MIB)), Verdict::Ok);
        assert_eq!(verdict(Some(1024 * MIB), Some(256 * MIB)), Verdict::Warn);
        assert_eq!(verdict(Some(256 * MIB), Some(u64::MAX)), Verdict::Warn);
        assert_eq!(verdict(None, None), Verdict::Warn);
        let found = suffices(Some(2048 * MIB), Some(512 * MIB), 384 * MIB).found;
        assert!(found.starts_with("512 MiB is the limit of this control group; 384 MiB may wait"), "{found}");
    }

    #[test]
    fn a_limit_of_memory_is_below_what_there_is() {
        const GIB: u64 = 1 << 30;
        let found = |limit, most| {
            let check = bound(limit, most);
            (check.verdict, check.found)
        };
        let refuses = "above it, what may make data grow is refused";
        for (limit, most, verdict, text) in [
            (6 * GIB, Some(8 * GIB), Verdict::Ok, format!("6.0 GiB, of 8.0 GiB: {refuses}")),
            (7 * GIB, Some(8 * GIB), Verdict::Warn, format!("7.0 GiB, of 8.0 GiB: {refuses}")),
            (9 * GIB, Some(8 * GIB), Verdict::Warn, format!("9.0 GiB, of 8.0 GiB: {refuses}")),
            (9 * GIB, None, Verdict::Ok, format!("9.0 GiB, what there is is not known: {refuses}")),
            (0, Some(8 * GIB), Verdict::Warn, "none, of 8.0 GiB".to_owned()),
        ] {
            assert_eq!(found(limit, most), (verdict, text));
        }
    }

    #[test]
    fn what_is_on_the_disk_is_held_against_the_memory_that_a_start_may_have() {
        const MIB: u64 = 1 << 20;
        let check = |snapshots: u64, journal: u64, limit: u64| {
            fits(Held { snapshots: snapshots * MIB, journal: journal * MIB }, Some(limit * MIB))
        };
        let verdict = |snapshots, journal, limit| check(snapshots, journal, limit).map(|check| check.verdict);
        // Of a journal that reaches back to the snapshot before the newest, no more than was recorded since that counts.
        assert_eq!(verdict(250, 500, 500), Some(Verdict::Ok));
        assert_eq!(verdict(250, 500, 499), Some(Verdict::Warn));
        assert_eq!(verdict(0, 200, 64), Some(Verdict::Ok));
        assert_eq!((verdict(0, 0, 400), fits(Held { snapshots: 1, journal: 1 }, None)), (None, None));
        let Check { found, .. } = check(250, 500, 400).unwrap();
        assert_eq!(
            found,
            "a start reads 250 MiB of snapshots and up to 250 MiB of the journal, and may have 400 MiB"
        );

        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        fs::create_dir(&journal).unwrap();
        for (name, length) in [("segment-1.journal", 3), ("segment-2.journal", 4), ("spare-3.journal", 5)] {
            fs::write(journal.join(name), vec![0; length]).unwrap();
        }
        let held = Held::of(folder.path());
        assert_eq!((held.snapshots, held.journal), (0, 7));
    }
}
