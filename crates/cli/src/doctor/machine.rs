//! What the machine gives: open files, memory, processors.

use super::{Case, Check, count, size};
use isochrone_core::Deployment;
use isochrone_core::deployment::{Limit, Node};
use isochrone_node::limits::{Limits, open_files};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn look(case: &Case) -> Vec<Check> {
    vec![files(&case.deployment, case.node(), open_files()), memory(&case.deployment), processors()]
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
        all if all == wanted => Check::ok(name, found),
        // The one that there always is.
        1 => Check::fail(name, found, advice),
        _ => Check::warn(name, found, advice),
    }
}

fn memory(deployment: &Deployment) -> Check {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(group_limits);
    let limit = limits.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()).min();
    let peers = (deployment.nodes().len() as u64).saturating_sub(1);
    let bound = |limit| deployment.limits().get(limit);
    let queues = bound(Limit::PeerQueue).saturating_mul(peers);
    suffices(available(&told), limit, bound(Limit::JournalQueue).saturating_add(queues))
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

/// Where the limits of memory stand that hold for a control group, of which this is the line in the table of a process: its
/// own, and those of all above it.
fn group_limits(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(kinds), Some(group)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (root, file) = match kinds {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if kinds.split(',').any(|kind| kind == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let groups = Path::new(group.trim_start_matches('/')).ancestors();
    groups.map(|group| Path::new(root).join(group).join(file)).collect()
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
        let deployment = three_nodes("[limits]\nclients = 1000");
        let found = |most| {
            let check = files(&deployment, &deployment.nodes()[0], most);
            (check.verdict, check.found)
        };
        let told = |text: &str| text.to_owned();
        assert_eq!(found(None), (Verdict::Ok, told("any number: room for 1000 of 1000 `clients`")));
        assert_eq!(found(Some(4096)), (Verdict::Ok, told("4096: room for 1000 of 1000 `clients`")));
        assert_eq!(found(Some(1024)), (Verdict::Warn, told("1024: room for 640 of 1000 `clients`")));
        assert_eq!(found(Some(256)), (Verdict::Fail, told("256: room for 1 of 1000 `clients`")));
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
    fn a_control_group_is_bound_by_those_above_it() {
        let paths = |line| -> Vec<String> {
            group_limits(line).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            paths("0::/system.slice/isochrone"),
            [
                "/sys/fs/cgroup/system.slice/isochrone/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(paths("4:memory:/"), ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
        assert!(paths("1:cpu:/").is_empty() && paths("").is_empty());
    }
}
