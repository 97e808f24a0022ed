//! Workloads of transactions, through gRPC and the client library: what a client is told, and how long it waits.
//!
//! All clients are tasks of one thread. A client has one connection, to one node, and one transaction under way.

use crate::arguments::{Bench, Format};
use crate::output::{bar, create, print_json, print_text, unwritable, writable};
use crate::transactions::{Shown, size};
use crate::{Status, Usage, protocols};
use anyhow::{Context, bail};
use isochrone_check as check;
use isochrone_check::transactions::Transactions;
use isochrone_client::{self as client, Client, Code, Keyspace};
use isochrone_core::deployment::Limit;
use isochrone_core::{Blob, Deployment, Instant, Random, Span};
use isochrone_store::versions::Version;
use isochrone_transactions::{Read, Reason, Update};
use isochrone_workload::Window;
use isochrone_workload::transactions::{End, Figures, History, Plan, Session, Tried, Workload};
use serde::Serialize;
use std::cell::RefCell;
use std::io::BufWriter;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{JoinSet, LocalSet};

/// One run.
pub(crate) struct Load {
    /// `host:port` of a node's `grpc`, with the region that it stands for (an index).
    pub(crate) endpoints: Vec<(String, usize)>,
    /// Which keyspace.
    pub(crate) keyspace: String,
    /// Clients in all, dealt out to the endpoints in turn.
    pub(crate) clients: u32,
    /// What they ask.
    pub(crate) workload: Workload,
    /// A client begins a transaction each time this much has passed, or, while it is busy then, as soon as it is not;
    /// where there is nothing, one after the other.
    pub(crate) every: Option<Span>,
    /// How long.
    pub(crate) duration: Span,
    /// Of what is asked.
    pub(crate) seed: u64,
    /// User and password.
    pub(crate) auth: Option<(String, String)>,
    /// Whether a history is kept.
    pub(crate) history: bool,
}

/// What came of a run.
pub(crate) struct Measured {
    pub(crate) figures: Figures,
    /// Empty where none was to be kept.
    pub(crate) history: Transactions,
    /// What committed transactions have read that cannot be.
    pub(crate) broken: Vec<String>,
    /// Why a transaction was first refused, or its end is not known.
    pub(crate) first_error: Option<String>,
}

/// How far a run is.
pub(crate) struct Progress {
    /// Of its time, 0 to 1.
    pub(crate) share: f64,
    /// Transactions that have committed, all counted.
    pub(crate) committed: u64,
}

/// What helps where nobody answers.
const THROUGH_GRPC: &str = "transactions go through gRPC, to the address of a node's `grpc`";
/// After a transaction that was not taken up, its client rests this long: its node may be down.
const REST: Duration = Duration::from_millis(50);
/// How often it is told how far a run is.
const TELL: Duration = Duration::from_millis(50);

/// What all clients write into.
struct Books {
    figures: Figures,
    history: Option<History>,
    committed: u64,
    broken: Vec<String>,
    first_error: Option<String>,
    /// Nothing is begun any more.
    over: bool,
}

/// Runs a load to its end. `progress` is told how far it is, and says whether it is to go on.
pub(crate) fn drive(load: &Load, progress: impl FnMut(Progress) -> bool) -> anyhow::Result<Measured> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot make an event queue")?;
    LocalSet::new().block_on(&runtime, run(load, progress))
}

