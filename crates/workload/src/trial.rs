//! One simulated run of a keyspace from one seed: a cluster of a deployment's shape, the faults and clients
//! that the seed draws, and the verdict on what the clients saw.

use crate::simulated::{Answer, Clients, Script};
use crate::{Kind, Pace, Recorder, Window, Workload};
use isochrone_check::{Budget, History, Promise, Verdict, check_promised, once};
use isochrone_core::command::Command;
use isochrone_core::deployment::{ConfigErrors, Keyspace};
use isochrone_core::{Deployment, Guarantee, Instant, KeyspaceId, NodeId, Protocol, Random, Span};
use isochrone_sim::{
    Admin, Config, Cost, FaultKind, FaultPlan, FaultSet, Jitter, NodeConfig, Planned, Record, Report, Shape,
    Simulation, Violation, ViolationKind,
};

/// How trials speak with a protocol; a line each in the table of protocols.
pub struct Bridge<F: Protocol> {
    /// Where its processes stand.
    pub placement: fn(&Deployment, &Keyspace) -> Result<F::Placement, ConfigErrors>,
    /// What asks for a command.
    pub request: fn(Command) -> F::Request,
    /// What an outcome says.
    pub answer: fn(F::Outcome) -> Answer,
    /// What its roles are called in traces, by number.
    pub roles: &'static [&'static str],
    /// Puts a waiting replica on a node that is not in the deployment, for changes of membership.
    pub spare: fn(&mut F::Placement, NodeId),
    /// Whether it goes on with fewer replicas while some are down: who is lost for good then may be the last.
    pub shrinks: bool,
    /// Orders one change of membership or leadership.
    pub membership: fn(&F::Placement, &mut Random) -> Vec<Admin>,
    /// Orders the move of some keys to another partition; nothing where there is only one.
    pub moves: fn(&F::Placement, &mut Random) -> Vec<Admin>,
    /// Plants a bug of this name, to see that it is found; the names there are, where there is none of it.
    pub plant: fn(&mut F::Placement, &str) -> Result<(), Vec<&'static str>>,
}

impl<F: Protocol> Clone for Bridge<F> {
    fn clone(&self) -> Bridge<F> {
        *self
    }
}

impl<F: Protocol> Copy for Bridge<F> {}

/// The longest pause between requests where there are faults.
const PAUSE_MAX: Span = Span::from_millis(60);

/// What all trials of one campaign have in common; `W` is a workload of commands or of transactions.
#[derive(Clone, Debug)]
pub struct Terms<W = Workload> {
    /// What clients do.
    pub workload: W,
    /// Sessions on each node's client.
    pub sessions: u32,
    /// Sessions on the client of each node, by node, in the place of `sessions`.
    pub clients: Option<Vec<u32>>,
    /// Requests a second of each session; a closed loop where there is none.
    pub rate: Option<f64>,
    /// When the last request is made, and all faults end.
    pub duration: Span,
    /// Requests of a session at most.
    pub requests_max: u64,
    /// The part of the run whose latencies count; the middle where there is none.
    pub window: Option<Window>,
    /// What may go wrong.
    pub faults: FaultSet,
    /// What goes wrong by design, in the place of what the seed draws.
    pub script: Vec<Planned>,
    /// What is added to each delay.
    pub jitter: Jitter,
    /// How many of a million messages are lost all the time.
    pub loss: u64,
    /// Each seed draws for itself up to how much is added to each delay, at most this; and pauses so long between requests
    /// that these may last as long as the faults.
    pub varied: Option<Span>,
    /// How long a healthy disk takes to sync.
    pub sync: Span,
    /// What handling an input costs.
    pub cost: Cost,
    /// Nodes on which it costs another share, percent: 300 for a machine with a third of its processor left.
    pub stragglers: Vec<(NodeId, u64)>,
    /// Bytes a second that leave each node; no bound where there is none.
    pub bandwidth: Option<u64>,
    /// Whether the message flow is recorded.
    pub record: Record,
    /// Whether the history is kept and checked.
    pub check: bool,
    /// How often keys are moved between partitions, at random times.
    pub moves: u32,
    /// A bug to plant.
    pub plant: Option<String>,
    /// Of how many records a seed has one of these, and in a third of the seeds no command touches two keys; as the
    /// workload says where there is none.
    pub records: &'static [u64],
}

