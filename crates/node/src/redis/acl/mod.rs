//! Users and what they may do: access control lists as Redis 7.2 has them, without selectors.
//!
//! A node has its users from two places: the deployment file, whose users have Argon2id hashes and may do
//! everything, and an ACL file in the format of Redis ([`file`]), whose line for a user of the same name says
//! what that user may do. ACL SETUSER and its kin change the users of this node alone, until it stops or
//! ACL SAVE writes the file: users are configuration of a node, not replicated data.
//!
//! Every request of a client passes [`Users::check`], with its command, its keys and its channels.

mod access;
mod commands;
mod failures;
mod file;
mod log;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use commands::*;
pub(crate) use failures::{Failures, network};
pub use file::FileError;
pub(crate) use log::{Entry, Reason, Within};

use super::complaint::Complaint;
use super::request::Args;
use super::scripts::Scripts;
use super::spec::{Group, Spec, flag};
use crate::gateway::{Context, Login};
use crate::hub::Hub;
use isochrone_core::Stamp;
use log::Log;
use rules::User;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

/// The user of a connection that has not logged in.
pub(crate) const DEFAULT: &str = "default";

/// The users of a node.
#[derive(Debug)]
pub struct Users {
    users: BTreeMap<String, User>,
    /// Those of the deployment file, whose passwords are hashed with Argon2id and checked beside the shard.
    deployed: BTreeSet<String>,
    file: Option<PathBuf>,
    log: Log,
    /// Wrong passwords of late.
    pub(crate) failures: Failures,
    /// No user is denied anything, as in most deployments: nothing has to be looked at.
    unlimited: bool,
}

/// What is known of a password at once.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Verdict {
    /// It is right.
    Accepted,
    /// There is no such user, which is no secret where anybody may ask for the list of users.
    Refused,
    /// It is wrong, or there is no such user. It takes the same way as one that the verifier has to look at, so that nobody
    /// learns from the time it takes which users there are.
    Wrong,
    /// It may be that of the deployment file: the verifier has to say.
    Ask,
}

impl Verdict {
    /// Whether it is right, where that is known without the verifier.
    pub(crate) fn known(self) -> Option<bool> {
        match self {
            Verdict::Accepted => Some(true),
            Verdict::Refused | Verdict::Wrong => Some(false),
            Verdict::Ask => None,
        }
    }
}

/// Why a request is denied.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Denied {
    /// The command, or subcommand.
    Command,
    /// The key at this place of the request.
    Key(usize),
    /// The channel at this place of the request.
    Channel(usize),
    /// A command that the script would call.
    Call(&'static str),
}

impl Default for Users {
    /// One user without a password, who may do everything.
    fn default() -> Users {
        Users::fresh(BTreeSet::new(), None)
    }
}

impl Users {
    /// The users of a node: those that the deployment file names, and those of the ACL file at this path.
    ///
    /// # Errors
    /// The ACL file cannot be read, or holds what is no ACL.
    pub fn of(deployed: impl IntoIterator<Item = String>, file: Option<PathBuf>) -> Result<Users, FileError> {
        let mut users = Users::fresh(deployed.into_iter().collect(), file);
        if users.file.is_some() {
            users.load()?;
        }
        Ok(users)
    }

    fn fresh(deployed: BTreeSet<String>, file: Option<PathBuf>) -> Users {
        let users = Users::initial(&deployed);
        let (log, failures) = (Log::default(), Failures::default());
        Users { users, deployed, file, log, failures, unlimited: true }.settled()
    }

    /// The users that are there without an ACL file.
    fn initial(deployed: &BTreeSet<String>) -> BTreeMap<String, User> {
        // Whoever names users wants strangers to log in.
        let anyone = User::root(deployed.is_empty(), deployed.is_empty());
        let mut users = BTreeMap::from([(DEFAULT.to_owned(), anyone)]);
        users.extend(deployed.iter().map(|name| (name.clone(), User::root(true, false))));
        users
    }

    fn settled(mut self) -> Users {
        self.settle();
        self
    }

    fn settle(&mut self) {
        self.unlimited = self.users.values().all(User::is_unlimited);
    }

