//! `MULTI` and `EXEC` as a history of transactions: appends to lists and reads of them, several in one.

use super::resp::{Client, Reply};
use isochrone_check::transactions::{
    Access, Isolation, Transaction, TransactionVerdict, Transactions, check_transactions,
};
use isochrone_check::{Budget, Outcome, Value};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Lists that transactions touch at one time.
const LISTS: u64 = 3;
/// After so long others are taken, so that none grows long.
const TURN: u64 = 200_000_000;

/// Fewer that committed show nothing.
pub const ENOUGH: usize = 101;

/// Transactions through one node, one after another, until it is told to stop; times are from `start`. Their lists are in
/// one partition, or spread over all, and no other lap's. Those that committed are counted.
pub fn transact(
    number: u64,
    address: SocketAddr,
    spread: bool,
    lap: usize,
    start: Instant,
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicUsize>,
) -> JoinHandle<Vec<Transaction>> {
    std::thread::spawn(move || {
        let now = || u64::try_from(start.elapsed().as_nanos()).expect("a test of less than centuries");
        let (mut history, mut connection) = (Vec::new(), None);
        while !stop.load(Ordering::SeqCst) {
            if connection.is_none() {
                connection = Client::reconnect(address);
            }
            let Some(client) = &mut connection else { continue };
            let sequence = history.len() as u64;
            let invoked = now();
            let prefix = format!("{}{lap}:{}", if spread { "" } else { "{t}" }, invoked / TURN);
            let wanted = accesses(number, sequence, &prefix);
            let reply = execute(client, &wanted);
            let (outcome, accesses) = match reply {
                Ok(Reply::List(replies)) => {
                    committed.fetch_add(1, Ordering::SeqCst);
                    (Outcome::Ok, seen(wanted, replies))
                }
                Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN") => (Outcome::Failed, wanted),
                Ok(Reply::Error(_)) => (Outcome::Unknown, wanted),
                other => {
                    assert!(other.is_err(), "{other:?}");
                    connection = None;
                    (Outcome::Unknown, wanted)
                }
            };
            let returned = (outcome != Outcome::Unknown).then(now);
            history.push(Transaction {
                client: number,
                session: 1,
                sequence,
                accesses,
                version: None,
                invoked,
                returned,
                outcome,
            });
        }
        history
    })
}

/// Two to four of them, over lists that the others use at about the same time.
fn accesses(client: u64, sequence: u64, prefix: &str) -> Vec<Access> {
    // Any numbers do that differ between clients and steps.
    let draw = |step: u64| (client * 7_919 + sequence * 104_729 + step * 1_299_709) / 7;
    let key = |step: u64| Arc::from(format!("{prefix}:{}", draw(step) % LISTS));
    let steps = 0..2 + draw(9) % 3;
    let access = |step| match draw(step) / LISTS % 2 {
        0 => Access::Read(key(step), None),
        _ => Access::Append(key(step), Arc::from(format!("{client}.{sequence}.{step}"))),
    };
    steps.map(access).collect()
}

fn execute(client: &mut Client, accesses: &[Access]) -> std::io::Result<Reply> {
    // What was not queued was not done.
    let queued = |reply: &Reply| matches!(reply, Reply::Text(text) if text == "OK" || text == "QUEUED");
    let begun = client.ask(&["MULTI"])?;
    if !queued(&begun) {
        return Ok(begun);
    }
    for access in accesses {
        match access {
            Access::Append(key, value) | Access::Write(key, value) => client.ask(&["RPUSH", key, value])?,
            Access::Read(key, _) => client.ask(&["LRANGE", key, "0", "-1"])?,
            Access::Delete(_) | Access::Scan(..) => unreachable!("it is of lists"),
        };
    }
    client.ask(&["EXEC"])
}

fn seen(accesses: Vec<Access>, replies: Vec<Reply>) -> Vec<Access> {
    assert_eq!(accesses.len(), replies.len());
    let told = accesses.into_iter().zip(replies).map(|(access, reply)| match (access, reply) {
        (Access::Read(key, _), Reply::List(items)) => {
            let text = |item| match item {
                Reply::Text(text) => Value::Text(text),
                other => panic!("no element of a list: {other:?}"),
            };
            Access::Read(key, Some(Value::List(items.into_iter().map(text).collect())))
        }
        (access @ Access::Append(..), Reply::Number(_)) => access,
        (access, reply) => panic!("{access}: {reply:?}"),
    });
    told.collect()
}

/// All of them are one history, in a serial order that respects real time.
///
/// # Panics
/// If they are not.
pub fn assert_strictly_serializable(histories: Vec<Vec<Transaction>>) {
    let history: Transactions = histories.into_iter().flatten().collect();
    let report = check_transactions(&history, Isolation::StrictlySerializable, &Budget::default());
    let report = report.expect("a history that says what it means");
    println!("{report}");
    assert_eq!(report.verdict, TransactionVerdict::Held, "{report}");
}
