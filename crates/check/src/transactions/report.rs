//! The verdict on a history of transactions, for people and for programs.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::explanation::{Note, notes};
use super::graph::{Link, Why};
use super::history::{Access, Transaction, Transactions};
use super::versions::{Reading, Versions};
use super::{Anomaly, Isolation, Phenomenon};
use crate::history::Outcome;

/// Whether the transactions are as promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionVerdict {
    /// A serial order explains every read.
    Held,
    /// None does.
    Violation(Box<Violation>),
    /// Neither was shown. This is no success.
    Undecided {
        /// Why, and the cure.
        reason: String,
    },
}

/// Why no serial order explains a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Its name.
    pub phenomenon: Phenomenon,
    /// The transactions that contradict each other, as lines of the file; those of a circle in its order.
    pub lines: Vec<usize>,
    /// The relations between them: of a circle, one from each transaction to the next.
    pub relations: Vec<Relation>,
    /// One sentence: what cannot be.
    pub reason: String,
    /// The same for people.
    pub text: String,
}

/// One transaction must come before another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Relation {
    /// The earlier one's line.
    pub before: usize,
    /// The later one's.
    pub after: usize,
    /// `ww`, `wr`, `rw`, `predicate-wr`, `predicate-rw` or `realtime`.
    pub kind: &'static str,
    /// Why.
    pub because: String,
}

/// A verdict with what it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionReport {
    /// The verdict.
    pub verdict: TransactionVerdict,
    /// What was promised.
    pub isolation: Isolation,
    /// Transactions in the history.
    pub transactions: usize,
    /// Those of them that were aborted.
    pub aborted: usize,
    /// Those whose outcome is unknown.
    pub unknown: usize,
    /// Seconds taken, by the budget's clock.
    pub seconds: Option<f64>,
}

impl TransactionReport {
    pub(super) fn of(
        history: &Transactions,
        isolation: Isolation,
        verdict: TransactionVerdict,
        seconds: Option<f64>,
    ) -> TransactionReport {
        let count = |outcome| history.list.iter().filter(|one| one.outcome == outcome).count();
        TransactionReport {
            verdict,
            isolation,
            transactions: history.list.len(),
            aborted: count(Outcome::Failed),
            unknown: count(Outcome::Unknown),
            seconds,
        }
    }

    /// The word that reports print: what was promised, `violation` or `undecided`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match &self.verdict {
            TransactionVerdict::Held => self.isolation.as_str(),
            TransactionVerdict::Violation(_) => "violation",
            TransactionVerdict::Undecided { .. } => "undecided",
        }
    }

    /// The violation, if there is one.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        match &self.verdict {
            TransactionVerdict::Violation(violation) => Some(violation),
            _ => None,
        }
    }
}

impl Serialize for TransactionReport {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        let mut map = output.serialize_map(None)?;
        map.serialize_entry("verdict", self.word())?;
        map.serialize_entry("isolation", self.isolation.as_str())?;
        map.serialize_entry("transactions", &self.transactions)?;
        map.serialize_entry("aborted", &self.aborted)?;
        map.serialize_entry("unknown", &self.unknown)?;
        map.serialize_entry("seconds", &self.seconds)?;
        map.serialize_entry("violation", &self.violation())?;
        let reason = match &self.verdict {
            TransactionVerdict::Undecided { reason } => Some(reason),
            _ => None,
        };
        map.serialize_entry("undecided", &reason)?;
        map.end()
    }
}

impl fmt::Display for TransactionReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.transactions == 1 { "" } else { "s" };
        write!(out, "{}: {} transaction{plural}", self.word(), self.transactions)?;
        let counts = [(self.aborted, "aborted"), (self.unknown, "unknown")];
        let counts: Vec<String> =
            counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        if !counts.is_empty() {
            write!(out, " ({})", counts.join(", "))?;
        }
        if self.word() != self.isolation.as_str() {
            write!(out, ", to be {}", self.isolation)?;
        }
        if let Some(seconds) = self.seconds {
            write!(out, ", {seconds:.2} s")?;
        }
        match &self.verdict {
            TransactionVerdict::Held => writeln!(out),
            TransactionVerdict::Violation(violation) => write!(out, "\n\n{}", violation.text),
            TransactionVerdict::Undecided { reason } => writeln!(out, "\n{reason}"),
        }
    }
}

