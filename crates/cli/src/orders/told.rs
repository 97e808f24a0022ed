//! What is told of an order: as JSON, and for people.

use super::ask::{Answer, Given};
use super::site::Keyspace;
use crate::Usage;
use crate::output::clean;
use crate::status::screen::columns;
use crate::status::told::Told;
use crate::status::view::Shown;
use crate::up::table::millis;
use anyhow::bail;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

/// The longest text of a node that is passed on, letters.
const TEXT_MAX: usize = 4_000;

/// An order about replicas.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) enum Change {
    #[serde(rename = "move-leader")]
    Lead,
    #[serde(rename = "replica add")]
    Add,
    #[serde(rename = "replica remove")]
    Remove,
}

impl Change {
    pub(super) fn path(self) -> &'static str {
        match self {
            Change::Lead => "/admin/move-leader",
            Change::Add => "/admin/add-replica",
            Change::Remove => "/admin/remove-replica",
        }
    }
}

/// What came of an order that was sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Done,
    Refused,
    /// It may be done yet.
    Unknown,
}

/// How an order ended. Serialized, it is a part of what `--format json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Ended {
    /// The node that was asked.
    asked: String,
    #[serde(skip)]
    http: String,
    pub(super) outcome: Outcome,
    /// What that node has said, or why it has not.
    pub(super) said: String,
    took_ms: f64,
    /// What to do where it is refused.
    #[serde(skip)]
    hint: &'static str,
}

impl Ended {
    /// # Errors
    /// The node says that the order makes no sense.
    pub(super) fn of(given: &Given) -> Result<Ended, Usage> {
        let Given { place, answer, took } = given;
        let (outcome, said, hint) = match answer {
            Answer::Said(StatusCode::OK | StatusCode::ACCEPTED, said) => (Outcome::Done, said, ""),
            Answer::Said(StatusCode::BAD_REQUEST, said) => {
                return Err(Usage(format!("{} at {}: {said}", place.node, place.http)));
            }
            // Nodes say so where they have waited in vain.
            Answer::Said(StatusCode::CONFLICT, said)
                if said.contains("may still happen") || said.contains("no answer in time") =>
            {
                (Outcome::Unknown, said, "")
            }
            Answer::Said(StatusCode::CONFLICT, said) => (Outcome::Refused, said, ""),
            Answer::Said(StatusCode::UNAUTHORIZED, said) => (
                Outcome::Refused,
                said,
                "the token is not that with which this node was started: give that one, by ISOCHRONE_ADMIN_TOKEN or --token-file",
            ),
            Answer::Said(StatusCode::FORBIDDEN, said) => (
                Outcome::Refused,
                said,
                match said.contains("without an administration token") {
                    true => {
                        "start the node, or `isochrone up`, with ISOCHRONE_ADMIN_TOKEN in its environment"
                    }
                    false => "run this on the node's own machine, and in its container where it has one",
                },
            ),
            Answer::Said(StatusCode::SERVICE_UNAVAILABLE, said) => {
                (Outcome::Refused, said, "it starts, or is about to end: give the order again when it serves")
            }
            Answer::Said(_, said) => (
                Outcome::Refused,
                said,
                "is that a node of this version? isochrone status shows who answers, and which version it runs",
            ),
            Answer::Lost(why) => (Outcome::Unknown, why, ""),
        };
        Ok(Ended {
            asked: place.node.clone(),
            http: place.http.to_string(),
            outcome,
            said: said.chars().take(TEXT_MAX).collect(),
            // Microseconds are enough.
            took_ms: took.as_micros() as f64 / 1e3,
            hint,
        })
    }

    /// What can be seen of it says more than the answer.
    pub(super) fn is(&mut self, outcome: Outcome, said: String) {
        (self.outcome, self.said) = (outcome, said);
    }

    /// All of it has taken so long.
    pub(super) fn lasted(&mut self, took: Duration) {
        self.took_ms = took.as_micros() as f64 / 1e3;
    }

    /// Fails where it is not done. `look` says how to see what came of it where nobody knows.
    pub(super) fn held(&self, look: &str) -> anyhow::Result<()> {
        let Ended { asked, http, said, hint, .. } = self;
        let said = if said.is_empty() { "no word" } else { said.as_str() };
        match self.outcome {
            Outcome::Done => Ok(()),
            Outcome::Unknown => bail!(
                "{asked} at {http}: {said}\n  the order may still be carried out, and was given to nobody else; {look}"
            ),
            Outcome::Refused if hint.is_empty() => bail!("{asked} at {http}: {said}"),
            Outcome::Refused => bail!("{asked} at {http}: {said}\n  {hint}"),
        }
    }

