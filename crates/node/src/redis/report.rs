//! What a command has done to its keys, for keyspace notifications.
//!
//! The answer to a command does not say which of several keys `DEL` has deleted, nor whether `LPOP` has emptied its list, and no clock
//! of a node decides whether a key was over. So where somebody wants to be told ([`Hub::wanted`]), a command is asked for as a
//! transaction with the versions of its keys before and behind each part, and at the end, which of them it has deleted because
//! their time was over. Its own answer is taken out of that again, and of the rest the events are made ([`Report::hear`]): only of
//! what was executed, and answered to this node.

use crate::events::Event;
use crate::gateway::Outcome;
use crate::hub::Hub;
use isochrone_core::command::{
    BitStep, Chord, Combine, Condition, End, Expiry, GroupChange, Keys, Operation, Response, Selection, Side,
    Touch,
};
use isochrone_core::notify::Flags;
use isochrone_core::{Blob, KeyspaceId};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of memory, about, of what is asked beside a command at most; of one that names more keys nothing is told.
const ASKED_MAX: usize = 8 << 20;

/// A command that is asked to say what it does.
#[derive(Debug)]
pub(crate) struct Report {
    /// Its keyspace.
    keyspace: KeyspaceId,
    /// The classes of events that are wanted.
    wanted: Flags,
    /// The command itself.
    operation: Operation,
    /// All its keys, each once.
    keys: Keys,
}

/// What is asked beside one part of a command: the versions of keys before it and behind it, and, of a stream that it trims,
/// how many entries there are.
#[derive(Default)]
struct Looks<'a> {
    before: Vec<&'a Blob>,
    after: Vec<&'a Blob>,
    trims: Option<&'a Blob>,
}

/// The keys of which versions are known, before a part and behind it.
type Versions<'a> = BTreeMap<&'a Blob, (u64, u64)>;

/// What tells of a change.
fn changes(wanted: Flags) -> Flags {
    wanted.without(Flags::EXPIRED.with(Flags::MISS))
}

impl<'a> Looks<'a> {
    fn of(operation: &'a Operation, wanted: Flags) -> Looks<'a> {
        let misses = wanted.has(Flags::MISS) && looks_up(operation);
        let changed = changes(wanted) != Flags::NONE;
        let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
        let mut looks = Looks::default();
        operation.visit(&mut |touch| {
            let Touch::Key(key, access) = touch else { return };
            let writes = access.writes() && changed;
            if (writes || misses) && before.insert(key) {
                looks.before.push(key);
            }
            if writes && after.insert(key) {
                looks.after.push(key);
            }
        });
        if let Operation::XAdd { key, append } = operation
            && append.trimming.is_some()
            && wanted.has(Flags::STREAM)
        {
            looks.trims = Some(key);
        }
        looks
    }
}

/// Whether Redis says of this operation that a key which it reads is not there.
fn looks_up(operation: &Operation) -> bool {
    use Operation::*;
    !matches!(
        operation,
        // Of what a client does not read, or is asked for by WATCH and OBJECT.
        Version { .. }
            | Watch { .. }
            | Encoding { .. }
            | Weight { .. }
            | Expired { .. }
            | Sweep { .. }
            | Transaction { .. }
    )
}

impl Report {
    /// Has a command for this keyspace say what it does, as far as events of it are wanted.
    pub(crate) fn of(keyspace: KeyspaceId, operation: &mut Operation, wanted: Flags) -> Option<Box<Report>> {
        let read = Flags::EXPIRED.with(Flags::MISS);
        if wanted == Flags::NONE || !wanted.has(read) && operation.is_read() {
            return None;
        }
        let (mut bytes, mut any) = (0_usize, false);
        operation.visit(&mut |touch| {
            if let Touch::Key(key, _) = touch {
                any = true;
                bytes = bytes.saturating_add(3 * (size_of::<Operation>() + key.len()));
            }
        });
        if !any || bytes > ASKED_MAX {
            return None;
        }
        let (watched, mut operations): (_, Vec<Operation>) = match &*operation {
            Operation::Transaction { watched, operations } => {
                (watched.clone(), operations.iter().flat_map(|part| with_looks(part, wanted)).collect())
            }
            alone => ([].into(), with_looks(alone, wanted)),
        };
        let mut keys = Vec::new();
        if wanted.has(Flags::EXPIRED) {
            let mut known = BTreeSet::new();
            operation.visit(&mut |touch| {
                if let Touch::Key(key, _) = touch
                    && known.insert(key)
                {
                    keys.push(key.clone());
                }
            });
        }
        let keys = Keys::from(keys);
        if wanted.has(Flags::EXPIRED) {
            operations.push(Operation::Expired { keys: keys.clone() });
        }
        let asked = Operation::Transaction { watched, operations: operations.into() };
        let operation = std::mem::replace(operation, asked);
        Some(Box::new(Report { keyspace, wanted, operation, keys }))
    }

