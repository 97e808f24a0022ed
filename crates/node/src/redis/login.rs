//! HELLO, AUTH, RESET: who speaks, and in which version.

use super::acl::{self, Verdict};
use super::audit;
use super::complaint::Complaint;
use super::connection::{Mute, Sink, State, count_error};
use super::pubsub;
use super::reply::{Reply, Version};
use super::request::{Args, integer};
use super::shape::Shape;
use crate::audit::{Act, Audit, Decision, text};
use crate::gateway::{Ask, Context, Login, Secret};
use isochrone_core::Instant;

/// A password check under way, and what follows where it succeeds.
#[derive(Debug)]
pub(crate) struct Pending {
    user: String,
    /// When it began.
    since: Instant,
    /// The keyspace named beside the user, as a place in the list of keyspaces.
    keyspace: Option<usize>,
    /// What HELLO asked for, where it was HELLO.
    greeting: Option<Greeting>,
    /// Whether the password is known to be right.
    right: bool,
    attempt: Attempt,
}

/// What the audit log is to be told of a login, once: at the latest when who tries it has gone.
#[derive(Debug)]
struct Attempt(Option<(Audit, Act)>);

impl Attempt {
    fn new(user: &str, command: &str, context: &Context<'_>) -> Attempt {
        let client = context.clients.get(&context.connection);
        Attempt(context.hub.audit.clone().map(|audit| {
            let act = Act {
                user: Some(text(user.as_bytes())),
                address: client.map(|client| client.address.to_string()),
                login: true,
                ..Act::new("redis", command, Decision::Denied)
            };
            (audit, act)
        }))
    }

    /// It was refused for this reason, or not.
    fn ends(&mut self, refused: Option<&str>) {
        let Some((audit, act)) = self.0.take() else { return };
        let decision = if refused.is_some() { Decision::Denied } else { Decision::Allowed };
        audit.tell(Act { decision, why: refused.map(str::to_owned), ..act });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.ends(Some(GONE));
    }
}

#[derive(Debug)]
struct Greeting {
    version: Version,
    name: Option<String>,
}

/// The version of Redis whose commands and errors this gateway follows (the table is that of 7.2); clients derive
/// from it what they may send.
pub(crate) const REDIS_VERSION: &str = "7.2.4";

