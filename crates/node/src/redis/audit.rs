//! What of the Redis gateway goes into the audit log, where there is one: logins, what administers, what empties a keyspace, and
//! what was denied by a rule. Of all other commands nothing is looked at but the flags of their row in the table.

use super::complaint::{Complaint, code};
use super::request::Args;
use super::spec::{Spec, flag};
use super::table;
use crate::audit::{Act, Decision, text};
use crate::gateway::Context;

/// What is let through and not carried out here says so itself.
const EMPTIES: [&str; 2] = ["flushall", "flushdb"];

/// What most logins are refused for.
pub(super) const WRONG: &str = "no such user, or another password, or the user is off";

/// Somebody has logged in as this user with this command, or was refused for this reason.
pub(super) fn login(user: &[u8], command: &str, refused: Option<&str>, context: &Context<'_>) {
    let decision = if refused.is_some() { Decision::Denied } else { Decision::Allowed };
    tell(context, || Act {
        user: Some(text(user)),
        why: refused.map(str::to_owned),
        login: true,
        ..Act::new("redis", command, decision)
    });
}

/// A user was denied this command, for this reason; with the key or channel that was not allowed.
pub(super) fn denied(
    user: &str,
    spec: &Spec,
    object: Option<&[u8]>,
    why: impl FnOnce() -> String,
    context: &Context<'_>,
) {
    tell(context, || Act {
        user: Some(user.to_owned()),
        keyspace: keyspace(context),
        object: object.map(text),
        why: Some(why()),
        ..Act::new("redis", shown(spec), Decision::Denied)
    });
}

/// The node has answered a command itself; with an error, where it has not carried it out.
pub(super) fn answered(spec: &Spec, args: Args<'_>, error: Option<&Complaint>, context: &Context<'_>) {
    if context.hub.audit.is_none() || !administers(spec, args) {
        return;
    }
    tell(context, || {
        let decision = if error.is_some() { Decision::Failed } else { Decision::Allowed };
        Act {
            user: user(context),
            object: object(spec, args, error.is_none()),
            // What is wrong may be a password in the wrong place, and the rest of an error repeats it.
            why: error.map(|error| code(&error.to_string()).to_owned()),
            ..Act::new("redis", shown(spec), decision)
        }
    });
}

/// The same of a command of which only its words are at hand.
pub(super) fn answered_words(args: Args<'_>, error: Option<&Complaint>, context: &Context<'_>) {
    if context.hub.audit.is_some()
        && let Ok(spec) = table::find(args)
    {
        answered(spec, args, error, context);
    }
}

/// A command on data is asked of the keyspace.
pub(super) fn asked(spec: &Spec, context: &Context<'_>) {
    if spec.is(flag::DANGEROUS) && EMPTIES.contains(&spec.name) {
        tell(context, || Act {
            user: user(context),
            keyspace: keyspace(context),
            ..Act::new("redis", shown(spec), Decision::Allowed)
        });
    }
}

fn tell(context: &Context<'_>, act: impl FnOnce() -> Act) {
    if let Some(audit) = &context.hub.audit {
        let client = context.clients.get(&context.connection);
        audit.tell(Act { address: client.map(|client| client.address.to_string()), ..act() });
    }
}

/// Whether a command of the node's own changes how it serves others, shows what others do, or clears what was noted of them.
fn administers(spec: &Spec, args: Args<'_>) -> bool {
    match spec.name {
        "acl|setuser" | "acl|deluser" | "acl|load" | "acl|save" | "client|kill" | "client|unblock"
        | "config|set" | "monitor" | "slowlog|reset" => true,
        "acl|log" => args.len() > 2 && args.at(2).eq_ignore_ascii_case(b"reset"),
        _ => false,
    }
}

