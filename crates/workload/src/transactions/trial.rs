//! One simulated run of a keyspace of transactions from one seed, and the verdict on what its clients saw.

use super::clients::{Script, TransactionClients};
use super::figures::Figures;
use super::workload::Workload;
use crate::trial::{self, Terms, config};
use isochrone_check::Budget;
use isochrone_check::transactions::{Isolation, TransactionVerdict, Transactions, check_transactions};
use isochrone_core::deployment::ConfigErrors;
use isochrone_core::{Deployment, Guarantee, Instant, KeyspaceId, Random, Span};
use isochrone_sim::{FaultKind, Record, Simulation, Violation, ViolationKind};
use isochrone_transactions::{Family, Placement, Transactional, Tuning as _};

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
    if let Some(bug) = &terms.plant
        && !placement.parameters.plant(bug)
    {
        let wrong = format!("protocol {} has no bug called {bug:?} to plant", F::NAME);
        let right = format!("use one of {}", F::Parameters::bugs().join(", "));
        return Err(ConfigErrors::one("--plant", 0, wrong, right));
    }
    let mut random = Random::seeded(seed ^ 0x7472_616e_7361_6374);
    let mut config = config(deployment, terms, seed);
    config.roles = &["server", "client"];
    let region_of = config.nodes.iter().map(|node| node.region).collect();
    let mut simulation = Simulation::<Transactional<F>>::new(config, &placement);
    let tolerated = deployment.keyspace(keyspace).crashes_max();
    // Who replicates a partition is fixed for the life of a keyspace.
    let faults = terms.faults.without(FaultKind::Membership);
    let plan = terms.plan(seed, faults, &simulation.shape(tolerated));
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
    let guarantee = F::guarantees(&placement.parameters);
    let begun = std::time::Instant::now();
    let mut report = simulation.run(&mut clients);
    let elapsed = begun.elapsed();
    let figures = clients.figures().clone();
    let broken = clients.broken();
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