    /// How long it took, and who was asked.
    fn how(&self) -> String {
        format!("took {}, asked at {}", time(self.took_ms), self.asked)
    }
}

fn time(took_ms: f64) -> String {
    if took_ms < 10_000.0 {
        format!("{} ms", millis(Some(took_ms)))
    } else {
        format!("{:.1} s", took_ms / 1e3)
    }
}

/// A partition before the order and behind it. Who leads is nobody where no node tells it; members are in the order
/// of their names.
#[derive(PartialEq, Eq, Debug, Serialize)]
pub(super) struct Partition {
    pub(super) partition: u16,
    pub(super) leader_before: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members_before: Vec<String>,
    pub(super) members: Vec<String>,
}

impl Partition {
    /// As all nodes told it (`before`), and the one that was asked tells now.
    pub(super) fn of(
        partition: u16,
        keyspace: &str,
        before: Option<&Shown>,
        now: Option<&Told>,
    ) -> Partition {
        let at = usize::from(partition);
        let now = now.and_then(|told| told.keyspaces.iter().find(|told| told.name == keyspace));
        let mut members = now.and_then(|told| told.members.get(at).cloned()).unwrap_or_default();
        members.sort();
        Partition {
            partition,
            leader_before: before.and_then(|shown| shown.leaders.get(at)?.clone()),
            leader: now.and_then(|told| told.leaders.get(at)?.clone()),
            members_before: before.and_then(|shown| shown.members.get(at).cloned()).unwrap_or_default(),
            members,
        }
    }

    /// Whether it is as the order wants it.
    pub(super) fn is(&self, change: Change, node: &str) -> bool {
        let member = self.members.iter().any(|member| member == node);
        match change {
            Change::Lead => self.leader.as_deref() == Some(node),
            Change::Add => member,
            Change::Remove => !self.members.is_empty() && !member,
        }
    }

    /// How it is now that the order is done.
    fn line(&self, change: Change, node: &str, asked: &str) -> String {
        let was = self.members_before.iter().any(|member| member == node);
        let members = match self.members.is_empty() {
            true => String::new(),
            false => format!("; members {}", self.members.join(", ")),
        };
        match (change, self.is(change, node)) {
            (Change::Lead, true) => match self.leader_before.as_deref() {
                Some(before) if before == node => format!("{node} leads, as before"),
                Some(before) => format!("{node} leads, before it {before}"),
                None => format!("{node} leads"),
            },
            (Change::Lead, false) => match &self.leader {
                Some(other) => format!("done, and {asked} takes {other} for the leader now"),
                None => format!("done, and {asked} has not heard yet who leads"),
            },
            (Change::Add, true) if was => format!("{node} is a replica, as before{members}"),
            (Change::Add, true) => format!("{node} is a replica now{members}"),
            // With `curp` the managers choose.
            (Change::Add, false) => format!("{node} may hold a replica{members}"),
            (Change::Remove, true) if !was && !self.members_before.is_empty() => {
                format!("{node} is no replica, as before{members}")
            }
            (Change::Remove, true) => format!("{node} is no replica any more{members}"),
            (Change::Remove, false) => format!("done, and {asked} has not heard of it yet{members}"),
        }
    }
}

/// What `--format json` prints of an order about replicas.
#[derive(Serialize)]
pub(super) struct Changed {
    pub(super) order: Change,
    pub(super) cluster: String,
    pub(super) keyspace: String,
    pub(super) node: String,
    #[serde(flatten)]
    pub(super) ended: Ended,
    pub(super) partitions: Vec<Partition>,
}

impl Changed {
    /// What is done, for people.
    pub(super) fn text(&self) -> String {
        let Changed { order, keyspace, node, ended, partitions, .. } = self;
        let how = ended.how();
        let line = |partition: &Partition| partition.line(*order, node, &ended.asked);
        let text = match partitions.as_slice() {
            [one] if one.partition == 0 => format!("{keyspace}: {}; {how}\n", line(one)),
            [one] => format!("{keyspace}, partition {}: {}; {how}\n", one.partition, line(one)),
            several => {
                let mut text = format!("{keyspace}: {how}\n");
                for partition in several {
                    // Writing to a string does not fail; the same holds below.
                    let _ = writeln!(text, "  partition {}: {}", partition.partition, line(partition));
                }
                text
            }
        };
        clean(&text)
    }
}

