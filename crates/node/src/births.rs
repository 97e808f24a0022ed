//! Which data directories nodes have, and which past: a node that comes with another directory than before, or with an old copy
//! of its own, has lost what it promised.
//!
//! A directory is given a number at random when its node first starts, its *birth*, and another one at every start, its *salt*.
//! A node tells both with every greeting, with the salts of the starts before, of which it keeps the last [`PAST`]. Every
//! node remembers of each other one, durably and before it hears anything else of it, its birth and the salt of the start that
//! it took in last. Whoever comes back under a known name with an unknown birth has lost its disk, or was started with another
//! directory; whoever comes without the salt that is remembered was started with a copy that was made before that start. It
//! is not listened to, is sent nothing, and is told so, upon which it ends: no protocol here survives a replica that comes
//! back without its memory (`trust.md` R13; `specs/curp.md` D-2).
//!
//! Salts and not numbers of starts say what a directory knows: a copy counts on from where it was made, and has as many starts
//! as the original before long. Numbers only say which salts are too old to be kept: where a node has started more than [`PAST`]
//! times since it was taken in, nobody can tell, and it is taken in. So that a copy does not get there by being refused again and
//! again, the starts that are refused are remembered by their numbers, and who is refused forgets that start before any other.
//!
//! Where only the journal in the directory is an old copy, the node itself does not start ([`Births::check`]). Nor does it where the
//! journal or the snapshots are those of another directory: they bear the same birth, which the journal is given when its first
//! segment is made, before there is a `PEERS`. What a version wrote that knew of no births there is taken as it is.
//!
//! A copy that was made while the node ran knows its last start, and follows it as a restart does. Where the process of that
//! start still answers, the copy is the older of the two, since the process has gone on; so it is not taken in
//! ([`Births::take_in`]). Whoever was killed and starts again must not wait for that: its connections were closed by the system
//! or, where its machine died, fall silent, and a refusal is for now only. Once the process has answered what it was asked after
//! the newcomer's first greeting, both live, and the newcomer is told to end: left waiting, it would come in at the next restart
//! of the original.
//!
//! Each node decides by its own connections. One that had lost the original from sight may take the copy in, while another
//! refuses it: the copy then ends, and the original is refused by the first from its next greeting on. So neither goes on, which
//! costs a replica and no promise: each has made some that the other does not know. The original is told so, and that a node of
//! another name must take its place.
//!
//! What this cannot see: a copy that was made while the node ran, where its original answers nobody that the copy greets; and one
//! whose neighbours were away in all starts since it was made.

use crate::journal::{JournalError, Newest};
use crate::listing::Listing;
use crate::node::StartError;
use isochrone_core::{Instant, NodeId, Random, Span};
use rand_core::RngCore;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const PEERS: Listing = Listing {
    name: "PEERS",
    heads: &[
        "isochrone peers, format 3: number birth start:salt...",
        "isochrone peers, format 2: number birth",
    ],
    older: "isochrone peers, format 1: number birth",
    reads: "formats 1 to 3",
    line: "`number birth start:salt...`",
};

/// Starts that a node tells of beside the one of now: they fit into a greeting.
pub const PAST: usize = 64;

/// Whoever was heard no longer ago lives: three pings of a link.
const ALIVE: Span = Span::from_secs(3);

/// One start of a node.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Rises from start to start.
    pub number: u32,
    /// What tells it from the same start of a copy.
    pub salt: u64,
}

/// What a node says of its data directory.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Life {
    /// Its number.
    pub birth: u64,
    /// The start of now.
    pub start: Start,
    /// Those before, [`PAST`] at most: the oldest first, but for those that were refused, which are before them.
    pub past: Vec<Start>,
}

impl Life {
    /// Whether this is what goes on from a start with `salt`, as far as can be told; since then `number` was heard of.
    fn follows(&self, Start { number, salt }: Start) -> bool {
        let knows = self.past.iter().chain([&self.start]).any(|start| start.salt == salt);
        let forgotten = self.past.len() >= PAST && self.past.iter().all(|start| start.number > number);
        knows || forgotten
    }
}

