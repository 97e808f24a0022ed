//! Transactions through gRPC and the client library, over processes that are killed.

use super::processes::{self, Addresses, Process, TOKEN, isochrone, nodes, page, until};
use super::resp::Reply as Resp;
use isochrone_client::{Client, Code, Error, Keys, Keyspace, Outcome, Reason, Reply, Written};
use std::cell::Cell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ACCOUNTS: u64 = 10;
const BEGIN: i64 = 100;

/// What of the library is async, as a thread has it.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

/// Three nodes with a keyspace of transactions in three partitions, `bank`, and one without, `plain`.
pub fn deployment(folder: &Path, three: &[Addresses], protocol: &str, more: &str) -> PathBuf {
    let mut text = "cluster = \"grpc\"\n".to_owned();
    for (index, Addresses { listen, redis, grpc, http }) in three.iter().enumerate() {
        writeln!(
            text,
            "[[region]]\nname = \"R{index}\"\n[[node]]\nname = \"n{index}\"\nregion = \"R{index}\"\n\
             listen = \"{listen}\"\nredis = \"{redis}\"\ngrpc = \"{grpc}\"\nhttp = \"{http}\""
        )
        .expect("a string");
    }
    writeln!(
        text,
        "[[keyspace]]\nname = \"bank\"\nprotocol = \"{protocol}\"\npartitions = 3\nreplication = 3\n\
         [[keyspace]]\nname = \"plain\"\nprotocol = \"multipaxos\"\nindex = 1\n{more}"
    )
    .expect("a string");
    let path = folder.join("deployment.toml");
    std::fs::write(&path, text).expect("a writable folder");
    path
}

