//! The cluster for pipes: a line a region every second, or JSON Lines.

use super::table::{millis, rate};
use super::view::{Role, State, View};
use serde::Serialize;
use std::fmt::Write;
use std::net::SocketAddr;

/// The first line of `--format json`: every region serves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Ready {
    /// Always true: it tells this line from the others.
    pub(crate) ready: bool,
    /// The cluster's name.
    pub(crate) cluster: String,
    /// UNSAFE where acknowledged writes may be lost in a power failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) durability: Option<&'static str>,
    /// In the deployment's order.
    pub(crate) regions: Vec<Door>,
}

/// Where a region is reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Door {
    /// Its name.
    pub(crate) region: String,
    /// The node that stands there.
    pub(crate) node: String,
    /// For Redis clients.
    pub(crate) redis: SocketAddr,
    /// For gRPC clients.
    pub(crate) grpc: SocketAddr,
    /// Metrics and health.
    pub(crate) http: SocketAddr,
}

/// A line a second, and at the end one for the whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    /// Only on the last line, then true.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    last: Option<bool>,
    /// Since the start.
    elapsed_s: f64,
    /// In the deployment's order.
    regions: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    region: String,
    operations: u64,
    operations_per_second: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// Of those that may have changed something: what the floor is one of.
    write_p50_ms: Option<f64>,
    floor_ms: f64,
    leader: bool,
    state: State,
}

impl Line {
    /// Of this view; `last` for the whole run.
    pub(crate) fn of(view: &View, last: bool) -> Line {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        let row = |row: &super::view::RegionView| Row {
            region: row.region.clone(),
            operations: row.figures.operations,
            operations_per_second: round(row.figures.rate),
            p50_ms: row.figures.p50_ms.map(round),
            p99_ms: row.figures.p99_ms.map(round),
            write_p50_ms: row.figures.write_p50_ms.map(round),
            floor_ms: round(row.floor_ms),
            leader: row.role == Role::Leader && row.stands(),
            state: row.state,
        };
        Line {
            last: last.then_some(true),
            elapsed_s: round(view.elapsed.as_secs_f64()),
            regions: view.regions.iter().map(row).collect(),
        }
    }
}

/// What is said first: who listens where, and a command to try.
pub(crate) fn greeting(view: &View, doors: &[Door]) -> String {
    let mut text =
        format!("{}: keyspace {}, {}, {}\n", view.cluster, view.keyspace, view.protocol, view.guarantee);
    if !view.fsync {
        text += "UNSAFE: fsync is off, a power failure loses acknowledged writes\n";
    }
    let wide = doors.iter().map(|door| door.region.chars().count()).max().unwrap_or(0);
    for door in doors {
        // Writing to a string does not fail; the same holds below.
        let Door { region, redis, grpc, http, .. } = door;
        let _ = writeln!(text, "  {region:wide$}  redis {redis}  grpc {grpc}  http {http}");
    }
    if let Some(door) = doors.first() {
        let _ = writeln!(text, "try: redis-cli -p {} SET city Lisbon", door.redis.port());
    }
    text
}

/// A line for each region.
pub(crate) fn text(view: &View) -> String {
    let wide = view.regions.iter().map(|row| row.region.chars().count()).max().unwrap_or(0);
    let seconds = view.elapsed.as_secs();
    let mut text = String::new();
    for row in &view.regions {
        let _ = writeln!(
            text,
            "{seconds:>5}s  {:wide$}  {:8}  {:8}  {:>7} ops/s  p50 {:>7} ms  p99 {:>7} ms  \
             write p50 {:>7} ms  floor {:>6.1} ms",
            row.region,
            row.state.name(),
            if row.stands() { row.role.name() } else { "-" },
            rate(row.figures.rate),
            millis(row.figures.p50_ms),
            millis(row.figures.p99_ms),
            millis(row.figures.write_p50_ms),
            row.floor_ms,
        );
    }
    text
}

