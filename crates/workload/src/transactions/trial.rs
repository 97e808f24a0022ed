//! One simulated run of a keyspace of transactions from one seed, and the verdict on what its clients saw.

use super::clients::{Script, TransactionClients};
use super::figures::Figures;
use super::workload::Workload;
use crate::trial::{self, Terms, add_node, config};
use isochrone_check::Budget;
use isochrone_check::transactions::{Isolation, TransactionVerdict, Transactions, check_transactions};
use isochrone_core::deployment::ConfigErrors;
use isochrone_core::migration::Stretch;
use isochrone_core::{Blob, Deployment, Guarantee, Instant, KeyspaceId, NodeId, PartitionId, Random, Span};
use isochrone_replication::Change;
use isochrone_sim::{Admin, FaultKind, Record, Simulation, Violation, ViolationKind};
use isochrone_transactions::directory::Reach;
use isochrone_transactions::{Family, Placement, Request, Split, Transactional};
use std::any::Any;

/// What came of one trial; promised are what holds of transactions that write, and of those that only read.
pub type Outcome = trial::Outcome<(Guarantee, Guarantee), Figures, Transactions>;

/// Runs one seed of the family `F`. Where things go wrong, the run ends with transactions over all keys, if the
/// workload has such: they commit only when nothing is left that is stuck.
///
/// # Errors
/// The keyspace's parameters are wrong, or the deployment has no distances.
pub fn run<F: Family>(
    deployment: &Deployment,
    keyspace: KeyspaceId,
    terms: &Terms<Workload>,
    seed: u64,
) -> Result<Outcome, ConfigErrors> {
    deployment.given_matrix()?;
    let mut placement = Placement::<F>::of(deployment, deployment.keyspace(keyspace))?;
    terms.plant_in(F::NAME, |bug| placement.plant(bug))?;
    if terms.moves > 0 {
        placement = placement.movable();
        if !placement.movable {
            let wrong = format!("keys of this keyspace of {} do not move between partitions", F::NAME);
            let right = "use a protocol other than tapir and several partitions, or leave it out".to_owned();
            return Err(ConfigErrors::one("--moves", 0, wrong, right));
        }
    }
    let mut random = Random::seeded(seed ^ 0x7472_616e_7361_6374);
    let mut config = config(deployment, terms, seed);
    config.roles = &["server", "client"];
    let membership = F::LED && terms.faults.contains(FaultKind::Membership);
    if membership {
        let spare = NodeId(config.nodes.len() as u16);
        placement.add_spare(spare);
        add_node(&mut config, random.below(deployment.nodes().len() as u64) as usize);
    }
    let region_of = config.nodes.iter().map(|node| node.region).collect();
    let mut simulation = Simulation::<Transactional<F>>::new(config, &placement);
    let tolerated = deployment.keyspace(keyspace).crashes_max();
    // Where nobody leads, who replicates a partition is fixed for the life of a keyspace.
    let faults = if F::LED { terms.faults } else { terms.faults.without(FaultKind::Membership) };
    let mut plan = terms.plan(seed, faults, &simulation.shape(tolerated));
    terms.add_moves(&mut plan, &mut random);
    let changes = plan.kinds.contains(FaultKind::Membership);
    let shown = plan.to_string();
    simulation.set_faults(plan);
    let mut clients = TransactionClients::new(Script {
        workload: terms.workload.clone(),
        think: terms.think(&mut random),
        every: terms.rate.map(|rate| Span::from_nanos((1e9 / rate) as u64)),
        until: Instant::ZERO + terms.duration,
        transactions_max: terms.requests_max,
        window: terms.counted(),
        seed: random.below(u64::MAX),
        history: terms.check,
        closers: if terms.check && !terms.faults.is_empty() { tolerated + 1 } else { 0 },
        region_of,
    });
    if terms.moves > 0 || changes {
        let (placement, moves) = (placement.clone(), terms.moves > 0);
        clients.order(Box::new(move |random| match changes && (!moves || random.chance(0.2)) {
            true => draw_change(&placement, random),
            false => draw_move(&placement, random, |request| request),
        }));
    }
    let guarantee = F::guarantees(&placement.parameters);
    let begun = std::time::Instant::now();
    let mut report = simulation.run(&mut clients);
    let elapsed = begun.elapsed();
    let figures = clients.figures().clone();
    // Who is lost for good may be one of a majority that the members were changed to.
    let lost = [FaultKind::BitRot, FaultKind::DiskLost].map(|kind| report.faults.count(kind)) != [0, 0];
    if changes && lost {
        report.violations.retain(|violation| violation.kind != ViolationKind::Stuck);
    }
    let unfinished = clients.unfinished().filter(|_| !(changes && lost));
    let broken: Vec<_> = clients.broken().into_iter().chain(unfinished).collect();
    let history = clients.into_history();
    let undecided = if terms.check && report.violations.is_empty() {
        let at = report.virtual_time;
        let violation = |text| Violation { seed, at, kind: ViolationKind::History, text };
        let (violations, undecided) = judge(&history, guarantee);
        report.violations.extend(violations.into_iter().chain(broken).map(violation));
        undecided
    } else {
        None
    };
    let recorded = terms.record == Record::Flow;
    let trace = if recorded { simulation.trace() } else { String::new() };
    let drawing = if recorded { simulation.svg() } else { String::new() };
    Ok(Outcome { guarantee, report, undecided, elapsed, figures, history, plan: shown, trace, drawing })
}

