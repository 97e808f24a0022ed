//! One client connection: from bytes to requests, from outcomes to bytes.

use super::acl;
use super::audit;
use super::blocking::{self, Blocked, Fills, Heard};
use super::complaint::{Complaint, OUT_OF_MEMORY, code};
use super::durability::{self, Syncing};
use super::login;
use super::lookups::Lookups;
use super::monitor;
use super::pipeline::{self, Pipeline, Waiting};
use super::pubsub;
use super::reply::{Reply, Version};
use super::report::Report;
use super::request::{Args, ProtocolError, Requests};
use super::shape::{self, Plan, Shape};
use super::slowlog;
use super::spec::{Action, Given, Keys, Spec, flag};
use super::steps::{self, Steps};
use super::table;
use super::transaction::{self, Queue, Watches};
use crate::gateway::{Ask, ClientView, Context, Login, Outcome, Request, Session};
use crate::hub::{Notice, Topic};
use isochrone_core::command::{Command, Operation, Response};
use isochrone_core::{Blob, Footprint as _, Instant, KeyspaceId, Span, wire};
use std::collections::BTreeMap;

/// One connection of a Redis client.
pub struct Connection {
    requests: Requests,
    state: State,
}

/// All of a connection but its input.
pub(crate) struct State {
    /// What CLIENT ID answers.
    pub(crate) number: u64,
    /// The version spoken from the next reply on.
    pub(crate) version: Version,
    /// Replies owed.
    pub(crate) pipeline: Pipeline,
    /// It must log in wherever that is required: it has not, and it was when it came.
    pub(crate) stranger: bool,
    /// What is left of the allowance before login; `None` once logged in.
    pub(crate) allowance: Option<Allowance>,
    /// The password check under way. No request is taken up before it has ended.
    pub(crate) login: Option<login::Pending>,
    /// Who it is logged in as.
    pub(crate) user: String,
    /// The keyspace selected, as a place in [`Context::keyspaces`].
    pub(crate) keyspace: usize,
    /// The one it began in: that of its port.
    pub(crate) home: usize,
    /// The commands queued since MULTI.
    pub(crate) queue: Option<Queue>,
    /// How many commands the EXEC has that is being carried out.
    pub(crate) executing: Option<usize>,
    /// The keys watched.
    pub(crate) watches: Watches,
    /// CLIENT REPLY.
    pub(crate) mute: Mute,
    /// The command that waits for something to pop. Nothing more is taken up before it has ended.
    pub(crate) blocked: Option<Box<Blocked>>,
    /// The question for copies that waits for an answer. Nothing more is taken up before that, either.
    pub(crate) syncing: Option<Box<Syncing>>,
    /// The command that waited when the client sent its last.
    hung_up: Option<u64>,
    /// The script that is carried out in steps. Nothing more is taken up before that is done.
    pub(crate) steps: Option<Steps>,
    /// How many channels, patterns and shard channels this connection has subscribed to.
    pub(crate) subscribed: usize,
    /// The name of the command in hand, or of the last one.
    pub(crate) last_command: &'static str,
    /// Nothing more is taken up; the connection closes when what is owed has been written.
    quitting: bool,
    /// The connection closes at once.
    closing: bool,
    /// Bytes written that the socket has not taken, as of now.
    unsent: usize,
    output_max: usize,
    /// Bytes that an answer is taken to have which has not come: those of the largest of late.
    expected: usize,
    pipeline_max: usize,
    bytes_max: usize,
    /// What is under way before which nothing that follows is taken up: an EXEC of which the node itself has something to do,
    /// or a command about all keys where these are apart ([`State::spreads`]).
    pub(crate) finishing: Option<u64>,
    /// About how many steps its requests have taken in this call, and whether it goes on in the next round.
    pub(crate) work: usize,
    put_off: bool,
    /// Since when more than `output_max` is unsent and hardly less has become of it, and how much it was then.
    clogged: Option<(Instant, usize)>,
    /// Answers that came, when each did, while more than `output_max` was unsent: they are written when it is less. Of no more requests
    /// than are under way. With each, what it was last counted as by [`owned`].
    kept: BTreeMap<u64, (Instant, Outcome, usize)>,
    /// All that these were counted as, in bytes.
    kept_owned: usize,
    /// The first that is to be counted anew with the next tick.
    recount_from: u64,
}

/// What a connection may still do before login.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Allowance {
    since: Instant,
    input: usize,
    output: usize,
    commands: usize,
}

/// CLIENT REPLY: whose replies are held back.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Mute {
    /// Nobody's.
    Off,
    /// Everybody's.
    On,
    /// That of the command after this one.
    Armed,
    /// That of this command.
    Skip,
}

/// Commands that change how the connection goes on.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Control {
    /// Log in.
    Auth,
    /// Agree on a version, perhaps log in.
    Hello,
    /// Say goodbye.
    Quit,
    /// Be as new.
    Reset,
    /// Queue what follows.
    Multi,
    /// Execute what was queued.
    Exec,
    /// Forget what was queued.
    Discard,
    /// Execute only if these keys stay as they are.
    Watch,
}

/// Whether a request was taken up.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Step {
    /// It was.
    Taken,
    /// It was, and may have held a password: its bytes are to be overwritten.
    Secret,
    /// It waits for an outcome and is to be tried again then.
    Stalled,
    /// It is from no client of Redis: the connection closes, and what was written since it was read is not sent.
    Foreign,
}

/// Where work and replies go.
pub(crate) struct Sink<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) requests: &'a mut Vec<Request>,
    /// Bytes of the request in hand.
    pub(crate) bytes: usize,
    /// The request in hand, where it may turn out to be slow.
    pub(crate) said: Option<Args<'a>>,
}

/// Words that begin lines of HTTP and no command.
const HTTP: [&[u8]; 2] = [b"POST", b"HOST:"];
/// The word that a proxy begins with which tells whose connection it passes on; it expects no answer to that.
const PROXY: &[u8] = b"PROXY";

