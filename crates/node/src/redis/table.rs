//! All commands, and how one is found by its name.

use super::absent;
use super::commands::{
    bitmaps, hashes, hyperloglog, keys, lists, places, server, sets, sort, sorted_sets, streams, strings,
};
use super::complaint::Complaint;
use super::request::Args;
use super::spec::{Action, Group, Spec, about, flag};
use std::sync::LazyLock;

/// The table, chapter by chapter.
pub(crate) static COMMANDS: &[&[Spec]] = &[
    server::CONNECTION,
    server::SERVER,
    server::CLUSTER,
    server::TRANSACTIONS,
    server::PUBLISHING,
    server::SCRIPTING,
    keys::COMMANDS,
    sort::COMMANDS,
    strings::COMMANDS,
    bitmaps::COMMANDS,
    hashes::COMMANDS,
    lists::COMMANDS,
    sets::COMMANDS,
    sorted_sets::COMMANDS,
    streams::COMMANDS,
    places::COMMANDS,
    hyperloglog::COMMANDS,
];

/// The command, or subcommand, of a request, whose number of strings fits.
pub(crate) fn find(args: Args<'_>) -> Result<&'static Spec, Complaint> {
    let Some(mut spec) = INDEX.find(args.at(0)) else {
        return Err(Complaint::unknown_command(args.at(0), args.from(1).iter()));
    };
    if let Action::Container(children) = spec.action {
        if args.len() == 1 {
            // COMMAND alone lists everything; the other containers need a subcommand.
            if spec.fits(1) {
                return Ok(&BARE_COMMAND);
            }
            return Err(Complaint::Arity(spec.name));
        }
        let name = args.at(1);
        spec = children
            .iter()
            .find(|child| child.leaf().as_bytes().eq_ignore_ascii_case(name))
            .ok_or_else(|| absent::subcommand(spec.name, name))?;
    }
    if !spec.fits(args.len()) {
        return Err(Complaint::Arity(spec.name));
    }
    Ok(spec)
}

/// A command by its name, `container|subcommand` included.
pub(crate) fn by_name(name: &[u8]) -> Option<&'static Spec> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let spec = INDEX.find(parts.next()?)?;
    match parts.next() {
        None => Some(spec),
        Some(child) => spec.children().iter().find(|spec| spec.leaf().as_bytes().eq_ignore_ascii_case(child)),
    }
}

/// COMMAND without a subcommand.
static BARE_COMMAND: Spec = Group::Server.here(
    "command",
    1,
    flag::LOADING | flag::STALE,
    about("2.8.13", "", "Properties of all commands"),
    Action::Local(super::catalog::all),
);

static INDEX: LazyLock<Index> = LazyLock::new(Index::new);

/// Names by their first eight bytes and length, in capitals: one multiplication, mostly one comparison.
struct Index {
    places: Box<[Option<&'static Spec>; PLACES]>,
}

/// Eight times as many as there are commands, so that hardly any two meet.
const PLACES: usize = 2048;

/// The longest name of a command.
const NAME_MAX: usize = 24;

impl Index {
    fn new() -> Index {
        let mut places = Box::new([None; PLACES]);
        for spec in COMMANDS.iter().copied().flatten() {
            debug_assert!(spec.name.len() <= NAME_MAX);
            let mut place = Index::place(spec.name.as_bytes());
            while places[place].is_some() {
                place = (place + 1) % PLACES;
            }
            places[place] = Some(spec);
        }
        Index { places }
    }

    fn find(&self, name: &[u8]) -> Option<&'static Spec> {
        if name.len() > NAME_MAX {
            return None;
        }
        let mut place = Index::place(name);
        loop {
            let spec = self.places[place]?;
            if spec.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(spec);
            }
            place = (place + 1) % PLACES;
        }
    }

    fn place(name: &[u8]) -> usize {
        // The bit that tells small letters from capitals is set in all bytes alike.
        const SMALL: u64 = 0x2020_2020_2020_2020;
        let mut first = [b' '; 8];
        let mut last = [b' '; 8];
        let taken = name.len().min(8);
        first[..taken].copy_from_slice(&name[..taken]);
        last[..taken].copy_from_slice(&name[name.len() - taken..]);
        let (first, last) = (u64::from_le_bytes(first) | SMALL, u64::from_le_bytes(last) | SMALL);
        let mixed = (first ^ last.rotate_left(29) ^ name.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 53) as usize
    }
}