impl<W> Terms<W> {
    /// Plants the bug that is asked for, if any, by who knows those of a protocol, or says which there are.
    pub(crate) fn plant_in(
        &self,
        protocol: &str,
        plant: impl FnOnce(&str) -> Result<(), Vec<&'static str>>,
    ) -> Result<(), ConfigErrors> {
        let Some(bug) = &self.plant else { return Ok(()) };
        plant(bug).map_err(|known| {
            let wrong = format!("protocol {protocol} has no bug called {bug:?} to plant");
            ConfigErrors::one("--plant", 0, wrong, format!("use one of {}", known.join(", ")))
        })
    }

    /// Adds the times at which keys are moved.
    pub(crate) fn add_moves(&self, plan: &mut FaultPlan, random: &mut Random) {
        for _ in 0..self.moves {
            let at = Span::from_nanos(random.below(self.duration.as_nanos().max(1)));
            let action = isochrone_sim::Action::Membership;
            plan.faults.push(Planned { at, length: Span::ZERO, kind: FaultKind::Membership, action });
        }
        if self.moves > 0 {
            plan.faults.sort_by_key(|fault| fault.at);
        }
    }

    /// The terms of a latency measurement: nothing goes wrong, nothing costs time but distance.
    pub fn quiet(workload: W, duration: Span) -> Terms<W> {
        Terms {
            workload,
            sessions: 1,
            clients: None,
            rate: None,
            duration,
            requests_max: u64::MAX,
            window: None,
            faults: FaultSet::NONE,
            script: Vec::new(),
            jitter: Jitter::None,
            loss: 0,
            varied: None,
            sync: Span::ZERO,
            cost: Cost::default(),
            stragglers: Vec::new(),
            bandwidth: None,
            record: Record::Nothing,
            check: true,
            moves: 0,
            plant: None,
            records: &[],
        }
    }

    /// The terms of a safety run: these faults, a few hundred operations on a few keys.
    pub fn hostile(workload: W, faults: FaultSet) -> Terms<W> {
        Terms {
            sessions: 2,
            requests_max: 120,
            faults,
            // Ten seconds hold several elections of a wide-area group.
            ..Terms::quiet(workload, Span::from_secs(10))
        }
    }

    /// What goes wrong in the run of this seed.
    pub(crate) fn plan(&self, seed: u64, faults: FaultSet, shape: &Shape) -> FaultPlan {
        if self.script.is_empty() {
            return FaultPlan::draw(seed, faults, shape);
        }
        let kinds = self.script.iter().fold(FaultSet::NONE, |kinds, fault| kinds.with(fault.kind));
        FaultPlan { kinds, faults: self.script.clone() }
    }

    /// The pause of a closed loop: with faults one makes room for them between the requests.
    pub(crate) fn think(&self, random: &mut Random) -> Span {
        let most = match self.varied {
            _ if self.faults.is_empty() => return Span::ZERO,
            Some(_) => (self.duration / self.requests_max.max(1) * 2).max(PAUSE_MAX),
            None => PAUSE_MAX,
        };
        Span::from_nanos(random.below(most.as_nanos()))
    }

    /// The part of the run that counts.
    pub(crate) fn counted(&self) -> Window {
        match self.window {
            Some(window) => window,
            None if self.faults.is_empty() => Window::middle(Instant::ZERO, self.duration),
            None => Window::ALL,
        }
    }
}