/// The last words: the figures of the whole run.
pub(crate) fn summary(view: &View) -> String {
    let operations: u64 = view.regions.iter().map(|row| row.figures.operations).sum();
    format!("{}whole run: {operations} operations in {:.1} s\n", text(view), view.elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::five;
    use super::*;
    use expect_test::expect;

    fn doors() -> Vec<Door> {
        let door = |region: &str, node: &str, port: u16| Door {
            region: region.to_owned(),
            node: node.to_owned(),
            redis: SocketAddr::from(([127, 0, 0, 1], port)),
            grpc: SocketAddr::from(([127, 0, 0, 1], port + 500)),
            http: SocketAddr::from(([127, 0, 0, 1], port + 1000)),
        };
        vec![door("US West", "us-west", 7001), door("Australia", "australia", 7002)]
    }

    #[test]
    fn the_greeting_says_where_and_what_to_try() {
        expect![[r#"
            five-regions: keyspace main, multipaxos, linearizable
              US West    redis 127.0.0.1:7001  grpc 127.0.0.1:7501  http 127.0.0.1:8001
              Australia  redis 127.0.0.1:7002  grpc 127.0.0.1:7502  http 127.0.0.1:8002
            try: redis-cli -p 7001 SET city Lisbon
        "#]]
        .assert_eq(&greeting(&five(), &doors()));
        let off = View { fsync: false, ..five() };
        assert!(greeting(&off, &doors()).contains("UNSAFE"));
    }

    #[test]
    fn lines_are_stable() {
        // A bar before each line, because the expected text is freed of indentation that all lines share.
        let barred: String = text(&five()).lines().map(|line| format!("|{line}\n")).collect();
        expect![[r#"
            |   75s  US West    up        follower       12 ops/s  p50   161.4 ms  p99   177.5 ms  write p50   163.0 ms  floor  102.0 ms
            |   75s  US East    up        leader         12 ops/s  p50    88.3 ms  p99    97.1 ms  write p50    89.2 ms  floor   88.0 ms
            |   75s  Euro       cut       follower        0 ops/s  p50       - ms  p99       - ms  write p50       - ms  floor  161.0 ms
            |   75s  Asia       up        follower       12 ops/s  p50   258.9 ms  p99   284.8 ms  write p50   261.5 ms  floor  115.0 ms
            |   75s  Australia  down      -               0 ops/s  p50       - ms  p99       - ms  write p50       - ms  floor  161.0 ms
        "#]]
        .assert_eq(&barred);
    }

    #[test]
    fn json_is_stable() {
        let ready =
            Ready { ready: true, cluster: "five-regions".to_owned(), durability: None, regions: doors() };
        expect![[r#"{"ready":true,"cluster":"five-regions","regions":[{"region":"US West","node":"us-west","redis":"127.0.0.1:7001","grpc":"127.0.0.1:7501","http":"127.0.0.1:8001"},{"region":"Australia","node":"australia","redis":"127.0.0.1:7002","grpc":"127.0.0.1:7502","http":"127.0.0.1:8002"}]}"#]].assert_eq(&serde_json::to_string(&ready).unwrap());
        let mut view = five();
        view.regions.truncate(3);
        expect![[r#"{"elapsed_s":75.0,"regions":[{"region":"US West","operations":360,"operations_per_second":12.0,"p50_ms":161.4,"p99_ms":177.54,"write_p50_ms":163.014,"floor_ms":102.0,"leader":false,"state":"up"},{"region":"US East","operations":360,"operations_per_second":12.0,"p50_ms":88.3,"p99_ms":97.13,"write_p50_ms":89.183,"floor_ms":88.0,"leader":true,"state":"up"},{"region":"Euro","operations":360,"operations_per_second":0.0,"p50_ms":null,"p99_ms":null,"write_p50_ms":null,"floor_ms":161.0,"leader":false,"state":"cut"}]}"#]].assert_eq(&serde_json::to_string(&Line::of(&view, false)).unwrap());
        assert!(serde_json::to_string(&Line::of(&view, true)).unwrap().starts_with("{\"final\":true,"));
    }
}
