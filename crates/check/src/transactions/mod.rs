//! Serializability of transactions, from the order of versions by the search for a circle.
//!
//! Adya's phenomena: a history is serializable if no aborted, intermediate or unwritten version was read (G1a, G1b), and
//! no transactions must come before each other in a circle, where one comes before another because it wrote the version
//! that the other overwrote (ww) or read (wr), or because it read what the other overwrote (rw, an anti-dependency); it
//! is strictly so if there is no circle either with those that ended before another began.
//!
//! A scan reads by a predicate: it covers every key of the history with its prefix, and those it does not list it found
//! absent. So there are dependencies of predicates too: a scan that missed a key comes behind the deletion that it saw the
//! effect of (predicate-wr), and before the insertion that it did not see (predicate-rw). A circle that needs an
//! anti-dependency of a predicate is Adya's G2 without being G2-item: serializability (PL-3) forbids it where repeatable
//! reads (PL-2.99) do not.
//!
//! An absence does not tell which one it is: the key was never written, or it was deleted, perhaps more than once. Nothing
//! is guessed (`absences.rs`): it places its transaction only once all versions but one are ruled out by what else is
//! known, which an order of the versions helps.
//!
//! The order of the versions of a key comes from what the store says (`version`), from lists that are only appended to
//! and read, from transactions that read what they overwrite, and where it is promised from real time. Where it is not known, nothing is guessed in favour of
//! a violation; and that there is none is shown by an order of all transactions that explains every read when they are
//! run one after another. Where there is neither a circle nor such an order, the answer is *undecided*.

mod absences;
mod explanation;
mod graph;
mod history;
mod replay;
mod report;
mod versions;

use std::fmt;
use std::str::FromStr;

use serde::ser::{Serialize, Serializer};

pub use history::{Access, Transaction, Transactions};
pub use report::{Relation, TransactionReport, TransactionVerdict, Violation};

use crate::model::Unsupported;
use crate::planted::{Mutation, planted};
use crate::report::{Budget, CheckError};
use absences::Narrowed;
use graph::{ANTI, Graph, Kinds, Link, OVERWRITES, PREDICATES, READS, TIME, Why};
use versions::Versions;

/// What a store promises of its transactions.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum Isolation {
    /// Some serial order explains everything.
    Serializable,
    /// That order respects real time between transactions that write; those that only read may be behind.
    StrictUpdates,
    /// That order respects real time.
    #[default]
    StrictlySerializable,
}

impl Isolation {
    /// All of them, the weakest first.
    pub const ALL: [Isolation; 3] =
        [Isolation::Serializable, Isolation::StrictUpdates, Isolation::StrictlySerializable];

    /// The name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::Serializable => "serializable",
            Isolation::StrictUpdates => "strict-updates",
            Isolation::StrictlySerializable => "strictly-serializable",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl FromStr for Isolation {
    type Err = Unsupported;

    fn from_str(text: &str) -> Result<Self, Unsupported> {
        Isolation::ALL.into_iter().find(|one| one.as_str() == text).ok_or_else(|| Unsupported {
            problem: format!("no isolation is named {text:?}"),
            cure: "there are serializable, strict-updates and strictly-serializable".to_owned(),
        })
    }
}

/// What is wrong with a history, in the field's names.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Phenomenon {
    /// A value was read that nobody wrote.
    NobodyWrote,
    /// A transaction did not read what it had written itself.
    Internal,
    /// Two reads of a list disagree about the order of its elements.
    Incompatible,
    /// What an aborted transaction wrote was read.
    G1a,
    /// What a transaction overwrote itself was read.
    G1b,
    /// A circle of overwrites.
    G0,
    /// A circle of overwrites and reads.
    G1c,
    /// A circle with one anti-dependency.
    GSingle,
    /// A circle with several.
    G2,
    /// A circle with one anti-dependency, which is of a predicate.
    GSinglePredicate,
    /// A circle with several, of which one at least is of a predicate.
    G2Predicate,
    /// A circle that is one because of real time.
    G0Time,
    /// The same with reads.
    G1cTime,
    /// The same with one anti-dependency.
    GSingleTime,
    /// The same with several.
    G2Time,
    /// The same with one, of a predicate.
    GSinglePredicateTime,
    /// The same with several, one at least of a predicate.
    G2PredicateTime,
}

