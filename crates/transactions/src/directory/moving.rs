//! A move, driven from a client: mark, list and carry over, end. Each step is a transaction, and may be repeated by
//! anybody.
//!
//! **What nobody ends.** A client that sees a stretch on its way for long takes the move up: whoever drives it may have died. It
//! cannot know, so it reads both entries, marks nothing, and lists; where all that it would carry over first is gone since
//! the mark, somebody else carries, and it leaves it to them. Of two that meet all the same each only finds that the other was quicker.

use super::find::Find;
use super::{Client, Known, Mutation, Place, Reach, Route, Routes, Turn, located};
use crate::listing::{AsOf, PAGE, Query};
use crate::request::{MoveRefusal, Moved, Outcome, Read, Refusal, Request, TxnId, Update};
use isochrone_core::{Blob, Instant, NodeId, PartitionId, Span, Ticket};
use isochrone_store::versions::Version;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Stretches into which the directory entry of a partition may be cut.
const STRETCHES_MAX: usize = 256;
/// Bytes of such an entry, at most, where keys are not enormous.
pub(super) const ENTRY_MAX: usize = STRETCHES_MAX * 64;
/// Keys that are carried over by one transaction, at most.
const CARRIED: usize = 64;
/// How long nothing may come of a move until it is given up.
const PATIENCE: Span = Span::from_secs(10);
/// How long a client sees a stretch on its way until it takes the move up; twice as long behind each time that it has, up to
/// [`DOUBLED_MAX`] times.
const STANDS_STILL: Span = Span::from_secs(5);
const DOUBLED_MAX: u32 = 4;
/// By so much later than the node before it does each of so many, so that they do not begin together.
const STAGGER: Span = Span::from_millis(500);
const STAGGERED: u64 = 8;

/// After how long this node takes up a move that it has taken up so often.
pub(super) fn stands_still(node: NodeId, taken_up: u32) -> Span {
    STANDS_STILL * (1_u64 << taken_up.min(DOUBLED_MAX)) + STAGGER * (u64::from(node.0) % STAGGERED)
}

/// A move that is under way.
#[derive(Clone, Hash, Debug)]
pub(super) struct Drive {
    /// Who asked for it, if anybody still waits.
    pub(super) ticket: Option<Ticket>,
    /// Whether it is one that somebody else has begun.
    taken_up: bool,
    reach: Reach,
    from: PartitionId,
    to: PartitionId,
    phase: Phase,
    /// The stretches that are on their way.
    marked: Vec<Known>,
    /// The version of the source's entry that says so.
    fence: Version,
    /// Keys that were listed and not carried over yet, and where the next page begins.
    queue: Vec<Blob>,
    next: Option<u64>,
    /// How many keys go at once: fewer where others are in the way.
    carried: usize,
    /// What the transaction under way carries over, and with how many keys of the queue it is done.
    carries: Moved,
    done: usize,
    moved: Moved,
    /// Whether the transaction under way writes nothing, and shows that the move is over.
    over: bool,
    /// Steps in a row that came to nothing, and since when.
    tries: u32,
    since: Option<Instant>,
    /// What the client inside was asked last.
    asked: Option<u64>,
}

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
enum Phase {
    /// Both entries are to say that it is on its way.
    Mark,
    /// What the source has is asked for, from this place on.
    List(u64),
    /// Some of it is carried over.
    Carry,
    /// Both entries are to say that it has arrived.
    End,
}

/// What has come of a step.
pub(super) enum Step {
    /// Its transaction has begun.
    Begun(TxnId, Vec<Read>),
    /// It only read, and this.
    Seen(Vec<Read>),
    /// It has committed.
    Committed(Version),
    /// Keys were listed.
    Listed(Vec<Blob>, Option<u64>),
    /// It has more than a transaction may have.
    TooLarge,
    /// It has come to nothing, or nobody knows.
    Nothing,
}

impl Step {
    pub(super) fn of(outcome: Outcome) -> Step {
        match outcome {
            Outcome::Begun { txn, reads } => Step::Begun(txn, reads),
            Outcome::Snapshot { reads, .. } => Step::Seen(reads),
            Outcome::Committed { at } => Step::Committed(at),
            Outcome::Listed { keys, open, next } => Step::Listed([keys, open].concat(), next),
            Outcome::Refused(Refusal::TooLarge { .. }) => Step::TooLarge,
            _ => Step::Nothing,
        }
    }
}