/// What is known of a node.
#[derive(Clone, Eq, PartialEq, Debug)]
struct Known {
    birth: u64,
    /// Of another node: the salt of the start that was taken in last, and the highest number that was heard of, one at most. Of
    /// this one: its last starts, as in [`Life::past`]. None where it was written before they were remembered.
    starts: Vec<Start>,
}

/// One of the two connections between this node and another.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub(crate) enum Way {
    /// The one that this node has dialled.
    There,
    /// The one that the other has dialled.
    Back,
}

/// A connection that stands: to which process of its node it leads.
#[derive(Debug)]
struct Standing {
    salt: u64,
    number: u32,
    /// Where that is.
    place: String,
    /// When something was last heard of it.
    heard: Instant,
    /// When it was said, by this node's clock, what it has answered last: it lived later than that.
    asked: Instant,
}

/// The births and starts that a node knows, its own among them.
#[derive(Debug)]
pub struct Births {
    data: PathBuf,
    own: Life,
    known: BTreeMap<NodeId, Known>,
    /// The connections to nodes that were taken in.
    standing: BTreeMap<(NodeId, Way), Standing>,
    /// By its salt the start that is not taken in while another answers, and when it first came.
    refused: BTreeMap<NodeId, (u64, Instant)>,
    /// By its salt the start of a node before the one that it was taken in with last, and where that one is.
    displaced: BTreeMap<NodeId, (u64, String)>,
}

