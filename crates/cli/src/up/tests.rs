//! Clients of five regions while nodes are killed and regions cut off.

use super::cluster::Cluster;
use crate::bench::transactions::{Load, Measured, Progress, drive};
use crate::protocols;
use isochrone_check::transactions::{Isolation, TransactionVerdict, check_transactions};
use isochrone_check::{Budget, Outcome};
use isochrone_core::{Deployment, Span};
use isochrone_workload::transactions::Workload;
use socket2::{Domain, Socket, Type};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Nothing here takes so long, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// What has to commit before the next thing happens.
const STEP: u64 = 60;

const REGIONS: [&str; 5] = ["North", "South", "East", "West", "Middle"];

/// Five regions some milliseconds apart, five partitions with three replicas each.
pub(super) fn near(folder: &Path, protocol: &str) -> Deployment {
    let mut text = "cluster = \"near\"\n[network]\nrtt = \"near.csv\"\n".to_owned();
    let mut table = format!("region,{}\n", REGIONS.join(","));
    for (from, region) in REGIONS.into_iter().enumerate() {
        let node = region.to_lowercase();
        text +=
            &format!("[[region]]\nname = \"{region}\"\n[[node]]\nname = \"{node}\"\nregion = \"{region}\"\n");
        let rtts: Vec<_> = (0..5).map(|to: usize| (from.abs_diff(to) * 3).to_string()).collect();
        table += &format!("{region},{}\n", rtts.join(","));
    }
    let partition = |first: usize| [0, 1, 2].map(|step| REGIONS[(first + step) % 5].to_lowercase());
    let placement: Vec<_> = (0..5).map(|first| format!("{:?}", partition(first))).collect();
    text += &format!(
        "[[keyspace]]\nname = \"main\"\nprotocol = \"{protocol}\"\nplacement = [{}]\n",
        placement.join(", ")
    );
    let file = folder.join("near.toml");
    std::fs::write(folder.join("near.csv"), table).unwrap();
    std::fs::write(&file, text).unwrap();
    Deployment::load(&file, &protocols::known()).unwrap()
}

/// Retwis from all regions, while one is killed and started again, and another cut off and healed; each once so many
/// have committed since the last.
fn retwis(protocol: &str, isolation: Isolation) {
    let folder = tempfile::tempdir().unwrap();
    let deployment = near(folder.path(), protocol);
    let mut cluster =
        Cluster::start(deployment, 0, folder.path().join("data"), Duration::from_secs(1)).unwrap();
    let start = Instant::now();
    while !cluster.ready() {
        assert!(start.elapsed() < PATIENCE, "{protocol}: not all regions serve");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut workload = Workload::named("retwis").unwrap();
    workload.records = 300;
    let doors = cluster.doors();
    let load = Load {
        endpoints: doors.iter().map(|door| door.grpc.to_string()).zip(0..).collect(),
        keyspace: "main".to_owned(),
        clients: 15,
        workload,
        every: None,
        duration: Span::from_secs(3_600),
        seed: 7,
        auth: None,
        history: true,
    };
    let faults: [fn(&mut Cluster) -> String; 5] = [
        |cluster| cluster.kill(1),
        |cluster| cluster.restart(1),
        |cluster| cluster.partition(3),
        |cluster| cluster.partition(3),
        |_| "the end".to_owned(),
    ];
    let (mut faults, mut last) = (faults.into_iter(), (0, Instant::now()));
    let mut said = Vec::new();
    let measured = drive(&load, |Progress { committed, .. }| {
        let (before, since) = last;
        assert!(since.elapsed() < PATIENCE, "{protocol}: nothing commits any more after {said:?}");
        if committed < before + STEP {
            return true;
        }
        last = (committed, Instant::now());
        let Some(fault) = faults.next() else { return false };
        said.push(fault(&mut cluster));
        faults.len() > 0
    });
    let Measured { history, broken, .. } = measured.unwrap();
    cluster.stop();
    assert_eq!((said.len(), broken.len()), (5, 0), "{said:?} {broken:?}");
    let report = check_transactions(&history, isolation, &Budget::default()).unwrap();
    // What was written for somebody who was never told may have more than one place in the order.
    let unknown = history.list.iter().any(|one| one.outcome == Outcome::Unknown);
    let held = match report.verdict {
        TransactionVerdict::Held => true,
        TransactionVerdict::Undecided { .. } => unknown,
        TransactionVerdict::Violation(_) => false,
    };
    assert!(held, "{protocol}: {report}");
}

#[test]
fn nobody_is_given_the_ports_of_a_region_that_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let deployment = near(folder.path(), "2pc");
    let mut cluster =
        Cluster::start(deployment, 0, folder.path().join("data"), Duration::from_secs(1)).unwrap();
    let doors = cluster.doors();
    let ports = [doors[1].redis, doors[1].grpc, doors[1].http];
    // As an outgoing connection takes its port: only one that nobody else has.
    let taken = |address: SocketAddr| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&address.into()).map_err(|error| error.kind())
    };
    cluster.kill(1);
    for address in ports {
        assert_eq!(
            TcpStream::connect(address).unwrap_err().kind(),
            ErrorKind::ConnectionRefused,
            "{address}"
        );
        assert_eq!(taken(address), Err(ErrorKind::AddrInUse), "{address}");
    }
    assert_eq!(cluster.restart(1), "South: started again, from its journal");
    for address in ports {
        TcpStream::connect(address).unwrap();
    }
    assert!(cluster.stop(), "all nodes end in order");
}

#[test]
fn carousel_holds_while_a_region_is_killed_and_another_cut_off() {
    retwis("carousel-fast", Isolation::StrictUpdates);
    retwis("carousel-basic", Isolation::StrictUpdates);
}

#[test]
fn two_phase_commit_holds_while_a_region_is_killed_and_another_cut_off() {
    retwis("2pc", Isolation::StrictUpdates);
}

#[test]
fn tapir_holds_while_a_region_is_killed_and_another_cut_off() {
    retwis("tapir", Isolation::Serializable);
}
