//! Random commands to a cluster whose leader is killed again and again, and to a real `redis-server`: equal replies,
//! byte for byte, but for the order of what has none.
//!
//! The gateway that is asked is never on the node that dies, so that every command has an answer: what was under way
//! at the leader is asked for again, and is done once. An answer that says otherwise (`UNKNOWN`, `NOLEADER`) is none
//! that Redis gives, and fails the test like any other difference.
//!
//! `COMMANDS` says how many for each protocol (12,000 where it says nothing), `KILLS` how often the leader dies on the
//! way (4), `SEED` which. Even seeds speak RESP3. Where there is no `redis-server` on the path nothing is compared,
//! which is a failure where `CI` is set.

use super::grammar::{self, Peer, Server, encode, lay};
use super::processes::{Addresses, Process, deployment_of, leader, node, nodes, page, until};
use super::resp::{Client, Reply};
use isochrone_core::Random;
use std::collections::{BTreeSet, VecDeque};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NODES: usize = 3;

/// How many commands are sent without waiting.
const DEPTHS: [usize; 5] = [1, 3, 10, 100, 1000];

/// How many commands there are around the death of a leader, which comes in the first half: so many that some are under
/// way when it comes.
const KILL_ROUND: usize = 2000;

/// No protocol gives a silent leader up sooner.
const NOTICED: Duration = Duration::from_millis(100);

/// What is shown of the commands before one that differs.
const SHOWN: usize = 40;

struct Cluster {
    folder: PathBuf,
    file: PathBuf,
    addresses: Vec<Addresses>,
    processes: Vec<Process>,
}

impl Cluster {
    fn start(folder: &Path, protocol: &str) -> Cluster {
        let addresses = nodes(NODES);
        let file = deployment_of(folder, "three.toml", "differential", &addresses, protocol);
        let processes = (0..NODES).map(|index| node(&file, index, folder)).collect();
        Cluster { folder: folder.to_owned(), file, addresses, processes }
    }

    /// The node that all but this one say leads.
    fn leader(&self, without: Option<usize>) -> usize {
        until("a leader", || {
            let living = (0..NODES).filter(|index| Some(*index) != without);
            let found: Option<BTreeSet<_>> = living.map(|index| leader(self.addresses[index].http)).collect();
            let found = found.filter(|found| found.len() == 1)?;
            let index = found.first()?.strip_prefix('n')?.parse().ok()?;
            (Some(index) != without).then_some(index)
        })
    }

    /// A read goes through at this node.
    fn serves(&self, index: usize) {
        until("a reply", || {
            let mut client = Client::connect(self.addresses[index].redis).ok()?;
            matches!(client.ask(&["EXISTS", "nothing"]), Ok(Reply::Number(_))).then_some(())
        });
    }

    fn dial(&self, index: usize, hello: &[u8]) -> Peer {
        self.serves(index);
        let mut peer = Peer::new(TcpStream::connect(self.addresses[index].redis).unwrap());
        peer.send(hello);
        peer.next();
        peer
    }

    fn revive(&mut self, victim: usize) {
        assert_eq!(self.processes[victim].end(), None, "a signal has ended it");
        self.processes[victim] = node(&self.file, victim, &self.folder);
        self.serves(victim);
    }
}

#[test]
fn multipaxos_answers_as_redis_does_while_its_leaders_die() {
    compare("multipaxos");
}

#[test]
fn curp_answers_as_redis_does_while_its_masters_die() {
    compare("curp");
}

#[test]
fn curp_consensus_answers_as_redis_does_while_its_leaders_die() {
    compare("curp-consensus");
}

fn compare(protocol: &str) {
    let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        assert!(std::env::var_os("CI").is_none(), "there is no redis-server on the path to compare with");
        println!("skipped: there is no redis-server on the path to compare with");
        return;
    }
    let number = |name: &str, usual: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => usual,
    };
    let (commands, kills, seed) = (number("COMMANDS", 12_000), number("KILLS", 4), number("SEED", 1));
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path(), protocol);
    let mut there = Server::start();
    let (forms, mut random) = (grammar::forms(), Random::seeded(seed));
    let hello = encode(&[b"HELLO".to_vec(), if seed % 2 == 0 { b"3".to_vec() } else { b"2".to_vec() }]);
    there.peer.send(&hello);
    there.peer.next();
    let mut asked = (cluster.leader(None) + 1) % NODES;
    let mut here = cluster.dial(asked, &hello);

    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    let (mut sent, mut killed) = (0, 0);
    let mut history: VecDeque<String> = VecDeque::new();
    while sent < commands {
        // Spread over the commands, the last one well before their end.
        let victim = (sent >= (killed + 1) * commands / (kills + 1) && killed < kills).then(|| {
            let victim = cluster.leader(None);
            if victim == asked {
                // Nothing is under way, so another gateway can be asked.
                asked = (victim + 1 + random.below(2) as usize) % NODES;
                here = cluster.dial(asked, &hello);
            }
            victim
        });
        let round = grammar::batch(&forms, &mut random, if victim.is_some() { KILL_ROUND } else { 100 });
        let strikes = random.below(KILL_ROUND as u64 / 2) as usize;
        let depth = DEPTHS[random.below(DEPTHS.len() as u64) as usize];
        let (began, mut at) = (Instant::now(), 0);
        for pipeline in round.chunks(depth) {
            let bytes: Vec<u8> = pipeline.iter().flat_map(|(_, words)| encode(words)).collect();
            there.peer.send(&bytes);
            here.send(&bytes);
            for (form, words) in pipeline {
                if let Some(victim) = victim.filter(|_| at == strikes) {
                    cluster.processes[victim].signal("KILL");
                    killed += 1;
                }
                let shown: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                history.push_back(shown.join(" "));
                if history.len() > SHOWN {
                    history.pop_front();
                }
                let (expected, found) = (there.peer.next(), here.next());
                (sent, at) = (sent + 1, at + 1);
                assert!(
                    lay(form, &found) == lay(form, &expected),
                    "{protocol}, seed {seed}, command {sent}, {killed} killed, in this round {at}, pipelines of \
                     {depth}, {:?}:\n{}\n    here  {}\n    redis {}",
                    victim.map(|victim| format!("n{victim} dies at {strikes}")),
                    Vec::from(std::mem::take(&mut history)).join("\n"),
                    found.escape_ascii(),
                    expected.escape_ascii(),
                );
            }
        }
        if let Some(victim) = victim {
            let took = began.elapsed();
            // Without this the death would have come when nothing was under way, and have shown nothing.
            assert!(took > NOTICED, "a round in which a leader dies took no more than {took:?}");
            longest = longest.max(took);
            cluster.leader(Some(victim));
            cluster.revive(victim);
        }
    }
    if protocol == "multipaxos" {
        let page = page(cluster.addresses[cluster.leader(None)].http, "/metrics").expect("a page");
        assert!(page.contains("isochrone_quorum_last_voter_total{keyspace=\"main\",replica=\"n"), "{page}");
    }
    assert_eq!(killed, kills, "a leader dies where it was meant to");
    println!(
        "{protocol}: {sent} commands answered alike in {:?}, {killed} leaders killed, waited for {longest:?} at most",
        start.elapsed()
    );
}