/// How long more than the soft limit of replies may stay unsent, where hardly any of it is taken.
const CLOGGED_MAX: Span = Span::from_secs(60);

/// This part of the soft limit, taken within [`CLOGGED_MAX`], shows that somebody reads.
const TAKEN: usize = 64;

/// How many answers of unknown size may be under way: each is taken to have this part of the soft limit.
pub(crate) const EAGER: usize = 128;

/// Answers may be unsent up to so many times the soft limit. Above the limit itself nothing more is asked, and most answers to what
/// was asked before are not written until it is read; but how large those are that cannot wait, nobody knows until they come: a
/// client that reads them is not to blame.
pub(crate) const FLOODED: usize = 16;

impl Connection {
    /// A connection that was just accepted.
    pub fn new(context: &Context<'_>) -> Connection {
        let allowance = Allowance { since: context.now, input: 0, output: 0, commands: 0 };
        // A port of a keyspace's own begins in that keyspace.
        let index = context.clients.get(&context.connection).map_or(0, |client| client.index);
        let keyspace = context.keyspaces.iter().position(|keyspace| keyspace.index == index).unwrap_or(0);
        Connection {
            requests: Requests::new(),
            state: State {
                number: context.connection,
                version: Version::Two,
                pipeline: Pipeline::default(),
                stranger: context.login == Login::Required,
                allowance: (context.login == Login::Required).then_some(allowance),
                login: None,
                user: acl::DEFAULT.to_owned(),
                keyspace,
                home: keyspace,
                queue: None,
                executing: None,
                watches: Watches::default(),
                mute: Mute::Off,
                blocked: None,
                syncing: None,
                hung_up: None,
                steps: None,
                subscribed: 0,
                last_command: "",
                quitting: false,
                closing: false,
                unsent: 0,
                output_max: context.limits.output_bytes,
                expected: context.limits.output_bytes / EAGER,
                pipeline_max: context.limits.pipeline,
                bytes_max: context.limits.command_bytes,
                finishing: None,
                work: 0,
                put_off: false,
                clogged: None,
                kept: BTreeMap::new(),
                kept_owned: 0,
                recount_from: 0,
            },
        }
    }

    /// Bytes of memory that its buffers hold on to.
    pub fn buffered(&self) -> usize {
        self.requests.capacity()
    }

    /// Takes up requests for as long as there are whole ones and there is room for them. `before` is the
    /// length of `out` when the call began.
    fn advance(
        &mut self,
        before: usize,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    ) {
        self.state.unsent = context.unsent + out.len() - before;
        while let Some((id, (came, outcome))) = self.state.next_kept() {
            self.state.answered(id, outcome, came, context, out);
            self.state.unsent = context.unsent + out.len() - before;
        }
        self.state.welcome(context);
        self.state.work = 0;
        while self.state.has_room() {
            if self.state.work >= WORK_MAX {
                self.state.put_off = true;
                context.hub.put_off(self.state.number);
                break;
            }
            let whole = match self.requests.parse(context.limits, self.state.allowance.is_none()) {
                Ok(whole) => whole,
                Err(error) => {
                    self.state.misbehaved(error, context, out);
                    break;
                }
            };
            if !whole {
                break;
            }
            let (bytes, args) = (self.requests.length(), self.requests.args());
            let mut sink = Sink { out: &mut *out, requests: &mut *requests, bytes, said: Some(args) };
            match self.state.take_up(args, context, &mut sink) {
                Step::Taken => self.requests.consume(),
                Step::Secret => {
                    self.requests.forget();
                    self.requests.consume();
                }
                Step::Stalled => break,
                Step::Foreign => {
                    out.truncate(before);
                    break;
                }
            }
            // Some requests of a few bytes have replies of many.
            self.state.unsent = context.unsent + out.len() - before;
        }
        if let Some(client) = context.clients.get_mut(&self.state.number) {
            self.state.show(client);
        }
        self.state.written(out.len() - before, context);
    }
}

impl Session for Connection {
    fn receive(
        &mut self,
        bytes: &[u8],
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    ) {
        if self.state.quitting || self.state.closing {
            return;
        }
        self.state.welcome(context);
        if let Some(allowance) = &mut self.state.allowance {
            allowance.input += bytes.len();
            if allowance.input > context.limits.login_input_bytes {
                self.state.cut(
                    Complaint::text("ERR too much input before login"),
                    "login_input",
                    context,
                    out,
                );
                return;
            }
        }
        self.requests.push(bytes);
        self.advance(out.len(), context, out, requests);
    }

    fn answer(
        &mut self,
        id: u64,
        outcome: Outcome,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    ) {
        let before = out.len();
        self.state.unsent = context.unsent;
        self.state.served(context, out);
        let (probe, report) = self.state.pipeline.take_asked(id);
        let outcome = match probe {
            Some(probe) => self.state.watches.probed(&probe, outcome),
            None => outcome,
        };
        let blocked = self.state.blocked.as_mut().filter(|blocked| blocked.id() == id);
        let outcome = match report.or_else(|| blocked?.take_report()) {
            Some(report) => report.hear(outcome, context.hub),
            None => outcome,
        };
        if self.state.keeps(id, &outcome) {
            self.state.keep(id, outcome, context.now);
        } else if let Some(outcome) = self.state.heard(id, outcome, context, requests) {
            self.state.answered(id, outcome, context.now, context, out);
        }
        self.advance(before, context, out, requests);
    }