impl Drive {
    /// One that is asked for.
    pub(super) fn new(ticket: Ticket, reach: Reach, from: PartitionId, to: PartitionId) -> Drive {
        Drive { ticket: Some(ticket), taken_up: false, ..Drive::take_up(reach, from, to) }
    }

    /// One that somebody else has begun.
    pub(super) fn take_up(reach: Reach, from: PartitionId, to: PartitionId) -> Drive {
        Drive {
            ticket: None,
            taken_up: true,
            reach,
            from,
            to,
            phase: Phase::Mark,
            marked: Vec::new(),
            fence: Version::NONE,
            queue: Vec::new(),
            next: None,
            carried: CARRIED,
            carries: Moved::default(),
            done: 0,
            moved: Moved::default(),
            over: false,
            tries: 0,
            since: None,
            asked: None,
        }
    }

    /// Whether it goes this way.
    pub(super) fn goes(&self, from: PartitionId, to: PartitionId) -> bool {
        (self.from, self.to) == (from, to)
    }

    pub(super) fn from(&self) -> PartitionId {
        self.from
    }

    fn entries(&self) -> Vec<Blob> {
        vec![located::entry(self.from), located::entry(self.to)]
    }

    fn route(&self) -> Route {
        Route::Moving { from: self.from, to: self.to }
    }

    /// The keys that go next.
    fn chunk(&self) -> &[Blob] {
        &self.queue[..self.queue.len().min(self.carried)]
    }

    /// A step has come to nothing; whether it has been so for too long.
    fn fails(&mut self, now: Instant) -> bool {
        self.tries = self.tries.saturating_add(1);
        now.since(*self.since.get_or_insert(now)) >= PATIENCE
    }

    /// What this move has marked a place with.
    fn mark_of(&self, place: &Place) -> Option<&Known> {
        self.marked.iter().find(|known| known.reach.contains(place))
    }

    fn request(&self) -> Request {
        let entries = self.entries();
        match self.phase {
            Phase::Mark if self.taken_up => Request::Begin { reads: entries, writes: Vec::new() },
            Phase::Mark | Phase::End => Request::Begin { reads: entries.clone(), writes: entries },
            Phase::List(from) => {
                let as_of = AsOf::Version(located::entry(self.from), self.fence);
                Request::List { partition: self.from, query: Query { from, most: PAGE, as_of } }
            }
            Phase::Carry => {
                let source = self.chunk().iter().map(|key| located::key(self.from, key));
                let target = self.chunk().iter().map(|key| located::key(self.to, key));
                let reads = entries.into_iter().chain(source.clone()).collect();
                Request::Begin { reads, writes: source.chain(target).collect() }
            }
        }
    }
}

/// What is to be done with the transaction of a step.
enum Then {
    /// It writes this.
    Commit(Vec<Update>),
    /// There is nothing to do: this is next.
    Skip(Phase),
    /// Somebody else does it.
    Leave,
    /// It cannot be.
    Refuse(MoveRefusal),
}

impl Find {
    /// The next step of a move.
    pub(super) fn drive<C: Client>(&mut self, number: u64, turn: &mut Turn<'_, C>) {
        self.sleep(number);
        let Some(drive) = self.drives.get_mut(&number) else { return };
        let (request, last) = (drive.request(), drive.asked.take());
        let lists = matches!(drive.phase, Phase::List(_));
        if let Some(last) = last {
            // Woken without an answer.
            let given_up = lists && drive.fails(turn.now());
            let tries = drive.tries;
            self.forget(last, turn);
            if given_up {
                return self.end_move(number, Err(MoveRefusal::GivenUp(tries)), turn);
            }
        }
        let asked = self.ask_step(number, request, turn);
        if lists {
            // A listing is answered when enough replicas have come so far, or never.
            let patience = self.directory.retry.pause_max.max(self.directory.retry.pause * 4);
            self.wake(number, turn.now() + patience);
        }
        if let Some(drive) = self.drives.get_mut(&number) {
            drive.asked = Some(asked);
        }
    }