/// What came of one trial: of commands, or of transactions (`transactions::Outcome`).
#[derive(Clone, Debug)]
pub struct Outcome<G = Guarantee, F = Recorder, H = History> {
    /// What the keyspace promises.
    pub guarantee: G,
    /// The run; a history that breaks the guarantee is among its violations.
    pub report: Report,
    /// Why the history could not be decided, where it could not.
    pub undecided: Option<String>,
    /// How long the simulation itself took, without the verdict on the history.
    pub elapsed: std::time::Duration,
    /// Latencies by region, and how transactions ended.
    pub figures: F,
    /// What the clients saw.
    pub history: H,
    /// The plan of faults, as text.
    pub plan: String,
    /// The message flow as text, where it was recorded.
    pub trace: String,
    /// The message flow as a drawing, where it was recorded.
    pub drawing: String,
}

/// Runs one seed.
///
/// # Errors
/// The keyspace's parameters are wrong, or the deployment has no distances.
pub fn run<F: Protocol>(
    deployment: &Deployment,
    keyspace: KeyspaceId,
    bridge: Bridge<F>,
    terms: &Terms,
    seed: u64,
) -> Result<Outcome, ConfigErrors> {
    deployment.given_matrix()?;
    let mut placement = (bridge.placement)(deployment, deployment.keyspace(keyspace))?;
    terms.plant_in(F::NAME, |bug| (bridge.plant)(&mut placement, bug))?;
    let mut random = Random::seeded(seed ^ 0x0074_7269_616c);
    let mut config = config(deployment, terms, seed);
    config.roles = bridge.roles;
    if terms.faults.contains(FaultKind::Membership) {
        let spare = NodeId(config.nodes.len() as u16);
        (bridge.spare)(&mut placement, spare);
        add_node(&mut config, random.below(deployment.nodes().len() as u64) as usize);
    }
    let sessions = config.nodes.iter().map(|node| node.sessions.unwrap_or(config.sessions)).sum();
    let region_of = config.nodes.iter().map(|node| node.region).collect();
    let mut simulation = Simulation::<F>::new(config, &placement);
    let tolerated = deployment.keyspace(keyspace).crashes_max();
    let mut plan = terms.plan(seed, terms.faults, &simulation.shape(tolerated));
    let changes = plan.kinds.contains(FaultKind::Membership);
    terms.add_moves(&mut plan, &mut random);
    let clocks =
        [FaultKind::ClockOffset, FaultKind::ClockJump].into_iter().any(|kind| plan.kinds.contains(kind));
    let shown = plan.to_string();
    simulation.set_faults(plan);
    let guarantee = F::guarantee(&placement);
    // What is answered before it is executed is executed by then.
    let settles = if guarantee == Guarantee::Sequenced { SETTLED } else { Span::ZERO };
    let executed = Instant::ZERO + terms.duration + settles;
    let mut workload = terms.workload.clone();
    if !terms.records.is_empty() {
        let mut random = Random::seeded(seed ^ 0x0072_6563_6f72_6473);
        workload.records = terms.records[random.below(terms.records.len() as u64) as usize];
        if random.below(3) == 0 {
            workload = workload.without(Kind::Pair);
        }
    }
    let script = Script {
        workload,
        pace: match terms.rate {
            Some(rate) => Pace::Open { rate },
            // With faults a pause makes room for them between the requests.
            None => Pace::Closed { think: terms.think(&mut random) },
        },
        until: Instant::ZERO + terms.duration,
        requests_max: terms.requests_max,
        sessions,
        window: terms.counted(),
        seed: random.below(u64::MAX),
        history: terms.check,
        closing: (terms.check && !terms.faults.is_empty()).then_some(executed),
        skew_max: if clocks { Span::from_secs(3) } else { Span::ZERO },
        region_of,
    };
    let (membership, moves) =
        (changes.then_some(bridge.membership), (terms.moves > 0).then_some(bridge.moves));
    let admin = Box::new(move |random: &mut Random| match (membership, moves) {
        (Some(orders), None) => orders(&placement, random),
        (Some(orders), Some(_)) if random.chance(0.2) => orders(&placement, random),
        (_, Some(moves)) => moves(&placement, random),
        (None, None) => Vec::new(),
    });
    let mut clients = Clients::<F>::new(script, bridge.request, bridge.answer, admin);
    let begun = std::time::Instant::now();
    let mut report = simulation.run(&mut clients);
    let elapsed = begun.elapsed();
    let figures = clients.recorder().clone();
    let at = report.virtual_time;
    // Who is lost for good may be one of a majority that the members were changed to.
    let lost = [FaultKind::BitRot, FaultKind::DiskLost].map(|kind| report.faults.count(kind));
    if (lost == [0, 0] || !(changes || bridge.shrinks)) && report.violations.is_empty() {
        let unserved = clients.unserved().first().cloned();
        let violation = |text| Violation { seed, at, kind: ViolationKind::Liveness, text };
        report.violations.extend(unserved.map(violation));
    }
    let history = clients.into_history();
    let undecided = if terms.check && report.violations.is_empty() {
        // With wrong clocks nobody knows when a stamp is past.
        let executed = if clocks { Instant::MAX } else { executed };
        judge(&history, guarantee, executed, seed, at, &mut report.violations)
    } else {
        None
    };
    let recorded = terms.record == Record::Flow;
    let trace = if recorded { simulation.trace() } else { String::new() };
    let drawing = if recorded { simulation.svg() } else { String::new() };
    Ok(Outcome { guarantee, report, undecided, elapsed, figures, history, plan: shown, trace, drawing })
}

