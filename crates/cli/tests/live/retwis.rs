//! Retwis through gRPC and through Redis clients, on one cluster, while a node is killed; every history is checked.

use super::grpc;
use super::processes::{self, Addresses, Process, nodes};
use super::resp::{Client, Reply};
use isochrone_check::transactions::{
    Access, Isolation, Transaction, TransactionVerdict, Transactions, check_transactions,
};
use isochrone_check::{Budget, Outcome, Value};
use isochrone_client as library;
use isochrone_core::{Blob, Random};
use isochrone_workload::transactions::{Plan, Session, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u32 = 6;
const TIME: Duration = Duration::from_millis(1_500);

/// One client's share of a run.
struct Part {
    number: u32,
    session: Session,
    start: Instant,
    stop: Arc<AtomicBool>,
    history: Vec<Transaction>,
}

impl Part {
    /// The next one. It reads what it overwrites as well, so that the order of all versions is known.
    fn next(&mut self) -> Option<Plan> {
        if self.stop.load(Ordering::SeqCst) {
            return None;
        }
        let mut plan = self.session.draw();
        let unread: Vec<_> = plan.writes.iter().filter(|key| !plan.reads.contains(key)).cloned().collect();
        plan.reads.extend(unread);
        Some(plan)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a test of less than centuries")
    }

    /// Unlike that of any other try.
    fn writer(&self, tries: u32) -> String {
        format!("{}.{}.{tries}", self.number, self.history.len())
    }

    fn note(&mut self, invoked: u64, outcome: Outcome, version: Option<u64>, accesses: Vec<Access>) {
        let returned = (outcome != Outcome::Unknown).then(|| self.now());
        let (client, sequence) = (u64::from(self.number), self.history.len() as u64);
        let one = Transaction { client, session: 1, sequence, accesses, version, invoked, returned, outcome };
        self.history.push(one);
    }
}

fn text(bytes: &[u8]) -> Arc<str> {
    std::str::from_utf8(bytes).expect("text").into()
}

/// What a try writes; in Retwis that depends on nothing that it reads.
fn written(plan: &Plan, writer: &str) -> Vec<(Arc<str>, Arc<str>)> {
    let updates = plan.updates(&[], writer).expect("no transaction of Retwis gives up");
    let write = |update: isochrone_transactions::Update| {
        (text(&update.key), text(&update.value.expect("none is deleted")))
    };
    updates.into_iter().map(write).collect()
}

fn read(key: &Blob, value: Option<&[u8]>) -> Access {
    Access::Read(text(key), Some(value.map_or(Value::Nil, |value| Value::Text(text(value).to_string()))))
}

fn through_grpc(mut part: Part, three: &[Addresses]) -> Part {
    grpc::wait(async {
        let keyspace = grpc::client(three, part.number as usize).await.keyspace("bank");
        while let Some(plan) = part.next() {
            let invoked = part.now();
            let (mut tries, mut updates) = (0, Vec::new());
            let keys = |keys: &[Blob]| keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>();
            let run = keyspace
                .transaction()
                .read(keys(&plan.reads))
                .write(keys(&plan.writes))
                .within(Duration::from_secs(10))
                .run(async |txn| {
                    tries += 1;
                    updates = written(&plan, &part.writer(tries));
                    for (key, value) in &updates {
                        txn.put(key.as_bytes(), value.as_bytes())?;
                    }
                    // Without what it has put itself.
                    plan.reads.iter().map(|key| txn.before(key)).collect::<Result<Vec<_>, _>>()
                })
                .await;
            let writes = updates.into_iter().map(|(key, value)| Access::Write(key, value));
            match run {
                Ok(library::Outcome::Committed { value, at, .. }) => {
                    let reads = plan.reads.iter().zip(&value);
                    let reads = reads.map(|(key, value)| read(key, value.as_deref()));
                    let accesses: Vec<_> = reads.chain(writes).collect();
                    let version = (!plan.writes.is_empty()).then_some(at);
                    part.note(invoked, Outcome::Ok, version, accesses);
                }
                Ok(library::Outcome::Unknown { .. }) => {
                    part.note(invoked, Outcome::Unknown, None, writes.collect());
                }
                Ok(library::Outcome::Aborted { .. }) | Err(library::Error::Unreachable(_)) => {
                    part.note(invoked, Outcome::Failed, None, writes.collect());
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    part
}

fn through_redis(mut part: Part, three: &[Addresses]) -> Part {
    let address = three[part.number as usize % three.len()].redis;
    let mut connection = None;
    while let Some(plan) = part.next() {
        if connection.is_none() {
            connection = Client::reconnect(address);
        }
        let Some(client) = &mut connection else { continue };
        let (invoked, updates) = (part.now(), written(&plan, &part.writer(1)));
        let reply = execute(client, &plan, &updates);
        let writes = updates.into_iter().map(|(key, value)| Access::Write(key, value));
        match reply {
            Ok(Reply::List(replies)) => {
                let reads = plan.reads.iter().zip(&replies).map(|(key, reply)| match reply {
                    Reply::Text(value) => read(key, Some(value.as_bytes())),
                    Reply::Nothing => read(key, None),
                    other => panic!("{other:?}"),
                });
                let accesses = reads.chain(writes).collect();
                part.note(invoked, Outcome::Ok, None, accesses);
            }
            Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN") => {
                part.note(invoked, Outcome::Failed, None, writes.collect());
            }
            other => {
                assert!(!matches!(other, Ok(Reply::Text(_) | Reply::Number(_))), "{other:?}");
                connection = other.is_ok().then_some(connection).flatten();
                part.note(invoked, Outcome::Unknown, None, writes.collect());
            }
        }
    }
    part
}

fn execute(client: &mut Client, plan: &Plan, updates: &[(Arc<str>, Arc<str>)]) -> std::io::Result<Reply> {
    let begun = client.ask(&["MULTI"])?;
    if begun != Reply::Text("OK".to_owned()) {
        return Ok(begun);
    }
    for key in &plan.reads {
        client.ask(&["GET", &text(key)])?;
    }
    for (key, value) in updates {
        client.ask(&["SET", key, value])?;
    }
    client.ask(&["EXEC"])
}

/// A run of all clients, in the midst of which a node is killed, and then started again: committed transactions a second.
fn run(
    name: &str,
    three: &[Addresses],
    client: fn(Part, &[Addresses]) -> Part,
    mut kill: impl FnMut(),
    mut start: impl FnMut(),
) -> f64 {
    let mut workload = Workload::named("retwis").expect("it is there");
    (workload.records, workload.prefix) = (300, format!("{name}:"));
    let (begin, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let threads: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let session = workload.session(number, Random::seeded(u64::from(number) + 1));
            let (stop, three) = (Arc::clone(&stop), three.to_vec());
            let part = Part { number, session, start: begin, stop, history: Vec::new() };
            std::thread::spawn(move || client(part, &three))
        })
        .collect();
    std::thread::sleep(TIME);
    kill();
    std::thread::sleep(TIME);
    start();
    std::thread::sleep(TIME);
    stop.store(true, Ordering::SeqCst);
    let parts = threads.into_iter().map(|thread| thread.join().expect("a client that ends"));
    let history: Transactions = parts.flat_map(|part| part.history).collect();
    let seconds = begin.elapsed().as_secs_f64();
    let committed = history.list.iter().filter(|one| one.outcome == Outcome::Ok).count();
    let report = check_transactions(&history, Isolation::StrictUpdates, &Budget::default());
    let report = report.expect("a history that says what it means");
    // What a killed node has written for somebody who never heard of it may have more than one place in the order.
    let unknown = history.list.iter().any(|one| one.outcome == Outcome::Unknown);
    let held = match report.verdict {
        TransactionVerdict::Held => true,
        TransactionVerdict::Undecided { .. } => unknown,
        TransactionVerdict::Violation(_) => false,
    };
    assert!(held, "{name}: {report}");
    assert!(committed > 10, "{name}: {committed} transactions committed, which shows nothing");
    committed as f64 / seconds
}

#[test]
fn retwis_through_grpc_and_redis_while_a_node_is_killed() {
    for protocol in ["carousel-fast", "2pc"] {
        let folder = tempfile::tempdir().expect("a folder");
        let three = nodes(3);
        let file = grpc::deployment(folder.path(), &three, protocol, "");
        let mut stay: Vec<Process> =
            (0..2).map(|index| processes::node(&file, index, folder.path())).collect();
        let victim = std::cell::RefCell::new(Some(processes::node(&file, 2, folder.path())));
        let kill = || {
            let mut process = victim.take().expect("it runs");
            process.signal("KILL");
            process.end();
        };
        let start = || drop(victim.replace(Some(processes::node(&file, 2, folder.path()))));
        let grpc = run("g", &three, through_grpc, kill, start);
        let redis = run("r", &three, through_redis, kill, start);
        println!("{protocol}: Retwis, committed a second: {grpc:.0} through gRPC, {redis:.0} through Redis");
        stay.drain(..).for_each(drop);
    }
}