async fn run(load: &Load, mut progress: impl FnMut(Progress) -> bool) -> anyhow::Result<Measured> {
    let mut keyspaces = Vec::new();
    for number in 0..load.clients as usize {
        let (endpoint, region) = &load.endpoints[number % load.endpoints.len()];
        let mut builder = Client::builder([endpoint]);
        if let Some((user, password)) = &load.auth {
            builder = builder.login(user, password);
        }
        let client = builder.connect().await.map_err(|error| match error {
            client::Error::Unreachable(why) => anyhow::anyhow!("{why}; {THROUGH_GRPC}"),
            error => error.into(),
        })?;
        keyspaces.push((client.keyspace(&*load.keyspace), *region));
    }
    let clock = Clock(std::time::Instant::now());
    let end = Instant::ZERO + load.duration;
    let books = Rc::new(RefCell::new(Books {
        figures: Figures::new(Window::middle(Instant::ZERO, load.duration)),
        history: load.history.then(|| History::new(true)),
        committed: 0,
        broken: Vec::new(),
        first_error: None,
        over: false,
    }));
    let mut random = Random::seeded(load.seed);
    // To sum up Zipf's constant takes a while: once for all.
    let session = load.workload.session(0, random.fork());
    let mut tasks = JoinSet::new();
    for (number, (keyspace, region)) in (0..load.clients).zip(keyspaces) {
        let due = load.every.map_or(0, |every| random.below(every.as_nanos().max(1)));
        let one = One {
            session: session.beside(number, random.fork()),
            keyspace,
            region,
            every: load.every,
            due: Instant::from_nanos(due),
            end,
            tried: 0,
            clock,
            books: Rc::clone(&books),
        };
        tasks.spawn_local(one.run());
    }
    while !tasks.is_empty() {
        // Whichever comes first: a client has ended, or it is time to tell.
        if let Ok(Some(ended)) = tokio::time::timeout(TELL, tasks.join_next()).await {
            ended.context("a client")??;
        }
        let mut books = books.borrow_mut();
        let share = (clock.now().since(Instant::ZERO).as_secs_f64() / load.duration.as_secs_f64()).min(1.0);
        books.over |= !progress(Progress { share, committed: books.committed });
    }
    let books = Rc::into_inner(books).context("a client has outlived the run")?.into_inner();
    let history = books.history.map_or_else(Transactions::default, History::finish);
    Ok(Measured { figures: books.figures, history, broken: books.broken, first_error: books.first_error })
}

#[derive(Copy, Clone)]
struct Clock(std::time::Instant);

