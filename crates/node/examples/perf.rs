use isochrone_core::deployment::{Deployment, Known};
use isochrone_core::{NodeId, Span};
use isochrone_node::gateway::Outcome;
use isochrone_node::journal::Expect;
use isochrone_node::node::*;
use isochrone_node::protocols::*;
use isochrone_node::redis::RedisGateway;
use isochrone_node::transport::emulation::{Delay, Emulation};
use isochrone_replication::multipaxos::{MultiPaxos, Placement};
use isochrone_replication::{Outcome as Ended, Request};
use isochrone_store::Store;
use std::net::TcpListener;
use std::sync::Arc;
fn main() {
    let begun = std::time::Instant::now();
    let args: Vec<String> = std::env::args().collect();
    let n: u16 = args[1].parse().unwrap();
    let only: Option<u16> = args.get(2).map(|a| a.parse().unwrap());
    let dir = std::path::PathBuf::from(args.get(3).cloned().unwrap_or("/tmp/perf-data".into()));
    let deployment = if n == 5 {
        Deployment::five_regions()
    } else {
        let mut text = String::from("cluster = \"perf\"\n[[region]]\nname = \"here\"\n");
        for i in 0..n {
            text += &format!(
                "[[node]]\nname = \"n{i}\"\nregion = \"here\"\nlisten = \"127.0.0.1:{}\"\n",
                17000 + i
            );
        }
        text += &format!("[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nreplication = {n}\n");
        Deployment::parse(&text, "x", std::path::Path::new(""), &Known::names(&["multipaxos"])).unwrap()
    };
    let deployment = Arc::new(deployment);
    let mut protocols = Protocols::default();
    protocols.register::<MultiPaxos<Store>>(Registration {
        placement: Placement::of,
        request: Request::Command,
        outcome: |o| match o {
            Ended::Replied(r) => Outcome::Done(r),
            Ended::Changed => Outcome::Refused("?".into()),
            Ended::Refused(w) => Outcome::Refused(w.to_string()),
            Ended::Unknown => Outcome::Unknown("?".into()),
        },
        administer: |_| None,
        administered: |_| Err("no".into()),
    });
    let emulation = Emulation::new(usize::from(n), |a, b| Delay {
        one_way: if n == 5 { deployment.one_way(a, b) } else { Span::ZERO },
        ..Delay::default()
    });
    let ids: Vec<u16> = match only {
        Some(i) if i < n => vec![i],
        _ => (0..n).collect(),
    };
    let mut handles = Vec::new();
    for i in ids {
        let bind = |p: u16| TcpListener::bind(("127.0.0.1", p)).unwrap();
        let config = NodeConfig {
            deployment: deployment.clone(),
            node: NodeId(i),
            data: dir.join(format!("n{i}")),
            expect: Expect::Anything,
            sockets: Sockets {
                peer: Some(bind(17000 + i)),
                redis: vec![bind(16000 + i)],
                http: Some(bind(18000 + i)),
            },
            peers: (0..n).map(|j| (NodeId(j), format!("127.0.0.1:{}", 17000 + j).parse().unwrap())).collect(),
            emulation: (n == 5).then(|| emulation.clone()),
            admin_token: None,
            snapshot_bytes: DEFAULT_SNAPSHOT_BYTES,
        };
        handles.push(Node::start(config, &protocols, Box::new(RedisGateway)).unwrap());
    }
    eprintln!("started in {:?}", begun.elapsed());
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}