    fn notify(
        &mut self,
        notice: Notice,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    ) {
        let before = out.len();
        let state = &mut self.state;
        state.unsent = context.unsent;
        state.served(context, out);
        match notice {
            Notice::Message { .. } | Notice::Seen(_) if state.closing => {}
            // Who has been told that it is as new takes a line for the answer to what it has asked since.
            Notice::Seen(_) if state.quitting || state.muted() || !context.hub.monitors(state.number) => {}
            // Who does not read what it has subscribed to is not waited for.
            Notice::Message { .. } | Notice::Seen(_) if state.is_behind(0) => state.fall_behind(context),
            Notice::Seen(None) => state.fall_behind(context),
            Notice::Seen(Some(lines)) => {
                state.pipeline.write(out, |bytes| bytes.extend_from_slice(&lines));
            }
            Notice::Message { .. } => {
                let write =
                    |bytes: &mut Vec<u8>| pubsub::write(&notice, &mut Reply::new(bytes, state.version));
                // Behind the confirmation of its subscription; but what waits for hours holds up nothing.
                if state.blocked.is_some() { write(out) } else { state.pipeline.write(out, write) }
            }
            Notice::Filled => {
                let end = state.blocked.as_mut().and_then(|blocked| blocked.filled(context, requests));
                state.unblock(end, context, out);
            }
            Notice::Settled => {
                let end = state.blocked.as_mut().and_then(|blocked| blocked.settled(context, requests));
                state.unblock(end, context, out);
            }
            Notice::GoOn => state.put_off = false,
            Notice::Unblock => {
                if let Some(error) = context.hub.unblocked(state.number) {
                    state.wait_no_more(error, context, out);
                }
            }
        }
        self.advance(before, context, out, requests);
    }

    fn tick(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>, requests: &mut Vec<Request>) {
        let before = out.len();
        context.hub.tick(context.now);
        self.state.recount();
        self.state.served(context, out);
        let end = self.state.blocked.as_mut().and_then(|blocked| blocked.tick(context, requests));
        self.state.unblock(end, context, out);
        let state = &mut self.state;
        if state.syncing.as_ref().is_some_and(|syncing| syncing.is_late(context.now)) {
            state.desist(None, context, out);
        }
        state.welcome(context);
        if let Some(allowance) = state.allowance
            && state.login.is_none()
            && !state.quitting
            && context.now.since(allowance.since) > context.limits.login_time
        {
            state.cut(
                Complaint::text("ERR not logged in within the time allowed"),
                "login_time",
                context,
                out,
            );
            return;
        }
        // One that is about to go is waited for, but not for ever.
        let leaves = (state.quitting || state.closing) && context.unsent > 0;
        if context.unsent > state.output_max || leaves {
            let (since, then) = state.clogged.get_or_insert((context.now, context.unsent));
            let mut step = state.output_max / TAKEN;
            if leaves {
                // What it has asked for is still answered, and is all that it is to read.
                *then = context.unsent.max(*then);
                step = step.min(*then / TAKEN + 1);
            }
            if context.unsent + step <= *then {
                (*since, *then) = (context.now, context.unsent);
            }
            if context.now.since(*since) > CLOGGED_MAX {
                state.unsent = context.unsent;
                state.fall_behind(context);
                return;
            }
        } else {
            state.clogged = None;
        }
        self.advance(before, context, out, requests);
    }

    fn wants_input(&self) -> bool {
        self.state.has_room() && self.requests.waiting() <= self.state.bytes_max + SLACK
    }

    fn hang_up(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        let state = &mut self.state;
        state.served(context, out);
        if state.blocked.is_none() && state.syncing.is_none() {
            return false;
        }
        // What it has sent behind the command that waits is not carried out, as in Redis, nor is it said that nothing came:
        // whoever reads that takes it for the end of the time that was asked for.
        state.quitting = true;
        state.hung_up = state
            .blocked
            .as_ref()
            .map(|blocked| blocked.id())
            .or(state.syncing.as_ref().map(|syncing| syncing.id()));
        context.hub.hang_up(state.number);
        state.wait_no_more(false, context, out);
        true
    }

    fn closing(&self) -> bool {
        self.state.closing || (self.state.quitting && self.state.pipeline.is_empty())
    }

    fn holds(&self) -> usize {
        // The number as well: what is shared counts as nothing, and has to be waited for all the same.
        self.state.pipeline.ready() + self.state.kept_owned + self.state.kept.len()
    }

    fn half_read(&self) -> usize {
        self.buffered()
    }
}

/// Parts that an answer has at most of which each is looked at for whether somebody else holds it; and how many are looked at again in
/// one tick, about: a millisecond.
const PARTS_MAX: usize = 1_000;
const RECOUNT_MAX: usize = 10_000;

/// Steps that the requests of one connection take in a round, about: a millisecond or a few.
pub(super) const WORK_MAX: usize = 200_000;

/// The framing of the largest request, so that the limit on its size is found by the parser, with its text.
const SLACK: usize = 1 << 20;

impl State {
    /// Whether one more request may be taken up.
    fn has_room(&self) -> bool {
        !self.quitting
            && !self.closing
            && !self.put_off
            && self.login.is_none()
            && self.blocked.is_none()
            && self.syncing.is_none()
            && self.steps.is_none()
            && self.finishing.is_none()
            && self.pipeline.waiting() < self.pipeline_max
            && self.pipeline.bytes() < self.bytes_max
            && self.unsent + self.pipeline.ready() + self.expected() <= self.output_max
    }

    /// Whether keys are in several partitions, or commands are transactions: nothing orders what is about all keys among commands
    /// about one, where a key moves or a transaction is begun anew.
    fn is_apart(&self, context: &Context<'_>) -> bool {
        let selected = context.keyspaces.get(self.keyspace);
        selected.is_some_and(|keyspace| keyspace.transactional || keyspace.leaders.len() > 1)
    }

    /// Whether a command is about all keys where these are apart: it is taken up once all before it is answered, and nothing behind
    /// it before that is.
    fn spreads(&self, spec: &Spec, context: &Context<'_>) -> bool {
        matches!((spec.action, spec.keys), (Action::Data(_), Keys::None)) && self.is_apart(context)
    }