/// The cluster of a deployment: its nodes, its delays, one core each.
pub(crate) fn config<W>(deployment: &Deployment, terms: &Terms<W>, seed: u64) -> Config {
    let regions: Vec<&str> = deployment.regions().iter().map(|region| region.name.as_str()).collect();
    let nodes = deployment.nodes();
    let delays = nodes
        .iter()
        .map(|from| nodes.iter().map(|to| deployment.one_way(from.id, to.id)).collect())
        .collect();
    let mut config = Config::new(seed, &regions, delays);
    config.nodes = nodes
        .iter()
        .map(|node| {
            let share = terms.stragglers.iter().find(|(straggler, _)| *straggler == node.id);
            let clients = terms.clients.as_ref();
            NodeConfig {
                cost_percent: share.map_or(100, |(_, percent)| *percent),
                sessions: clients.map(|clients| clients.get(usize::from(node.id.0)).copied().unwrap_or(0)),
                ..NodeConfig::new(&node.name, usize::from(node.region.0))
            }
        })
        .collect();
    config.jitter = match terms.varied {
        None => terms.jitter,
        Some(most) => {
            let mut random = Random::seeded(seed ^ 0x6a69_7474_6572);
            // Much as little: a seed in four has none.
            match random.below(4) {
                0 => Jitter::None,
                parts => Jitter::Uniform(Span::from_nanos(random.below(most.as_nanos() * parts / 3 + 1))),
            }
        }
    };
    (config.loss, config.bandwidth) = (terms.loss, terms.bandwidth);
    config.sync = terms.sync;
    config.cost = terms.cost;
    config.sessions = terms.sessions;
    config.record = terms.record;
    config.horizon = terms.duration;
    if !terms.faults.is_empty() {
        config.aftermath = Span::from_secs(5);
    }
    if terms.varied.is_some() {
        // Slow disks and much jitter together make each of a hundred reads at the end take two seconds.
        config.patience = Span::from_secs(300);
    }
    config
}

/// Another machine beside node `twin`.
pub(crate) fn add_node(config: &mut Config, twin: usize) {
    let region = config.nodes[twin].region;
    config.nodes.push(NodeConfig { sessions: Some(0), ..NodeConfig::new("spare", region) });
    let near = Span::from_micros(250);
    for row in &mut config.delays {
        row.push(row[twin]);
    }
    let mut row = config.delays[twin].clone();
    row[twin] = near;
    config.delays.push(row);
    let last = config.delays.len() - 1;
    config.delays[twin][last] = near;
    config.delays[last][last] = Span::ZERO;
}