/// A client that prefers the node at this place.
pub async fn client(three: &[Addresses], first: usize) -> Client {
    let nodes: Vec<_> =
        (0..three.len()).map(|step| three[(first + step) % three.len()].grpc.to_string()).collect();
    loop {
        if let Ok(client) = Client::connect(nodes.clone()).await {
            return client;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn account(number: u64) -> String {
    format!("account:{number}")
}

/// What one transfer was, and what its client was told.
struct Transfer {
    mark: String,
    outcome: Outcome<()>,
}

/// Transfers through one node, or another where that is down, until told to stop. Each leaves a mark of its own.
fn transfers(three: Vec<Addresses>, number: u64, stop: Arc<AtomicBool>) -> JoinHandle<Vec<Transfer>> {
    std::thread::spawn(move || {
        wait(async {
            let bank = client(&three, number as usize).await.keyspace("bank");
            let mut done = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let step = done.len() as u64;
                // Any numbers do that differ between clients and steps.
                let from = (number * 3 + step) % ACCOUNTS;
                let to = (from + 1 + step % (ACCOUNTS - 1)) % ACCOUNTS;
                let (from, to, mark) = (account(from), account(to), format!("mark:{number}:{step}"));
                let run = bank
                    .transaction()
                    .read([&from, &to])
                    .write([&from, &to, &mark])
                    .within(Duration::from_secs(10))
                    .run(async |txn| {
                        let (left, right) = (txn.number(&from)?, txn.number(&to)?);
                        txn.put(&from, (left - 1).to_string())?;
                        txn.put(&to, (right + 1).to_string())?;
                        txn.put(&mark, "1")
                    })
                    .await;
                let outcome = match run {
                    Ok(outcome) => outcome,
                    // Nothing took effect.
                    Err(Error::Unreachable(_)) => Outcome::Aborted { reason: Reason::Unavailable, tries: 1 },
                    Err(error) => panic!("a transfer was refused: {error}"),
                };
                done.push(Transfer { mark, outcome });
            }
            done
        })
    })
}

async fn balance(bank: &Keyspace) -> i64 {
    let keys: Vec<String> = (0..ACCOUNTS).map(account).collect();
    let seen = bank.snapshot(&keys).await.expect("a snapshot");
    let number = |key: &String| {
        let value = seen.get(key).expect("an account");
        std::str::from_utf8(value).expect("digits").parse::<i64>().expect("a number")
    };
    keys.iter().map(number).sum()
}

fn money_is_conserved(protocol: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let three = nodes(3);
    let file = deployment(folder.path(), &three, protocol, "");
    let mut processes: Vec<Process> =
        (0..3).map(|index| processes::node(&file, index, folder.path())).collect();
    wait(async {
        let bank = client(&three, 0).await.keyspace("bank");
        let keys: Vec<String> = (0..ACCOUNTS).map(account).collect();
        let opened = bank
            .transaction()
            .write(&keys)
            .run(async |txn| keys.iter().try_for_each(|key| txn.put(key, BEGIN.to_string())))
            .await;
        assert!(matches!(opened, Ok(Outcome::Committed { .. })), "{opened:?}");
    });

    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..3).map(|number| transfers(three.clone(), number, Arc::clone(&stop))).collect();
    // A Redis client transfers between the same accounts, through a node that stays.
    let redis = {
        let (address, stop) = (three[0].redis, Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut client = processes::client(address);
            let mut done = 0;
            while !stop.load(Ordering::SeqCst) {
                for words in [&["MULTI"][..], &["DECR", "account:0"], &["INCR", "account:7"]] {
                    client.ask(words).expect("it serves");
                }
                match client.ask(&["EXEC"]).expect("it serves") {
                    Resp::List(_) => done += 1,
                    Resp::Error(text) => {
                        assert!(text.starts_with("TRYAGAIN") || text.starts_with("UNKNOWN"), "{text}")
                    }
                    other => panic!("{other:?}"),
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            done
        })
    };
    std::thread::sleep(Duration::from_millis(1_500));
    processes[2].signal("KILL");
    processes[2].end();
    std::thread::sleep(Duration::from_millis(1_500));
    processes[2] = processes::node(&file, 2, folder.path());
    std::thread::sleep(Duration::from_millis(1_500));
    stop.store(true, Ordering::SeqCst);
    let done: Vec<Transfer> =
        threads.into_iter().flat_map(|thread| thread.join().expect("a client that ends")).collect();
    let by_redis = redis.join().expect("a client that ends");

    wait(async {
        let bank = client(&three, 1).await.keyspace("bank");
        assert_eq!(balance(&bank).await, ACCOUNTS as i64 * BEGIN);
        let mut committed = 0;
        for Transfer { mark, outcome } in &done {
            let found = bank.get(mark).await.expect("it serves").is_some();
            match outcome {
                Outcome::Committed { at, .. } => {
                    committed += 1;
                    assert!(found && *at > 0, "{mark} was committed and is lost");
                }
                Outcome::Aborted { .. } => assert!(!found, "{mark} was aborted and is there"),
                Outcome::Unknown { .. } => {}
            }
        }
        assert!(committed > 10 && by_redis > 3, "{committed} of {} and {by_redis}", done.len());
        println!("{protocol}: {committed} of {} transfers committed, {by_redis} by Redis", done.len());
    });
    // Redis clients read what was written through gRPC, and it them.
    let mut redis = processes::client(three[1].redis);
    let keys: Vec<String> = (0..ACCOUNTS).map(account).collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    let Ok(Resp::List(values)) = redis.ask(&words) else { panic!("no values") };
    let number = |value: Resp| match value {
        Resp::Text(text) => text.parse::<i64>().expect("a number"),
        other => panic!("{other:?}"),
    };
    assert_eq!(values.into_iter().map(number).sum::<i64>(), ACCOUNTS as i64 * BEGIN);
    let metrics = page(three[0].http, "/metrics").expect("it serves");
    for line in [
        "isochrone_grpc_calls_total{method=\"Commit\",outcome=\"committed\"}",
        "isochrone_grpc_call_duration_seconds_count{method=\"Begin\"}",
        "isochrone_grpc_transactions_open",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    for process in &mut processes {
        process.signal("TERM");
    }
    for process in &mut processes {
        assert_eq!(process.end(), Some(0), "it stops in order");
    }
}

#[test]
fn money_is_conserved_by_carousel_fast_while_a_node_is_killed() {
    money_is_conserved("carousel-fast");
}

#[test]
fn money_is_conserved_by_two_phase_commit_while_a_node_is_killed() {
    money_is_conserved("2pc");
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, expected: Code, words: &str) {
    match result {
        Err(Error::Refused { code, message }) => {
            assert_eq!(code, expected, "{message}");
            assert!(message.contains(words), "{message:?} does not say {words:?}");
        }
        other => panic!("{other:?} instead of {expected:?}: {words}"),
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_would_be_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let three = nodes(3);
    let file = deployment(folder.path(), &three, "carousel-basic", "[limits]\nbulk = \"64KiB\"\n");
    let _processes: Vec<Process> = (0..3).map(|index| processes::node(&file, index, folder.path())).collect();
    let mut redis = processes::client(three[0].redis);
    assert_eq!(redis.ask(&["RPUSH", "list", "x"]).expect("it serves"), Resp::Number(1));
    assert_eq!(redis.ask(&["SET", "greeting", "hello"]).expect("it serves"), Resp::Text("OK".into()));
    wait(async {
        let client = client(&three, 0).await;
        let (bank, plain) = (client.keyspace("bank"), client.keyspace("plain"));
        let begin = async |space: &Keyspace, reads: &[&str], writes: &[&str]| {
            space.transaction().read(reads).write(writes).run(async |_| Ok(())).await
        };
        let nowhere = client.keyspace("nowhere");
        refused(begin(&nowhere, &["a"], &["a"]).await, Code::NotFound, "there is: bank, plain");
        let able = "runs multipaxos, which has no transactions; use Execute, or a keyspace with one of: 2pc, \
                    carousel-basic, carousel-fast, tapir";
        refused(begin(&plain, &["a"], &["a"]).await, Code::Precondition, able);
        refused(begin(&bank, &[], &[]).await, Code::Invalid, "name some to read or to write");
        refused(begin(&bank, &["list"], &["a"]).await, Code::Precondition, "holds a collection");
        let many: Vec<String> = (0..20_000).map(|key| key.to_string()).collect();
        let many = bank.transaction().write(&many).run(async |_| Ok(())).await;
        refused(many, Code::Limit, "20000 keys");
        let long = "x".repeat(70_000);
        refused(bank.put("a", &long).await, Code::Limit, "the limit `bulk` is 65536");
        let big = bank.transaction().write(["a"]).run(async |txn| txn.put("a", &long)).await;
        refused(big, Code::Limit, "the limit `bulk` is 65536");
        let huge = "x".repeat(3 << 20);
        refused(bank.put("a", &huge).await, Code::Limit, "too large");
        refused(bank.execute(["NOSUCH"]).await, Code::Invalid, "unknown command");
        refused(bank.execute(["BLPOP", "a", "0"]).await, Code::Invalid, "may wait on a connection");
        refused(
            bank.execute(["XREAD", "BLOCK", "5", "STREAMS", "s", "0"]).await,
            Code::Invalid,
            "may wait on a",
        );
        // What would wait with BLOCK does not without.
        let read = bank.execute(["XREAD", "STREAMS", "s", "0"]).await;
        assert!(read.is_ok(), "{read:?}");
        refused(bank.execute(["MULTI"]).await, Code::Invalid, "use Begin and Commit");
        refused(bank.execute(["SUBSCRIBE", "a"]).await, Code::Invalid, "use a Redis client");

        // The closure's own error ends it without effect, and it is not tried again.
        let mut runs = 0;
        let failed = bank
            .transaction()
            .read(["a"])
            .write(["a"])
            .run(async |txn| {
                runs += 1;
                txn.put("a", "1")?;
                Err::<(), _>(Error::own("not today"))
            })
            .await;
        assert_eq!(failed.expect_err("its own").to_string(), "not today");
        assert_eq!((runs, bank.get("a").await.expect("it serves")), (1, None));

        // Commands on any keyspace, and values that both doors read.
        assert_eq!(bank.get("greeting").await.expect("it serves").as_deref(), Some(&b"hello"[..]));
        for space in [&bank, &plain] {
            assert_eq!(space.put("n", "41").await.expect("it serves"), Written::Done(()));
            let more = space.execute(["INCR", "n"]).await.expect("it serves");
            assert_eq!(more, Written::Done(Reply::Integer(42)));
            let wrong = space.execute(["LPUSH", "n", "x"]).await.expect("it serves");
            assert!(matches!(wrong, Written::Done(Reply::Error(text)) if text.starts_with("WRONGTYPE")));
            assert_eq!(space.delete("n").await.expect("it serves"), Written::Done(true));
            assert_eq!(space.get("n").await.expect("it serves"), None);
        }

        // A key behind a value.
        assert_eq!(bank.put("name:ana", "visits:7").await.expect("it serves"), Written::Done(()));
        let counted = bank
            .transaction()
            .find(["name:ana"], |found| {
                let key = found.get("name:ana").ok_or_else(|| Error::own("there is no Ana"))?;
                Ok(Keys::new().read([key]).write([key]))
            })
            .run(async |txn| {
                let key = txn.get("name:ana")?.unwrap_or_default();
                let visits = txn.number(&key)? + 1;
                txn.put(&key, visits.to_string())?;
                Ok(visits)
            })
            .await;
        assert!(matches!(counted, Ok(Outcome::Committed { value: 1, .. })), "{counted:?}");
        assert_eq!(bank.get("visits:7").await.expect("it serves").as_deref(), Some(&b"1"[..]));
    });
    // In each other's way, each counts once.
    let counters: Vec<_> = (0..4)
        .map(|number| {
            let three = three.clone();
            std::thread::spawn(move || {
                wait(async {
                    let bank = client(&three, number).await.keyspace("bank");
                    for _ in 0..5 {
                        let counted = bank
                            .transaction()
                            .read(["contended"])
                            .write(["contended"])
                            .within(Duration::from_secs(60))
                            .tries(1_000)
                            .run(async |txn| txn.put("contended", (txn.number("contended")? + 1).to_string()))
                            .await;
                        assert!(matches!(counted, Ok(Outcome::Committed { .. })), "{counted:?}");
                    }
                });
            })
        })
        .collect();
    counters.into_iter().for_each(|counter| counter.join().expect("it counts"));
    assert_eq!(redis.ask(&["GET", "contended"]).expect("it serves"), Resp::Text("20".into()));
}

/// How many transactions callers have open at a node, as its metrics say.
fn open_transactions(node: &Addresses) -> Option<u64> {
    let metrics = page(node.http, "/metrics").expect("it serves");
    metrics.lines().find_map(|line| line.strip_prefix("isochrone_grpc_transactions_open ")?.parse().ok())
}

#[test]
fn a_transaction_is_open_for_as_long_as_the_keyspace_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let three = nodes(3);
    let file = deployment(folder.path(), &three, "2pc", "");
    let text = std::fs::read_to_string(&file).expect("its own file");
    let short = "replication = 3\nparameters = { time_limit = \"1s\" }";
    std::fs::write(&file, text.replacen("replication = 3", short, 1)).expect("a writable folder");
    let _processes: Vec<Process> = (0..3).map(|index| processes::node(&file, index, folder.path())).collect();
    let open = || open_transactions(&three[0]);
    wait(async {
        let bank = client(&three, 0).await.keyspace("bank");
        let mut runs = 0;
        let outcome = bank
            .transaction()
            .read(["slow"])
            .write(["slow"])
            .run(async |txn| {
                runs += 1;
                if runs == 1 {
                    until("it was open", || (open() == Some(1)).then_some(()));
                    until("it is no more", || (open() == Some(0)).then_some(()));
                }
                txn.put("slow", runs.to_string())
            })
            .await;
        assert!(matches!(outcome, Ok(Outcome::Committed { tries: 2, .. })), "{outcome:?}");
        assert_eq!(bank.get("slow").await.expect("it serves").as_deref(), Some(&b"2"[..]));
    });
}

#[test]
fn what_a_client_has_begun_ends_with_its_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let three = nodes(3);
    let file = deployment(folder.path(), &three, "2pc", "");
    let text = std::fs::read_to_string(&file).expect("its own file");
    // Longer than anybody here waits.
    let long = "replication = 3\nparameters = { time_limit = \"10m\" }";
    std::fs::write(&file, text.replacen("replication = 3", long, 1)).expect("a writable folder");
    let _processes: Vec<Process> = (0..3).map(|index| processes::node(&file, index, folder.path())).collect();
    let open = || open_transactions(&three[0]);
    // A connection ends only while its client's runtime runs.
    let until_open = async |count: u64| {
        let start = Instant::now();
        while open() != Some(count) {
            assert!(start.elapsed() < processes::PATIENCE, "{:?} are open, not {count}", open());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    wait(async {
        let stays = client(&three, 0).await.keyspace("bank");
        let kept = stays.transaction().read(["kept"]).write(["kept"]).run(async |txn| {
            until_open(1).await;
            // Another begins beside it, and vanishes before it says how it is to end.
            let vanishes = client(&three, 0).await.keyspace("bank");
            let begun = Cell::new(false);
            {
                let left = vanishes.transaction().read(["left"]).write(["left"]).run(async |_| {
                    until_open(2).await;
                    begun.set(true);
                    std::future::pending::<Result<(), Error>>().await
                });
                let mut left = std::pin::pin!(left);
                std::future::poll_fn(|context| match left.as_mut().poll(context) {
                    Poll::Ready(ended) => panic!("{ended:?}"),
                    Poll::Pending if begun.get() => Poll::Ready(()),
                    Poll::Pending => Poll::Pending,
                })
                .await;
            }
            drop(vanishes);
            until_open(1).await;
            txn.put("kept", "1")
        });
        let kept = kept.await;
        assert!(matches!(kept, Ok(Outcome::Committed { tries: 1, .. })), "{kept:?}");
        let after = async |txn: &mut isochrone_client::Txn| txn.put("left", "1");
        let after = stays.transaction().read(["left"]).write(["left"]).run(after).await;
        assert!(matches!(after, Ok(Outcome::Committed { tries: 1, .. })), "{after:?}");
    });
}

#[test]
fn passwords_certificates_and_permissions_are_those_of_redis_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let three = nodes(3);
    let acl = folder.path().join("users.acl");
    std::fs::write(
        &acl,
        "user default off\nuser app on >secret ~account:* %R~rate:* +@all\nuser boss on >own allkeys +@all\n",
    )
    .expect("a writable folder");
    let certs = folder.path().join("certs");
    let more = "[security]\naclfile = \"users.acl\"\nclient_cert = \"certs/{node}-client.pem\"\n\
                client_key = \"certs/{node}-client.key\"\n";
    let bare = deployment(folder.path(), &three, "carousel-fast", "");
    let (status, out, err) =
        processes::outcome(["cert".as_ref(), bare.as_os_str(), "--out".as_ref(), certs.as_os_str()]);
    assert_eq!(status, 0, "{out}\n{err}");
    // As the file has to name it, wherever the command was given.
    assert!(out.contains("client_cert = \"certs/{node}-client.pem\""), "{out}");
    let file = deployment(folder.path(), &three, "carousel-fast", more);
    let _processes: Vec<Process> = (0..3).map(|index| processes::node(&file, index, folder.path())).collect();
    let authority = std::fs::read(certs.join("ca.pem")).expect("an authority");
    wait(async {
        let address = || [three[0].grpc.to_string()];
        let secure = || Client::builder(address()).authority(authority.clone());
        let plain = Client::connect(address()).await;
        let spoken = match plain {
            Ok(client) => client.keyspace("bank").put("account:1", "1").await,
            Err(error) => Err(error),
        };
        assert!(matches!(spoken, Err(Error::Unreachable(_)) | Ok(Written::Unknown(_))), "{spoken:?}");

        let stranger = secure().connect().await.expect("TLS").keyspace("bank");
        refused(stranger.get("account:1").await, Code::Unauthenticated, "authorization: Basic");
        let wrong = secure().login("app", "guess").connect().await.expect("TLS").keyspace("bank");
        refused(wrong.get("account:1").await, Code::Unauthenticated, "no such user, or another password");

        let app = secure().login("app", "secret").connect().await.expect("TLS").keyspace("bank");
        let transfer = async |read: &[&str], write: &[&str]| {
            let put =
                async |txn: &mut isochrone_client::Txn| write.iter().try_for_each(|key| txn.put(key, "1"));
            app.transaction().read(read).write(write).run(put).await
        };
        let allowed = transfer(&["account:1", "rate:eur"], &["account:1"]).await;
        assert!(matches!(allowed, Ok(Outcome::Committed { .. })), "{allowed:?}");
        refused(transfer(&["other"], &[]).await, Code::Denied, "user app may not GET key \"other\"");
        refused(transfer(&[], &["rate:eur"]).await, Code::Denied, "user app may not SET key \"rate:eur\"");
        refused(app.put("other", "1").await, Code::Denied, "No permissions to access a key");
        assert_eq!(app.get("account:1").await.expect("it may").as_deref(), Some(&b"1"[..]));
    });
}

#[test]
fn a_fleet_logs_in_at_once_beside_those_who_guess() {
    let folder = tempfile::tempdir().expect("a folder");
    let Addresses { grpc, http, .. } = nodes(1).remove(0);
    let file = folder.path().join("one.toml");
    let hash = processes::hash("that of app");
    let text = format!(
        "cluster = \"logins\"\n[[region]]\nname = \"R0\"\n[[node]]\nname = \"n0\"\nregion = \"R0\"\ngrpc = \"{grpc}\"\n\
         http = \"{http}\"\n[[keyspace]]\nname = \"plain\"\nprotocol = \"multipaxos\"\n[[security.user]]\nname = \"app\"\n\
         password = \"{hash}\"\n"
    );
    std::fs::write(&file, text).expect("a writable folder");
    let _process = processes::node(&file, 0, folder.path());
    until("a leader", || processes::leader(http));
    // Each has a connection of its own.
    let get = move |password: String| async move {
        let builder = Client::builder([grpc.to_string()]).login("app", password);
        let client = builder.connect().await.expect("a connection");
        client.keyspace("plain").get("k").await
    };
    wait(async {
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..120 {
            let guesses = number % 3 == 0;
            let password = if guesses { format!("guess {number}") } else { "that of app".to_owned() };
            calls.spawn(async move { (guesses, get(password).await) });
        }
        for (guesses, answer) in calls.join_all().await {
            if guesses {
                refused(answer, Code::Unauthenticated, "another password");
            } else {
                assert_eq!(answer.expect("it may"), None);
            }
        }
    });
    // One for each that is wrong, and one for all that are right.
    let checks = until("checks", || {
        let page = page(http, "/metrics")?;
        let count =
            page.lines().find_map(|line| line.strip_prefix("isochrone_gateway_login_checks_total "))?;
        Some(count.parse::<u64>().expect("a number")).filter(|count| *count >= 41)
    });
    assert_eq!(checks, 41);
}

#[test]
fn grpc_beyond_loopback_wants_a_certificate_and_a_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let three = nodes(3);
    let file = deployment(folder.path(), &three, "carousel-fast", "");
    let text = std::fs::read_to_string(&file).expect("its own file");
    let open = text.replace(&format!("grpc = \"{}\"", three[0].grpc), "grpc = \"0.0.0.0:7400\"");
    std::fs::write(&file, open).expect("a writable folder");
    let mut command = isochrone(["node".as_ref(), file.as_os_str(), "--name".as_ref(), "n0".as_ref()]);
    command.arg("--data").arg(folder.path().join("n0")).env("ISOCHRONE_ADMIN_TOKEN", TOKEN);
    let output = command.output().expect("the program starts");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{err}");
    let wrong =
        "grpc = \"0.0.0.0:7400\" is not on loopback, and [security] has no client_cert and client_key";
    assert!(err.contains(wrong), "{err}");
}

#[test]
fn an_orderly_stop_ends_what_clients_have_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    let three = nodes(3);
    let file = deployment(folder.path(), &three, "carousel-fast", "");
    let mut processes: Vec<Process> =
        (0..3).map(|index| processes::node(&file, index, folder.path())).collect();
    wait(async {
        let bank = client(&three, 0).await.keyspace("bank");
        // Asked to stop between its two rounds, the node waits for the second.
        let outcome = bank
            .transaction()
            .read(["a"])
            .write(["a"])
            .run(async |txn| {
                processes[0].signal("TERM");
                // The first thing that goes is HTTP.
                until("the node is stopping", || page(three[0].http, "/healthz").is_none().then_some(()));
                txn.put("a", "1")
            })
            .await;
        assert!(matches!(outcome, Ok(Outcome::Committed { tries: 1, .. })), "{outcome:?}");
        assert_eq!(processes[0].end(), Some(0));
        // The client goes on at another node.
        let seen = bank.snapshot(["a"]).await.expect("another node answers");
        assert_eq!(seen.get("a").map(|value| &value[..]), Some(&b"1"[..]));
    });
}