impl Clock {
    fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// One client.
struct One {
    session: Session,
    keyspace: Keyspace,
    region: usize,
    every: Option<Span>,
    due: Instant,
    end: Instant,
    tried: u64,
    clock: Clock,
    books: Rc<RefCell<Books>>,
}

/// What a transaction did, whatever came of it.
#[derive(Default)]
struct Done {
    reads: Option<Vec<Read>>,
    updates: Vec<Update>,
    gave_up: bool,
}

impl One {
    /// # Errors
    /// It makes no sense to go on: there is no such keyspace, the user may not.
    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let now = self.clock.now();
            if now < self.due {
                tokio::time::sleep(Duration::from_nanos(self.due.since(now).as_nanos())).await;
            }
            let begun = self.clock.now();
            if begun >= self.end || self.books.borrow().over {
                return Ok(());
            }
            if let Some(every) = self.every {
                self.due = self.due + every;
            }
            let plan = self.session.draw();
            self.tried += 1;
            let (end, version, done) = self.attempt(&plan).await?;
            self.note(&plan, begun, end, version, &done);
            if matches!(end, End::Refused | End::Aborted(Reason::Unavailable)) {
                tokio::time::sleep(REST).await;
            }
        }
    }

    async fn attempt(&self, plan: &Plan) -> anyhow::Result<(End, Option<u64>, Done)> {
        let writer = format!("s{}.{}", self.session.number(), self.tried);
        let mut done = Done::default();
        let transaction = self.keyspace.transaction().read(&plan.reads).write(&plan.writes).tries(1);
        let outcome = transaction
            .run(async |txn| {
                let read = |key: &Blob| {
                    let value = txn.before(key)?.map(|value| Blob::from(&value[..]));
                    Ok(Read { key: key.clone(), value, version: Version(txn.version(key)?) })
                };
                let reads = plan.reads.iter().map(read).collect::<Result<Vec<_>, client::Error>>()?;
                let updates = plan.updates(&reads, &writer);
                done.reads = Some(reads);
                let Some(updates) = updates else {
                    done.gave_up = true;
                    return Err(client::Error::own("the workload gives it up"));
                };
                for Update { key, value } in &updates {
                    match value {
                        Some(value) => txn.put(key, value)?,
                        None => txn.delete(key)?,
                    }
                }
                done.updates = updates;
                Ok(())
            })
            .await;
        let (end, version, error) = match outcome {
            Ok(client::Outcome::Committed { at, .. }) => (End::Committed, Some(at), None),
            Ok(client::Outcome::Aborted { reason, .. }) => (End::Aborted(aborted(reason)), None, None),
            Ok(client::Outcome::Unknown { why }) => (End::Unknown, None, Some(why)),
            Err(_) if done.gave_up => (End::Aborted(Reason::Client), None, None),
            // Something listens, and has understood nobody yet: perhaps it speaks something else.
            Err(error @ client::Error::Unreachable(_)) if self.books.borrow().committed == 0 => {
                (End::Refused, None, Some(format!("{error}; {THROUGH_GRPC}")))
            }
            Err(error @ client::Error::Unreachable(_))
            | Err(error @ client::Error::Refused { code: Code::Limit, .. }) => {
                (End::Refused, None, Some(error.to_string()))
            }
            Err(error) => bail!(error),
        };
        if let Some(error) = error {
            self.books.borrow_mut().first_error.get_or_insert(error);
        }
        Ok((end, version, done))
    }

    fn note(&self, plan: &Plan, begun: Instant, end: End, version: Option<u64>, done: &Done) {
        let now = self.clock.now();
        let books = &mut *self.books.borrow_mut();
        books.figures.record(self.region, plan.kind, begun, now, end);
        if end == End::Committed {
            books.committed += 1;
            if let Some(wrong) = done.reads.as_ref().and_then(|reads| plan.verify(reads)) {
                let (kind, number) = (plan.kind, self.session.number());
                books.broken.push(format!("{kind} {} of client {number} has committed: {wrong}", self.tried));
            }
        }
        let Some(history) = &mut books.history else { return };
        let outcome = match end {
            End::Committed => check::Outcome::Ok,
            End::Unknown => check::Outcome::Unknown,
            End::Aborted(_) | End::Refused => check::Outcome::Failed,
        };
        history.note(Tried {
            session: self.session.number(),
            sequence: self.tried,
            plan,
            reads: done.reads.as_deref(),
            updates: &done.updates,
            version,
            invoked: begun,
            returned: (end != End::Unknown).then_some(now),
            outcome,
        });
    }
}

fn aborted(reason: client::Reason) -> Reason {
    match reason {
        client::Reason::Conflict => Reason::Conflict,
        client::Reason::StaleRead => Reason::StaleRead,
        client::Reason::HeartbeatLost => Reason::HeartbeatLost,
        client::Reason::Presumed => Reason::Presumed,
        client::Reason::OutOfTime => Reason::OutOfTime,
        // What else there is, a transaction without `find` is not told.
        _ => Reason::Unavailable,
    }
}

/// What `--format json` prints. Latencies are of what committed, in milliseconds.
#[derive(Serialize)]
struct Report {
    /// The keyspace's protocol; unknown behind a bare endpoint.
    protocol: Option<String>,
    workload: &'static str,
    clients: u32,
    #[serde(flatten)]
    figures: Shown,
    first_error: Option<String>,
    /// What committed transactions have read that cannot be.
    broken: Vec<String>,
}

