//! ACL and its subcommands.

use super::file::{self, FileError, is_name};
use super::rules::{CATEGORIES, User, all_commands};
use super::{DEFAULT, Users};
use crate::gateway::Context;
use crate::hub::Topic;
use crate::redis::clients;
use crate::redis::complaint::Complaint;
use crate::redis::connection::State;
use crate::redis::reply::Reply;
use crate::redis::request::{Args, integer};
use crate::redis::table;

type Answer = Result<(), Complaint>;

/// `ACL WHOAMI`
pub(crate) fn who_am_i(state: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.bulk(state.user.as_bytes());
    Ok(())
}

/// `ACL USERS`
pub(crate) fn users(_: &mut State, _: Args<'_>, context: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let users = &context.hub.users.users;
    reply.array(users.len());
    users.keys().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

/// `ACL LIST`
pub(crate) fn list(_: &mut State, _: Args<'_>, context: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let users = &context.hub.users.users;
    reply.array(users.len());
    users.iter().for_each(|(name, user)| reply.bulk(&file::line(name, user)));
    Ok(())
}

/// `ACL GETUSER username`
pub(crate) fn get_user(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let found = std::str::from_utf8(args.at(2)).ok().and_then(|name| context.hub.users.users.get(name));
    let Some(user) = found else {
        reply.null();
        return Ok(());
    };
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().iter().for_each(|hash| reply.bulk(hash.as_bytes()));
    reply.bulk(b"commands");
    reply.bulk(user.commands().as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&user.key_rules());
    reply.bulk(b"channels");
    reply.bulk(&user.channel_rules());
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

/// `ACL SETUSER username [rule ...]`: all rules or none.
pub(crate) fn set_user(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let name = match std::str::from_utf8(args.at(2)) {
        Ok(name) if is_name(args.at(2)) => name,
        _ => return Err(Complaint::text("ERR Usernames can't contain spaces or null characters")),
    };
    let users = &mut context.hub.users;
    let mut user = users.users.get(name).cloned().unwrap_or_else(User::new);
    for rule in args.from(3).iter() {
        user.apply(rule).map_err(|error| {
            // A rule that is wrong may be a password without its sign.
            let rule = String::from_utf8_lossy(rule);
            Complaint::text(format!("ERR Error in ACL SETUSER modifier '{rule}': {error}"))
        })?;
    }
    users.users.insert(name.to_owned(), user);
    users.settle();
    end_forbidden(name, state, context);
    reply.ok();
    Ok(())
}

/// Ends the connections of a user that are subscribed to what the user may no longer hear.
fn end_forbidden(name: &str, state: &mut State, context: &mut Context<'_>) {
    for (number, _) in context.clients.iter().filter(|(_, client)| client.user == name) {
        let Some(user) = context.hub.users.users.get(name) else { return };
        let forbidden = |topic, literal| {
            context.hub.subscriptions(*number, topic).iter().any(|channel| !user.may_use(channel, literal))
        };
        if forbidden(Topic::Channel, false)
            || forbidden(Topic::Pattern, true)
            || forbidden(Topic::Shard, false)
        {
            clients::end(*number, state, context.hub);
        }
    }
}

/// Ends the connections of users that are no more.
fn end_orphans(state: &mut State, context: &mut Context<'_>) {
    for (number, client) in context.clients.iter() {
        if !context.hub.users.has(&client.user) {
            clients::end(*number, state, context.hub);
        }
    }
}

/// `ACL DELUSER username ...`
pub(crate) fn delete_user(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    if args.from(2).iter().any(|name| name == DEFAULT.as_bytes()) {
        return Err(Complaint::text("ERR The 'default' user cannot be removed"));
    }
    let users = &mut context.hub.users;
    let names = args.from(2).iter().filter_map(|name| std::str::from_utf8(name).ok());
    let deleted = names.filter(|name| users.users.remove(*name).is_some()).count();
    users.settle();
    end_orphans(state, context);
    reply.count(deleted);
    Ok(())
}

/// `ACL CAT [category]`
pub(crate) fn categories(
    _: &mut State,
    args: Args<'_>,
    _: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let found: Vec<&str> = match args.len() {
        2 => CATEGORIES.to_vec(),
        3 => {
            let wanted = args.at(2).to_ascii_lowercase();
            if !CATEGORIES.iter().any(|name| name.as_bytes() == wanted) {
                let category = String::from_utf8_lossy(args.at(2));
                return Err(Complaint::text(format!("ERR Unknown category '{category}'")));
            }
            let within = |name: &&str| name.as_bytes()[1..] == wanted;
            all_commands().filter(|spec| spec.categories().iter().any(within)).map(|spec| spec.name).collect()
        }
        _ => return Err(Complaint::Arity("acl|cat")),
    };
    reply.array(found.len());
    found.into_iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

/// `ACL GENPASS [bits]`
pub(crate) fn generate(_: &mut State, args: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    const BITS_MAX: i64 = 4096;
    let bits = match args.len() {
        2 => 256,
        3 => integer(args.at(2)).ok_or(Complaint::NotInteger)?,
        _ => return Err(Complaint::Arity("acl|genpass")),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(Complaint::text(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {BITS_MAX}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut bytes).map_err(|_| Complaint::text("ERR the system has no randomness to give"))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    reply.bulk(&text.as_bytes()[..digits]);
    Ok(())
}

/// `ACL DRYRUN username command [arg ...]`
pub(crate) fn dry_run(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let name = String::from_utf8_lossy(args.at(2)).into_owned();
    if !context.hub.users.has(&name) {
        return Err(Complaint::text(format!("ERR User '{name}' not found")));
    }
    let inner = args.from(3);
    let spec = match table::find(inner) {
        Ok(spec) => spec,
        Err(complaint @ Complaint::Arity(_)) => return Err(complaint),
        Err(_) => {
            let command = String::from_utf8_lossy(inner.at(0));
            return Err(Complaint::text(format!("ERR Command '{command}' not found")));
        }
    };
    match context.hub.users.check(&name, spec, inner) {
        Ok(()) => reply.ok(),
        Err(denied) => reply.bulk(denied.verbose(&name, spec, inner).as_bytes()),
    }
    Ok(())
}

/// `ACL LOG [count | RESET]`
pub(crate) fn log(_: &mut State, args: Args<'_>, context: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let count = match args.len() {
        2 => 10,
        3 if args.at(2).eq_ignore_ascii_case(b"reset") => {
            context.hub.users.log.clear();
            reply.ok();
            return Ok(());
        }
        3 => integer(args.at(2)).ok_or(Complaint::NotInteger)?.max(0) as usize,
        _ => return Err(Complaint::Arity("acl|log")),
    };
    context.hub.users.log.tell(count, context.stamp, reply)
}

/// `ACL LOAD`
pub(crate) fn load(
    state: &mut State,
    _: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    context.hub.users.load().map_err(|error| match error {
        FileError::None => not_configured(),
        error => Complaint::text(format!(
            "ERR {error}{}WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
            if matches!(error, FileError::Lines(_)) { "" } else { ". " }
        )),
    })?;
    end_orphans(state, context);
    let names: Vec<String> = context.hub.users.users.keys().cloned().collect();
    names.iter().for_each(|name| end_forbidden(name, state, context));
    reply.ok();
    Ok(())
}

/// `ACL SAVE`
pub(crate) fn save(_: &mut State, _: Args<'_>, context: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let users: &Users = &context.hub.users;
    users.save().map_err(|error| match error {
        FileError::None => not_configured(),
        error => {
            tracing::error!(%error, "ACL SAVE");
            Complaint::text(
                "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
            )
        }
    })?;
    reply.ok();
    Ok(())
}

fn not_configured() -> Complaint {
    Complaint::text(
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
         SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in \
         order to store users in the Redis configuration.",
    )
}
