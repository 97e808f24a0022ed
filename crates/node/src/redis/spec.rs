//! What the table says of one command.

use super::args::is;
use super::blocking::Patience;
use super::complaint::Complaint;
use super::connection::{Control, State};
use super::durability;
use super::reply::Reply;
use super::request::Args;
use super::scripts::Scripts;
use super::shape::Plan;
use crate::gateway::Context;
use isochrone_core::{Random, Stamp};

/// One command, or one subcommand. Parser, COMMAND, documentation and metrics derive from it.
pub(crate) struct Spec {
    /// Lower case; a subcommand is `container|name`.
    pub(crate) name: &'static str,
    /// How many strings a request has, the name (and subcommand) included; at least that many where
    /// negative.
    pub(crate) arity: i32,
    /// What Redis' flags say of it, a sum of [`flag`]s.
    pub(crate) flags: u16,
    /// Where its keys stand.
    pub(crate) keys: Keys,
    /// The chapter it belongs to.
    pub(crate) group: Group,
    /// What the manual says of it.
    pub(crate) about: About,
    /// How it differs from Redis; empty where it does not.
    pub(crate) differs: &'static str,
    /// What it leads to.
    pub(crate) action: Action,
}

/// What the manual says of a command.
pub(crate) struct About {
    /// The Redis version that had it first.
    pub(crate) since: &'static str,
    /// Its arguments, for people.
    pub(crate) syntax: &'static str,
    /// What it does, in a sentence.
    pub(crate) summary: &'static str,
}

/// Words for the manual: the version of Redis that had it first, its arguments, what it does.
pub(crate) const fn about(since: &'static str, syntax: &'static str, summary: &'static str) -> About {
    About { since, syntax, summary }
}

/// What a command leads to.
#[derive(Copy, Clone)]
pub(crate) enum Action {
    /// An operation on the selected keyspace, decided from the arguments and the stamp alone.
    Data(Parse),
    /// The same, asked again while there is nothing to pop.
    Blocking(ParseBlocking),
    /// An answer from what the connection and the node know.
    Local(Local),
    /// How many copies have what was written before.
    Durable(durability::Parse),
    /// A change to how the connection goes on.
    Control(Control),
    /// One of these subcommands.
    Container(&'static [Spec]),
}

/// Understands a request.
pub(crate) type Parse = fn(Args<'_>, &mut Given<'_>) -> Result<Plan, Complaint>;

/// Understands a request that may wait: what it asks, and for how long.
pub(crate) type ParseBlocking = fn(Args<'_>, &mut Given<'_>) -> Result<(Plan, Patience), Complaint>;

/// What a request is understood with beside its arguments: whatever would make two replicas differ is
/// decided here.
pub(crate) struct Given<'a> {
    /// The index of the keyspace that is selected, where there is one.
    pub(crate) selected: Option<i64>,
    /// The wall clock, from which relative times count.
    pub(crate) stamp: Stamp,
    /// Where seeds come from.
    pub(crate) random: &'a mut Random,
    /// The scripts that this node was sent.
    pub(crate) scripts: &'a mut Scripts,
    /// The longest string that a command may make, bytes.
    pub(crate) bulk_max: usize,
    /// The most elements that a command may have.
    pub(crate) elements_max: usize,
}

impl Given<'_> {
    /// A seed for an operation that chooses at random.
    pub(crate) fn seed(&mut self) -> u64 {
        self.random.below(u64::MAX)
    }
}