/// The verdict that an anomaly is, in words.
pub(super) fn violated(
    history: &Transactions,
    versions: Option<&Versions>,
    happened: &[(usize, usize)],
    anomaly: &Anomaly,
) -> TransactionVerdict {
    let (mut relations, mut why_absent, mut shown) = (Vec::new(), Vec::new(), anomaly.transactions.clone());
    if let (Some(versions), Some(first)) = (versions, anomaly.links.first()) {
        relations = told(history, versions, &anomaly.links, first.from);
        why_absent = notes(history, versions, &anomaly.links);
        // Who else is named.
        for third in anomaly.links.iter().filter_map(|link| link.why.third(versions)) {
            if !shown.contains(&third) {
                shown.push(third);
            }
        }
    }
    let lines: Vec<usize> = anomaly.transactions.iter().map(|index| index + 1).collect();
    let reason = if relations.is_empty() { anomaly.sentence.clone() } else { circle(&lines) };
    let mut text = format!("{}: {}\n\n", anomaly.phenomenon.as_str(), anomaly.phenomenon.means());
    if relations.is_empty() {
        let _ = writeln!(text, "{reason}");
    }
    for relation in &relations {
        let _ = writeln!(text, "  {relation}");
    }
    for Note { sentence, relations, transactions } in &why_absent {
        let _ = writeln!(text, "\n  {sentence}");
        for relation in relations {
            let _ = writeln!(text, "    {relation}");
        }
        shown.extend(transactions.iter().filter(|index| !shown.contains(index)).copied().collect::<Vec<_>>());
    }
    let unknown = happened.iter().filter(|(writer, _)| shown.contains(writer)).copied().collect::<Vec<_>>();
    for (writer, reader) in unknown {
        let _ = writeln!(
            text,
            "\n  line {} took effect, or line {} would have found what it deleted",
            writer + 1,
            reader + 1
        );
        if !shown.contains(&reader) {
            shown.push(reader);
        }
    }
    text.push_str(&table(history, &shown));
    let violation = Violation { phenomenon: anomaly.phenomenon, lines, relations, reason, text };
    TransactionVerdict::Violation(Box::new(violation))
}

fn circle(lines: &[usize]) -> String {
    let names: Vec<String> = lines.iter().chain(lines.first()).map(|line| format!("line {line}")).collect();
    format!("each comes before the next: {}", names.join(", "))
}

impl fmt::Display for Relation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Relation { before, after, kind, because } = self;
        write!(out, "line {before} comes before line {after}, for it {because} ({kind})")
    }
}

/// The relations of some links, of which each leads to the next and the last to `end`.
pub(super) fn told(history: &Transactions, versions: &Versions, links: &[Link], end: u32) -> Vec<Relation> {
    let nexts = links.iter().skip(1).map(|link| link.from).chain([end]);
    links.iter().zip(nexts).map(|(link, next)| relation(history, versions, link, next)).collect()
}