    pub(super) fn stepped<C: Client>(&mut self, number: u64, step: Step, turn: &mut Turn<'_, C>) {
        self.sleep(number);
        let Some(drive) = self.drives.get_mut(&number) else { return };
        drive.asked = None;
        match step {
            Step::Begun(txn, reads) => self.decide(number, txn, &reads, turn),
            Step::Seen(reads) => self.seen(number, &reads, turn),
            Step::Committed(at) => self.committed(number, at, turn),
            Step::Listed(keys, next) => self.listed(number, keys, next, turn),
            Step::TooLarge if drive.carried > 1 => {
                drive.carried /= 2;
                self.drive(number, turn);
            }
            Step::TooLarge | Step::Nothing => {
                if drive.phase == Phase::Carry {
                    // Among many keys there is always one that somebody writes.
                    drive.carried = (drive.carried / 2).max(1);
                }
                let given_up = drive.fails(turn.now());
                let tries = drive.tries;
                if given_up {
                    return self.end_move(number, Err(MoveRefusal::GivenUp(tries)), turn);
                }
                self.pause(number, tries, turn);
            }
        }
    }

    /// The transaction of a step has begun: what it writes.
    fn decide<C: Client>(&mut self, number: u64, txn: TxnId, reads: &[Read], turn: &mut Turn<'_, C>) {
        let entries = self.entries_of(reads);
        let Some(drive) = self.drives.get_mut(&number) else { return };
        let settled = self.directory.settled || Mutation::ForgetPending.acts(self.directory.mutation);
        let place = |key: &Blob| self.directory.plan.place(key);
        drive.over = false;
        let then = match (entries.get(&drive.from), entries.get(&drive.to)) {
            (Some(source), Some(target)) => match drive.phase {
                Phase::Mark => drive.mark(source, target, reads),
                Phase::Carry => drive.carry(source, reads, place, settled),
                Phase::End | Phase::List(_) => drive.finish(source, target),
            },
            _ => Then::Skip(drive.phase),
        };
        match then {
            Then::Commit(updates) => {
                let asked = self.ask_step(number, Request::Commit { txn, updates }, turn);
                if let Some(drive) = self.drives.get_mut(&number) {
                    drive.asked = Some(asked);
                }
            }
            Then::Skip(phase) => {
                drive.phase = phase;
                self.abandon(txn, turn);
                self.drive(number, turn);
            }
            Then::Leave => {
                self.abandon(txn, turn);
                self.leave_move(number);
            }
            Then::Refuse(refusal) => {
                self.abandon(txn, turn);
                self.end_move(number, Err(refusal), turn);
            }
        }
    }

    /// Both entries were read: what is on its way by them goes on.
    fn seen<C: Client>(&mut self, number: u64, reads: &[Read], turn: &mut Turn<'_, C>) {
        let entries = self.entries_of(reads);
        let Some(drive) = self.drives.get_mut(&number) else { return };
        let moving = entries.get(&drive.from).map_or_else(Vec::new, |source| drive.stretches(source).1);
        if moving.is_empty() {
            return self.leave_move(number);
        }
        drive.follow(moving, reads);
        drive.phase = Phase::List(0);
        turn.count("moves_taken_up");
        self.drive(number, turn);
    }

    fn committed<C: Client>(&mut self, number: u64, at: Version, turn: &mut Turn<'_, C>) {
        let Some(drive) = self.drives.get_mut(&number) else { return };
        (drive.tries, drive.since) = (0, None);
        match drive.phase {
            _ if drive.over => {
                let moved = drive.moved;
                return self.end_move(number, Ok(moved), turn);
            }
            Phase::Mark => {
                (drive.fence, drive.phase) = (at, Phase::List(0));
                if Mutation::CarryNothing.acts(self.directory.mutation) {
                    drive.phase = Phase::End;
                }
                let marked = drive.marked.clone();
                marked.iter().for_each(|known| self.learn(known));
            }
            Phase::Carry => {
                turn.count("keys_carried");
                drive.moved.keys += drive.carries.keys;
                drive.moved.bytes += drive.carries.bytes;
                drive.carried_over();
                drive.carried = (drive.carried * 2).min(CARRIED);
            }
            Phase::End | Phase::List(_) => {
                let moved = drive.moved;
                return self.end_move(number, Ok(moved), turn);
            }
        }
        self.drive(number, turn);
    }