/// Answers at once.
pub(crate) type Local = fn(&mut State, Args<'_>, &mut Context<'_>, &mut Reply<'_>) -> Result<(), Complaint>;

/// Flags as in COMMAND INFO.
pub(crate) mod flag {
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const READ: u16 = 1 << 1;
    pub(crate) const FAST: u16 = 1 << 2;
    pub(crate) const DENYOOM: u16 = 1 << 3;
    pub(crate) const ADMIN: u16 = 1 << 4;
    pub(crate) const NOSCRIPT: u16 = 1 << 5;
    /// Answered while the node replays its journal.
    pub(crate) const LOADING: u16 = 1 << 6;
    pub(crate) const STALE: u16 = 1 << 7;
    /// Answered before login.
    pub(crate) const NO_AUTH: u16 = 1 << 8;
    pub(crate) const ALLOW_BUSY: u16 = 1 << 9;
    pub(crate) const NO_MULTI: u16 = 1 << 10;
    pub(crate) const MOVABLE_KEYS: u16 = 1 << 11;
    pub(crate) const SKIP_SLOWLOG: u16 = 1 << 12;
    pub(crate) const BLOCKING: u16 = 1 << 13;
    pub(crate) const PUBSUB: u16 = 1 << 14;
    /// No flag of Redis: in the `@dangerous` category.
    pub(crate) const DANGEROUS: u16 = 1 << 15;

    /// Their names in Redis.
    pub(crate) const NAMES: [(u16, &str); 15] = [
        (WRITE, "write"),
        (READ, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NOSCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (MOVABLE_KEYS, "movablekeys"),
        (NO_MULTI, "no_multi"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// Where the keys of a request stand.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Keys {
    /// It has none.
    None,
    /// It has none, but shard channels in the place of a range from the first string: `last` counts from the end where negative.
    ShardChannels { last: i32 },
    /// Every `step`th string from `first` to `last`, which counts from the end where negative.
    Range { first: i32, last: i32, step: i32 },
    /// As many as the string at this place says, from the next one on, and perhaps the first string.
    Counted { at: usize, target: bool },
    /// The first half of what stands behind the word STREAMS.
    Streams,
    /// The first string, and from the string `from` on whatever stands behind one of these words, in capitals.
    Stored { from: usize, words: &'static [&'static str] },
}

/// One key, behind the name.
pub(crate) const ONE: Keys = Keys::Range { first: 1, last: 1, step: 1 };
/// Two keys, behind the name.
pub(crate) const TWO: Keys = Keys::Range { first: 1, last: 2, step: 1 };
/// Keys to the end.
pub(crate) const ALL: Keys = Keys::Range { first: 1, last: -1, step: 1 };

impl Keys {
    /// The numbers in COMMAND INFO: first, last, step.
    pub(crate) fn numbers(self) -> (i32, i32, i32) {
        match self {
            Keys::None | Keys::Streams | Keys::Counted { target: false, .. } => (0, 0, 0),
            Keys::Counted { target: true, .. } | Keys::Stored { .. } => (1, 1, 1),
            Keys::ShardChannels { last } => (1, last, 1),
            Keys::Range { first, last, step } => (first, last, step),
        }
    }

    /// The places of the keys in this request; `None` where the request cannot be right.
    pub(crate) fn places(self, args: Args<'_>) -> Option<Vec<usize>> {
        match self {
            Keys::None | Keys::ShardChannels { .. } => Some(Vec::new()),
            Keys::Range { first, last, step } => {
                let last = if last < 0 { args.len() as i32 + last } else { last };
                Some((first..=last).step_by(step as usize).map(|at| at as usize).collect())
            }
            Keys::Streams => {
                // Past the options, of which a value may be this word too.
                let mut word = 1;
                while !args.at(word).eq_ignore_ascii_case(b"streams") {
                    let option = args.at(word).to_ascii_lowercase();
                    word += match &option[..] {
                        b"group" => 3,
                        b"count" | b"block" => 2,
                        b"noack" => 1,
                        _ => return None,
                    };
                    if word >= args.len() {
                        return None;
                    }
                }
                let behind = args.len() - word - 1;
                if behind < 2 {
                    return None;
                }
                Some((word + 1..word + 1 + behind / 2).collect())
            }
            Keys::Counted { at, target } => {
                let count = usize::try_from(super::request::integer(args.at(at))?).ok()?;
                if count == 0 || count > args.len().saturating_sub(at + 1) {
                    return None;
                }
                Some(target.then_some(1).into_iter().chain(at + 1..at + 1 + count).collect())
            }
            Keys::Stored { from, words } => {
                let named = |at: &usize| words.iter().any(|word| is(args.at(*at), word));
                let behind = (from..args.len().saturating_sub(1)).filter(named).map(|at| at + 1);
                Some(std::iter::once(1).chain(behind).collect())
            }
        }
    }
}

/// The chapters of Redis' documentation.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub(crate) enum Group {
    Connection,
    Server,
    Cluster,
    Transactions,
    PubSub,
    Scripting,
    Generic,
    String,
    Bitmap,
    Hash,
    List,
    Set,
    SortedSet,
    Stream,
    HyperLogLog,
    Geo,
}

impl Group {
    /// A command on a keyspace; its first argument is its only key.
    pub(crate) const fn data(
        self,
        name: &'static str,
        arity: i32,
        flags: u16,
        about: About,
        parse: Parse,
    ) -> Spec {
        self.here(name, arity, flags, about, Action::Data(parse)).with_keys(ONE)
    }

    /// A command on a keyspace that may wait; its first argument is its only key.
    pub(crate) const fn blocking(
        self,
        name: &'static str,
        arity: i32,
        flags: u16,
        about: About,
        parse: ParseBlocking,
    ) -> Spec {
        let spec = self.here(name, arity, flags, about, Action::Blocking(parse));
        spec.with_keys(ONE).differs(WAITING)
    }

    /// A command that the connection obeys.
    pub(crate) const fn control(
        self,
        name: &'static str,
        arity: i32,
        flags: u16,
        about: About,
        control: Control,
    ) -> Spec {
        self.here(name, arity, flags, about, Action::Control(control))
    }

    /// A command that the gateway answers at once.
    pub(crate) const fn local(
        self,
        name: &'static str,
        arity: i32,
        flags: u16,
        about: About,
        local: Local,
    ) -> Spec {
        self.here(name, arity, flags, about, Action::Local(local))
    }

    /// A command without keys.
    pub(crate) const fn here(
        self,
        name: &'static str,
        arity: i32,
        flags: u16,
        about: About,
        action: Action,
    ) -> Spec {
        Spec { name, arity, flags, keys: Keys::None, group: self, about, differs: "", action }
    }

    /// Its name in COMMAND DOCS.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Cluster => "cluster",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
            Group::Scripting => "scripting",
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::HyperLogLog => "hyperloglog",
            Group::Geo => "geo",
        }
    }

    /// Its category in access control lists.
    fn category(self) -> Option<&'static str> {
        match self {
            Group::Connection => Some("@connection"),
            Group::Transactions => Some("@transaction"),
            Group::PubSub => Some("@pubsub"),
            Group::Scripting => Some("@scripting"),
            Group::Generic => Some("@keyspace"),
            Group::String => Some("@string"),
            Group::Bitmap => Some("@bitmap"),
            Group::Hash => Some("@hash"),
            Group::List => Some("@list"),
            Group::Set => Some("@set"),
            Group::SortedSet => Some("@sortedset"),
            Group::Stream => Some("@stream"),
            Group::HyperLogLog => Some("@hyperloglog"),
            Group::Geo => Some("@geo"),
            Group::Server | Group::Cluster => None,
        }
    }
}