/// What comes of meeting a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stranger {
    /// It is known with another directory.
    #[error(
        "it has another data directory than the one that it is known by: its disk is lost, or it was started with another \
         directory. A node must not come back without its memory: start it with the directory that it had, or put a \
         node of another name in its place (docs/operations.md, \"A node that has lost its disk, or whose journal is damaged\")"
    )]
    Reborn,
    /// Its directory does not know of a start that is known here.
    #[error(
        "its data directory is an old copy: it comes as start {number}, and does not know the start as which it was taken in \
         last (up to start {heard} was heard of). What the node has promised since the copy was made must not be forgotten: start it \
         with the directory as it was when the node ended for the last time, or delete the copy and put a node of another name in its \
         place (docs/operations.md, \"A node that has lost its disk, or whose journal is damaged\"). Where the node runs elsewhere \
         with the newer data, end only this process of it"
    )]
    Outdated {
        /// The start that it comes as.
        number: u32,
        /// The highest one that was heard of.
        heard: u32,
    },
    /// The process of the start that is known answers, or has until a moment ago.
    #[error(
        "another process of it answered a moment ago, as start {other}, at {place}. Where that one has ended, this one, start \
         {number}, is taken in within {ALIVE}; where it runs, this one has a copy of its directory, and is told to end"
    )]
    Second {
        /// The start that it comes as.
        number: u32,
        /// That of the other.
        other: u32,
        /// Where the other is.
        place: String,
    },
    /// The same, and the other has answered what it was asked since.
    #[error(
        "another process of it runs, as start {other}, at {place}, and has answered since this one, start {number}, first came. This \
         one's data directory is a copy that was made while the other ran, and lacks what that has promised since: leave the other as \
         it is, and delete this copy"
    )]
    Twin {
        /// The start that it comes as.
        number: u32,
        /// That of the other.
        other: u32,
        /// Where the other is.
        place: String,
    },
    /// A start behind it was taken in while its process lived on.
    #[error(
        "another process of it was taken in meanwhile, at {place}, when this one, start {number}, did not answer: with a copy of its data \
         directory that was made while this one ran. Each may have promised what the other does not know, so neither may go on: end \
         the other as well, and put a node of another name in the place of both; but if both had the very same disk, the other goes \
         on, and only this one ends (docs/operations.md, \"A node that has lost its \
         disk, or whose journal is damaged\")"
    )]
    Displaced {
        /// The start that it comes as.
        number: u32,
        /// Where the other is, or was when it came.
        place: String,
    },
    /// It cannot be remembered, and so not be taken for who it is the next time.
    #[error("{path} cannot be written: {cause}")]
    Unwritten {
        /// Where.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

impl Births {
    /// What keeps a node from starting on a journal of which this is the newest segment, if that is so: it is an old copy, without
    /// what was acknowledged since. Nothing is changed; a start that counted itself in the copy before it is refused would let
    /// the copy catch up.
    ///
    /// A journal that was not exchanged is never refused, wherever a start was cut short. The journal counts a start first, and
    /// has it synced, whether `fsync` is on or off, before this file says its number: so this file knows of no start that the
    /// journal did not know of before. And this file is renamed into its place as a whole.
    ///
    /// # Errors
    /// That; or the file cannot be read, or is damaged.
    pub(crate) fn check(data: &Path, me: NodeId, journal: &Newest) -> Result<(), StartError> {
        let entries = PEERS.read(data, entry)?.map(|found| found.entries).unwrap_or_default();
        let own = entries.into_iter().filter(|(node, _)| *node == me).flat_map(|(_, known)| known.starts);
        let known = own.map(|start| start.number).max().unwrap_or(0);
        if journal.incarnation >= known {
            return Ok(());
        }
        let (path, beside, found) = (journal.path.clone(), PEERS.path(data), journal.incarnation);
        Err(JournalError::Older { path, beside, found, known }.into())
    }

    /// The birth that is remembered of the directory at `data`, zero where none is.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(crate) fn birth(data: &Path, me: NodeId) -> Result<u64, StartError> {
        let entries = PEERS.read(data, entry)?.map(|found| found.entries).unwrap_or_default();
        Ok(entries.into_iter().find(|(node, _)| *node == me).map_or(0, |(_, known)| known.birth))
    }

    /// What a data directory knows, with one more start of its node, which is durable from here on. `incarnation` is how often
    /// the journal was opened; whether that may be is for [`Births::check`] to say, before. `birth` is that of the journal, which
    /// is given to a directory that has none.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not what this version writes.
    pub fn open(
        data: &Path,
        me: NodeId,
        incarnation: u32,
        birth: u64,
        random: &mut Random,
    ) -> Result<Births, StartError> {
        let found = PEERS.read(data, entry)?;
        let mut known: BTreeMap<_, _> =
            found.map(|found| found.entries).unwrap_or_default().into_iter().collect();
        let (birth, mut past) = match known.remove(&me) {
            Some(Known { birth, starts }) => (birth, starts),
            None => (birth, Vec::new()),
        };
        past.drain(..past.len().saturating_sub(PAST));
        let last = past.iter().map(|start| start.number).max().unwrap_or(0);
        let next = last.saturating_add(1);
        let start = Start { number: incarnation.max(next), salt: random.next_u64() };
        let starts = past.iter().copied().chain([start]).collect();
        known.insert(me, Known { birth, starts });
        let births = Births {
            data: data.into(),
            own: Life { birth, start, past },
            known,
            standing: BTreeMap::new(),
            refused: BTreeMap::new(),
            displaced: BTreeMap::new(),
        };
        births.write().map_err(|error| PEERS.unwritten(data, error))?;
        Ok(births)
    }

    /// What this node says of its own.
    pub fn own(&self) -> &Life {
        &self.own
    }

    /// What is wrong with a deployment file of so many nodes, if anything: a node was met that it does not have. Whether that
    /// one is needed only the protocols know, so this is no reason not to start.
    pub(crate) fn unlisted(&self, nodes: usize) -> Option<String> {
        let known = self.known.keys().filter(|node| usize::from(node.0) >= nodes);
        let known: Vec<String> = known.map(|node| node.0.to_string()).collect();
        if known.is_empty() {
            return None;
        }
        Some(format!(
            "{}: this node has met nodes that the deployment file does not have: it has {nodes}, counted from 0, and met were \
             {}. What is replicated among those as well cannot be served without them, and clients are told NOLEADER. Start \
             this node with the file that the others are started with",
            PEERS.path(&self.data).display(),
            known.join(", ")
        ))
    }

    /// A node has come with this directory, on a connection from or to `place`. When this returns, it is known by it for ever, and by
    /// this start until the next. Nothing is remembered of one that is not taken in since another process of it answers.
    pub(crate) fn take_in(
        &mut self,
        node: NodeId,
        life: &Life,
        way: Way,
        place: &str,
        now: Instant,
    ) -> Result<(), Stranger> {
        let Start { number, salt } = life.start;
        let before = self.known.get(&node).filter(|known| known.birth == life.birth);
        let before = before.and_then(|known| known.starts.last().copied()).filter(|start| start.salt != salt);
        if let Some(before) = before.filter(|before| life.follows(*before))
            && let Some((other, asked)) = self.alive(node, before.salt, now)
        {
            let (other, place) = (other.number, other.place.clone());
            let since = match self.refused.get(&node) {
                Some((refused, since)) if *refused == salt => *since,
                _ => now,
            };
            self.refused.insert(node, (salt, since));
            return Err(if asked > since {
                Stranger::Twin { number, other, place }
            } else {
                Stranger::Second { number, other, place }
            });
        }
        self.meet(node, life).map_err(|why| match self.displaced.get(&node) {
            Some((displaced, place)) if *displaced == salt && matches!(why, Stranger::Outdated { .. }) => {
                Stranger::Displaced { number, place: place.clone() }
            }
            _ => why,
        })?;
        self.refused.remove(&node);
        if let Some(before) = before {
            self.displaced.insert(node, (before.salt, place.to_owned()));
        }
        let (place, asked) = (place.to_owned(), Instant::ZERO);
        self.standing.insert((node, way), Standing { salt, number, place, heard: now, asked });
        Ok(())
    }

    /// The connection by which the process of this start is known to live, if it is, and when it was said what it has answered last
    /// on either.
    fn alive(&self, node: NodeId, salt: u64, now: Instant) -> Option<(&Standing, Instant)> {
        let standing = [Way::There, Way::Back].into_iter().filter_map(|way| self.standing.get(&(node, way)));
        let mut standing =
            standing.filter(|standing| standing.salt == salt && now.since(standing.heard) <= ALIVE);
        let first = standing.next()?;
        Some((first, standing.map(|standing| standing.asked).fold(first.asked, Instant::max)))
    }

    /// Something was heard on a connection that stands, from whoever had heard there what was said at `asked`: a pong comes
    /// after its ping, and a ping says which pong has come before it.
    pub(crate) fn heard(&mut self, node: NodeId, way: Way, asked: Instant, now: Instant) {
        if let Some(standing) = self.standing.get_mut(&(node, way)) {
            (standing.heard, standing.asked) = (now, asked);
        }
    }

    /// A connection stands no longer.
    pub(crate) fn ended(&mut self, node: NodeId, way: Way) {
        self.standing.remove(&(node, way));
    }

    /// Whether a connection leads to another process than the one that was taken in last.
    pub(crate) fn is_stale(&self, node: NodeId, way: Way) -> bool {
        let known = self.known.get(&node).and_then(|known| known.starts.last());
        let standing = self.standing.get(&(node, way));
        standing.is_some_and(|standing| known.is_some_and(|known| known.salt != standing.salt))
    }

    /// A node has come with this directory, whoever else lives.
    fn meet(&mut self, node: NodeId, life: &Life) -> Result<(), Stranger> {
        let Life { birth, start, .. } = life;
        let before = match self.known.get(&node) {
            Some(known) if known.birth != *birth => return Err(Stranger::Reborn),
            Some(known) => known.starts.last().copied(),
            None => None,
        };
        let heard = before.map_or(0, |before| before.number);
        let follows = before.is_none_or(|before| life.follows(before));
        let salt = before.filter(|_| !follows).map_or(start.salt, |before| before.salt);
        let after = Start { number: heard.max(start.number), salt };
        if before != Some(after) {
            self.remember(node, Known { birth: *birth, starts: vec![after] })
                .map_err(|cause| Stranger::Unwritten { path: PEERS.path(&self.data), cause })?;
        }
        if follows { Ok(()) } else { Err(Stranger::Outdated { number: start.number, heard }) }
    }

    /// This start was refused: it is the first to be forgotten. A copy that starts again and again, as services do, would else
    /// forget those by which whoever has not met it since knows it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn refused(&mut self, me: NodeId) -> Result<(), StartError> {
        let Life { birth, start, past } = &self.own;
        let starts = [start].into_iter().chain(past).copied().collect();
        self.remember(me, Known { birth: *birth, starts }).map_err(|error| PEERS.unwritten(&self.data, error))
    }

    /// Durably, or not at all.
    fn remember(&mut self, node: NodeId, known: Known) -> io::Result<()> {
        let before = self.known.insert(node, known);
        let written = self.write();
        if written.is_err() {
            match before {
                Some(before) => self.known.insert(node, before),
                None => self.known.remove(&node),
            };
        }
        written
    }

    fn write(&self) -> io::Result<()> {
        PEERS.write(&self.data, self.known.iter().map(line))
    }

    /// What keeps a node from starting on data without any, if that is so.
    pub(crate) fn missing(data: &Path) -> Option<StartError> {
        (!PEERS.path(data).exists()).then(|| PEERS.missing(data))
    }
}