/// Why who has gone was not let in.
const GONE: &str = "gone before the answer";

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// `AUTH [username] password`
pub(crate) fn auth(state: &mut State, args: Args<'_>, context: &mut Context<'_>, sink: &mut Sink<'_>) {
    let (user, password) = match args.len() {
        2 => (&b"default"[..], args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return state.complain(&Complaint::Syntax, context, sink.out),
    };
    if args.len() == 2 && context.login == Login::Open {
        let text = "ERR AUTH <password> called without any password configured for the default user. \
                    Are you sure your configuration is correct?";
        return state.complain(&Complaint::text(text), context, sink.out);
    }
    check(state, user, password, None, context, sink);
}

/// `HELLO [protover [AUTH username password] [SETNAME clientname]]`
pub(crate) fn hello(state: &mut State, args: Args<'_>, context: &mut Context<'_>, sink: &mut Sink<'_>) {
    let parsed = parse_hello(state, args);
    if let Ok((greeting, _)) = &parsed
        && greeting.version != state.version
    {
        tell_own(state, context, sink);
    }
    match parsed {
        Err(complaint) => state.complain(&complaint, context, sink.out),
        Ok((greeting, Some((user, password)))) => {
            check(state, user, password, Some(greeting), context, sink);
        }
        Ok((_, None)) if state.allowance.is_some() => {
            let text = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                        HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                        select the RESP protocol version at the same time";
            state.complain(&Complaint::text(text), context, sink.out);
        }
        Ok((greeting, None)) => {
            adopt(state, greeting, context);
            let number = state.number;
            state.reply(sink.out, |reply| greet(number, reply));
        }
    }
}

/// A user and a password.
type Credentials<'a> = (&'a [u8], &'a [u8]);

fn parse_hello<'a>(state: &State, args: Args<'a>) -> Result<(Greeting, Option<Credentials<'a>>), Complaint> {
    let version = match args.len() {
        1 => state.version,
        _ => match integer(args.at(1)) {
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return Err(Complaint::text("NOPROTO unsupported protocol version")),
            None => {
                return Err(Complaint::text("ERR Protocol version is not an integer or out of range"));
            }
        },
    };
    let mut greeting = Greeting { version, name: None };
    let mut credentials = None;
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        if args.at(at).eq_ignore_ascii_case(b"auth") && left >= 2 {
            credentials = Some((args.at(at + 1), args.at(at + 2)));
            at += 3;
        } else if args.at(at).eq_ignore_ascii_case(b"setname") && left >= 1 {
            greeting.name = Some(super::clients::checked_name(args.at(at + 1))?);
            at += 2;
        } else {
            let option = String::from_utf8_lossy(args.at(at)).into_owned();
            return Err(Complaint::text(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    Ok((greeting, credentials))
}

/// What is logged in with.
fn command(greeting: Option<&Greeting>) -> &'static str {
    if greeting.is_some() { "HELLO" } else { "AUTH" }
}

/// Asks whether user and password fit, or knows already.
fn check(
    state: &mut State,
    user: &[u8],
    password: &[u8],
    greeting: Option<Greeting>,
    context: &mut Context<'_>,
    sink: &mut Sink<'_>,
) {
    let command = command(greeting.as_ref());
    let Ok(user) = std::str::from_utf8(user) else {
        audit::login(user, command, Some(audit::WRONG), context);
        return state.complain(&Complaint::text(WRONG), context, sink.out);
    };
    // Pools that cannot SELECT name the keyspace behind the user.
    let (user, keyspace) = match user.rsplit_once(':').filter(|_| !context.hub.users.has(user)) {
        Some((user, name)) => match find_keyspace(name, context) {
            Some(place) => (user, Some(place)),
            None => {
                let unknown = "there is no keyspace of the name behind it";
                audit::login(user.as_bytes(), command, Some(unknown), context);
                let text = format!("WRONGPASS user '{user}': there is no keyspace '{name}'");
                return state.complain(&Complaint::text(text), context, sink.out);
            }
        },
        None => (user, None),
    };
    let verdict = context.hub.users.judge(user, password);
    let right = verdict == Verdict::Accepted;
    let mut attempt = Attempt::new(user, command, context);
    if verdict == Verdict::Wrong {
        // Whether or not it waits to be told.
        attempt.ends(Some(audit::WRONG));
    }
    let pending = Pending { user: user.to_owned(), since: context.now, keyspace, greeting, right, attempt };
    let client = context.clients.get(&context.connection);
    let late = client.is_some_and(|client| context.hub.users.failures.delay(client.address.ip()));
    if verdict == Verdict::Refused || right && !late {
        if !right {
            context.counters.login_failures += 1;
            *context.counters.failed.entry(state.last_command).or_default() += 1;
            count_error(WRONG, context);
        }
        state.login = Some(pending);
        let mut bytes = Vec::new();
        admit(state, right, context, &mut Reply::new(&mut bytes, state.version));
        state.reply(sink.out, |reply| reply.raw(&bytes));
        return;
    }
    state.login = Some(pending);
    let ask = Ask::Verify { user: user.to_owned(), password: Secret::new(password.to_vec()) };
    state.ask_shard(ask, Shape::Login, sink);
}

/// The password check has ended.
pub(crate) fn verified(state: &mut State, accepted: bool, context: &mut Context<'_>, reply: &mut Reply<'_>) {
    // Meanwhile the user may have been switched off.
    let users = &context.hub.users;
    let admitted = state.login.as_ref().is_some_and(|pending| users.admits(&pending.user, pending.right));
    admit(state, accepted && admitted, context, reply);
}

fn admit(state: &mut State, accepted: bool, context: &mut Context<'_>, reply: &mut Reply<'_>) {
    let Some(mut pending) = state.login.take() else { return reply.error(WRONG) };
    let command = command(pending.greeting.as_ref());
    pending.attempt.ends((!accepted).then_some(audit::WRONG));
    if !accepted {
        // The time that a password waits to be checked is not the client's.
        state.put_off(context.now.since(pending.since));
        let within = if state.queue.is_some() { acl::Within::Multi } else { acl::Within::Nothing };
        let entry = acl::Entry::new(acl::Reason::Auth, within, command.as_bytes(), &pending.user);
        acl::note(entry, context);
        return reply.error(WRONG);
    }
    (state.stranger, state.allowance) = (false, None);
    state.user = pending.user;
    if let Some(client) = context.clients.get_mut(&state.number) {
        client.user.clone_from(&state.user);
    }
    if let Some(place) = pending.keyspace {
        select(state, place, context);
    }
    match pending.greeting {
        None => reply.ok(),
        Some(greeting) => {
            adopt(state, greeting, context);
            reply.speak(state.version);
            greet(state.number, reply);
        }
    }
}

fn adopt(state: &mut State, greeting: Greeting, context: &mut Context<'_>) {
    state.version = greeting.version;
    if let Some(client) = context.clients.get_mut(&state.number) {
        client.protocol = greeting.version.number() as u8;
        if let Some(name) = greeting.name {
            client.name = name;
        }
    }
}

fn greet(number: u64, reply: &mut Reply<'_>) {
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(reply.version().number());
    reply.bulk(b"id");
    reply.integer(number as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}

/// `RESET`: the connection is as if just accepted.
pub(crate) fn reset(state: &mut State, context: &mut Context<'_>, sink: &mut Sink<'_>) {
    state.queue = None;
    state.watches.clear();
    tell_own(state, context, sink);
    context.hub.leave(state.number);
    state.subscribed = 0;
    // That of RESET itself is held back still.
    if state.mute != Mute::Skip {
        state.mute = Mute::Off;
    }
    state.version = Version::Two;
    select(state, state.home, context);
    state.user = acl::DEFAULT.to_owned();
    state.stranger = false;
    if context.login == Login::Required {
        state.log_out(context);
    }
    if let Some(client) = context.clients.get_mut(&state.number) {
        client.name.clear();
        client.protocol = 2;
        client.user = acl::DEFAULT.to_owned();
        (client.no_evict, client.no_touch) = (false, false);
    }
    state.reply(sink.out, |reply| reply.simple("RESET"));
}

/// What was published for this connection, before it speaks another version or has no subscriptions any more.
fn tell_own(state: &mut State, context: &mut Context<'_>, sink: &mut Sink<'_>) {
    let mut told = Vec::new();
    pubsub::tell_own(state, context, &mut Reply::new(&mut told, state.version));
    state.pipeline.write(sink.out, |out| out.extend_from_slice(&told));
}

/// `SELECT index`
pub(crate) fn select_index(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    let place = named(args, context)?;
    select(state, place, context);
    reply.ok();
    Ok(())
}

/// Whether this SELECT is of another keyspace than the one that is selected.
pub(crate) fn leaves(selected: usize, args: Args<'_>, context: &Context<'_>) -> bool {
    named(args, context).is_ok_and(|place| place != selected)
}

/// The keyspace that a SELECT names, as a place in [`Context::keyspaces`].
fn named(args: Args<'_>, context: &Context<'_>) -> Result<usize, Complaint> {
    let index = integer(args.at(1)).ok_or(Complaint::NotInteger)?;
    let place = context.keyspaces.iter().position(|keyspace| i64::from(keyspace.index) == index);
    place.ok_or(Complaint::text("ERR DB index is out of range"))
}

fn select(state: &mut State, place: usize, context: &mut Context<'_>) {
    state.keyspace = place;
    let index = context.keyspaces.get(place).map_or(0, |keyspace| keyspace.index);
    if let Some(client) = context.clients.get_mut(&state.number) {
        client.index = index;
    }
}

/// A keyspace by its name or its index.
fn find_keyspace(name: &str, context: &Context<'_>) -> Option<usize> {
    context
        .keyspaces
        .iter()
        .position(|keyspace| keyspace.name == name)
        .or_else(|| context.keyspaces.iter().position(|keyspace| keyspace.index.to_string() == name))
}

#[cfg(test)]
mod tests {
    use crate::audit::{open, verify};
    use crate::gateway::Login;
    use crate::redis::tests::{World, play};
    use std::fs::File;
    use std::io::BufReader;

    #[test]
    fn a_guess_that_does_not_wait_for_the_answer_is_in_the_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let (audit, keeper) = open(&path).unwrap().start("va1", Default::default()).unwrap();
        let guess = |login, user: &str| {
            let mut world = World::new(login);
            world.hub.audit = Some(audit.clone());
            let said = play(&mut world, &format!("> AUTH {user} guess"));
            assert!(said.contains("verify 0") && !said.contains("WRONG"), "{said}");
            // The connection ends with its world.
        };
        // Of one the verifier has to say whether it is right; of the other it is known.
        for _ in 0..500 {
            guess(Login::Required, "anna");
            guess(Login::Required, "nobody");
        }
        drop((audit, keeper));
        let told = verify(BufReader::new(File::open(&path).unwrap()), None).unwrap();
        assert_eq!(told.denied + told.lost, 1_000);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(super::GONE) && text.contains(super::audit::WRONG));
    }

    #[test]
    fn a_right_password_of_the_acl_file_waits_like_a_wrong_one_where_many_were_wrong() {
        let mut world = World::new(Login::Open);
        play(&mut world, "> ACL SETUSER eve on >pw");
        let from = world.clients[&7].address.ip();
        (0..4).for_each(|_| world.hub.users.failures.add(from));
        assert!(play(&mut world, "> AUTH eve pw").contains("+OK"));
        world.hub.users.failures.add(from);
        let waits = "  reads no further\n";
        for (password, verdict, reply) in [("guess", "denied", "-WRONGPASS"), ("pw", "accepted", "+OK")] {
            let asked = play(&mut world, &format!("> AUTH eve {password}"));
            assert!(asked.contains("verify") && asked.ends_with(waits), "{asked}");
            let id = asked.split_whitespace().skip_while(|word| *word != "verify").nth(1).unwrap();
            let told = play(&mut world, &format!("< {id} {verdict}"));
            assert!(told.contains(reply), "{told}");
        }
        // Meanwhile it was switched off.
        play(&mut world, "> AUTH eve pw");
        let rules = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&rules, "user default on nopass ~* &* +@all\nuser eve off >pw\n").unwrap();
        world.hub.users = crate::redis::acl::Users::of([], Some(rules.path().to_owned())).unwrap();
        assert!(play(&mut world, "< 2 accepted").contains("-WRONGPASS"));
    }
}