impl Serialize for Phenomenon {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.serialize_str(self.as_str())
    }
}

impl Phenomenon {
    /// The name of a circle.
    fn of(links: &[Link]) -> Phenomenon {
        let count = |wanted: fn(Why) -> bool| links.iter().filter(|link| wanted(link.why)).count();
        let timed = count(|why| why.is_by_time()) > 0;
        let predicate = count(|why| matches!(why, Why::Anti { predicate: true, .. })) > 0;
        let reads = count(|why| matches!(why, Why::Read { .. })) > 0;
        match (count(|why| matches!(why, Why::Anti { .. })), predicate, timed) {
            (0, _, false) if reads => Phenomenon::G1c,
            (0, _, true) if reads => Phenomenon::G1cTime,
            (0, _, false) => Phenomenon::G0,
            (0, _, true) => Phenomenon::G0Time,
            (1, false, false) => Phenomenon::GSingle,
            (1, false, true) => Phenomenon::GSingleTime,
            (1, true, false) => Phenomenon::GSinglePredicate,
            (1, true, true) => Phenomenon::GSinglePredicateTime,
            (_, false, false) => Phenomenon::G2,
            (_, false, true) => Phenomenon::G2Time,
            (_, true, false) => Phenomenon::G2Predicate,
            (_, true, true) => Phenomenon::G2PredicateTime,
        }
    }

    /// The name in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Phenomenon::NobodyWrote => "unwritten-read",
            Phenomenon::Internal => "internal",
            Phenomenon::Incompatible => "incompatible-order",
            Phenomenon::G1a => "G1a",
            Phenomenon::G1b => "G1b",
            Phenomenon::G0 => "G0",
            Phenomenon::G1c => "G1c",
            Phenomenon::GSingle => "G-single",
            Phenomenon::G2 => "G2-item",
            Phenomenon::GSinglePredicate => "G-single-predicate",
            Phenomenon::G2Predicate => "G2-predicate",
            Phenomenon::G0Time => "G0-realtime",
            Phenomenon::G1cTime => "G1c-realtime",
            Phenomenon::GSingleTime => "G-single-realtime",
            Phenomenon::G2Time => "G2-item-realtime",
            Phenomenon::GSinglePredicateTime => "G-single-predicate-realtime",
            Phenomenon::G2PredicateTime => "G2-predicate-realtime",
        }
    }

    fn means(self) -> &'static str {
        match self {
            Phenomenon::NobodyWrote => "a value was read that nobody wrote",
            Phenomenon::Internal => "a transaction did not read what it had written itself",
            Phenomenon::Incompatible => "two reads disagree about the order of a list",
            Phenomenon::G1a => "what an aborted transaction wrote was read",
            Phenomenon::G1b => "what a transaction had overwritten itself was read by another",
            Phenomenon::G0 => "transactions overwrote each other in a circle",
            Phenomenon::G1c => "transactions read and overwrote each other in a circle",
            Phenomenon::GSingle => "a circle with one read of what was overwritten",
            Phenomenon::G2 => "a circle with several reads of what was overwritten",
            Phenomenon::GSinglePredicate => {
                "a circle with one read by a predicate that missed what came to be"
            }
            Phenomenon::G2Predicate => {
                "a circle with several reads of what was overwritten, by a predicate that missed what came to be among them"
            }
            Phenomenon::G0Time | Phenomenon::G1cTime => "a circle, since one ended before another began",
            Phenomenon::GSingleTime => "a read of what was overwritten, and one ended before another began",
            Phenomenon::G2Time => "several reads of what was overwritten, and one ended before another began",
            Phenomenon::GSinglePredicateTime => {
                "a read by a predicate that missed what came to be, and one ended before another began"
            }
            Phenomenon::G2PredicateTime => {
                "several reads of what was overwritten, by a predicate among them, and one ended before another began"
            }
        }
    }
}

/// A phenomenon that needs no circle, or a circle.
#[derive(Clone, Debug)]
struct Anomaly {
    phenomenon: Phenomenon,
    /// Indices of the transactions.
    transactions: Vec<usize>,
    sentence: String,
    links: Vec<Link>,
}