/// What `--format json` prints of an order to move keys.
#[derive(Serialize)]
pub(super) struct Moved {
    order: &'static str,
    cluster: String,
    keyspace: String,
    from: u16,
    to: u16,
    #[serde(flatten)]
    pub(super) ended: Ended,
    #[serde(flatten)]
    count: Count,
}

/// How much was moved, as far as it is told. Transactions move no parts.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Count {
    keys: Option<u64>,
    bytes: Option<u64>,
    parts: Option<u64>,
}

impl Moved {
    pub(super) fn of(cluster: String, keyspace: &Keyspace, (from, to): (u16, u16), ended: Ended) -> Moved {
        let count = match ended.outcome {
            Outcome::Done => serde_json::from_str(&ended.said).unwrap_or_default(),
            _ => Count::default(),
        };
        Moved { order: "range move", cluster, keyspace: keyspace.name.clone(), from, to, ended, count }
    }

    /// What is done, for people.
    pub(super) fn text(&self) -> String {
        let Moved { keyspace, from, to, count, ended, .. } = self;
        let keys = match *count {
            Count { keys: Some(keys), bytes: Some(bytes), .. } => {
                format!("{keys} keys, {bytes} bytes")
            }
            _ => "keys".to_owned(),
        };
        clean(&format!("{keyspace}: {keys} moved from partition {from} to {to}; {}\n", ended.how()))
    }
}

/// What `--format json` prints of an order to stop.
#[derive(Serialize)]
pub(super) struct Stopped {
    pub(super) order: &'static str,
    pub(super) cluster: String,
    pub(super) node: String,
    #[serde(flatten)]
    pub(super) ended: Ended,
    /// Somebody has started it again.
    pub(super) runs_again: bool,
}

impl Stopped {
    /// What is done, for people.
    pub(super) fn text(&self) -> String {
        let Stopped { node, ended, runs_again, .. } = self;
        let again = match runs_again {
            true => ", and whoever supervises it has started it again",
            false => "",
        };
        clean(&format!("{node} has stopped{again}; took {}\n", time(ended.took_ms)))
    }
}

/// What `--format json` prints of who serves what.
#[derive(Debug, Serialize)]
pub(super) struct Ranges {
    pub(super) cluster: String,
    pub(super) keyspace: String,
    /// The node that was asked.
    pub(super) asked: String,
    pub(super) ranges: Vec<Stretch>,
}

/// Neighbouring keys that one partition serves: places of the ring, the last one with them; or keys in their order, the end
/// without them. It is absent where there is none.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Stretch {
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_key: Option<String>,
    partition: u16,
    /// Of transactions, where it is on its way to.
    #[serde(skip_serializing_if = "Option::is_none")]
    moving_to: Option<u16>,
    version: u64,
}

impl Ranges {
    /// For people.
    pub(super) fn text(&self) -> String {
        let Ranges { keyspace, asked, ranges, .. } = self;
        let keyed = ranges.iter().any(|stretch| stretch.first_key.is_some());
        let (first, last) = if keyed { ("first key", "end key") } else { ("first", "last") };
        let heads =
            [(first, false), (last, false), ("partition", true), ("moves to", true), ("version", true)];
        let row = |stretch: &Stretch| {
            let Stretch { first, last, first_key, end_key, partition, moving_to, version } = stretch;
            let place = |place: &Option<String>, key: &Option<String>| match (place, key) {
                (Some(place), _) => place.clone(),
                // Quoted, since a key may be empty or have blanks.
                (None, Some(key)) => format!("{key:?}"),
                (None, None) => "-".to_owned(),
            };
            vec![
                place(first, first_key),
                place(last, end_key),
                partition.to_string(),
                moving_to.map_or_else(|| "-".to_owned(), |to| to.to_string()),
                version.to_string(),
            ]
        };
        clean(&format!("{keyspace}, as {asked} knows it\n{}", columns(&heads, ranges.iter().map(row))))
    }
}