    /// Tells what the answer to such a command says has happened; what is left is that to the command itself.
    pub(crate) fn hear(self, outcome: Outcome, hub: &mut Hub) -> Outcome {
        // Of what was not executed, or nobody knows to have been, nothing is told.
        let Outcome::Done(Response::Array(mut parts)) = outcome else { return outcome };
        let mut events = Vec::new();
        if self.wanted.has(Flags::EXPIRED)
            && let Some(Response::Array(over)) = parts.pop()
        {
            let over = self.keys.iter().zip(over).filter(|(_, over)| *over == Response::Integer(1));
            events.extend(over.map(|(key, _)| (Event::Expired, key.clone())));
        }
        let mut parts = parts.into_iter();
        let response = match &self.operation {
            Operation::Transaction { operations, .. } => {
                let own = operations.iter().map(|part| take(part, self.wanted, &mut parts, &mut events));
                Response::Array(own.collect())
            }
            alone => take(alone, self.wanted, &mut parts, &mut events),
        };
        for (event, key) in events.iter().filter(|(event, _)| self.wanted.has(event.class())) {
            hub.happened(self.keyspace, *event, key);
        }
        Outcome::Done(response)
    }
}

/// A part of a command among what is asked beside it.
fn with_looks(part: &Operation, wanted: Flags) -> Vec<Operation> {
    if let Operation::Transaction { watched, operations } = part {
        let operations = operations.iter().flat_map(|part| with_looks(part, wanted)).collect();
        return vec![Operation::Transaction { watched: watched.clone(), operations }];
    }
    let looks = Looks::of(part, wanted);
    let version = |key: &&Blob| Operation::Version { key: (*key).clone() };
    let length = || looks.trims.map(|key| Operation::XLen { key: key.clone() });
    let before = looks.before.iter().map(version).chain(length());
    let after = looks.after.iter().map(version).chain(length());
    before.chain([part.clone()]).chain(after).collect()
}

/// The answer to such a part, and what has happened.
fn take(
    part: &Operation,
    wanted: Flags,
    answers: &mut std::vec::IntoIter<Response>,
    events: &mut Vec<(Event, Blob)>,
) -> Response {
    if let Operation::Transaction { operations, .. } = part {
        return match answers.next() {
            Some(Response::Array(parts)) => {
                let mut parts = parts.into_iter();
                let own = operations.iter().map(|part| take(part, wanted, &mut parts, events));
                Response::Array(own.collect())
            }
            answer => answer.unwrap_or(Response::Nil),
        };
    }
    let looks = Looks::of(part, wanted);
    let mut versions = Versions::new();
    let mut known = true;
    for key in &looks.before {
        versions.entry(*key).or_default().0 = number(answers.next(), &mut known);
    }
    let length = looks.trims.map(|_| number(answers.next(), &mut known));
    let answer = answers.next().unwrap_or(Response::Nil);
    for key in &looks.after {
        versions.entry(*key).or_default().1 = number(answers.next(), &mut known);
    }
    let left = looks.trims.map(|_| number(answers.next(), &mut known));
    // Where there was no room for one of these in the answer, nothing is told of this part.
    if !known || answer.is_error() {
        return answer;
    }
    let mut done = Done { keys: &looks.after, versions, events };
    if wanted.has(Flags::MISS) {
        done.missed(part);
    }
    if changes(wanted) != Flags::NONE {
        done.changed_by(part, &answer);
        if let (Some(key), Some(length), Some(left)) = (looks.trims, length, left)
            && answer != Response::Nil
            && left <= length
        {
            done.push(Event::XTrim, key);
        }
    }
    answer
}

/// A version, or a length.
fn number(answer: Option<Response>, known: &mut bool) -> u64 {
    let Some(Response::Integer(number)) = answer else {
        *known = false;
        return 0;
    };
    number as u64
}

/// What a part of a command has done.
struct Done<'a> {
    /// The keys that it may have changed, each once, as it names them.
    keys: &'a [&'a Blob],
    versions: Versions<'a>,
    events: &'a mut Vec<(Event, Blob)>,
}