fn entry(line: &str) -> Option<(NodeId, Known)> {
    let mut words = line.split(' ');
    let number = words.next()?.parse().ok()?;
    let birth = hexadecimal(words.next()?)?;
    let start = |word: &str| {
        let (number, salt) = word.split_once(':')?;
        Some(Start { number: number.parse().ok()?, salt: hexadecimal(salt)? })
    };
    let starts = words.map(start).collect::<Option<_>>()?;
    Some((NodeId(number), Known { birth, starts }))
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

fn line((node, known): (&NodeId, &Known)) -> String {
    let mut line = format!("{} {:016x}", node.0, known.birth);
    line.extend(known.starts.iter().map(|Start { number, salt }| format!(" {number}:{salt:016x}")));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::faulty::{Crash, Faults, FaultyDisk};
    use crate::journal::{Batch, Fsync, Journal, JournalOptions, RealDisk, StreamId, newest};
    use std::fs;

    /// Node 1 starts, on a journal of the birth `seed`.
    fn open(data: &Path, seed: u64) -> Births {
        Births::open(data, NodeId(1), 1, seed, &mut Random::seeded(seed)).unwrap()
    }

    /// A directory of this birth in its first start.
    fn first(birth: u64) -> Life {
        Life { birth, start: Start { number: 1, salt: birth }, past: Vec::new() }
    }

    /// The same, started once more.
    fn again(life: &Life, salt: u64) -> Life {
        let mut past: Vec<_> = life.past.iter().copied().chain([life.start]).collect();
        past.drain(..past.len().saturating_sub(PAST));
        Life { birth: life.birth, start: Start { number: life.start.number + 1, salt }, past }
    }

    #[test]
    fn who_was_met_is_known_for_ever_and_by_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        let mut births = open(data.path(), 1);
        let own = births.own().clone();
        births.meet(NodeId(2), &first(7)).unwrap();
        births.meet(NodeId(2), &first(7)).unwrap();
        let mut later = open(data.path(), 2);
        assert_eq!(later.own().birth, own.birth, "a directory is born once");
        assert_eq!((later.own().start.number, &later.own().past), (2, &vec![own.start]));
        assert_ne!(later.own().start.salt, own.start.salt);
        for births in [&mut births, &mut later] {
            let refused = births.meet(NodeId(2), &first(8)).unwrap_err();
            assert!(matches!(refused, Stranger::Reborn), "{refused}");
            births.meet(NodeId(2), &first(7)).expect("the first stays the one");
        }
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open(other.path(), 3).own().birth, own.birth);
        // The number is the journal's where that has counted more, and rises also where that has lost one.
        let number = |incarnation| {
            let random = &mut Random::seeded(4);
            let births = Births::open(other.path(), NodeId(1), incarnation, 3, random).unwrap();
            births.own().start.number
        };
        assert_eq!([5, 5, 6, 9].map(number), [5, 6, 7, 9]);
    }

    fn small_segments(fsync: Fsync) -> JournalOptions {
        let (segment_first, segment_max) = (8 << 10, 16 << 10);
        JournalOptions { fsync, segment_first, segment_max, seed: Some(1), ..JournalOptions::new(7, 1) }
    }

    #[test]
    fn a_journal_that_is_older_is_refused_however_often_it_is_tried_and_left_as_it_is() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("journal");
        fs::create_dir(&path).unwrap();
        let (disk, options) = (RealDisk::new(&path), small_segments(Fsync::On));
        let start = |fresh: bool| -> Result<(), StartError> {
            if let Some(newest) = newest(&disk, &options)? {
                Births::check(data.path(), NodeId(1), &newest)?;
            }
            let (mut journal, _) = Journal::open_on(disk.clone(), options.clone(), fresh)?;
            let random = &mut Random::seeded(1);
            Births::open(data.path(), NodeId(1), journal.incarnation(), journal.birth(), random)?;
            journal.close()?;
            Ok(())
        };
        let files = || -> BTreeMap<PathBuf, Vec<u8>> {
            let paths = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
            paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
        };
        let put = |files: &BTreeMap<PathBuf, Vec<u8>>| {
            files.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        };
        start(true).unwrap();
        start(false).unwrap();
        let old = files();
        start(false).unwrap();
        let whole = files();
        put(&old);
        for _ in 0..5 {
            let refused = start(false).unwrap_err().to_string();
            let told = "journal/: this journal is an old copy: the last start of this node that it knows of is number 2, and ";
            assert!(refused.contains(told) && refused.contains("PEERS knows of number 3. "), "{refused}");
            assert!(files() == old, "it was changed");
        }
        put(&whole);
        start(false).unwrap();
    }

    #[test]
    fn wherever_a_start_is_cut_short_the_next_one_is_not_refused() {
        for fsync in [Fsync::On, Fsync::Off] {
            let (data, disk) = (tempfile::tempdir().unwrap(), FaultyDisk::default());
            let options = small_segments(fsync);
            let powers =
                (0..4_096).step_by(128).map(|power| Faults { power: Some(power), ..Faults::default() });
            let syncs = (0..6).map(|sync| Faults { sync: Some(sync), ..Faults::default() });
            let names = (0..3).map(|names| Faults { names: Some(names), ..Faults::default() });
            let mut whole = 0;
            for (number, faults) in (0_u64..).zip(powers.chain(syncs).chain(names)) {
                disk.fail(faults);
                let fresh = !disk.lengths().keys().any(|name| name.starts_with("segment-"));
                let opened = Journal::open_on(disk.clone(), options.clone(), fresh);
                // Every other start that comes so far ends before it is remembered.
                if let Ok((mut journal, _)) = opened
                    && number % 2 == 0
                {
                    let (birth, mut random) = (journal.birth(), Random::seeded(number));
                    Births::open(data.path(), NodeId(1), journal.incarnation(), birth, &mut random).unwrap();
                    whole += 1;
                    let mut batch = Batch::default();
                    batch.record(StreamId(1), &[7; 3_000]);
                    // This may fail as well.
                    let _ = journal.append_sync(&[batch]);
                }
                disk.crash(Crash::Torn(number));
                match newest(&disk, &options).unwrap() {
                    Some(newest) => Births::check(data.path(), NodeId(1), &newest).unwrap(),
                    None => assert!(!PEERS.path(data.path()).exists(), "{number}"),
                }
            }
            assert!(whole > 5, "{whole} starts are remembered");
        }
    }

    #[test]
    fn an_old_copy_is_known_by_what_it_does_not_know() {
        let data = tempfile::tempdir().unwrap();
        let meets = |life: &Life| open(data.path(), 1).meet(NodeId(2), life);
        let begun = first(7);
        let once = again(&begun, 20);
        let twice = again(&once, 30);
        meets(&begun).unwrap();
        meets(&again(&again(&again(&begun, 20), 21), 22)).expect("whoever was away has missed starts");
        let data = tempfile::tempdir().unwrap();
        let meets = |life: &Life| open(data.path(), 1).meet(NodeId(2), life);
        for life in [&begun, &once, &once, &twice] {
            meets(life).unwrap();
        }
        // As it was, started anew as often, and once more than the original; the peer starts anew each time.
        for old in [once.clone(), again(&once, 31), again(&again(&once, 31), 32)] {
            let number = old.start.number;
            let refused = meets(&old).unwrap_err();
            assert!(
                matches!(refused, Stranger::Outdated { number: told, .. } if told == number),
                "{refused}"
            );
        }
        meets(&twice).expect("it goes on");
        // However often it is tried, also where it has started more often than it remembers.
        let mut births = open(data.path(), 1);
        let mut old = again(&once, 40);
        for salt in 100..110 + PAST as u64 {
            old = again(&old, salt);
            births.meet(NodeId(2), &old).unwrap_err();
        }
        births.meet(NodeId(2), &again(&twice, 50)).expect("the original is known by what it knows");
        // Nor does one get on by being refused by another, where each time forgets that start first.
        let (directory, bystander) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let birth = open(directory.path(), 1).own().birth;
        let met = Life { birth, start: Start { number: 2, salt: 9 }, past: Vec::new() };
        open(bystander.path(), 1).meet(NodeId(2), &met).unwrap();
        let starts = |number| {
            let random = &mut Random::seeded(u64::from(number));
            Births::open(directory.path(), NodeId(1), number, birth, random).unwrap()
        };
        for number in 2..80 {
            starts(number).refused(NodeId(1)).unwrap();
        }
        let last = starts(80).own().clone();
        assert_eq!((last.start.number, last.past.len()), (80, PAST));
        let refused = open(bystander.path(), 1).meet(NodeId(2), &last).unwrap_err();
        assert!(matches!(refused, Stranger::Outdated { heard: 2, .. }), "{refused}");
        // Whoever was away for longer than is remembered cannot tell.
        let mut later = begun.clone();
        for salt in 200..202 + PAST as u64 {
            later = again(&later, salt);
            if later.past.len() < PAST {
                continue;
            }
            let data = tempfile::tempdir().unwrap();
            let mut births = open(data.path(), 1);
            births.meet(NodeId(2), &begun).unwrap();
            births.meet(NodeId(2), &later).unwrap();
        }
        assert!(later.past.iter().all(|start| start.salt != begun.start.salt), "it is forgotten by now");
    }

    #[test]
    fn a_copy_is_not_taken_in_while_its_original_answers_and_a_restart_is_once_that_is_silent() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let node = NodeId(2);
        let original = again(&first(7), 20);
        let copy = again(&original, 30);
        let met = || {
            let data = tempfile::tempdir().unwrap();
            let mut births = open(data.path(), 1);
            births.take_in(node, &original, Way::There, "there", at(0)).unwrap();
            births.take_in(node, &original, Way::Back, "back", at(0)).unwrap();
            (data, births)
        };
        let comes =
            |births: &mut Births, life: &Life, ms| births.take_in(node, life, Way::Back, "copy", at(ms));

        // The answer to what was asked before the copy came says nothing of now.
        let (data, mut births) = met();
        let written = fs::read(PEERS.path(data.path())).unwrap();
        for (ms, asked) in [(100, 0), (200, 50), (300, 100)] {
            let refused = comes(&mut births, &copy, ms).unwrap_err();
            assert!(
                matches!(&refused, Stranger::Second { number: 3, other: 2, place } if place == "there"),
                "{refused}"
            );
            births.heard(node, Way::There, at(asked), at(ms));
        }
        births.heard(node, Way::There, at(1_000), at(1_010));
        let refused = comes(&mut births, &copy, 1_020).unwrap_err();
        assert!(matches!(&refused, Stranger::Twin { number: 3, other: 2, .. }), "{refused}");
        assert!(fs::read(PEERS.path(data.path())).unwrap() == written, "something of the copy was kept");
        comes(&mut births, &original, 1_030).expect("the original goes on");

        // What the other has dialled tells that it lives as well, and what it had heard on it when it said so.
        births.ended(node, Way::There);
        let late = again(&original, 31);
        for (asked, ms) in [(0, 9_000), (9_000, 9_100)] {
            births.heard(node, Way::Back, at(asked), at(ms));
            let refused = comes(&mut births, &late, ms + 10).unwrap_err();
            assert!(matches!(refused, Stranger::Second { .. }), "{refused}");
        }
        births.heard(node, Way::Back, at(9_020), at(9_200));
        let refused = comes(&mut births, &late, 9_210).unwrap_err();
        assert!(matches!(refused, Stranger::Twin { .. }), "{refused}");
        // Whoever was killed has no connections, and is taken in at once.
        births.ended(node, Way::Back);
        comes(&mut births, &copy, 9_220).unwrap();

        // Whose machine died is silent. What is left of its connections is stale then; and who only seemed dead is told what came of it.
        let (_data, mut births) = met();
        comes(&mut births, &copy, 3_000).unwrap_err();
        comes(&mut births, &copy, 3_001).unwrap();
        assert_eq!([Way::There, Way::Back].map(|way| births.is_stale(node, way)), [true, false]);
        births.heard(node, Way::There, at(3_000), at(3_100));
        comes(&mut births, &copy, 3_110).expect("it is who is known now");
        let refused = comes(&mut births, &original, 3_200).unwrap_err();
        assert!(matches!(&refused, Stranger::Displaced { number: 2, place } if place == "copy"), "{refused}");
        // Who lacks the start that is known is an old copy, whoever lives.
        let (_data, mut births) = met();
        let refused = comes(&mut births, &again(&first(7), 21), 10).unwrap_err();
        assert!(matches!(refused, Stranger::Outdated { .. }), "{refused}");
    }

    #[test]
    fn a_file_without_somebody_who_was_met_is_told_of() {
        let data = tempfile::tempdir().unwrap();
        let mut births = open(data.path(), 1);
        births.meet(NodeId(0), &first(7)).unwrap();
        births.meet(NodeId(3), &first(8)).unwrap();
        assert_eq!(births.unlisted(4), None);
        let told = open(data.path(), 2).unlisted(2).unwrap();
        assert!(told.contains("it has 2, counted from 0, and met were 3."), "{told}");
        assert!(open(data.path(), 2).unlisted(1).unwrap().contains("met were 1, 3."));
    }

    #[test]
    fn who_cannot_be_written_down_is_not_known() {
        let data = tempfile::tempdir().unwrap();
        let mut births = open(data.path(), 1);
        let known = first(6);
        births.meet(NodeId(0), &known).unwrap();
        std::fs::remove_dir_all(data.path()).unwrap();
        for (node, life) in [(2, first(7)), (0, again(&known, 20))] {
            let refused = births.meet(NodeId(node), &life).unwrap_err();
            assert!(matches!(refused, Stranger::Unwritten { .. }), "{refused}");
        }
        std::fs::create_dir(data.path()).unwrap();
        births.meet(NodeId(2), &first(8)).expect("nothing was known of it");
        births.meet(NodeId(0), &again(&known, 21)).expect("only the start before was known");
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let mut births = open(data.path(), 1);
        births.meet(NodeId(2), &first(7)).unwrap();
        let path = PEERS.path(data.path());
        let written = std::fs::read(&path).unwrap();
        let refused = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let error = Births::open(data.path(), NodeId(1), 1, 1, &mut Random::seeded(1)).unwrap_err();
            error.to_string()
        };
        for (at, bit) in (0..written.len()).zip((0..8).cycle()) {
            let mut text = written.clone();
            text[at] ^= 1 << bit;
            let error = refused(&text);
            assert!(error.contains("PEERS"), "{at}: {error}");
        }
        for (text, expected) in [
            ("isochrone peers, format 4\n", "of another format; this version reads formats 1 to 3"),
            ("isochrone peers, format 3: number birth start:salt...\n1 7 1:8\n", "its checksum is another"),
            ("isochrone peers, format 2: number birth\n1 7\n", "its checksum is another"),
            ("isochrone peers, format 3: birth number\n", "it is damaged: its first line is not"),
            ("isochrone keyspaces, format 4\n", "it is damaged: its first line is not"),
            ("", "it is damaged: its first line is not"),
            ("isochrone peers, format 1: number birth\n1\n", "a line is not"),
            ("isochrone peers, format 1: number birth\n1 zz\n", "a line is not"),
            ("isochrone peers, format 1: number birth\n1 7 1\n", "a line is not"),
        ] {
            let error = refused(text.as_bytes());
            assert!(error.contains("PEERS") && error.contains(expected), "{error}");
        }
        // What earlier versions wrote knows of no starts: whoever comes next under its birth is taken in.
        let birth = births.own().birth;
        let old = format!("number birth\n1 {birth:016x}\n2 {:016x}\n", 7);
        let first_format = format!("isochrone peers, format 1: {old}");
        let second = format!("isochrone peers, format 2: {old}");
        let second = format!("{second}checksum {:08x}\n", crc32c::crc32c(second.as_bytes()));
        for text in [first_format, second] {
            std::fs::write(&path, text).unwrap();
            let mut births = open(data.path(), 2);
            assert_eq!((births.own().birth, births.own().start.number), (birth, 1));
            let later = again(&first(7), 9);
            births.meet(NodeId(2), &later).unwrap();
            let refused = open(data.path(), 3).meet(NodeId(2), &first(7)).unwrap_err();
            assert!(matches!(refused, Stranger::Outdated { number: 1, heard: 2 }), "{refused}");
        }
    }
}