/// Runs the verb for a workload of transactions.
pub(super) fn bench(arguments: &Bench, mut workload: Workload) -> anyhow::Result<Status> {
    if arguments.conflict.is_some() || arguments.pipeline != 1 {
        bail!(Usage(format!(
            "--conflict and --pipeline are for commands; {} takes --records and --clients",
            workload.name
        )));
    }
    if arguments.reconnect {
        bail!(Usage(format!(
            "--reconnect is for commands; a client of {}, whose workload is transactions, connects again by itself\n  leave it out",
            workload.name
        )));
    }
    size(&mut workload, arguments.records)?;
    let targets = Targets::of(arguments)?;
    workload.value_size = super::value_size(arguments, workload.value_size, targets.bulk)?;
    if arguments.history.is_some() {
        workload.prefix = super::own_prefix()?;
    }
    let clients = f64::from(arguments.clients);
    let load = Load {
        endpoints: targets.endpoints,
        keyspace: targets.keyspace,
        clients: arguments.clients,
        workload,
        every: super::rate(arguments)?.map(|rate| Span::from_nanos((clients / rate * 1e9) as u64)),
        duration: arguments.duration,
        seed: arguments.seed,
        auth: super::auth(arguments),
        history: arguments.history.is_some(),
    };
    if let Some(path) = &arguments.history {
        writable(path)?;
    }
    let shown = bar("measuring", 1000);
    let measured = drive(&load, |Progress { share, committed }| {
        shown.set_position((share * 1000.0) as u64);
        shown.set_message(format!("{committed} committed"));
        true
    })?;
    shown.finish_and_clear();
    if let Some(path) = &arguments.history {
        let file = BufWriter::new(create(path)?);
        measured.history.write(file).map_err(|cause| unwritable(path, &cause))?;
    }
    let names: Vec<_> = targets.names.iter().map(String::as_str).collect();
    let seconds = measured.figures.recorder().window().length().as_secs_f64();
    let report = Report {
        protocol: targets.protocol,
        workload: load.workload.name,
        clients: load.clients,
        figures: Shown::of(&measured.figures, &names, seconds),
        first_error: measured.first_error,
        broken: measured.broken,
    };
    match arguments.format {
        Format::Json => print_json(&report)?,
        Format::Text => print_text(&show(&report))?,
    }
    if report.figures.tally.committed == 0 {
        bail!("no transaction has committed within the measured part of the run");
    }
    Ok(if report.broken.is_empty() { Status::Held } else { Status::Failed })
}

fn show(report: &Report) -> String {
    let committed = report.figures.tally.committed;
    let mut text = format!("{}: {committed} committed\n", report.workload);
    text += &report.figures.tables();
    text += &report.figures.summary("");
    if let Some(error) = &report.first_error {
        text += &format!("first error: {error}\n");
    }
    for wrong in &report.broken {
        text += &format!("violation: {wrong}\n");
    }
    text
}

struct Targets {
    /// The longest argument of a command, bytes.
    bulk: u64,
    protocol: Option<String>,
    keyspace: String,
    /// Of the regions.
    names: Vec<String>,
    endpoints: Vec<(String, usize)>,
}

impl Targets {
    fn of(arguments: &Bench) -> anyhow::Result<Targets> {
        let Some(file) = &arguments.file else {
            return Ok(Targets {
                bulk: super::BULK_MAX,
                protocol: None,
                keyspace: arguments.keyspace.clone().unwrap_or_else(|| "main".to_owned()),
                names: arguments.endpoint.clone(),
                endpoints: arguments.endpoint.iter().cloned().zip(0..).collect(),
            });
        };
        let deployment = Deployment::load(file, &protocols::known().insecure(true))?;
        super::plain(&deployment)?;
        let keyspace = deployment.keyspace(deployment.choose_keyspace(arguments.keyspace.as_deref())?);
        let endpoint = |node: &isochrone_core::deployment::Node| match &node.grpc {
            Some(grpc) => Ok((grpc.to_string(), usize::from(node.region.0))),
            None => Err(Usage(format!(
                "{}: node {} has no `grpc` address; give it one, or name endpoints with --endpoint",
                deployment.file(),
                node.name
            ))),
        };
        Ok(Targets {
            bulk: deployment.limits().get(Limit::Bulk),
            protocol: Some(keyspace.protocol.clone()),
            keyspace: keyspace.name.clone(),
            names: deployment.regions().iter().map(|region| region.name.clone()).collect(),
            endpoints: deployment.nodes().iter().map(endpoint).collect::<Result<_, _>>()?,
        })
    }
}
