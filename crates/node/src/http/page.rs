//! What `/metrics` shows: names, kinds and help of every metric, in one place.

use crate::limits::{self, Limits};
use crate::metrics::{PATHS, Page};
use crate::reactor::{Board, resident_bytes};
use isochrone_core::Phase;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(test)]
mod contrib;

/// The page of `/metrics`. First what a node has whatever it serves, then what there is more of the more keyspaces there are, then
/// what there is of each partition: where it is too long, the end goes.
pub(super) fn page(board: &Board, limits: &Limits) -> String {
    let (metrics, status, counters) = (&board.metrics, board.status(), board.counters());
    let mut page = Page::default();
    let number = |flag: bool| if flag { 1.0 } else { 0.0 };
    let gauge = "gauge";
    let counter = "counter";
    page.value(
        "isochrone_build_info",
        gauge,
        "Which node of which region and cluster this is, and the version that runs.",
        &[
            ("cluster", &status.cluster),
            ("node", &status.node),
            ("region", &status.region),
            ("version", env!("CARGO_PKG_VERSION")),
        ],
        1.0,
    );
    page.value("isochrone_uptime_seconds", gauge, "Since this start.", &[], status.uptime_seconds as f64);
    page.value(
        "isochrone_unsafe_fsync_off",
        gauge,
        "1 where acknowledged writes are UNSAFE: fsync is off.",
        &[],
        number(status.unsafe_fsync_off),
    );
    page.value(
        "isochrone_ready",
        gauge,
        "Whether every keyspace is ready: a majority within reach and its leader, or with curp a master that serves.",
        &[],
        number(status.ready),
    );

    page.value(
        "isochrone_idle_poll_seconds_total",
        counter,
        "Time in which the loop looked for news instead of sleeping (idle_poll of the node).",
        &[],
        metrics.idle_poll.load(Relaxed) as f64 / 1e9,
    );
    page.value(
        "isochrone_memory_resident_bytes",
        gauge,
        "Memory of the process; 0 where the system does not tell.",
        &[],
        resident_bytes() as f64,
    );
    page.value(
        "isochrone_memory_used_bytes",
        gauge,
        "Memory that the process has asked for and not given back, which falls with what is deleted; 0 where its allocator does not count.",
        &[],
        metrics.memory.used() as f64,
    );
    page.value(
        "isochrone_memory_limit_bytes",
        gauge,
        "Memory that the process may have: what its control group may, or else what the machine has; 0 where the system does not tell.",
        &[],
        limits::memory().unwrap_or(0) as f64,
    );

    let journal = &metrics.journal;
    page.durations(
        "isochrone_journal_sync_duration_seconds",
        "How long a sync of the journal took.",
        &journal.syncs,
    );
    page.value(
        "isochrone_journal_written_bytes_total",
        counter,
        "Bytes written to the journal.",
        &[],
        journal.bytes.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_records_total",
        counter,
        "Records written.",
        &[],
        journal.records.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_frames_total",
        counter,
        "Writes, each with one sync.",
        &[],
        journal.frames.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_batches_total",
        counter,
        "Batches handed to the journal.",
        &[],
        journal.batches.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_queued_batches",
        gauge,
        "Batches that wait for the disk.",
        &[],
        journal.queued.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_bytes",
        gauge,
        "Bytes of the journal on disk.",
        &[],
        journal.segment_bytes.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_segments",
        gauge,
        "Segments in use.",
        &[],
        journal.segments.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_spare_failures_total",
        counter,
        "Segments that could not be made ahead of time: the disk is nearly full.",
        &[],
        journal.spare_failures.load(Relaxed) as f64,
    );
    let free = journal.free_bytes.load(Relaxed);
    if free > 0 {
        page.value(
            "isochrone_disk_free_bytes",
            gauge,
            "Bytes free in the file system of the data directory, at most a second ago unless the disk hangs.",
            &[],
            free as f64,
        );
    }
    page.value(
        "isochrone_snapshots_unusable_total",
        counter,
        "Snapshots found damaged at this start and passed over for older ones: the disk damages what is on it.",
        &[],
        metrics.snapshots.unusable.load(Relaxed) as f64,
    );

    for peer in &status.peers {
        page.value(
            "isochrone_peer_connected",
            gauge,
            "Whether there is a link.",
            &[("peer", &peer.name)],
            number(peer.connected),
        );
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_member",
            gauge,
            "Whether a keyspace has a replica there now, as far as this node knows.",
            &[("peer", &peer.name)],
            number(peer.member),
        );
    }
    for peer in &status.peers {
        if let Some(millis) = peer.round_trip_ms {
            page.value(
                "isochrone_peer_round_trip_time_seconds",
                gauge,
                "The last round trip.",
                &[("peer", &peer.name)],
                millis / 1e3,
            );
        }
    }
    for peer in &status.peers {
        if let Some(millis) = peer.clock_ahead_ms {
            page.value(
                "isochrone_peer_clock_ahead_seconds",
                gauge,
                "By how much the wall clock of the peer is ahead of this node's.",
                &[("peer", &peer.name)],
                millis / 1e3,
            );
        }
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_queued_bytes",
            gauge,
            "Bytes that wait for the peer.",
            &[("peer", &peer.name)],
            peer.queued_bytes as f64,
        );
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_messages_sent_total",
            counter,
            "Messages handed to the link.",
            &[("peer", &peer.name)],
            peer.sent as f64,
        );
    }
    for peer in &status.peers {
        for (reason, count) in peer.dropped {
            page.value(
                "isochrone_peer_messages_dropped_total",
                counter,
                "Messages dropped, as a network may.",
                &[("peer", &peer.name), ("reason", reason)],
                count as f64,
            );
        }
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_connects_total",
            counter,
            "Links made.",
            &[("peer", &peer.name)],
            peer.connects as f64,
        );
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_failures_total",
            counter,
            "Links broken or not made.",
            &[("peer", &peer.name)],
            peer.failures as f64,
        );
    }
    page.value(
        "isochrone_peer_malformed_frames_total",
        counter,
        "Frames that ended their connection.",
        &[],
        metrics.malformed_frames.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_peer_greetings_refused_total",
        counter,
        "Of other clusters, versions, nodes or deployment files, and handshakes of TLS that failed.",
        &[],
        metrics.refused_greetings.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_misaddressed_messages_total",
        counter,
        "For processes that do not run here, or of keyspaces in which deployment files differ.",
        &[],
        metrics.misaddressed.load(Relaxed) as f64,
    );

    for (which, at) in metrics.certificates.get().named() {
        page.value(
            "isochrone_certificate_expiry_timestamp_seconds",
            gauge,
            "When a certificate in use runs out, in seconds since 1970.",
            &[("certificate", which)],
            at as f64,
        );
    }

    page.value("isochrone_clients", gauge, "Client connections.", &[], metrics.clients.load(Relaxed) as f64);
    page.value(
        "isochrone_requests_in_flight",
        gauge,
        "Commands under way.",
        &[],
        metrics.in_flight.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_requests_room",
        gauge,
        "Commands of Redis clients that may be under way in all keyspaces; more wait unread.",
        &[],
        metrics.room.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_gateway_connections_total",
        counter,
        "Clients accepted.",
        &[],
        counters.connections as f64,
    );
    page.value(
        "isochrone_gateway_malformed_total",
        counter,
        "Connections ended by input that was not the protocol.",
        &[],
        counters.malformed as f64,
    );
    page.value(
        "isochrone_gateway_login_failures_total",
        counter,
        "Logins refused.",
        &[],
        counters.login_failures as f64,
    );
    page.value(
        "isochrone_gateway_login_checks_total",
        counter,
        "Passwords hashed.",
        &[],
        counters.login_checks as f64,
    );
    page.value(
        "isochrone_gateway_logins_waiting",
        gauge,
        "Passwords that wait to be hashed.",
        &[],
        counters.logins_waiting as f64,
    );
    for (name, count) in &counters.commands {
        page.value(
            "isochrone_gateway_commands_total",
            counter,
            "Commands taken in.",
            &[("command", name)],
            *count as f64,
        );
    }
    for (code, count) in &counters.errors {
        page.value(
            "isochrone_gateway_errors_total",
            counter,
            "Commands answered with an error.",
            &[("code", code)],
            *count as f64,
        );
    }
    for (result, count) in [("hit", counters.lookups.0), ("miss", counters.lookups.1)] {
        page.value(
            "isochrone_gateway_lookups_total",
            counter,
            "Keys that were looked for.",
            &[("result", result)],
            count as f64,
        );
    }
    metrics.grpc.show(&mut page);
    metrics.audit.show(&mut page);
    let memory = ("memory", metrics.memory.limit() as f64);
    for (limit, value) in limits.named().into_iter().chain([memory]) {
        page.value(
            "isochrone_limit",
            gauge,
            "The limits of this node, in seconds, bytes or counts.",
            &[("limit", limit)],
            value,
        );
    }

    type Read = fn(&crate::metrics::KeyspaceMetrics) -> u64;
    let counts: [(&'static str, &str, &str, Read); 6] = [
        ("isochrone_commands_refused_total", counter, "Commands that had no effect.", |k| {
            k.refused.load(Relaxed)
        }),
        ("isochrone_commands_unknown_total", counter, "Commands of unknown fate.", |k| {
            k.unknown.load(Relaxed)
        }),
        ("isochrone_leader_changes_total", counter, "Times a process of this node began to lead.", |k| {
            k.leader_changes.load(Relaxed)
        }),
        ("isochrone_leader", gauge, "Whether a process of this node leads.", |k| {
            k.leads.load(Relaxed).into()
        }),
        (
            "isochrone_decided_position",
            gauge,
            "The furthest place of the log that this node knows decided; to be compared between nodes only.",
            |k| k.decided.load(Relaxed),
        ),
        (
            "isochrone_applied_position",
            gauge,
            "How much this node has applied, at rest the same at every node; to be compared between nodes only.",
            |k| k.applied.load(Relaxed),
        ),
    ];
    for (name, kind, help, read) in counts {
        for keyspace in &metrics.keyspaces {
            page.value(name, kind, help, &[("keyspace", &keyspace.name)], read(keyspace) as f64);
        }
    }
    let name = |id: u16| {
        let known = status.keyspaces.iter().find(|keyspace| keyspace.id == id);
        known.map_or_else(|| id.to_string(), |keyspace| keyspace.name.clone())
    };
    let mut voters: BTreeMap<(u16, &str), u64> = BTreeMap::new();
    for process in &status.processes {
        for (name, count) in &process.last_voters {
            *voters.entry((process.keyspace, name)).or_default() += count;
        }
    }
    for ((keyspace, replica), count) in voters {
        let keyspace = name(keyspace);
        page.value(
            "isochrone_quorum_last_voter_total",
            counter,
            "Quorums that this replica's vote completed, at the nodes that counted them.",
            &[("keyspace", &keyspace), ("replica", replica)],
            count as f64,
        );
    }
    let mut counted: BTreeMap<(u16, &str), u64> = BTreeMap::new();
    for process in &status.processes {
        for (what, count) in &process.counted {
            *counted.entry((process.keyspace, what)).or_default() += count;
        }
    }
    for ((keyspace, what), count) in counted {
        let labels = [("keyspace", name(keyspace)), ("what", what.to_owned())];
        let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
        page.value(
            "isochrone_protocol_events_total",
            counter,
            "What processes counted, by their names for it.",
            &labels,
            count as f64,
        );
    }

    let round_trip = |name: &str| {
        if name == status.node {
            return Some(0.0);
        }
        let peer = status.peers.iter().find(|peer| peer.name == name)?;
        peer.round_trip_ms.map(|millis| millis / 1e3)
    };
    for keyspace in &metrics.keyspaces {
        if let Some(bound) = keyspace.bound(round_trip) {
            page.value(
                "isochrone_commit_bound_seconds",
                gauge,
                "The measured round trip to the nearest majority of replicas.",
                &[("keyspace", &keyspace.name), ("origin_region", &keyspace.region)],
                bound,
            );
        }
    }
    for keyspace in &metrics.keyspaces {
        if let Some(ratio) = keyspace.bound_ratio(round_trip) {
            page.value(
                "isochrone_commit_bound_ratio",
                gauge,
                "Median commit over the measured round trip to the nearest majority of replicas.",
                &[("keyspace", &keyspace.name), ("origin_region", &keyspace.region)],
                ratio,
            );
        }
    }
    for keyspace in &metrics.keyspaces {
        let labels = [("keyspace", keyspace.name.as_str()), ("origin_region", keyspace.region.as_str())];
        page.histogram(
            "isochrone_command_duration_seconds",
            "From a client's command to its answer.",
            &labels,
            &keyspace.commands.read(),
        );
    }
    for keyspace in &metrics.keyspaces {
        for (path, histogram) in PATHS.iter().zip(&keyspace.commits) {
            let counts = histogram.read();
            if counts.count() > 0 {
                let labels = [
                    ("keyspace", keyspace.name.as_str()),
                    ("protocol", keyspace.protocol),
                    ("path", path.name()),
                    ("origin_region", keyspace.region.as_str()),
                ];
                page.histogram(
                    "isochrone_commit_duration_seconds",
                    "From a command's request to its commit.",
                    &labels,
                    &counts,
                );
            }
        }
    }
    for keyspace in &metrics.keyspaces {
        for (phase, histogram) in Phase::ALL.iter().zip(&keyspace.phases) {
            let labels = [("keyspace", keyspace.name.as_str()), ("phase", phase.name())];
            page.histogram(
                "isochrone_commit_phase_seconds",
                "Where that time went; phases sum to the whole.",
                &labels,
                &histogram.read(),
            );
        }
    }
    for process in &status.processes {
        for ((what, partition), value) in &process.stands {
            let labels = [
                ("keyspace", name(process.keyspace)),
                ("partition", partition.to_string()),
                ("what", (*what).to_owned()),
            ];
            let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
            page.value(
                "isochrone_protocol_stands",
                "gauge",
                "How much there is of what processes tell, by their names for it.",
                &labels,
                *value as f64,
            );
        }
    }
    // Behind what is cut, so that it says that something is.
    let reached = counters.limited.len() + 1;
    let mut text = page.finish();
    if cut(&mut text, limits.metric_series.saturating_sub(reached)) {
        board.cut.fetch_add(1, Relaxed);
    }
    let mut page = Page::default();
    let cut = ("metric_series", board.cut.load(Relaxed));
    for (limit, count) in counters.limited.iter().map(|(limit, count)| (*limit, *count)).chain([cut]) {
        page.value(
            "isochrone_limit_reached_total",
            counter,
            "Times a limit was met.",
            &[("limit", limit)],
            count as f64,
        );
    }
    text + &page.finish()
}