/// One change of who leads a partition or replicates it, drawn; every replica is asked, and who leads makes it. Nothing where
/// nobody leads.
pub fn draw_change<F: Family>(placement: &Placement<F>, random: &mut Random) -> Vec<Admin> {
    if !F::LED {
        return Vec::new();
    }
    let groups = &placement.map.groups;
    let group = &groups[random.below(groups.len() as u64) as usize];
    // Who is a member by now is not known here: who is none is refused.
    let nodes: Vec<NodeId> = group.processes().map(|process| process.node).collect();
    let member = nodes[random.below(nodes.len() as u64) as usize];
    let change = match (random.below(6), group.spares.first()) {
        (0 | 1, Some(spare)) => Change::Add(spare.node),
        (4, _) => Change::Add(member),
        // A group of one or two would take the meaning from all later faults.
        (2, _) if group.members.len() > 3 || random.chance(0.5) => Change::Remove(member),
        (3, _) => Change::Resign,
        _ => Change::Lead(member),
    };
    let order = |process| Admin::Request { process, request: Box::new(change) };
    group.processes().map(order).collect()
}

/// Keys that are moved, drawn: any client may be told so, at any time, and several at once. Nothing where there is one
/// partition. What the client takes is made of the request.
pub fn draw_move<F: Family, R: Any + Send>(
    placement: &Placement<F>,
    random: &mut Random,
    made: impl FnOnce(Request) -> R,
) -> Vec<Admin> {
    let map = &placement.map;
    // There are at most 1,024.
    let partitions = map.groups.len() as u64;
    if partitions < 2 {
        return Vec::new();
    }
    let from = random.below(partitions);
    let to = (from + 1 + random.below(partitions - 1)) % partitions;
    let [from, to] = [from, to].map(|partition| PartitionId(partition as u16));
    let reach = match &map.split {
        Split::Ranges(bounds) => {
            let mut ends = vec![Blob::default()];
            ends.extend(bounds.iter().cloned());
            let first = ends[random.below(ends.len() as u64) as usize].clone();
            let end = ends.into_iter().find(|end| *end > first).filter(|_| random.chance(0.8));
            Reach::keys(first, end)
        }
        Split::Hash | Split::Named => {
            let [one, other] = [random.below(u64::MAX), random.below(u64::MAX)];
            Reach::ring(match random.chance(0.3) {
                true => Stretch::ALL,
                false => Stretch { first: one.min(other), last: one.max(other) },
            })
        }
    };
    let (node, _) = &placement.clients[random.below(placement.clients.len() as u64) as usize];
    let request = Box::new(made(Request::Move { reach: Some(reach), from, to }));
    vec![Admin::Request { process: placement.client(*node), request }]
}

/// Checks a history by what was promised: what is wrong, and the reason where it cannot be decided. Where updates are
/// promised more than reads, the updates must keep it among themselves: a read-only transaction at a moment may see
/// them in the order of their stamps, which is another than that of real time where clocks differ.
pub fn judge(
    history: &Transactions,
    (updates, reads): (Guarantee, Guarantee),
) -> (Vec<String>, Option<String>) {
    let strict = |guarantee| guarantee == Guarantee::StrictlySerializable;
    let of = |guarantee| match strict(guarantee) {
        true => Isolation::StrictlySerializable,
        false => Isolation::Serializable,
    };
    let (violations, undecided) = held(history, of(reads));
    if strict(reads) || !strict(updates) || !violations.is_empty() {
        return (violations, undecided);
    }
    let writing = history.list.iter().filter(|transaction| transaction.updates()).cloned().collect();
    let (violations, also) = held(&writing, of(updates));
    (violations, undecided.or(also))
}

fn held(history: &Transactions, isolation: Isolation) -> (Vec<String>, Option<String>) {
    match check_transactions(history, isolation, &Budget::default()) {
        Err(error) => (vec![error.to_string()], None),
        Ok(report) => match report.verdict {
            TransactionVerdict::Held => (Vec::new(), None),
            TransactionVerdict::Violation(violation) => (vec![violation.text], None),
            TransactionVerdict::Undecided { reason } => (Vec::new(), Some(reason)),
        },
    }
}