    fn listed<C: Client>(&mut self, number: u64, keys: Vec<Blob>, next: Option<u64>, turn: &mut Turn<'_, C>) {
        let Some(drive) = self.drives.get_mut(&number) else { return };
        (drive.tries, drive.since) = (0, None);
        let theirs = keys.iter().filter_map(|key| located::plain(key));
        drive.queue = theirs.filter(|key| drive.mark_of(&self.directory.plan.place(key)).is_some()).collect();
        drive.next = next;
        drive.phase = drive.after_carrying();
        self.drive(number, turn);
    }
}

impl Drive {
    /// What follows once the queue is as it is.
    fn after_carrying(&self) -> Phase {
        match (self.queue.is_empty(), self.next) {
            (false, _) => Phase::Carry,
            (true, Some(next)) => Phase::List(next),
            (true, None) => Phase::End,
        }
    }

    /// The first keys of the queue have been carried over.
    fn carried_over(&mut self) {
        self.queue.drain(..self.queue.len().min(self.done));
        self.phase = self.after_carrying();
    }

    /// The stretches of this move in an entry: those that are where they come from, and those on their way.
    fn stretches(&self, source: &Routes) -> (Vec<Known>, Vec<Known>) {
        let parts = source.parts(&self.reach);
        let held = |route: Route| parts.iter().filter(move |known| known.route == route).cloned().collect();
        (held(Route::At(self.from)), held(self.route()))
    }

    /// Carries over what is on its way by these reads.
    fn follow(&mut self, moving: Vec<Known>, reads: &[Read]) {
        let entry = located::entry(self.from);
        let read = reads.iter().find(|read| read.key == entry);
        self.fence = read.map_or(Version::NONE, |read| read.version);
        self.marked = moving;
    }

    fn mark(&mut self, source: &Arc<Routes>, target: &Arc<Routes>, reads: &[Read]) -> Then {
        let (here, mut moving) = self.stretches(source);
        if here.is_empty() {
            if moving.is_empty() {
                // It is there already, or never was here; unless it goes elsewhere.
                let parts = source.parts(&self.reach);
                let elsewhere = parts.iter().find_map(|known| match known.route {
                    Route::Moving { from, to } if from == self.from => Some(to),
                    _ => None,
                });
                return match elsewhere {
                    Some(to) => Then::Refuse(MoveRefusal::OnItsWay(to)),
                    None => self.end(),
                };
            }
            self.follow(moving, reads);
            return Then::Skip(Phase::List(0));
        }
        let news =
            here.into_iter().map(|known| Known { version: known.version + 1, route: self.route(), ..known });
        let news: Vec<Known> = news.collect();
        let updates = match self.updates([source, target], &news) {
            Ok(updates) => updates,
            Err(refusal) => return Then::Refuse(refusal),
        };
        moving.extend(news);
        self.marked = moving;
        Then::Commit(updates)
    }

    /// Nothing is left to do, if the entries are what was read: a replica that is behind may have told of them.
    fn end(&mut self) -> Then {
        self.over = true;
        Then::Commit(Vec::new())
    }

    fn finish(&mut self, source: &Arc<Routes>, target: &Arc<Routes>) -> Then {
        let mut arrived = Vec::new();
        for marked in &self.marked {
            let parts = source.parts(&marked.reach);
            let same = |known: &Known| (known.version, known.route) == (marked.version, marked.route);
            let still = parts.into_iter().filter(same);
            arrived.extend(still.map(|known| Known {
                version: known.version + 1,
                route: Route::At(self.to),
                ..known
            }));
        }
        if arrived.is_empty() {
            return self.end();
        }
        self.updates([source, target], &arrived).map_or_else(Then::Refuse, Then::Commit)
    }