fn is_series(line: &str) -> bool {
    !line.starts_with('#')
}

/// Keeps no more than so many series, and no histogram in part. Whether there were more.
fn cut(text: &mut String, most: usize) -> bool {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut series = 0;
    let beyond = lines.iter().position(|line| {
        series += usize::from(is_series(line));
        series > most
    });
    let Some(beyond) = beyond else { return false };
    // Of a histogram, the count is last.
    let is_last = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        is_series(line) && !name.ends_with("_bucket") && !name.ends_with("_sum")
    };
    let kept = lines[..beyond].iter().rposition(is_last).map_or(0, |last| last + 1);
    let length: usize = lines[..kept].iter().map(|line| line.len()).sum();
    text.truncate(length);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Counters;
    use crate::metrics::{KeyspaceMetrics, NodeMetrics};
    use crate::reactor::{PeerStatus, ProcessStatus, Status};
    use std::sync::Arc;

    /// One that is a member of nothing, of which nothing was measured.
    pub(super) fn peer() -> PeerStatus {
        PeerStatus {
            name: "b".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            member: false,
            connected: true,
            round_trip_ms: None,
            clock_ahead_ms: None,
            down_seconds: None,
            trouble: String::new(),
            queued_bytes: 0,
            connects: 1,
            failures: 0,
            sent: 0,
            dropped: [("full", 0), ("disconnected", 0), ("emulated", 0), ("too_large", 0), ("repeated", 0)],
        }
    }

    /// Of a node with so many keyspaces of 1,000 partitions, and one peer.
    fn board(keyspaces: u16) -> Board {
        let metrics = |id: u16| {
            Arc::new(KeyspaceMetrics::new(
                &format!("k{id}"),
                "some",
                "R",
                vec!["a".to_owned(), "b".to_owned()],
            ))
        };
        let metrics =
            NodeMetrics { keyspaces: (0..keyspaces).map(metrics).collect(), ..NodeMetrics::default() };
        let board = Board::new(Arc::new(metrics));
        let process = |keyspace| ProcessStatus {
            keyspace,
            stands: (0..1_000).map(|partition| (("keys", partition), 1)).collect(),
            ..ProcessStatus::default()
        };
        let status = Status {
            processes: (0..keyspaces).map(process).collect(),
            peers: vec![peer()],
            ..Status::default()
        };
        board.post(status, Counters::default(), std::time::Instant::now());
        board
    }

    fn series(page: &str) -> usize {
        page.lines().filter(|line| is_series(line)).count()
    }

    #[test]
    fn of_a_page_that_is_too_long_partitions_go_and_it_says_so() {
        let (large, small) = (board(6), board(1));
        for scrape in 1..3 {
            large.metrics.memory.set_limit(6 << 30);
            large.metrics.memory.note(7 << 20);
            let page = page(&large, &Limits::default());
            assert_eq!(series(&page), Limits::default().metric_series);
            let reached = format!("isochrone_limit_reached_total{{limit=\"metric_series\"}} {scrape}\n");
            for kept in [
                "isochrone_peer_connected{peer=\"b\"} 1\n",
                "isochrone_peer_member{peer=\"b\"} 0\n",
                "isochrone_limit{limit=\"metric_series\"} 5000\n",
                "isochrone_limit{limit=\"memory\"} 6442450944\n",
                "isochrone_memory_used_bytes 7340032\n",
                "isochrone_command_duration_seconds_count{keyspace=\"k5\",origin_region=\"R\"} 0\n",
                "isochrone_protocol_stands{keyspace=\"0\",partition=\"999\",what=\"keys\"} 1\n",
                reached.as_str(),
            ] {
                assert!(page.contains(kept), "{kept}");
            }
            assert!(!page.contains("keyspace=\"5\",partition=\"999\""));
        }
        let page = page(&small, &Limits::default());
        assert!(page.contains("keyspace=\"0\",partition=\"999\""));
        assert!(page.ends_with("isochrone_limit_reached_total{limit=\"metric_series\"} 0\n"), "{page}");
    }

    #[test]
    fn no_histogram_is_shown_in_part() {
        let board = board(2);
        for most in (1..700).step_by(7) {
            let page = page(&board, &Limits { metric_series: most, ..Limits::default() });
            assert!(series(&page) <= most, "{most}");
            let of = |part: &str| page.lines().filter(|line| line.contains(part)).count();
            let begun = of("le=\"0.000100\"");
            assert_eq!([of("le=\"+Inf\""), of("_seconds_sum"), of("_seconds_count")], [begun; 3], "{most}");
        }
    }
}
