//! Sessions where commuting commands are executed in different orders at different replicas.

use super::Seen;
use crate::machine::CHUNK_MAX;
use crate::{Blob, ClientId, CommandId, Malformed, ProcessId, Series, Wire, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// The sessions behind a partial order.
///
/// There, a client's mark "I have all answers below this" travels with a command that may be executed here
/// before commands below the mark are: they were executed where they were answered (a client that is answered
/// before that moves its mark when it knows them to be), and commute with what carries the mark. Refusing them
/// here would lose them at this replica alone. So a command is refused only if that very command was executed.
/// What was executed is kept as runs of numbers; an acknowledgement drops answers and nothing else.
///
/// Runs and former lives of clients go at a *barrier*: an entry that conflicts with everything, before which
/// every replica has executed the same commands. What lies below a mark then, or belongs to a life before the one
/// that the barrier names, is refused from there on, everywhere alike. It is not enough that a newer life has
/// executed something before the barrier: a write that the former was told to have its place may lie behind it.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Commuting<R> {
    sessions: Sessions<R>,
    /// Of each client process, the lives before this one are over.
    over: BTreeMap<ProcessId, u32>,
    /// How many runs there are.
    runs: usize,
}

#[derive(Clone, Eq, PartialEq, Hash, Debug)]
struct Session<R> {
    /// The client has all answers below.
    below: u64,
    /// Every command below is refused; set by barriers only.
    floor: u64,
    /// Executed, at or above the floor: runs from a number to before another, apart from each other.
    executed: BTreeMap<u64, u64>,
    done: Series<R>,
}

/// Sessions by client. Commands come in batches of one client's, which is asked about several times for each: the
/// one that was written to last is found without a search.
#[derive(Clone, Debug)]
struct Sessions<R> {
    /// Ascending by client.
    list: Vec<(ClientId, Session<R>)>,
    /// Where the last one was; says nothing of what is held.
    recent: usize,
}

impl<R> Default for Sessions<R> {
    fn default() -> Sessions<R> {
        Sessions { list: Vec::new(), recent: 0 }
    }
}

impl<R: PartialEq> PartialEq for Sessions<R> {
    fn eq(&self, other: &Sessions<R>) -> bool {
        self.list == other.list
    }
}

impl<R: Eq> Eq for Sessions<R> {}

impl<R: Hash> Hash for Sessions<R> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.list.hash(state);
    }
}

impl<R> Sessions<R> {
    fn find(&self, client: ClientId) -> Result<usize, usize> {
        match self.list.get(self.recent) {
            Some((held, _)) if *held == client => Ok(self.recent),
            _ => self.list.binary_search_by_key(&client, |(held, _)| *held),
        }
    }

    fn get(&self, client: ClientId) -> Option<&Session<R>> {
        self.find(client).ok().map(|at| &self.list[at].1)
    }

    /// The session of a client, begun where there was none.
    fn open(&mut self, client: ClientId) -> &mut Session<R> {
        let at = self.find(client);
        if let Err(at) = at {
            self.list.insert(at, (client, Session::default()));
        }
        let (Ok(at) | Err(at)) = at;
        self.recent = at;
        &mut self.list[at].1
    }

    fn iter(&self) -> impl Iterator<Item = (ClientId, &Session<R>)> {
        self.list.iter().map(|(client, session)| (*client, session))
    }
}

impl<R> Default for Session<R> {
    fn default() -> Session<R> {
        Session { below: 0, floor: 0, executed: BTreeMap::new(), done: Series::default() }
    }
}

impl<R> Session<R> {
    fn has(&self, sequence: u64) -> bool {
        match self.executed.last_key_value() {
            None => false,
            Some((start, end)) if sequence >= *start => sequence < *end,
            Some(_) => self.executed.range(..=sequence).next_back().is_some_and(|(_, end)| sequence < *end),
        }
    }

    /// Adds a number; whether it was new.
    fn add(&mut self, from: u64, mut end: u64) -> bool {
        if let Some(mut last) = self.executed.last_entry()
            && *last.get() == from
            && from < end
        {
            // Mostly the next one.
            *last.get_mut() = end;
            return true;
        }
        if from >= end || self.has(from) {
            return false;
        }
        let mut start = from;
        if let Some((before, reach)) = self.executed.range(..from).next_back()
            && *reach == from
        {
            start = *before;
        }
        if let Some(reach) = self.executed.remove(&end) {
            end = reach;
        }
        self.executed.insert(start, end);
        true
    }

    fn last(&self) -> Option<u64> {
        self.executed.last_key_value().map(|(_, end)| end - 1)
    }

    /// Refuses everything below from here on.
    fn raise(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        while let Some(first) = self.executed.first_entry() {
            if *first.key() >= self.floor {
                break;
            }
            let end = first.remove();
            if end > self.floor {
                self.executed.insert(self.floor, end);
                break;
            }
        }
        self.done.trim(self.floor);
    }
}

impl<R> Default for Commuting<R> {
    fn default() -> Commuting<R> {
        Commuting { sessions: Sessions::default(), over: BTreeMap::new(), runs: 0 }
    }
}

impl<R> Commuting<R> {
    /// Whether this is a former life of its process.
    fn is_over(&self, client: ClientId) -> bool {
        self.over.get(&client.process).is_some_and(|first| client.incarnation < *first)
    }