/// So long after the end of all faults everything is executed that was answered before them.
const SETTLED: Span = Span::from_secs(5);

/// Checks a history by what was promised; gives the reason where it cannot be decided. Nothing that was answered with its
/// place before `executed` is executed later.
fn judge(
    history: &History,
    guarantee: Guarantee,
    executed: Instant,
    seed: u64,
    at: Span,
    violations: &mut Vec<Violation>,
) -> Option<String> {
    let mut broken =
        |text: String| violations.push(Violation { seed, at, kind: ViolationKind::History, text });
    // A history of a trial is decided within milliseconds or it is a hard one.
    let budget = Budget { steps: 50_000_000, ..Budget::default() };
    // A command is a transaction: what is strictly serializable is linearizable key by key.
    let promise = match guarantee {
        Guarantee::Linearizable | Guarantee::StrictlySerializable => Promise::Linearizable,
        Guarantee::LinearizableByKey => Promise::LinearizableByKey,
        Guarantee::Sequenced => Promise::Sequenced,
        Guarantee::Serializable => Promise::Serializable,
        weaker => return Some(format!("what is {weaker} and no more is not checked")),
    };
    let mut undecided = None;
    match check_promised(history, promise, executed.as_nanos(), &budget) {
        Ok(report) => match report.verdict {
            Verdict::Linearizable => {}
            Verdict::Violation(ref explanation) => broken(explanation.to_string()),
            Verdict::Undecided { reason, .. } => undecided = Some(reason),
        },
        Err(error) => broken(error.to_string()),
    }
    // What is serializable and no more may read what was there before.
    if guarantee <= Guarantee::StrictlySerializable {
        for violation in once(history).violations {
            broken(violation.to_string());
        }
    }
    undecided
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_check::{Operation, Outcome as End, Value};

    /// What was asked of one key one after the other, with what each was answered.
    fn history(asked: &[(&str, &[&str], Value)]) -> History {
        let operation = |(place, (op, args, value)): (usize, &(&str, &[&str], Value))| Operation {
            client: place as u64,
            session: 0,
            sequence: 0,
            keys: vec!["x".into()],
            op: (*op).into(),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
            stamp: None,
            invoked: place as u64 * 10,
            returned: Some(place as u64 * 10 + 5),
            outcome: End::Ok,
            value: Some(value.clone()),
        };
        asked.iter().enumerate().map(operation).collect()
    }

    /// So many violations as a history of what is linearizable, and of what is serializable.
    fn violations(history: &History) -> [usize; 2] {
        [Guarantee::Linearizable, Guarantee::Serializable].map(|guarantee| {
            let mut violations = Vec::new();
            let undecided = judge(history, guarantee, Instant::MAX, 1, Span::ZERO, &mut violations);
            assert_eq!(undecided, None);
            violations.len().min(1)
        })
    }

    #[test]
    fn what_is_serializable_may_be_late_and_not_wrong() {
        let (set, get) = ("set", "get");
        let ok = || Value::Text("OK".to_owned());
        let text = |text: &str| Value::Text(text.to_owned());
        let writes = [(set, &["1"][..], ok()), (set, &["2"][..], ok())];
        let reads = |value| history(&[&writes[..], &[(get, &[][..], value)]].concat());
        assert_eq!(violations(&reads(text("2"))), [0, 0]);
        assert_eq!(violations(&reads(text("1"))), [1, 0], "of before");
        assert_eq!(violations(&reads(text("3"))), [1, 1], "never written");
        let adds = |value| ("incrby", &["1"][..], Value::Integer(value));
        assert_eq!(violations(&history(&[adds(1), adds(2)])), [0, 0]);
        assert_eq!(violations(&history(&[adds(1), adds(1)])), [1, 1], "one is lost");
    }
}