    /// Writes news into the entries of both.
    fn updates(&self, entries: [&Arc<Routes>; 2], news: &[Known]) -> Result<Vec<Update>, MoveRefusal> {
        let mut updates = Vec::with_capacity(2);
        for (routes, key) in entries.into_iter().zip(self.entries()) {
            let mut routes = Routes::clone(routes);
            news.iter().for_each(|known| routes.learn(known));
            if routes.changes() > STRETCHES_MAX {
                return Err(MoveRefusal::TooManyStretches(STRETCHES_MAX));
            }
            updates.push(Update { key, value: Some(routes.entry()) });
        }
        Ok(updates)
    }

    fn carry(
        &mut self,
        source: &Arc<Routes>,
        reads: &[Read],
        place: impl Fn(&Blob) -> Place,
        settled: bool,
    ) -> Then {
        let found: BTreeMap<&Blob, &Read> = reads.iter().map(|read| (&read.key, read)).collect();
        let (mut updates, mut carries, mut lost) = (Vec::new(), Moved::default(), false);
        let (mut left, mut gone) = (Vec::new(), 0);
        for key in self.chunk() {
            let place = place(key);
            let known = source.find(&place);
            let marked = self.mark_of(&place);
            lost |=
                marked.is_none_or(|marked| (marked.version, marked.route) != (known.version, known.route));
            let old = located::key(self.from, key);
            let Some(read) = found.get(&old) else { continue };
            let Some(stored) = &read.value else {
                gone += usize::from(read.version > self.fence);
                continue;
            };
            left.push(key.clone());
            carries.keys += 1;
            carries.bytes += stored.len() as u64;
            let value = located::moved(stored, read.version);
            updates.push(Update { key: located::key(self.to, key), value: Some(value) });
            updates.push(Update { key: old, value: None });
        }
        if lost {
            // Somebody else has gone further: what there is to do is to be seen anew.
            return Then::Skip(Phase::Mark);
        }
        if self.taken_up && gone == self.chunk().len() {
            return Then::Leave;
        }
        self.carries = carries;
        if settled {
            // Whoever wrote the others has taken them along, or they were deleted: the replica that was read has applied
            // the mark and so all before it, and behind it none are added.
            self.done = left.len();
            self.queue.splice(..self.chunk().len(), left);
            if updates.is_empty() {
                return Then::Skip(self.after_carrying());
            }
        } else {
            // That the others are not there is certain once a transaction that saw it has committed.
            self.done = self.chunk().len();
        }
        Then::Commit(updates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::migration::Stretch;
    use isochrone_store::versions::Versions;

    const FROM: PartitionId = PartitionId(0);
    const TO: PartitionId = PartitionId(1);

    fn known(version: u64, route: Route) -> Known {
        Known { reach: Reach::ring(Stretch::ALL), version, route }
    }

    fn read(key: Blob, value: Option<&str>) -> Read {
        Read { key, value: value.map(|value| located::value(value.as_bytes())), version: Version(5) }
    }

    fn carrying() -> Drive {
        let mut drive = Drive::new(Ticket(1), Reach::ring(Stretch::ALL), FROM, TO);
        drive.marked = vec![known(1, drive.route())];
        (drive.phase, drive.queue) = (Phase::Carry, vec!["a".into(), "b".into()]);
        drive
    }

    #[test]
    fn what_is_there_goes_over_with_its_version() {
        let mut drive = carrying();
        let source = Arc::new(Routes::of(vec![known(1, drive.route())]));
        let reads = [read(located::key(FROM, b"a"), Some("1")), read(located::key(FROM, b"b"), None)];
        let Then::Commit(updates) = drive.carry(&source, &reads, |_| Place::Ring(7), true) else {
            panic!("nothing is carried over");
        };
        let (new, old) = (&updates[0], &updates[1]);
        assert_eq!((&new.key, &old.key), (&located::key(TO, b"a"), &located::key(FROM, b"a")));
        let moved = Read { key: new.key.clone(), value: new.value.clone(), version: Version(9) };
        let told = located::told("a".into(), &moved);
        assert_eq!((told.value, told.version), (Some("1".into()), Version(5)));
        assert_eq!((old.value.clone(), updates.len(), drive.carries.keys), (None, 2, 1));
    }

    #[test]
    fn without_a_log_that_a_key_is_not_there_wants_a_transaction() {
        let mut drive = carrying();
        let source = Arc::new(Routes::of(vec![known(1, drive.route())]));
        let reads = [read(located::key(FROM, b"a"), None), read(located::key(FROM, b"b"), None)];
        let then = drive.carry(&source, &reads, |_| Place::Ring(7), false);
        assert!(matches!(then, Then::Commit(updates) if updates.is_empty()), "one may still be written");
        assert_eq!(drive.queue.len(), 2, "until it has committed");
        drive.carried_over();
        assert_eq!((drive.queue.len(), drive.phase), (0, Phase::End));
    }

    #[test]
    fn a_mover_that_others_have_overtaken_carries_nothing_over() {
        for now in [known(2, Route::At(TO)), known(5, Route::Moving { from: FROM, to: TO })] {
            let mut drive = carrying();
            let source = Arc::new(Routes::of(vec![now]));
            let reads = [read(located::key(FROM, b"a"), Some("1"))];
            let then = drive.carry(&source, &reads, |_| Place::Ring(7), true);
            assert!(matches!(then, Then::Skip(Phase::Mark)), "it would take what came back since");
        }
    }

    #[test]
    fn a_move_that_is_taken_up_marks_nothing() {
        let drive = Drive::take_up(Reach::ring(Stretch::ALL), FROM, TO);
        let Request::Begin { reads, writes } = drive.request() else { panic!("it begins nothing") };
        assert_eq!((reads.len(), writes.len()), (2, 0));
    }

    #[test]
    fn what_somebody_else_carries_over_is_left_to_them() {
        let gone =
            |key: &[u8], version| Read { version: Version(version), ..read(located::key(FROM, key), None) };
        // What was deleted before the mark tells of nobody.
        for (since, left) in [(6, true), (4, false)] {
            let mut drive = carrying();
            (drive.taken_up, drive.fence) = (true, Version(5));
            let source = Arc::new(Routes::of(vec![known(1, drive.route())]));
            let then = drive.carry(&source, &[gone(b"a", 7), gone(b"b", since)], |_| Place::Ring(7), true);
            assert_eq!(matches!(then, Then::Leave), left, "{since}");
        }
        // Who was asked for the move goes on.
        let mut drive = carrying();
        let source = Arc::new(Routes::of(vec![known(1, drive.route())]));
        let then = drive.carry(&source, &[gone(b"a", 7), gone(b"b", 7)], |_| Place::Ring(7), true);
        assert!(matches!(then, Then::Skip(Phase::End)));
    }

    /// A replica that is behind may say that all is done, or that nothing was ever to do: its word is checked.
    #[test]
    fn that_a_move_is_over_wants_a_transaction() {
        let arrived = Arc::new(Routes::of(vec![known(2, Route::At(TO))]));
        for phase in [Phase::Mark, Phase::End] {
            let mut drive = carrying();
            drive.phase = phase;
            let then = match phase {
                Phase::Mark => drive.mark(&arrived, &arrived, &[]),
                _ => drive.finish(&arrived, &arrived),
            };
            assert!(matches!(then, Then::Commit(updates) if updates.is_empty()), "{phase:?}");
            assert!(drive.over, "{phase:?}");
        }
    }

    #[test]
    fn a_page_waits_for_the_fence_and_names_what_is_under_way() {
        let mut store = Versions::default();
        for (key, version) in [("entry", 4), ("a", 2), ("b", 3)] {
            store.put(&key.into(), Version(version), Some("v".into()));
        }
        store.put(&"b".into(), Version(5), None);
        let (pending, fence) = (Blob::from("new"), |version| AsOf::Version("entry".into(), Version(version)));
        let page = |query: Query| query.answer(&store, std::iter::once(&pending));
        let since = |version| Query { from: 0, most: PAGE, as_of: fence(version) };
        assert_eq!(page(since(5)), None, "it is behind");
        let mut found = page(since(4)).expect("it has come so far");
        found.keys.sort();
        let keys = vec!["a".into(), "entry".into()];
        assert_eq!((found.keys, found.open, found.next), (keys, vec!["new".into()], None));
    }
}