    /// About how many steps a request takes that this node answers by itself, now or at EXEC: of those that go elsewhere what
    /// they take is reckoned there.
    pub(super) fn steps(spec: &Spec, args: Args<'_>, context: &Context<'_>) -> usize {
        let hub = &context.hub;
        match spec.name {
            "publish" => hub.steps_to_publish(args.at(1)),
            "pubsub|channels" => hub.steps_to_name(Topic::Channel) * (1 + args.at(2).len() / 8),
            "pubsub|shardchannels" => hub.steps_to_name(Topic::Shard) * (1 + args.at(2).len() / 8),
            "pubsub|numpat" => hub.steps_to_name(Topic::Pattern),
            // A look-up of each here and in what each other node has told; of these there are a few.
            "pubsub|numsub" | "pubsub|shardnumsub" => 8 * args.len(),
            "client|list" | "client|kill" => 16 * context.clients.len(),
            "info" | "command" | "command|docs" | "command|info" | "acl|list" => 4_096,
            _ => 0,
        }
    }

    /// Bytes that the answers under way are taken to have, which for those that are copies is not less for how small those
    /// before them were.
    fn expected(&self) -> usize {
        let copies = self.pipeline.copying() * (self.output_max / EAGER + 1);
        copies.max(self.pipeline.waiting() * self.expected)
    }

    /// Keeps what CLIENT LIST shows of it.
    pub(crate) fn show(&self, client: &mut ClientView) {
        client.last_command = self.last_command;
        let queued = self.queue.as_ref().map(Queue::len);
        client.transaction = (queued.or(self.executing), self.watches.len());
        client.waits = self.syncing.is_some() || self.blocked.as_ref().is_some_and(|blocked| blocked.waits());
    }

    /// Where nobody needs to log in, nobody is a stranger, whoever came while that was otherwise neither, until it is again.
    fn welcome(&mut self, context: &Context<'_>) {
        match context.login {
            Login::Open => self.allowance = None,
            Login::Required if self.stranger && self.allowance.is_none() => self.log_out(context),
            Login::Required => {}
        }
    }

    /// One request, from its name on.
    fn take_up(&mut self, args: Args<'_>, context: &mut Context<'_>, sink: &mut Sink<'_>) -> Step {
        self.work += 1;
        if !self.spend(context, sink.out) {
            return Step::Secret;
        }
        let spec = match table::find(args) {
            Ok(spec) => spec,
            // A page in somebody's browser may send what it likes to a port on that machine: behind these come commands.
            Err(_) if HTTP.iter().any(|name| args.at(0).eq_ignore_ascii_case(name)) => {
                *context.counters.limited.entry("http").or_default() += 1;
                self.closing = true;
                return Step::Foreign;
            }
            // Were it answered as a command, each client behind it would take each answer for that to its next command.
            Err(_) if args.at(0) == PROXY && self.last_command.is_empty() => {
                let complaint = "ERR this port takes no PROXY protocol: leave out send-proxy";
                self.cut(Complaint::text(complaint), "proxy", context, sink.out);
                return Step::Taken;
            }
            Err(complaint) => {
                self.last_command = if let Complaint::Arity(name) = complaint { name } else { "" };
                self.turn_down(args, complaint, context, sink.out);
                return Step::Taken;
            }
        };
        // Also what is refused from here on was the last command.
        self.last_command = spec.name;
        let taken = if spec.name == "acl|setuser" { Step::Secret } else { Step::Taken };
        if self.allowance.is_some() && !spec.is(flag::NO_AUTH) {
            self.turn_down(args, Complaint::text("NOAUTH Authentication required."), context, sink.out);
            return taken;
        }
        if let Err(denied) = acl::permit(&self.user, spec, args, self.queue.is_some(), context) {
            self.turn_down(args, denied.complaint(&self.user, spec), context, sink.out);
            return taken;
        }
        if self.lacks_memory(spec, args, context) {
            *context.counters.limited.entry("memory").or_default() += 1;
            self.turn_down(args, Complaint::text(OUT_OF_MEMORY), context, sink.out);
            return taken;
        }
        if let Err(complaint) = pubsub::allowed(self, spec.name) {
            self.turn_down(args, complaint, context, sink.out);
            return taken;
        }
        let monitored = context.hub.is_monitored();
        if monitored && let Err(complaint) = monitor::allowed(self, spec, context) {
            self.turn_down(args, complaint, context, sink.out);
            return taken;
        }
        // What is queued is shown when it is executed.
        let never_queued = matches!(spec.action, Action::Control(control)
            if !matches!(control, Control::Auth | Control::Hello | Control::Watch));
        let shown = monitored && (never_queued || self.queue.is_none());
        let step = match spec.action {
            Action::Control(control) => self.control(control, args, context, sink),
            _ if self.queue.is_some() => {
                transaction::enqueue(self, spec, args, context, sink);
                taken
            }
            // Messages do not wait for what waits, so that must be the oldest thing owed: else they came before older ones.
            Action::Blocking(_) if self.subscribed > 0 && !self.pipeline.is_empty() => Step::Stalled,
            // Nothing orders two reads: one of a watched key may see what was there before the version that was told.
            Action::Data(_) | Action::Blocking(_) | Action::Durable(_) if self.watches.pending() => {
                Step::Stalled
            }
            Action::Blocking(parse) => {
                let mut given = given(self.keyspace, context);
                match parse(args, &mut given) {
                    Ok((plan, patience)) => {
                        blocking::begin(self, (spec, args), plan, patience, context, sink)
                    }
                    Err(complaint) => self.complain(&complaint, context, sink.out),
                }
                Step::Taken
            }
            Action::Data(_) if self.pipeline.waiting() > 0 && self.spreads(spec, context) => Step::Stalled,
            Action::Data(parse) => {
                let mut given = given(self.keyspace, context);
                let plan = parse(args, &mut given);
                let permitted = |plan| acl::permit_calls(&self.user, spec, args, context).map(|()| plan);
                match plan.and_then(permitted) {
                    Ok(Plan { operation, shape: Shape::Steps(script) }) => {
                        steps::begin(self, operation, script, context, sink);
                    }
                    Ok(plan) => {
                        audit::asked(spec, context);
                        self.ask(plan, context, sink);
                    }
                    Err(complaint) => self.complain(&complaint, context, sink.out),
                }
                Step::Taken
            }
            Action::Durable(parse) => match parse(args) {
                Ok(demand) => durability::begin(self, demand, context, sink),
                Err(complaint) => {
                    self.complain(&complaint, context, sink.out);
                    Step::Taken
                }
            },
            // Who waits is given first what was pushed before this in the pipeline.
            Action::Local(_) if spec.name == "client|unblock" && self.pipeline.waiting() > 0 => Step::Stalled,
            // Who hears of it finds what was written before it.
            Action::Local(_) if pubsub::publishes(spec.name) && self.pipeline.ordered() > 0 => Step::Stalled,
            Action::Local(answer) => {
                self.work = self.work.saturating_add(State::steps(spec, args, context));
                self.local(spec, answer, args, context, sink.out);
                taken
            }
            // `table::find` returns the subcommand.
            Action::Container(_) => Step::Taken,
        };
        if step != Step::Stalled {
            if shown {
                monitor::tell(self, spec, args, context);
            }
            *context.counters.commands.entry(spec.name).or_default() += 1;
            self.unmute();
        }
        step
    }

