//! CLIENT and its subcommands.

use super::complaint::Complaint;
use super::connection::{Mute, State};
use super::reply::Reply;
use super::request::{Args, integer};
use crate::gateway::{ClientView, Context};
use crate::hub::Hub;
use isochrone_core::Instant;
use std::fmt::Write as _;

type Answer = Result<(), Complaint>;

pub(crate) fn id(state: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.integer(state.number as i64);
    Ok(())
}

pub(crate) fn info(
    state: &mut State,
    _: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let mut text = String::new();
    if let Some(client) = context.clients.get_mut(&state.number) {
        state.show(client);
        line(&mut text, state.number, client, context.now, context.hub);
    }
    reply.verbatim(&text);
    Ok(())
}

/// `CLIENT LIST [TYPE normal|master|replica|pubsub] [ID id ...]`
pub(crate) fn list(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let (mut kind, mut wanted): (Option<Kind>, Option<Vec<u64>>) = (None, None);
    match args.len() {
        2 => {}
        4 if args.at(2).eq_ignore_ascii_case(b"type") => kind = Some(Kind::named(args.at(3))?),
        4.. if args.at(2).eq_ignore_ascii_case(b"id") => {
            // Each is told as often as it is named, as in Redis.
            if args.len() > 3 + IDS_MAX {
                return Err(Complaint::text(format!("ERR more than {IDS_MAX} client IDs")));
            }
            let parsed: Option<Vec<u64>> = args
                .from(3)
                .iter()
                .map(|id| integer(id).map(|id| u64::try_from(id).unwrap_or(u64::MAX)))
                .collect();
            wanted = Some(parsed.ok_or(Complaint::text("ERR Invalid client ID"))?);
        }
        _ => return Err(Complaint::Syntax),
    }
    if let Some(own) = context.clients.get_mut(&state.number) {
        state.show(own);
    }
    let mut text = String::new();
    let numbers = wanted.unwrap_or_else(|| context.clients.keys().copied().collect());
    for number in numbers {
        if let Some(client) = context.clients.get(&number)
            && kind.is_none_or(|kind| kind.fits(number, context.hub))
            && !context.hub.is_killed(number)
        {
            line(&mut text, number, client, context.now, context.hub);
        }
    }
    reply.verbatim(&text);
    Ok(())
}

/// A type of clients.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Kind {
    /// Those that have subscribed to nothing.
    Normal,
    /// Those that have subscribed to something.
    Subscriber,
    /// Those of replication, which are no clients here.
    Nobody,
}

impl Kind {
    fn named(name: &[u8]) -> Result<Kind, Complaint> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Kind::Normal),
            b"pubsub" => Ok(Kind::Subscriber),
            b"master" | b"replica" | b"slave" => Ok(Kind::Nobody),
            _ => Err(Complaint::text(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name)))),
        }
    }

    fn fits(self, number: u64, hub: &Hub) -> bool {
        let subscribed = hub.counts(number) != [0; 3];
        match self {
            Kind::Normal => !subscribed,
            Kind::Subscriber => subscribed,
            Kind::Nobody => false,
        }
    }
}

/// Ends a connection: another at once, whatever it has not read yet; this one behind its reply.
pub(crate) fn end(number: u64, state: &mut State, hub: &mut Hub) {
    if number == state.number { state.quit() } else { hub.kill(number) }
}

