//! One command without a connection: understood, permitted and answered as one of a Redis client would be.

use super::acl::{Denied, Users, Within};
use super::blocking::Fills;
use super::complaint::Complaint;
use super::reply::{Reply, Version};
use super::report::Report;
use super::request::Kept;
use super::shape::{self, Plan, Shape};
use super::spec::Action;
pub(crate) use super::spec::Given;
use super::table;
use crate::gateway::Outcome;
use crate::hub::Hub;
use isochrone_core::command::{Operation, Response};
use isochrone_core::{Blob, Instant, KeyspaceId};

/// A command that may be executed.
pub(crate) struct Call {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// What it asks of the keyspace.
    pub(crate) operation: Operation,
    /// Whether it may make data grow, and a node is full.
    pub(crate) grows: bool,
    /// What follows from the answer.
    pub(crate) after: After,
}

/// What follows from the answer to a command.
#[derive(Debug)]
pub(crate) struct After {
    shape: Shape,
    fills: Fills,
    report: Option<Box<Report>>,
}

/// Why a command is not executed.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(crate) enum Objection {
    /// It makes no sense, or not here.
    Wrong(String),
    /// The user may not.
    Denied(String),
}

/// Understands a command of this user, a list of strings, for a keyspace for which a node is full, or none is. What is denied goes into
/// ACL LOG.
///
/// # Errors
/// Why it is not to be executed.
pub(crate) fn understand<'w>(
    words: impl IntoIterator<Item = &'w [u8]>,
    keyspace: KeyspaceId,
    full: bool,
    user: &str,
    users: &mut Users,
    given: &mut Given<'_>,
) -> Result<Call, Objection> {
    let mut kept = Kept::default();
    kept.add(words);
    let args = kept.at(0);
    if args.len() == 0 {
        return Err(Objection::Wrong("a command of no words; send its name and its arguments".to_owned()));
    }
    let wrong = |complaint: Complaint| Objection::Wrong(complaint.to_string());
    let spec = table::find(args).map_err(wrong)?;
    let stamp = given.stamp;
    let deny = |users: &mut Users, denied: Denied, within: Within| {
        users.note_call(denied.entry(within, user, spec, args), None, stamp);
        let text = denied.complaint(user, spec).to_string();
        Objection::Denied(match denied {
            // Of several keys, which.
            Denied::Key(place) => format!("{text}: {:?}", Blob::new(args.at(place))),
            _ => text,
        })
    };
    if let Err(denied) = users.check(user, spec, args) {
        return Err(deny(users, denied, Within::Nothing));
    }
    let name = spec.name;
    let elsewhere = |what: &str, instead: &str| {
        Objection::Wrong(format!("'{name}' {what}, and there is none here; {instead}"))
    };
    let redis = "use a Redis client";
    let plan = match spec.action {
        Action::Data(parse) => parse(args, given).map_err(wrong)?,
        Action::Blocking(parse) => {
            let (plan, patience) = parse(args, given).map_err(wrong)?;
            if patience.waits() {
                let instead = "use the form that does not wait, or a Redis client";
                return Err(elsewhere("may wait on a connection of its own", instead));
            }
            plan
        }
        Action::Control(_) if ["multi", "exec", "discard", "watch"].contains(&name) => {
            return Err(elsewhere("is about the state of a connection", "use Begin and Commit"));
        }
        Action::Control(_) | Action::Local(_) | Action::Durable(_) | Action::Container(_) => {
            return Err(elsewhere("is about the connection or the server of a Redis client", redis));
        }
    };
    if plan.has_steps() {
        return Err(elsewhere("takes several steps for this script, on a connection", redis));
    }
    let Plan { operation, shape } = plan;
    if let Err(denied) = users.check_calls(user, given.scripts, spec, args) {
        return Err(deny(users, denied, Within::Script));
    }
    let fills = Fills::of(keyspace, &operation);
    // A script is looked up by what it says, which is not for every call.
    let grows = full && given.scripts.grows(spec, args);
    Ok(Call { name, operation, grows, after: After { shape, fills, report: None } })
}

impl Call {
    /// Has it say what it does to this keyspace, as far as events of it are wanted.
    pub(crate) fn report(&mut self, keyspace: KeyspaceId, hub: &Hub) {
        self.after.report = Report::of(keyspace, &mut self.operation, hub.wanted());
    }
}

impl After {
    /// The reply to this answer in RESP3; whoever waits for what it has given, or wants to hear of it, is told.
    pub(crate) fn reply(self, response: Response, hub: &mut Hub, now: Instant) -> Vec<u8> {
        let mut outcome = Outcome::Done(response);
        if let Some(report) = self.report {
            outcome = report.hear(outcome, hub);
        }
        if !matches!(&outcome, Outcome::Done(response) if response.is_error()) {
            self.fills.tell(hub, now);
        }
        let mut bytes = Vec::new();
        shape::write(self.shape, outcome, &mut Reply::new(&mut bytes, Version::Three));
        bytes
    }
}