    /// Whether a request may make data grow in a keyspace for which a node is full; EXEC, where what is queued may.
    fn lacks_memory(&self, spec: &Spec, args: Args<'_>, context: &Context<'_>) -> bool {
        let full = context.keyspaces.get(self.keyspace).is_some_and(|keyspace| !keyspace.full.is_empty());
        let scripts = &context.hub.scripts;
        full && match (spec.action, &self.queue) {
            (Action::Control(Control::Exec), Some(queue)) => queue.grows(scripts),
            _ => scripts.grows(spec, args),
        }
    }

    fn control(
        &mut self,
        control: Control,
        args: Args<'_>,
        context: &mut Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Step {
        if self.queue.is_some() && matches!(control, Control::Auth | Control::Hello) {
            let text = "ERR Command not allowed inside a transaction";
            self.reject(&Complaint::text(text), context, sink.out);
            return Step::Secret;
        }
        match control {
            Control::Auth => {
                login::auth(self, args, context, sink);
                return Step::Secret;
            }
            Control::Hello => {
                login::hello(self, args, context, sink);
                return Step::Secret;
            }
            Control::Quit => {
                self.reply(sink.out, |reply| reply.ok());
                self.quit();
            }
            Control::Reset => login::reset(self, context, sink),
            Control::Multi => transaction::multi(self, context, sink),
            Control::Exec => return transaction::exec(self, context, sink),
            Control::Discard => transaction::discard(self, context, sink),
            Control::Watch => transaction::watch(self, args, context, sink),
        }
        Step::Taken
    }

    /// Asks the selected keyspace for an operation; its reply takes its place in the order.
    /// Where it is asked: the place, and which keyspace.
    pub(crate) fn ask(
        &mut self,
        plan: Plan,
        context: &mut Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Option<(u64, KeyspaceId)> {
        let Plan { operation, shape } = plan;
        self.ask_for(operation, shape, context, sink)
    }

    /// As [`State::ask`].
    pub(crate) fn ask_for(
        &mut self,
        mut operation: Operation,
        shape: Shape,
        context: &mut Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Option<(u64, KeyspaceId)> {
        let Some(keyspace) = self.keyspace_id(context) else {
            let text = "ERR this node serves no keyspace; add a [[keyspace]] to the deployment file";
            self.complain(&Complaint::text(text), context, sink.out);
            return None;
        };
        let muted = self.muted();
        // A read must not overtake what this connection asked before: `SET a 1` and `GET a` in one pipeline.
        // Behind a write that is under way it keeps its place in the log, and then counts as one itself.
        let reads = operation.is_read();
        // A write behind a read that is under way says so: nobody runs it ahead of the read.
        let behind = if reads { self.pipeline.ordered() > 0 } else { self.pipeline.looking() > 0 };
        let (in_order, ordered) = (behind, behind || !reads);
        let fills = Fills::of(keyspace, &operation);
        let (lookups, copies) = (Lookups::of(&operation), pipeline::copies(&operation));
        let bytes = match &operation {
            // A payload may be compressed; what is under way is its value.
            Operation::Restore { .. } => sink.bytes.max(wire::encoded_size(&operation)),
            _ => sink.bytes,
        };
        let report = Report::of(keyspace, &mut operation, context.hub.wanted());
        let probe = self.watches.probe(keyspace, &mut operation);
        let (version, name, asked) = (self.version, self.last_command, context.now);
        let told = sink.said.filter(|_| context.hub.slowlog.listens());
        let noted = self.pipeline.note(|notes| {
            if let Some(args) = told {
                slowlog::note(args, notes);
            }
        });
        let id = self.pipeline.wait(Waiting {
            shape,
            version,
            bytes,
            muted,
            ordered,
            copies,
            fills,
            probe,
            report,
            lookups,
            name,
            asked,
            noted,
        });
        let command = Command { in_order, ..Command::new(context.stamp, operation) };
        // Within a transaction that is refused where keys are apart.
        let transaction = matches!(command.operation, Operation::Transaction { .. });
        let alone = !transaction && command.touches_all() && self.is_apart(context);
        sink.requests.push(Request { id, ask: Ask::Execute { keyspace, command } });
        if alone {
            self.finishing = Some(id);
        }
        Some((id, keyspace))
    }

    /// Asks the shard for something else than an operation.
    pub(crate) fn ask_shard(&mut self, ask: Ask, shape: Shape, sink: &mut Sink<'_>) -> u64 {
        let muted = self.muted();
        let noted = self.pipeline.note(|_| {});
        let id = self.pipeline.wait(Waiting {
            shape,
            version: self.version,
            bytes: sink.bytes,
            muted,
            ordered: false,
            copies: 0,
            fills: Fills::Nothing,
            probe: None,
            report: None,
            lookups: Lookups::Nothing,
            name: self.last_command,
            asked: Instant::ZERO,
            noted,
        });
        sink.requests.push(Request { id, ask });
        id
    }

    fn keyspace_id(&self, context: &Context<'_>) -> Option<KeyspaceId> {
        context.keyspaces.get(self.keyspace).map(|keyspace| keyspace.id)
    }

    /// Writes a reply in its place in the order.
    pub(crate) fn reply(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Reply<'_>)) {
        if self.muted() {
            return;
        }
        let version = self.version;
        self.pipeline.write(out, |bytes| write(&mut Reply::new(bytes, version)));
    }

    /// Answers at once, from what is known here.
    fn local(
        &mut self,
        spec: &Spec,
        answer: super::spec::Local,
        args: Args<'_>,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) {
        let version = self.version;
        if self.pipeline.is_empty() && !self.muted() {
            let before = out.len();
            let done = answer(self, args, context, &mut Reply::new(out, version));
            audit::answered(spec, args, done.as_ref().err(), context);
            if let Err(complaint) = done {
                out.truncate(before);
                self.complain(&complaint, context, out);
            }
            return;
        }
        let mut bytes = Vec::new();
        let done = answer(self, args, context, &mut Reply::new(&mut bytes, version));
        audit::answered(spec, args, done.as_ref().err(), context);
        match done {
            // What confirms a subscription is no reply that could be held back.
            Ok(()) if pubsub::confirms(spec.name) => {
                self.pipeline.write(out, |out| out.extend_from_slice(&bytes));
            }
            Ok(()) => self.reply(out, |reply| reply.raw(&bytes)),
            Err(complaint) => self.complain(&complaint, context, out),
        }
    }

    /// Answers the command in hand with an error.
    pub(crate) fn complain(&mut self, complaint: &Complaint, context: &mut Context<'_>, out: &mut Vec<u8>) {
        *context.counters.failed.entry(self.last_command).or_default() += 1;
        self.object(complaint, context, out);
    }

    /// Writes an error in its place in the order.
    fn object(&mut self, complaint: &Complaint, context: &mut Context<'_>, out: &mut Vec<u8>) {
        let text = complaint.to_string();
        count_error(&text, context);
        self.reply(out, |reply| reply.error(&text));
    }

    /// Answers what is not carried out with an error that also spoils the transaction being queued.
    pub(crate) fn reject(&mut self, complaint: &Complaint, context: &mut Context<'_>, out: &mut Vec<u8>) {
        if let Some(queue) = &mut self.queue {
            queue.spoil();
        }
        // Of a command that is unknown there is no name.
        if !self.last_command.is_empty() {
            *context.counters.rejected.entry(self.last_command).or_default() += 1;
        }
        self.object(complaint, context, out);
    }

    /// Answers with an error, which also ends the transaction where it was EXEC that could not be carried out.
    fn turn_down(
        &mut self,
        args: Args<'_>,
        complaint: Complaint,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) {
        let complaint = match args.at(0).eq_ignore_ascii_case(b"exec") {
            true => transaction::abort(self, &complaint),
            false => complaint,
        };
        self.reject(&complaint, context, out);
        self.unmute();
    }

    /// Whether the reply in hand is held back.
    fn muted(&self) -> bool {
        matches!(self.mute, Mute::On | Mute::Skip | Mute::Armed)
    }

    /// Takes up nothing more: the connection closes when what is owed has been written.
    pub(crate) fn quit(&mut self) {
        self.quitting = true;
    }

    /// Counts a command before login; the one that is too many is not taken up.
    fn spend(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        let Some(allowance) = &mut self.allowance else { return true };
        if allowance.commands == context.limits.login_commands {
            let complaint = Complaint::text("ERR too many commands before login");
            self.cut(complaint, "login_commands", context, out);
            return false;
        }
        allowance.commands += 1;
        true
    }

    /// CLIENT REPLY SKIP holds back one reply.
    fn unmute(&mut self) {
        match self.mute {
            Mute::Skip => self.mute = Mute::Off,
            Mute::Armed => self.mute = Mute::Skip,
            Mute::On | Mute::Off => {}
        }
    }

    /// Ends the connection because a limit was passed.
    fn cut(
        &mut self,
        complaint: Complaint,
        limit: &'static str,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) {
        *context.counters.limited.entry(limit).or_default() += 1;
        self.object(&complaint, context, out);
        self.quitting = true;
    }

    /// Ends the connection because it sent what is not the protocol.
    fn misbehaved(&mut self, error: ProtocolError, context: &mut Context<'_>, out: &mut Vec<u8>) {
        context.counters.malformed += 1;
        if let Some(limit) = error.limit() {
            *context.counters.limited.entry(limit).or_default() += 1;
        }
        self.object(&Complaint::text(format!("ERR {error}")), context, out);
        self.quitting = true;
    }

    /// A stranger has waited for so long for us.
    pub(crate) fn put_off(&mut self, waited: Span) {
        if let Some(allowance) = &mut self.allowance {
            allowance.since = allowance.since + waited;
        }
    }

    /// Is a stranger again.
    pub(crate) fn log_out(&mut self, context: &Context<'_>) {
        self.stranger = true;
        self.allowance = Some(Allowance { since: context.now, input: 0, output: 0, commands: 0 });
    }

    /// Whether it has left more unread than it is told messages with, once there are so many bytes more.
    pub(crate) fn is_behind(&self, more: usize) -> bool {
        self.unsent + self.pipeline.ready() + more > 2 * self.output_max
    }

    /// Ends a connection that does not read what it is told.
    pub(crate) fn fall_behind(&mut self, context: &mut Context<'_>) {
        let unsent = self.unsent + self.pipeline.ready();
        let client = context.clients.get(&self.number);
        context.counters.fell_behind("output", self.number, client, unsent, context.now);
        self.closing = true;
        // It does not read the rest either.
        context.hub.kill(self.number);
    }

    /// Counts output before login.
    fn written(&mut self, bytes: usize, context: &mut Context<'_>) {
        if let Some(allowance) = &mut self.allowance {
            allowance.output += bytes;
            if allowance.output > context.limits.login_output_bytes {
                *context.counters.limited.entry("login_output").or_default() += 1;
                self.closing = true;
            }
        }
    }

    /// An outcome has come. It is kept back where it is of a command that goes on waiting.
    fn heard(
        &mut self,
        id: u64,
        outcome: Outcome,
        context: &mut Context<'_>,
        requests: &mut Vec<Request>,
    ) -> Option<Outcome> {
        if let Some(syncing) = self.syncing.take_if(|syncing| syncing.id() == id) {
            context.hub.unwait(self.number);
            return Some(syncing.heard(outcome, context));
        }
        if let Some(steps) = self.steps.as_mut().filter(|steps| steps.id() == id) {
            let heard = steps.heard(outcome, (&self.user, self.keyspace), context, requests);
            let Heard::Ends(end) = heard else {
                if let Some(Request { ask: Ask::Execute { keyspace, command }, .. }) = requests.last_mut() {
                    let operation = &mut command.operation;
                    let fills = Fills::of(*keyspace, operation);
                    let report = Report::of(*keyspace, operation, context.hub.wanted());
                    let probe = self.watches.probe(*keyspace, operation);
                    self.pipeline.goes_on(id, fills, probe, report);
                }
                return None;
            };
            self.steps = None;
            return Some(end);
        }
        if let Some(Waiting { shape: Shape::Watch(watch), .. }) = self.pipeline.awaited(id)
            && let Some((keyspace, mut operation)) =
                self.watches.asks_again(watch, &outcome, &self.user, context)
        {
            let report = Report::of(keyspace, &mut operation, context.hub.wanted());
            self.pipeline.goes_on(id, Fills::Nothing, None, report);
            let command = Command::new(context.stamp, operation);
            requests.push(Request { id, ask: Ask::Execute { keyspace, command } });
            return None;
        }
        let Some(blocked) = self.blocked.as_mut().filter(|blocked| blocked.id() == id) else {
            return Some(outcome);
        };
        match blocking::heard(blocked, outcome, context, requests) {
            Heard::Waits => None,
            Heard::Ends(outcome) => {
                self.watches.waited(blocked, &outcome);
                self.blocked = None;
                context.hub.unwait(self.number);
                Some(outcome)
            }
        }
    }

    /// The command that waits ends with what another has taken for it, if one has. To be called before anything else is done with
    /// it: what was given it is nobody else's.
    fn served(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) {
        let end = self.blocked.as_ref().and_then(|blocked| blocked.given(context));
        self.unblock(end, context, out);
    }

    /// The command that waits ends like this, if it does.
    fn unblock(&mut self, end: Option<Outcome>, context: &mut Context<'_>, out: &mut Vec<u8>) {
        let Some(outcome) = end else { return };
        let Some(blocked) = self.blocked.take() else { return };
        self.watches.waited(&blocked, &outcome);
        context.hub.unwait(self.number);
        self.answered(blocked.id(), outcome, context.now, context, out);
    }

    /// Ends what waits, with an error or as if its time were over; an attempt that is under way is waited for.
    fn wait_no_more(&mut self, error: bool, context: &mut Context<'_>, out: &mut Vec<u8>) {
        let end = self.blocked.as_mut().and_then(|blocked| blocked.unblock(error, context.now));
        self.unblock(end, context, out);
        if self.syncing.is_some() {
            self.desist(error.then(blocking::unblocked), context, out);
        }
    }

    /// Waits no longer for copies: ends so, or by saying that nothing is known of any.
    fn desist(&mut self, end: Option<Outcome>, context: &mut Context<'_>, out: &mut Vec<u8>) {
        let Some(syncing) = self.syncing.take() else { return };
        context.hub.unwait(self.number);
        let end = end.unwrap_or_else(|| syncing.end(false, context));
        self.answered(syncing.id(), end, context.now, context, out);
    }

    /// Whether an outcome has to wait until the client has read more of what it was answered. What it consists of is mostly shared with
    /// the keyspace until then; the rest is what it counts as ([`owned`]). It has to be one that nothing follows from but its reply.
    fn keeps(&self, id: u64, outcome: &Outcome) -> bool {
        let long = matches!(
            outcome,
            Outcome::Done(
                Response::Bulk(_)
                    | Response::Array(_)
                    | Response::Pairs(_)
                    | Response::Map(_)
                    | Response::Set(_)
                    | Response::Scan { .. }
                    | Response::Content(_)
            )
        );
        let waited_for = self.finishing == Some(id)
            || self.blocked.as_ref().is_some_and(|blocked| blocked.id() == id)
            || self.syncing.as_ref().is_some_and(|syncing| syncing.id() == id)
            || self.steps.as_ref().is_some_and(|steps| steps.id() == id);
        let plain = |waiting: &Waiting| {
            matches!(waiting.fills, Fills::Nothing)
                && !matches!(waiting.shape, Shape::Login | Shape::Watch(_))
        };
        long && !waited_for && !self.may_write(id) && self.pipeline.awaited(id).is_some_and(plain)
    }

    /// Whether there is room for the reply to this request. For the one that others wait for there is also where they are many.
    fn may_write(&self, id: u64) -> bool {
        let before = if self.pipeline.is_next(id) { 0 } else { self.pipeline.ready() };
        self.unsent + before <= self.output_max
    }

    fn keep(&mut self, id: u64, outcome: Outcome, now: Instant) {
        let bytes = if let Outcome::Done(response) = &outcome { owned(response, &mut 0) } else { 0 };
        self.kept_owned += bytes;
        self.kept.insert(id, (now, outcome, bytes));
    }

    /// The oldest request whose answer was kept and may be written, and that answer.
    fn next_kept(&mut self) -> Option<(u64, (Instant, Outcome))> {
        let id = *self.kept.first_key_value().filter(|(id, _)| self.closing || self.may_write(**id))?.0;
        let (came, outcome, bytes) = self.kept.remove(&id)?;
        self.kept_owned -= bytes;
        Some((id, (came, outcome)))
    }

    /// Counts anew what is kept: what a keyspace held as well it may have replaced or deleted. Where that would take long, the next tick
    /// goes on.
    fn recount(&mut self) {
        let mut looked_at = 0;
        for (id, (_, outcome, counted)) in self.kept.range_mut(std::mem::take(&mut self.recount_from)..) {
            if looked_at >= RECOUNT_MAX {
                self.recount_from = *id;
                return;
            }
            let Outcome::Done(response) = outcome else { continue };
            looked_at += 1;
            if !is_long(response) {
                let bytes = owned(response, &mut looked_at);
                self.kept_owned = self.kept_owned + bytes - *counted;
                *counted = bytes;
            }
        }
    }

    /// An outcome has come, at this time.
    fn answered(
        &mut self,
        id: u64,
        outcome: Outcome,
        came: Instant,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some(waiting) = self.pipeline.take(id) else { return };
        if waiting.asked > Instant::ZERO {
            let took = came.since(waiting.asked);
            context.counters.times.entry(waiting.name).or_default().add(took);
            let noted = self.pipeline.noted(waiting.noted);
            if context.hub.slowlog.is_slow(took) && !noted.is_empty() {
                let client = context.clients.get(&self.number);
                let (from, name) = client
                    .map(|client| (client.address.to_string(), client.name.clone()))
                    .unwrap_or_default();
                context.hub.slowlog.keep(noted, took, context.stamp, from, name);
            }
        }
        if self.closing {
            return;
        }
        // The answers to one pipeline may be a thousand times the largest value.
        if self.unsent + self.pipeline.ready() > FLOODED.saturating_mul(self.output_max) {
            self.fall_behind(context);
            return;
        }
        let mut filled = false;
        if let Outcome::Done(response) = &outcome {
            waiting.lookups.count(response, &mut context.counters.lookups);
            filled = !response.is_error();
        }
        let says_nothing = || {
            let counts = matches!(waiting.name, "wait" | "waitaof");
            counts || matches!(outcome, Outcome::Done(Response::Nil | Response::NilArray))
        };
        let mut muted = waiting.muted || self.hung_up == Some(id) && says_nothing();
        let mut bytes_of_login = Vec::new();
        let mut shape = waiting.shape;
        match (&mut shape, &outcome) {
            (Shape::Login, _) => {
                let accepted = matches!(outcome, Outcome::Verified { accepted: true });
                let mut reply = Reply::new(&mut bytes_of_login, waiting.version);
                login::verified(self, accepted, context, &mut reply);
            }
            (Shape::Watch(watch), outcome) => self.watches.learn(watch, outcome),
            (Shape::Exec(items), Outcome::Done(Response::Array(_))) if self.finishing == Some(id) => {
                transaction::carry_out(items, self, context);
                // CLIENT REPLY may have been among it.
                muted = self.muted();
                self.unmute();
            }
            _ => {}
        }
        // Whom a transaction has told to wait no longer is given nothing of it, wherever in it that stands.
        if filled {
            waiting.fills.tell(context.hub, context.now);
        }
        self.finishing.take_if(|exec| *exec == id);
        let version = waiting.version;
        let mut length = 0;
        self.pipeline.fill(id, out, |bytes| {
            let from = bytes.len();
            match (shape, outcome) {
                (Shape::Login, _) => bytes.extend_from_slice(&bytes_of_login),
                (shape, outcome) => shape::write(shape, outcome, &mut Reply::new(bytes, version)),
            }
            if bytes.get(from) == Some(&b'-') {
                let end = bytes[from..].iter().position(|byte| *byte == b'\r').unwrap_or(0);
                count_error(&String::from_utf8_lossy(&bytes[from + 1..from + end.max(1)]), context);
                *context.counters.failed.entry(waiting.name).or_default() += 1;
            }
            if muted {
                bytes.truncate(from);
            }
            length = bytes.len() - from;
        });
        self.expected = length.max(self.expected - self.expected.div_ceil(8));
    }
}

/// Bytes of memory, about, that go with an answer: what nobody else holds at this moment. Values in a keyspace are shared with the
/// answers that show them, until they are edited or go. How many parts were looked at is added to `looked_at`.
fn owned(response: &Response, looked_at: &mut usize) -> usize {
    *looked_at += 1;
    let mut of_part = |part: &Response| size_of::<Response>() + owned(part, looked_at);
    match response {
        _ if is_long(response) => wire::encoded_size(response),
        Response::Bulk(bytes) if !bytes.is_shared() => bytes.len(),
        Response::Array(parts) | Response::Set(parts) => parts.iter().map(of_part).sum(),
        Response::Pairs(pairs) | Response::Map(pairs) => {
            pairs.iter().map(|(name, value)| of_part(name) + of_part(value)).sum()
        }
        Response::Scan { items, .. } => {
            *looked_at += items.len();
            items.iter().map(|item| size_of::<Blob>() + if item.is_shared() { 0 } else { item.len() }).sum()
        }
        _ => 0,
    }
}

/// Whether an answer counts whole, whoever else holds its parts: it would take long to look at each, or they are not to be seen.
fn is_long(response: &Response) -> bool {
    match response {
        Response::Array(parts) | Response::Set(parts) => parts.len() > PARTS_MAX,
        Response::Pairs(pairs) | Response::Map(pairs) => pairs.len() > PARTS_MAX,
        Response::Scan { items, .. } => items.len() > PARTS_MAX,
        Response::Content(_) => true,
        _ => false,
    }
}

/// What requests are understood with.
pub(crate) fn given<'a>(keyspace: usize, context: &'a mut Context<'_>) -> Given<'a> {
    Given {
        selected: context.keyspaces.get(keyspace).map(|keyspace| keyspace.index.into()),
        stamp: context.stamp,
        random: &mut *context.random,
        scripts: &mut context.hub.scripts,
        bulk_max: context.limits.bulk_bytes,
        elements_max: context.limits.elements,
    }
}

/// Counts an error reply by its code.
pub(crate) fn count_error(text: &str, context: &mut Context<'_>) {
    *context.counters.errors.entry(code(text)).or_default() += 1;
}