impl Done<'_> {
    fn push(&mut self, event: Event, key: &Blob) {
        self.events.push((event, key.clone()));
    }

    fn was(&self, key: &Blob) -> bool {
        self.versions.get(key).is_some_and(|(before, _)| *before != 0)
    }

    fn is(&self, key: &Blob) -> bool {
        self.versions.get(key).is_some_and(|(_, after)| *after != 0)
    }

    fn is_changed(&self, key: &Blob) -> bool {
        self.versions.get(key).is_some_and(|(before, after)| before != after)
    }

    /// `del` where the key is there no longer.
    fn gone(&mut self, key: &Blob) {
        if self.was(key) && !self.is(key) {
            self.push(Event::Del, key);
        }
    }

    /// An event, and behind it `del` where it has taken the last there was.
    fn taken(&mut self, event: Event, key: &Blob) {
        self.push(event, key);
        self.gone(key);
    }

    /// An event where something was stored; `del` where nothing was, and the key is there no longer.
    fn stored(&mut self, event: Event, key: &Blob) {
        if self.is(key) { self.push(event, key) } else { self.gone(key) }
    }

    /// A key that was deleted and made again is new as well.
    fn replaced(&mut self, key: &Blob) {
        if self.was(key) && self.is(key) {
            self.push(Event::New, key);
        }
    }

    /// What it has looked up and not found.
    fn missed(&mut self, part: &Operation) {
        if !looks_up(part) {
            return;
        }
        let reads = matches!(
            part,
            Operation::GetDel { .. } | Operation::GetEx { .. } | Operation::Set { get: true, .. }
        );
        part.visit(&mut |touch| {
            if let Touch::Key(key, access) = touch
                && (reads || !access.writes())
                && !self.was(key)
            {
                self.push(Event::KeyMiss, key);
            }
        });
    }

    /// What its answer, and the versions of its keys, say that it has changed.
    fn changed_by(&mut self, part: &Operation, answer: &Response) {
        use Operation::*;
        let any = matches!(answer, Response::Integer(number) if *number > 0);
        let done = any || *answer == Response::Ok;
        for key in self.keys {
            if self.is(key) && !self.was(key) {
                self.push(Event::New, key);
            }
        }
        match part {
            Set { key, condition, expiry, .. } => {
                let wanted = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => !self.was(key),
                    Condition::IfPresent => self.was(key),
                };
                if wanted {
                    self.push(Event::Set, key);
                    if matches!(expiry, Expiry::At(_)) {
                        self.push(Event::Expire, key);
                        if !self.is(key) {
                            self.push(Event::Expired, key);
                        }
                    }
                }
            }
            MSet { pairs, .. } if done => pairs.iter().for_each(|(key, _)| self.push(Event::Set, key)),
            GetEx { key, expiry } if self.was(key) => match expiry {
                Expiry::At(_) => self.stored(Event::Expire, key),
                Expiry::Clear if self.is_changed(key) => self.push(Event::Persist, key),
                Expiry::Clear | Expiry::Keep => {}
            },
            Append { key, .. } | AppendWithin { key, .. } => self.push(Event::Append, key),
            SetRange { key, .. } if self.is_changed(key) => self.push(Event::SetRange, key),
            IncrBy { key, .. } => self.push(Event::IncrBy, key),
            CountUntil { key, .. } => {
                self.push(Event::IncrBy, key);
                if !self.was(key) {
                    self.push(Event::Expire, key);
                }
            }
            IncrByFloat { key, .. } => self.push(Event::IncrByFloat, key),
            SetBit { key, .. } if self.is_changed(key) => self.push(Event::SetBit, key),
            BitField { key, steps }
                if self.is_changed(key) && steps.iter().any(|step| !matches!(step, BitStep::Get(_))) =>
            {
                self.push(Event::SetBit, key);
            }
            BitOp { target, .. } => self.stored(Event::Set, target),
            PfAdd { key, .. } if any => self.push(Event::PfAdd, key),
            PfMerge { target, .. } => self.push(Event::PfAdd, target),

            Del { .. } | GetDel { .. } | DelIf { .. } => self.keys.iter().for_each(|key| self.gone(key)),
            ExpireAt { key, .. } | ExpireIf { key, .. } if any => self.stored(Event::Expire, key),
            Persist { key } if any => self.push(Event::Persist, key),
            Rename { key, target, .. } if done && key != target => {
                self.replaced(target);
                self.push(Event::RenameFrom, key);
                self.push(Event::RenameTo, target);
            }
            Copy { target, .. } if any => {
                self.replaced(target);
                self.push(Event::CopyTo, target);
            }
            Restore { key, .. } => {
                self.replaced(key);
                self.stored(Event::Restore, key);
            }

            HSet { key, .. } => self.push(Event::HSet, key),
            HSetNx { key, .. } if any => self.push(Event::HSet, key),
            HDel { key, .. } if any => self.taken(Event::HDel, key),
            HIncrBy { key, .. } => self.push(Event::HIncrBy, key),
            HIncrByFloat { key, .. } => self.push(Event::HIncrByFloat, key),

            Push { key, side, .. } if self.is_changed(key) => self.push(pushed(*side), key),
            Pop { side, .. } | LMPop { side, .. } => self.popped(popped(*side)),
            LSet { key, .. } => self.push(Event::LSet, key),
            LTrim { key, .. } if self.was(key) => self.taken(Event::LTrim, key),
            LRem { key, .. } if any => self.taken(Event::LRem, key),
            LInsert { key, .. } if any => self.push(Event::LInsert, key),
            LMove { source, target, from, to } if *answer != Response::Nil => {
                self.push(pushed(*to), target);
                self.taken(popped(*from), source);
            }
            SortStore { target, .. } => self.stored(Event::SortStore, target),

            SAdd { key, .. } if any => self.push(Event::SAdd, key),
            SRem { key, .. } if any => self.taken(Event::SRem, key),
            SPop { .. } => self.popped(Event::SPop),
            SMove { source, target, .. } if any && source != target => {
                self.taken(Event::SRem, source);
                if self.is_changed(target) {
                    self.push(Event::SAdd, target);
                }
            }
            SCombineStore { combine, target, .. } => self.stored(
                match combine {
                    Combine::Intersection => Event::SInterStore,
                    Combine::Union => Event::SUnionStore,
                    Combine::Difference => Event::SDiffStore,
                },
                target,
            ),

            ZAdd { key, .. } if self.is_changed(key) => self.push(Event::ZAdd, key),
            ZIncrBy { key, .. } if self.is_changed(key) => self.push(Event::ZIncr, key),
            ZRem { key, .. } if any => self.taken(Event::ZRem, key),
            ZPop { end, .. } | ZMPop { end, .. } => self.popped(match end {
                End::Least => Event::ZPopMin,
                End::Greatest => Event::ZPopMax,
            }),
            ZRemRange { key, range } if any => self.taken(
                match **range {
                    Selection::Index { .. } => Event::ZRemRangeByRank,
                    Selection::Score { .. } => Event::ZRemRangeByScore,
                    Selection::Lex { .. } => Event::ZRemRangeByLex,
                },
                key,
            ),
            ZRangeStore { target, .. } => self.stored(Event::ZRangeStore, target),
            ZCombineStore { target, inputs } => self.stored(
                match inputs.combine {
                    Combine::Intersection => Event::ZInterStore,
                    Combine::Union => Event::ZUnionStore,
                    Combine::Difference => Event::ZDiffStore,
                },
                target,
            ),
            GeoSearchStore { target, .. } => self.stored(Event::GeoSearchStore, target),

            XAdd { key, .. } if *answer != Response::Nil => self.push(Event::XAdd, key),
            XDel { key, .. } if any => self.push(Event::XDel, key),
            XTrim { key, .. } if any => self.push(Event::XTrim, key),
            XGroup { key, change } => {
                let event = match **change {
                    GroupChange::Create { .. } => done.then_some(Event::XGroupCreate),
                    GroupChange::SetId { .. } => done.then_some(Event::XGroupSetId),
                    GroupChange::Destroy { .. } => done.then_some(Event::XGroupDestroy),
                    GroupChange::CreateConsumer { .. } => done.then_some(Event::XGroupCreateConsumer),
                    GroupChange::DeleteConsumer { .. } => {
                        self.is_changed(key).then_some(Event::XGroupDelConsumer)
                    }
                    GroupChange::Remember { .. } => done.then_some(Event::XSetId),
                    // Where they make a consumer, Redis says so; the answer does not.
                    GroupChange::Acknowledge { .. }
                    | GroupChange::Claim { .. }
                    | GroupChange::ClaimFrom { .. } => None,
                };
                event.into_iter().for_each(|event| self.push(event, key));
            }
            ChordStep { chord } => self.chord(chord),

            // What has changed nothing that Redis tells of.
            MSet { .. }
            | GetEx { .. }
            | SetRange { .. }
            | SetBit { .. }
            | BitField { .. }
            | PfAdd { .. }
            | ExpireAt { .. }
            | ExpireIf { .. }
            | Persist { .. }
            | Rename { .. }
            | Copy { .. }
            | HSetNx { .. }
            | HDel { .. }
            | Push { .. }
            | LTrim { .. }
            | LRem { .. }
            | LInsert { .. }
            | LMove { .. }
            | SAdd { .. }
            | SRem { .. }
            | SMove { .. }
            | ZAdd { .. }
            | ZIncrBy { .. }
            | ZRem { .. }
            | ZRemRange { .. }
            | XAdd { .. }
            | XDel { .. }
            | XTrim { .. }
            | XReadGroup { .. } => {}

            // All keys at once, or what no client asks for as such.
            Flush
            | Sweep { .. }
            | Expired { .. }
            | Watch { .. }
            | Move { .. }
            | Share { .. }
            | Transaction { .. } => {}

            Get { .. }
            | MGet { .. }
            | StrLen { .. }
            | GetRange { .. }
            | Exists { .. }
            | Touch { .. }
            | Type { .. }
            | Ttl { .. }
            | Scan { .. }
            | Keys { .. }
            | DbSize
            | RandomKey { .. }
            | Version { .. }
            | HGet { .. }
            | HMGet { .. }
            | HGetAll { .. }
            | HKeys { .. }
            | HVals { .. }
            | HLen { .. }
            | HExists { .. }
            | HStrLen { .. }
            | HRandField { .. }
            | HScan { .. }
            | LLen { .. }
            | LRange { .. }
            | LIndex { .. }
            | LPos { .. }
            | SMembers { .. }
            | SIsMember { .. }
            | SMIsMember { .. }
            | SCard { .. }
            | SRandMember { .. }
            | SCombine { .. }
            | SInterCard { .. }
            | SScan { .. }
            | ZScore { .. }
            | ZMScore { .. }
            | ZCard { .. }
            | ZCount { .. }
            | ZRange { .. }
            | ZRank { .. }
            | ZCombine { .. }
            | ZInterCard { .. }
            | ZRandMember { .. }
            | ZScan { .. }
            | GetBit { .. }
            | BitCount { .. }
            | BitPos { .. }
            | Encoding { .. }
            | XLen { .. }
            | XRange { .. }
            | XRead { .. }
            | Dump { .. }
            | Weight { .. }
            | XInfo { .. }
            | GeoSearch { .. }
            | PfCount { .. }
            | Sort { .. } => {}
        }
    }

    /// Something was taken of the first of its keys that had any.
    fn popped(&mut self, event: Event) {
        if let Some(key) = self.keys.iter().find(|key| self.is_changed(key)) {
            self.taken(event, key);
        }
    }

    /// The script of a step of a chord is many commands.
    fn chord(&mut self, chord: &Chord) {
        for key in self.keys {
            if !self.is_changed(key) {
                continue;
            }
            if !self.is(key) {
                self.gone(key);
                continue;
            }
            let (written, dated) = match chord {
                Chord::Part { claim, .. } | Chord::Finish { claim, .. } if *key == claim => {
                    (Some(Event::Set), true)
                }
                Chord::Extend { .. } => ((!self.was(key)).then_some(Event::Set), true),
                Chord::Part { results, score, expires, .. } if *key == results => {
                    (Some(if score.is_some() { Event::ZAdd } else { Event::RPush }), expires.is_some())
                }
                Chord::Part { recorded, expires, .. } if *key == recorded => {
                    (Some(Event::SAdd), expires.is_some())
                }
                Chord::Part { .. } | Chord::Finish { .. } => (None, true),
            };
            written.into_iter().chain(dated.then_some(Event::Expire)).for_each(|event| self.push(event, key));
        }
    }
}

fn pushed(side: Side) -> Event {
    match side {
        Side::Left => Event::LPush,
        Side::Right => Event::RPush,
    }
}

fn popped(side: Side) -> Event {
    match side {
        Side::Left => Event::LPop,
        Side::Right => Event::RPop,
    }
}