    pub(super) fn look(&self, id: CommandId) -> Option<Seen<'_, R>> {
        if self.is_over(id.client) {
            return Some(Seen::Forgotten);
        }
        let session = self.sessions.get(id.client)?;
        if id.sequence < session.floor {
            return Some(Seen::Forgotten);
        }
        session.has(id.sequence).then(|| match session.done.get(id.sequence) {
            Some(reply) => Seen::Done(reply),
            None => Seen::Forgotten,
        })
    }

    pub(super) fn finish(&mut self, id: CommandId, reply: R) {
        if self.is_over(id.client) {
            return;
        }
        let session = self.sessions.open(id.client);
        let before = session.executed.len();
        if id.sequence < session.floor || !session.add(id.sequence, id.sequence + 1) {
            return;
        }
        self.runs = self.runs + session.executed.len() - before;
        if id.sequence >= session.below {
            session.done.insert(id.sequence, reply);
        }
    }

    pub(super) fn acknowledge(&mut self, client: ClientId, below: u64) {
        if self.is_over(client) {
            return;
        }
        let session = self.sessions.open(client);
        if below > session.below {
            session.below = below;
            session.done.trim(below);
        }
    }

    pub(super) fn barrier(&mut self, life: ClientId) {
        let first = self.over.entry(life.process).or_default();
        *first = life.incarnation.max(*first);
        self.sessions.list.retain_mut(|(client, session)| {
            session.raise(session.below);
            client.process != life.process || client.incarnation >= *first
        });
        self.runs = self.sessions.iter().map(|(_, session)| session.executed.len()).sum();
    }

    pub(super) fn expire(&mut self, client: ClientId) {
        if let Some(last) = self.last(client) {
            self.sessions.open(client).raise(last + 1);
        }
        self.barrier(client);
    }

    pub(super) fn retained(&self) -> impl Iterator<Item = (ClientId, usize)> + '_ {
        let held = |session: &Session<R>| !session.done.is_empty() || !session.executed.is_empty();
        self.sessions
            .iter()
            .filter(move |(_, session)| held(session))
            .map(|(client, session)| (client, session.done.len()))
    }

    pub(super) fn last(&self, client: ClientId) -> Option<u64> {
        self.sessions.get(client)?.last()
    }

    pub(super) fn below(&self, client: ClientId) -> u64 {
        self.sessions.get(client).map_or(0, |session| session.below)
    }

    pub(super) fn runs(&self) -> usize {
        self.runs
    }
}

/// A part of the table in a chunk.
#[derive(Serialize, Deserialize)]
enum Part<R> {
    Over(ProcessId, u32),
    Session { client: ClientId, below: u64, floor: u64, runs: Vec<(u64, u64)>, done: Vec<(u64, R)> },
}

/// Runs or answers in one part at most.
const PART_MAX: usize = 1_024;

impl<R: Wire> Commuting<R> {
    pub(super) fn export(&self) -> Vec<Blob> {
        let (mut chunks, mut parts, mut size) = (Vec::new(), Vec::<Part<R>>::new(), 0);
        let mut push = |part: Part<R>, bytes: usize| {
            parts.push(part);
            size += bytes;
            if size >= CHUNK_MAX {
                chunks.push(Blob::from(wire::encode(&std::mem::take(&mut parts))));
                size = 0;
            }
        };
        for (process, first) in &self.over {
            push(Part::Over(*process, *first), 16);
        }
        for (client, session) in self.sessions.iter() {
            let (mut runs, mut done) = (session.executed.iter(), session.done.iter());
            let mut first = true;
            loop {
                let some: Vec<(u64, u64)> = runs.by_ref().take(PART_MAX).map(|(a, b)| (*a, *b)).collect();
                let (mut answers, mut bytes) = (Vec::new(), 32 + some.len() * 12);
                for (sequence, reply) in done.by_ref() {
                    bytes += wire::encoded_size(reply) + 10;
                    answers.push((sequence, reply.clone()));
                    if bytes >= CHUNK_MAX / 2 {
                        break;
                    }
                }
                if !first && some.is_empty() && answers.is_empty() {
                    break;
                }
                first = false;
                let (below, floor) = (session.below, session.floor);
                push(Part::Session { client, below, floor, runs: some, done: answers }, bytes);
            }
        }
        if !parts.is_empty() {
            chunks.push(Blob::from(wire::encode(&parts)));
        }
        chunks
    }

    pub(super) fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let parts: Vec<Part<R>> = wire::decode(chunk)
            .map_err(|error| Malformed { what: "exactly-once chunk", cause: error.to_string() })?;
        for part in parts {
            match part {
                Part::Over(process, first) => {
                    self.over.insert(process, first);
                }
                Part::Session { client, below, floor, runs, done } => {
                    let session = self.sessions.open(client);
                    (session.below, session.floor) = (below, floor);
                    let before = session.executed.len();
                    session.executed.extend(runs);
                    self.runs = self.runs + session.executed.len() - before;
                    for (sequence, reply) in done {
                        session.done.insert(sequence, reply);
                    }
                }
            }
        }
        Ok(())
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    crate::shape::hold::<Vec<Part<u64>>>("once-commuting");
}