impl Anomaly {
    fn local(phenomenon: Phenomenon, transactions: &[usize], sentence: String) -> Anomaly {
        Anomaly { phenomenon, transactions: transactions.to_vec(), sentence, links: Vec::new() }
    }
}

/// Decides whether a history of transactions is as `isolation` promises. Of the budget only the clock counts, for the
/// report: the work grows with the history and little more.
///
/// # Errors
/// A history that does not say what its answers mean: two writes of one value to a key, say.
pub fn check_transactions(
    history: &Transactions,
    isolation: Isolation,
    budget: &Budget<'_>,
) -> Result<TransactionReport, CheckError> {
    let started = budget.clock.map(|clock| clock());
    let mut happened: Vec<(usize, usize)> = Vec::new();
    let verdict = loop {
        let took_effect: Vec<usize> = happened.iter().map(|(writer, _)| *writer).collect();
        match Versions::of(history, &took_effect)? {
            Err(anomaly) => break report::violated(history, None, &happened, &anomaly),
            Ok(versions) => match decide(history, versions, isolation, &happened)? {
                Decision::Verdict(verdict) => break verdict,
                Decision::Happened(more) => happened.extend(more),
            },
        }
    };
    Ok(TransactionReport::of(history, isolation, verdict, budget.seconds(started)))
}

enum Decision {
    Verdict(TransactionVerdict),
    /// These transactions took effect, of which that was not known; each with one that found missing what it deleted.
    Happened(Vec<(usize, usize)>),
}

/// Edges of graphs that the search for a serial order may build where much is left open.
const SUPPOSED_MAX: usize = 20_000_000;

fn decide(
    history: &Transactions,
    mut versions: Versions,
    isolation: Isolation,
    happened: &[(usize, usize)],
) -> Result<Decision, CheckError> {
    // What real time rules out makes no circle one without it.
    let promises = match versions.absences.is_empty() || isolation == Isolation::Serializable {
        true => vec![isolation],
        false => vec![Isolation::Serializable, isolation],
    };
    let (mut work, mut supposed) = (0, false);
    for (place, promise) in promises.iter().enumerate() {
        loop {
            let graph = Graph::of(history, &versions, *promise);
            let circle = stages(*promise).into_iter().find_map(|kinds| graph.circle(kinds));
            if circle.is_some() && supposed {
                break;
            }
            if let Some(links) = circle {
                let transactions = links.iter().map(|link| link.from as usize).collect();
                let phenomenon = Phenomenon::of(&links);
                let anomaly = Anomaly { phenomenon, transactions, sentence: String::new(), links };
                let verdict = report::violated(history, Some(&versions), happened, &anomaly);
                return Ok(Decision::Verdict(verdict));
            }
            match versions.narrow(history, &graph, *promise) {
                Narrowed::Happened(more) if !supposed => return Ok(Decision::Happened(more)),
                Narrowed::Something => {
                    versions.order(history)?;
                    continue;
                }
                _ if place + 1 < promises.len() => break,
                _ => {}
            }
            if replay::explains(&graph.order(&versions), history, &versions)
                || planted(Mutation::OrderNotTried)
            {
                return Ok(Decision::Verdict(TransactionVerdict::Held));
            }
            work += graph.size();
            supposed = true;
            if work > SUPPOSED_MAX || !versions.suppose(history) {
                break;
            }
            versions.order(history)?;
        }
    }
    let reason = "no circle was found, and no serial order either, since the order of some versions is not known; record \
                  `version`, append to lists, or read what is overwritten";
    Ok(Decision::Verdict(TransactionVerdict::Undecided { reason: reason.to_owned() }))
}

/// The gravest first: what is wrong without reads is no better with them, nor what is wrong without predicates.
fn stages(isolation: Isolation) -> Vec<Kinds> {
    let item = OVERWRITES | READS | ANTI;
    let mut stages = vec![OVERWRITES, OVERWRITES | READS, item, item | PREDICATES];
    if planted(Mutation::AntiDependenciesIgnored) {
        stages.truncate(2);
    }
    if isolation != Isolation::Serializable && !planted(Mutation::TimeIgnored) {
        stages.push(stages.last().copied().unwrap_or(0) | TIME);
    }
    if planted(Mutation::ReadsIgnored) {
        stages.iter_mut().for_each(|kinds| *kinds &= !READS);
    }
    stages
}