    /// Whether a connection must log in.
    pub fn login(&self) -> Login {
        let open = self.users.get(DEFAULT).is_some_and(|user| user.on && user.nopass);
        if open { Login::Open } else { Login::Required }
    }

    /// Whether there is such a user.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.users.contains_key(name)
    }

    /// What can be said of a password without hashing for long.
    pub(crate) fn judge(&self, name: &str, password: &[u8]) -> Verdict {
        match self.users.get(name) {
            Some(user) if user.on && user.accepts(password) => Verdict::Accepted,
            None if self.login() == Login::Open => Verdict::Refused,
            _ if self.admits(name, false) => Verdict::Ask,
            _ => Verdict::Wrong,
        }
    }

    /// Whether a right password lets this user in: one of those that ACL SETUSER gives, or else one that the verifier accepted.
    pub(crate) fn admits(&self, name: &str, own: bool) -> bool {
        (own || self.deployed.contains(name)) && self.users.get(name).is_some_and(|user| user.on)
    }

    /// Whether a user may make this request.
    pub(crate) fn check(&self, name: &str, spec: &Spec, args: Args<'_>) -> Result<(), Denied> {
        // Who is logged in as a user that was deleted may do nothing until the connection ends.
        let Some(user) = self.users.get(name) else { return Err(Denied::Command) };
        if self.unlimited || user.is_unlimited() {
            return Ok(());
        }
        if !user.may_run(spec.name) && !spec.is(flag::NO_AUTH) {
            return Err(Denied::Command);
        }
        if user.keys.is_some() {
            let places = spec.keys.places(args).unwrap_or_default();
            for (nth, place) in places.into_iter().enumerate().filter(|(_, place)| *place < args.len()) {
                if !user.may_touch(args.at(place), access::of(spec, nth, args)) {
                    return Err(Denied::Key(place));
                }
            }
        }
        let (channels, literal) = access::channels(spec, args);
        for place in channels {
            if !user.may_use(args.at(place), literal) {
                return Err(Denied::Channel(place));
            }
        }
        Ok(())
    }

    /// Whether a user may run what this request calls: the commands of a script. Its keys are those of the request.
    pub(crate) fn check_calls(
        &self,
        name: &str,
        scripts: &Scripts,
        spec: &Spec,
        args: Args<'_>,
    ) -> Result<(), Denied> {
        let Some(user) = self.users.get(name) else { return Err(Denied::Command) };
        if self.unlimited || user.is_unlimited() || spec.group != Group::Scripting {
            return Ok(());
        }
        let denied = scripts.calls(spec, args).iter().find(|call| !user.may_run(call));
        denied.map_or(Ok(()), |call| Err(Denied::Call(call)))
    }

    /// Whether a user may do to this key what this command does, which names one key: `get`, `set`, `del`.
    pub(crate) fn may(&self, name: &str, command: &str, key: &[u8]) -> bool {
        self.denies(name, command, key).is_none()
    }

    /// What of that is denied, if anything is: the command or the key.
    pub(crate) fn denies(&self, name: &str, command: &str, key: &[u8]) -> Option<Reason> {
        let access = if command == "get" { access::READ } else { access::WRITE };
        match self.users.get(name) {
            Some(user) if user.may_run(command) => (!user.may_touch(key, access)).then_some(Reason::Key),
            _ => Some(Reason::Command),
        }
    }

    /// Puts an entry into ACL LOG about a call, which comes without a connection of Redis' protocol; from where, as far as that is
    /// known.
    pub(crate) fn note_call(&mut self, entry: Entry, from: Option<IpAddr>, stamp: Stamp) {
        let from = from.map_or_else(String::new, |from| format!("addr={from} "));
        self.log.add(entry, format!("{from}cmd=grpc"), stamp);
    }
}

impl Denied {
    /// What is said to the client that was denied.
    pub(crate) fn complaint(self, user: &str, spec: &Spec) -> Complaint {
        Complaint::text(match self {
            Denied::Command => format!("NOPERM {}", denied_command(user, spec.name)),
            Denied::Key(_) => "NOPERM No permissions to access a key".to_owned(),
            Denied::Channel(_) => "NOPERM No permissions to access a channel".to_owned(),
            Denied::Call(call) => format!("ERR ACL failure in script: {}", denied_command(user, call)),
        })
    }