/// On what. What may be a password is left out: rules that are one, also in the place of the user, and all values of what was not
/// taken.
fn object(spec: &Spec, args: Args<'_>, done: bool) -> Option<String> {
    let shown = |(at, word): (usize, &[u8])| match (spec.name, word.first()) {
        ("acl|setuser", _) if !done && at > 0 => String::new(),
        ("acl|setuser", Some(sign @ (b'>' | b'<' | b'#' | b'!'))) => {
            format!("{}(redacted)", char::from(*sign))
        }
        ("config|set", _) if !done && at % 2 == 1 => String::new(),
        _ => text(word),
    };
    let mut object = String::new();
    for word in args.from(2).iter().enumerate().map(shown).filter(|word: &String| !word.is_empty()) {
        if object.len() > MOST {
            break;
        }
        object += if object.is_empty() { "" } else { " " };
        object += &word;
    }
    (!object.is_empty()).then_some(object)
}

/// Beyond so many bytes nothing is added, since no more is kept.
const MOST: usize = 2 << 10;

/// The user of the connection.
fn user(context: &Context<'_>) -> Option<String> {
    context.clients.get(&context.connection).map(|client| client.user.clone())
}

/// The keyspace that it has selected.
fn keyspace(context: &Context<'_>) -> Option<String> {
    let index = context.clients.get(&context.connection)?.index;
    let view = context.keyspaces.iter().find(|view| view.index == index)?;
    Some(view.name.clone())
}

/// As it is typed.
fn shown(spec: &Spec) -> String {
    spec.name.replace('|', " ").to_uppercase()
}

#[cfg(test)]
mod tests {
    use crate::audit::{Record, open};
    use crate::gateway::Login;
    use crate::redis::tests::{World, play};
    use expect_test::expect;

    #[test]
    fn who_administers_logs_in_or_is_denied_is_kept_and_no_password_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let (audit, keeper) = open(&path).unwrap().start("va1", Default::default()).unwrap();
        let mut world = World::new(Login::Open);
        world.hub.audit = Some(audit);
        play(
            &mut world,
            "> ACL SETUSER eve on >pw ~a +@all -flushall ; ACL SETUSER eve +nosuch >pw2
             > CONFIG SET slowlog-max-len 5 ; CONFIG SET requirepass hunter2 ; ACL SETUSER >hunter2 on
             > AUTH eve guess
             < 0 denied
             > AUTH eve:hunter2 pw
             > AUTH eve pw ; GET a ; GET b ; FLUSHALL ; ACL LIST ; PING
             > MULTI ; CONFIG SET slowlog-max-len 6 ; EXEC
             > RESET ; FLUSHDB ; ACL LOG RESET ; ACL LOG ; CLIENT KILL ID 9 ; MONITOR",
        );
        drop(keeper);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!["pw", "hunter2", "guess"].iter().any(|secret| text.contains(secret)), "{text}");
        let records = text.lines().map(|line| serde_json::from_str::<Record>(line).unwrap());
        let part = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
        let shown = |record: Record| {
            let Record { via, user, address, act, keyspace, object, decision, why, .. } = record;
            assert_eq!((via.as_str(), address.as_deref()), ("redis", Some("127.0.0.1:50000")));
            let [user, keyspace, object, why] = [user, keyspace, object, why].map(part);
            format!("{decision:?} {user}: {act} in {keyspace} on {object}, {why}\n")
        };
        let told = records.filter(|record| record.via != "node").map(shown);
        expect![[r#"
            Allowed default: ACL SETUSER in - on eve on >(redacted) ~a +@all -flushall, -
            Failed default: ACL SETUSER in - on eve, ERR
            Allowed default: CONFIG SET in - on slowlog-max-len 5, -
            Failed default: CONFIG SET in - on requirepass, ERR
            Allowed default: ACL SETUSER in - on >(redacted) on, -
            Denied eve: AUTH in - on -, no such user, or another password, or the user is off
            Denied eve: AUTH in - on -, there is no keyspace of the name behind it
            Allowed eve: AUTH in - on -, -
            Denied eve: GET in main on b, the user may not do this to this key
            Denied eve: FLUSHALL in main on -, the user may not run it
            Allowed eve: CONFIG SET in - on slowlog-max-len 6, -
            Allowed default: FLUSHDB in main on -, -
            Allowed default: ACL LOG in - on RESET, -
            Allowed default: CLIENT KILL in - on ID 9, -
            Allowed default: MONITOR in - on -, -
        "#]]
        .assert_eq(&told.collect::<String>());
    }
}