/// A connection as CLIENT LIST shows it.
pub(crate) fn line(text: &mut String, number: u64, client: &ClientView, now: Instant, hub: &Hub) {
    let [channels, patterns, shards] = hub.counts(number);
    let mut flags = String::new();
    let (queued, watched) = client.transaction;
    let waits = client.waits && hub.waits(number);
    let unblocked = waits && hub.unblocked(number).is_some();
    for (is, flag) in [
        (hub.monitors(number), 'O'),
        (channels + patterns + shards > 0, 'P'),
        (queued.is_some(), 'x'),
        (waits && !unblocked, 'b'),
        (unblocked, 'u'),
        (client.no_evict, 'e'),
        (client.no_touch, 'T'),
    ] {
        flags.extend(is.then_some(flag));
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let seconds = |since: Instant| now.since(since).as_nanos() / 1_000_000_000;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "id={number} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} \
         multi={} watch={watched} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 \
         events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={} tot-net-in={} tot-net-out={}",
        client.address,
        client.local,
        client.name,
        seconds(client.since),
        seconds(client.active),
        flags,
        client.index,
        channels,
        patterns,
        shards,
        queued.map_or(-1, |queued| queued as i64),
        if client.last_command.is_empty() { "NULL" } else { client.last_command },
        client.user,
        client.protocol,
        client.library.0,
        client.library.1,
        client.traffic.0,
        client.traffic.1,
    );
}

/// How many IDs CLIENT LIST takes: what is told of one is thousands of times as long as it.
const IDS_MAX: usize = 1024;
/// Bytes of a name, or of a library's.
const NAME_MAX: usize = 4_096;

/// A name as CLIENT LIST can show it: no spaces, line ends or other special bytes; and not long, for logs repeat it.
pub(crate) fn checked_name(name: &[u8]) -> Result<String, Complaint> {
    if name.len() > NAME_MAX {
        return Err(Complaint::text(format!("ERR the name is longer than {NAME_MAX} bytes")));
    }
    let fits = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    match std::str::from_utf8(name) {
        Ok(name) if fits => Ok(name.to_owned()),
        _ => Err(Complaint::text("ERR Client names cannot contain spaces, newlines or special characters.")),
    }
}

pub(crate) fn set_name(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let name = checked_name(args.at(2))?;
    if let Some(client) = context.clients.get_mut(&state.number) {
        client.name = name;
    }
    reply.ok();
    Ok(())
}

pub(crate) fn get_name(
    state: &mut State,
    _: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    match context.clients.get(&state.number) {
        Some(client) if !client.name.is_empty() => reply.bulk(client.name.as_bytes()),
        _ => reply.null(),
    }
    Ok(())
}

/// `CLIENT SETINFO LIB-NAME name | LIB-VER version`
pub(crate) fn set_info(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let is_name = match args.at(2).to_ascii_lowercase().as_slice() {
        b"lib-name" => true,
        b"lib-ver" => false,
        _ => {
            let option = String::from_utf8_lossy(args.at(2)).into_owned();
            return Err(Complaint::text(format!("ERR Unrecognized option '{option}'")));
        }
    };
    let value = checked_name(args.at(3)).map_err(|complaint| match args.at(3).len() {
        0..=NAME_MAX => {
            let option = if is_name { "lib-name" } else { "lib-ver" };
            Complaint::text(format!("ERR {option} cannot contain spaces, newlines or special characters."))
        }
        _ => complaint,
    })?;
    if let Some(client) = context.clients.get_mut(&state.number) {
        *(if is_name { &mut client.library.0 } else { &mut client.library.1 }) = value;
    }
    reply.ok();
    Ok(())
}

/// `CLIENT NO-EVICT ON|OFF`, `CLIENT NO-TOUCH ON|OFF`: nothing is evicted, so there is nothing to switch.
/// But CLIENT LIST shows that it was.
pub(crate) fn switch(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let on = match args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(Complaint::Syntax),
    };
    if let Some(client) = context.clients.get_mut(&state.number) {
        match args.at(1).eq_ignore_ascii_case(b"no-evict") {
            true => client.no_evict = on,
            false => client.no_touch = on,
        }
    }
    reply.ok();
    Ok(())
}