    /// The same for an administrator, who may see the name.
    fn verbose(self, user: &str, spec: &Spec, args: Args<'_>) -> String {
        let shown = |place: usize| String::from_utf8_lossy(args.at(place)).into_owned();
        match self {
            Denied::Command => denied_command(user, spec.name),
            Denied::Call(call) => denied_command(user, call),
            Denied::Key(place) => {
                format!("User {user} has no permissions to access the '{}' key", shown(place))
            }
            Denied::Channel(place) => {
                format!("User {user} has no permissions to access the '{}' channel", shown(place))
            }
        }
    }

    /// What the audit log says of it, beside the names.
    fn reason(self) -> String {
        match self {
            Denied::Command => "the user may not run it".to_owned(),
            Denied::Call(call) => format!("the user may not run '{call}', which it calls"),
            Denied::Key(_) => "the user may not do this to this key".to_owned(),
            Denied::Channel(_) => "the user may not use this channel".to_owned(),
        }
    }

    /// What ACL LOG keeps of it.
    pub(crate) fn entry(self, within: Within, user: &str, spec: &Spec, args: Args<'_>) -> Entry {
        let (reason, object) = match self {
            Denied::Command => (Reason::Command, spec.name.as_bytes()),
            Denied::Call(call) => (Reason::Command, call.as_bytes()),
            Denied::Key(place) => (Reason::Key, args.at(place)),
            Denied::Channel(place) => (Reason::Channel, args.at(place)),
        };
        Entry::new(reason, within, object, user)
    }

    /// What EXEC says of a command that could be queued and is denied now.
    pub(crate) fn at_exec(self) -> Complaint {
        let reason = match self {
            Denied::Command | Denied::Call(_) => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => {
                "no permission to access one of the channels used as argument to the command"
            }
        };
        Complaint::text(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: {reason}"
        ))
    }
}

fn denied_command(user: &str, command: &str) -> String {
    format!("User {user} has no permissions to run the '{command}' command")
}

/// Whether the user of a connection may make this request; what is denied goes into ACL LOG.
pub(crate) fn permit(
    user: &str,
    spec: &Spec,
    args: Args<'_>,
    within_multi: bool,
    context: &mut Context<'_>,
) -> Result<(), Denied> {
    let Err(denied) = context.hub.users.check(user, spec, args) else { return Ok(()) };
    let within = if within_multi { Within::Multi } else { Within::Nothing };
    Err(noted(denied, within, user, spec, args, context))
}

/// Whether the user of a connection may run what this request, which makes sense, calls; the same.
pub(crate) fn permit_calls(
    user: &str,
    spec: &Spec,
    args: Args<'_>,
    context: &mut Context<'_>,
) -> Result<(), Complaint> {
    let Hub { users, scripts, .. } = &*context.hub;
    let Err(denied) = users.check_calls(user, scripts, spec, args) else { return Ok(()) };
    Err(noted(denied, Within::Script, user, spec, args, context).complaint(user, spec))
}

fn noted(
    denied: Denied,
    within: Within,
    user: &str,
    spec: &Spec,
    args: Args<'_>,
    context: &mut Context<'_>,
) -> Denied {
    let object = match denied {
        Denied::Key(place) | Denied::Channel(place) => Some(args.at(place)),
        Denied::Command | Denied::Call(_) => None,
    };
    super::audit::denied(user, spec, object, || denied.reason(), context);
    note(denied.entry(within, user, spec, args), context);
    denied
}

/// Puts an entry into ACL LOG.
pub(crate) fn note(entry: Entry, context: &mut Context<'_>) {
    let mut info = String::new();
    if let Some(client) = context.clients.get(&context.connection) {
        super::clients::line(&mut info, context.connection, client, context.now, context.hub);
    }
    context.hub.users.log.add(entry, info.trim_end().to_owned(), context.stamp);
}