/// How commands that wait differ.
const WAITING: &str = "those who wait at one node are served in their order, those at different nodes in any; \
                       a time-out may come 100 ms late, or end in `UNKNOWN` up to `time_limit` late where a node has just been cut off";

impl Spec {
    /// The same, with a word on how it differs from Redis.
    pub(crate) const fn differs(self, differs: &'static str) -> Spec {
        Spec { differs, ..self }
    }

    /// The same, with these keys.
    pub(crate) const fn with_keys(self, keys: Keys) -> Spec {
        Spec { keys, ..self }
    }

    /// Whether this flag is set.
    pub(crate) fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether a request of so many strings has the right number.
    pub(crate) fn fits(&self, strings: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exact) => strings == exact,
            Err(_) => strings >= self.arity.unsigned_abs() as usize,
        }
    }

    /// The flags' names.
    pub(crate) fn flag_names(&self) -> Vec<&'static str> {
        let names = flag::NAMES.iter().filter(|(flag, _)| self.is(*flag)).map(|(_, name)| *name);
        let of_scripts: &[&str] = match self.name {
            "eval" | "evalsha" => &["skip_monitor", "no_mandatory_keys"],
            _ => &[],
        };
        names.chain(of_scripts.iter().copied()).collect()
    }

    /// The categories in access control lists, derived from flags and group as Redis does.
    pub(crate) fn categories(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        found.extend(match self.name {
            "dbsize" | "flushall" | "flushdb" => Some("@keyspace"),
            "command" | "wait" | "waitaof" | "readonly" | "readwrite" => Some("@connection"),
            name if name.starts_with("command|") => Some("@connection"),
            "sort" | "sort_ro" | "pubsub|help" => None,
            // It is their subcommands that are allowed or denied.
            _ if !self.children().is_empty() => None,
            _ => self.group.category(),
        });
        if matches!(self.name, "sort" | "sort_ro") {
            found.extend(["@set", "@sortedset", "@list"]);
        }
        if self.is(flag::WRITE) {
            found.push("@write");
        }
        if self.is(flag::READ) {
            found.push("@read");
        }
        if self.is(flag::ADMIN) || self.name == "role" {
            found.push("@admin");
        }
        if self.is(flag::ADMIN) || self.is(flag::DANGEROUS) {
            found.push("@dangerous");
        }
        if self.is(flag::BLOCKING) {
            found.push("@blocking");
        }
        found.push(if self.is(flag::FAST) { "@fast" } else { "@slow" });
        found
    }

    /// The subcommands.
    pub(crate) fn children(&self) -> &'static [Spec] {
        match self.action {
            Action::Container(children) => children,
            _ => &[],
        }
    }

    /// The last part of the name.
    pub(crate) fn leaf(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or(self.name)
    }
}