fn relation(history: &Transactions, versions: &Versions, link: &Link, next: u32) -> Relation {
    let key = |version: u32| &versions.keys[versions.versions[version as usize].key as usize].name;
    let value = |version: u32| versions.versions[version as usize].value.as_ref();
    let (before, after) = (link.from as usize + 1, next as usize + 1);
    let overwrote = |later| match value(later) {
        Some(value) => format!("behind which line {after} wrote {value:?}"),
        None => format!("which line {after} deleted"),
    };
    let (kind, because) = match link.why {
        Why::Overwritten { earlier, later, seen: Some(reading) } => {
            let reader = versions.readings[reading as usize].of as usize + 1;
            let did = match value(earlier) {
                Some(value) => format!("wrote {} {value:?}", key(earlier)),
                None => format!("deleted {}", key(earlier)),
            };
            let found = match value(later) {
                Some(value) => format!("read {value:?}"),
                None => "found none".to_owned(),
            };
            ("ww", format!("{did} and returned before line {reader} was invoked, which {found}"))
        }
        Why::Overwritten { earlier, later, seen: None } => {
            let because = match (value(earlier), value(later)) {
                (Some(value), _) => format!("wrote {} {value:?}, {}", key(earlier), overwrote(later)),
                (None, Some(value)) => {
                    format!("deleted {}, behind which line {after} wrote {value:?}", key(earlier))
                }
                (None, None) => format!("deleted {}, which line {after} deleted again", key(earlier)),
            };
            ("ww", because)
        }
        Why::Read { reading } => {
            let reading = &versions.readings[reading as usize];
            // What was read is of a version.
            let version = reading.seen.unwrap_or_default();
            match value(version) {
                Some(value) => ("wr", format!("wrote {} {value:?}, which line {after} read", key(version))),
                None => {
                    let kind = if reading.predicate { "predicate-wr" } else { "wr" };
                    let found = missed(history, versions, reading);
                    (kind, format!("deleted {}, and line {after} {found}", key(version)))
                }
            }
        }
        Why::Anti { reading, later, predicate, time } => {
            let reading = &versions.readings[reading as usize];
            let kind = if predicate { "predicate-rw" } else { "rw" };
            let overwrote = |later| match link.why.third(versions).filter(|_| time) {
                Some(writer) => {
                    let did =
                        value(later).map_or("deleted it".to_owned(), |value| format!("wrote {value:?}"));
                    let writer = writer + 1;
                    format!(
                        "and line {writer}, which wrote that, returned before line {after} was invoked, which {did}"
                    )
                }
                None => overwrote(later),
            };
            match reading.seen.and_then(value) {
                Some(value) => (kind, format!("read {} {value:?}, {}", key(later), overwrote(later))),
                None => {
                    let later = match value(later) {
                        _ if time => overwrote(later),
                        Some(value) => format!("behind which line {after} wrote {value:?}"),
                        None => format!("behind which line {after} deleted it"),
                    };
                    (kind, format!("{}, {later}", missed(history, versions, reading)))
                }
            }
        }
        Why::Time => {
            let (from, to) = (&history.list[link.from as usize], &history.list[next as usize]);
            let gap = to.invoked.saturating_sub(from.returned.unwrap_or(to.invoked));
            ("realtime", format!("returned {} ms before that was invoked", millis(gap)))
        }
    };
    Relation { before, after, kind, because }
}

/// How a transaction found a key absent.
pub(super) fn missed(history: &Transactions, versions: &Versions, reading: &Reading) -> String {
    let name = &versions.keys[reading.key as usize].name;
    let prefix = history.list[reading.of as usize].accesses.iter().find_map(|access| match access {
        Access::Scan(prefix, found) if name.starts_with(&**prefix) && !found.contains_key(name) => {
            Some(prefix)
        }
        _ => None,
    });
    match prefix.filter(|_| reading.predicate) {
        Some(prefix) => format!("scanned {prefix}* without {name}"),
        None => format!("read {name} nothing"),
    }
}

/// The transactions with their times, in ms after the first of them.
fn table(history: &Transactions, indices: &[usize]) -> String {
    let mut indices = indices.to_vec();
    indices.sort_by_key(|index| history.list[*index].invoked);
    let start = indices.first().map_or(0, |index| history.list[*index].invoked);
    let row = |index: &usize| {
        let one: &Transaction = &history.list[*index];
        let returned = match one.outcome {
            Outcome::Unknown => "unknown".to_owned(),
            _ => one.returned.map_or("-".to_owned(), |returned| millis(returned - start)),
        };
        let aborted = if one.outcome == Outcome::Failed { " (aborted)" } else { "" };
        [
            (index + 1).to_string(),
            one.client.to_string(),
            format!("{one}{aborted}"),
            millis(one.invoked - start),
            returned,
        ]
    };
    let head = ["line", "client", "transaction", "invoked", "returned"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(indices.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut text = String::from("\n");
    for row in &rows {
        let [line, client, transaction, invoked, returned] = row;
        let _ = writeln!(
            text,
            "  {line:>0$}   {client:>1$}   {transaction:<2$}   {invoked:>3$}   {returned:>4$}",
            widths[0], widths[1], widths[2], widths[3], widths[4]
        );
    }
    let _ = writeln!(text, "  times in ms after {start} ns");
    text
}

fn millis(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1_000_000, nanos / 1_000 % 1_000)
}