/// `CLIENT REPLY ON|OFF|SKIP`
pub(crate) fn reply_mode(
    state: &mut State,
    args: Args<'_>,
    _: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    match args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => {
            state.mute = Mute::Off;
            reply.ok();
        }
        b"off" => state.mute = Mute::On,
        b"skip" if state.mute == Mute::On => {}
        b"skip" => state.mute = Mute::Armed,
        _ => return Err(Complaint::Syntax),
    }
    Ok(())
}

pub(crate) fn get_redirection(
    _: &mut State,
    _: Args<'_>,
    _: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    reply.integer(-1);
    Ok(())
}

/// `CLIENT KILL ip:port` or `CLIENT KILL filter value ...`
pub(crate) fn kill(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    if args.len() == 3 {
        let found = context.clients.iter().find(|(number, client)| {
            is_address(client.address, args.at(2)) && !context.hub.is_killed(**number)
        });
        let (number, _) = found.ok_or(Complaint::text("ERR No such client"))?;
        end(*number, state, context.hub);
        reply.ok();
        return Ok(());
    }
    if !args.len().is_multiple_of(2) {
        return Err(Complaint::Syntax);
    }
    let mut filters = Filters::default();
    for at in (2..args.len()).step_by(2) {
        filters.add(args.at(at), args.at(at + 1), context.hub)?;
    }
    let mut killed = 0;
    for (number, client) in context.clients.iter() {
        if (filters.spares_caller && *number == state.number)
            || context.hub.is_killed(*number)
            || !filters.fit(*number, client, context.now, context.hub)
        {
            continue;
        }
        end(*number, state, context.hub);
        killed += 1;
    }
    reply.integer(killed);
    Ok(())
}

fn is_address(address: std::net::SocketAddr, text: &[u8]) -> bool {
    address.to_string().as_bytes() == text
}

/// Whom CLIENT KILL means.
struct Filters {
    id: Option<u64>,
    address: Option<Vec<u8>>,
    local: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    age_seconds: Option<u64>,
    kind: Option<Kind>,
    spares_caller: bool,
}

impl Default for Filters {
    fn default() -> Filters {
        Filters {
            id: None,
            address: None,
            local: None,
            user: None,
            age_seconds: None,
            kind: None,
            spares_caller: true,
        }
    }
}

impl Filters {
    fn add(&mut self, name: &[u8], value: &[u8], hub: &Hub) -> Answer {
        let positive = |text: &'static str| {
            let value = integer(value).and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
            value.ok_or(Complaint::text(text))
        };
        match name.to_ascii_lowercase().as_slice() {
            b"id" => self.id = Some(positive("ERR client-id should be greater than 0")?),
            b"addr" => self.address = Some(value.to_vec()),
            b"laddr" => self.local = Some(value.to_vec()),
            b"user" => {
                let user = String::from_utf8_lossy(value);
                if !hub.users.has(&user) {
                    return Err(Complaint::text(format!("ERR No such user '{user}'")));
                }
                self.user = Some(value.to_vec());
            }
            b"maxage" => self.age_seconds = Some(positive("ERR maxage should be greater than 0")?),
            b"type" => self.kind = Some(Kind::named(value)?),
            b"skipme" => match value.to_ascii_lowercase().as_slice() {
                b"yes" => self.spares_caller = true,
                b"no" => self.spares_caller = false,
                _ => return Err(Complaint::Syntax),
            },
            _ => return Err(Complaint::Syntax),
        }
        Ok(())
    }

    fn fit(&self, number: u64, client: &ClientView, now: Instant, hub: &Hub) -> bool {
        self.kind.is_none_or(|kind| kind.fits(number, hub))
            && self.id.is_none_or(|id| id == number)
            && self.address.as_ref().is_none_or(|address| is_address(client.address, address))
            && self.local.as_ref().is_none_or(|address| is_address(client.local, address))
            && self.user.as_ref().is_none_or(|user| user == client.user.as_bytes())
            && self.age_seconds.is_none_or(|age| now.since(client.since).as_nanos() / 1_000_000_000 >= age)
    }
}
