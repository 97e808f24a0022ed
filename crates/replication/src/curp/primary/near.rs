//! Reads at a copy (`specs/curp.md` 3.10): the witness of a node says that nothing it keeps stands in the way, then
//! the server of the same node answers from what is decided.
//!
//! **What is read is final.** What a server that follows has executed is on all backups. It answers only where
//! nothing behind that in its log touches the key (D-21): so a value that any reader has seen, which is on all
//! backups, is seen here, or the read goes to the master.
//!
//! **Nothing complete is missed while this copy counts.** A command is complete when it is on all backups, and so in
//! this log, or with all witnesses, and so with this one, which forgets it only when it is on all backups (3.7). The
//! witness is asked first: what it does not keep then is in the log already (D-20). What was completed under an
//! earlier list or master was brought to this copy before its list or master counted (D-49, 3.14).
//!
//! **This copy counts while it has a lease**, of one master and one version of the list (D-13, D-22). Commands can be
//! complete without this copy only under a later list or master:
//!
//! - *A later list of the same master.* The master grants leases only under a list that it knows to count, and is
//!   ready for the next one only when those of the copies that are no longer part of it are over by its own clock, or
//!   the copy has said that it goes by the later version; it never goes back from that. A copy that stays is not
//!   waited for: its witness refuses the old version before the new list is ready, so whatever it let pass was asked
//!   before anything could be complete under the new one. A list that was begun and replaced by another never
//!   counted, so nothing was granted under it.
//! - *A later master.* It is a copy of the list that counts, and serves only when what it granted to the old master is
//!   over ([`super::order::Order`]'s `granted`; a restart counts from anew). Where the old one hands over, that one grants
//!   nothing more, and gives its word only when all that it granted is over. The master grants leases no longer than
//!   the shortest of those it holds of *all* its copies, those of a list to come included. So also one that was given
//!   up and does not know can grant nothing that outlives this. A master without copies grants nothing, as there is
//!   nobody to grant it to. One that restarts is not a master any more and has nothing to wait for: who comes after
//!   it waits.
//!
//! **Clocks.** Nothing is known of how clocks stand to one another, only of their rates. A copy stamps its `Heard`
//! with its own clock. The master, which has the stamp since `arrived` and a lease until `until`, sends it back with
//! `until - arrived`. The copy had made the stamp before it arrived, so counting that span from the stamp, less the
//! drift of both clocks ([`LeaseTerms::held_until`]), it is the first to stop. A stamp of a former life is worth
//! nothing: that clock may have begun anew. A lease is forgotten in a crash, and when another master is promised.

use super::Mutation;
use super::Parameters;
use super::book::Book;
use super::lead::Lead;
use super::message::{Grant, Message, Note};
use super::order::Order;
use crate::curp::Distant;
use crate::curp::unsynced::Unsynced;
use crate::order::{Ordered, Reign};
use isochrone_core::{Effects, Instant, KeyspaceId, LeaseTerms, ProcessId, Slot, Wire};
use std::collections::VecDeque;

/// A copy as one that clients read at.
#[derive(Clone, Hash, Debug)]
pub(super) struct Near<V> {
    life: u32,
    /// The latest list of the promised master that it has heard of, and until when it may read under it.
    reign: Reign,
    until: Instant,
    /// What lies behind what is known to be on all backups, up to here. Made when somebody reads: who is never read at
    /// looks at no keys.
    behind: Unsynced,
    looked: Slot,
    /// Reads that may be answered now.
    queue: VecDeque<V>,
}

impl<V> Near<V> {
    pub(super) fn new(life: u32) -> Near<V> {
        let (behind, queue) = (Unsynced::default(), VecDeque::new());
        Near { life, reign: Reign::default(), until: Instant::ZERO, behind, looked: Slot::ZERO, queue }
    }

    /// The list that it goes by.
    pub(super) fn reign(&self) -> Reign {
        self.reign
    }

    /// The incarnation that its clock is of.
    pub(super) fn life(&self) -> u32 {
        self.life
    }

    /// The next read to be answered.
    pub(super) fn next(&mut self) -> Option<V> {
        self.queue.pop_front()
    }

    /// Another master was promised.
    pub(super) fn void(&mut self) {
        (self.reign, self.until) = (Reign::default(), Instant::ZERO);
    }

    /// The log is another one.
    pub(super) fn forget(&mut self) {
        (self.behind, self.looked) = (Unsynced::default(), Slot::ZERO);
    }

    /// The promised master has this list, and grants a lease under it, or none.
    pub(super) fn heard(&mut self, reign: Reign, grant: Option<Grant>, drift_ppm: u64) {
        if reign > self.reign {
            (self.reign, self.until) = (reign, Instant::ZERO);
        }
        if let Some(Grant { life, at, left }) = grant
            && reign == self.reign
            && life == self.life
        {
            self.until = self.until.max(LeaseTerms::new(left, drift_ppm).held_until(at));
        }
    }
}

impl<V: Ordered> Near<V> {
    /// Whether something that is not known to be on all backups stands in the way of a read.
    fn conflicts(&mut self, book: &Book<V>, keyspace: KeyspaceId, read: &V) -> bool {
        self.behind.sync(book.full().0);
        for slot in self.looked.max(book.full()).until(book.end()) {
            if let Some(batch) = book.get(slot) {
                self.behind.mark(slot.0 + 1, keyspace, |see| batch.iter().for_each(|value| value.visit(see)));
            }
        }
        self.looked = book.end();
        self.behind.conflict(keyspace, |see| read.visit(see)).is_some()
    }
}

/// What a master knows of a copy as one that clients read at.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
pub(super) struct Reader {
    /// The copy's incarnation and clock, and when that arrived here.
    stamp: Option<(u32, Instant, Instant)>,
    /// The version of the list under which it was granted a lease last.
    list: u64,
    /// When that is over, by the master's clock.
    until: Instant,
}

impl Reader {
    /// The copy goes by this version, at this moment of its clock. Whether it has given up a lease.
    pub(super) fn heard(&mut self, list: u64, (life, at): (u32, Instant), now: Instant) -> bool {
        if self.stamp.is_none_or(|(known, before, _)| (known, before) < (life, at)) {
            self.stamp = Some((life, at, now));
        }
        let gives_up = list > self.list && self.until > Instant::ZERO;
        if gives_up {
            self.until = Instant::ZERO;
        }
        gives_up
    }

    /// Lets the copy read under this version until then, by the master's clock.
    pub(super) fn grant(&mut self, list: u64, until: Instant) -> Option<Grant> {
        let (life, at, arrived) = self.stamp.filter(|(.., arrived)| *arrived < until)?;
        (self.list, self.until) = (list, self.until.max(until));
        Some(Grant { life, at, left: until.since(arrived) })
    }

    /// When its lease is over, if it has any.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether it may have a lease.
    pub(super) fn may_read(&self, now: Instant) -> bool {
        now < self.until
    }
}

impl<V: Wire> Lead<V> {
    /// Until when copies may read, by this clock, if they may: as long as no other master can serve, and under a list
    /// that counts; nothing is granted by one who hands over.
    pub(super) fn reads_until(
        &self,
        now: Instant,
        hands_over: bool,
        parameters: &Parameters,
    ) -> Option<Instant> {
        let counts = self.serves() && self.next.is_none();
        if !counts || hands_over || !parameters.reads_nearby() {
            return None;
        }
        self.targets.values().map(|target| target.lease).min().filter(|until| now < *until)
    }
}

impl<V: Ordered> Order<V> {
    /// Whether reads come from one who may send them: the witness beside it.
    pub(super) fn reads_for(&self, from: ProcessId) -> bool {
        from == self.witness(self.me()) || self.parameters().mutated(Mutation::BackupBeforeWitness)
    }

    /// Reads of one client, which commute with all that is kept for clients on this node.
    pub(super) fn on_near(&mut self, reign: Reign, reads: Vec<V>, effects: &mut Effects<Self>) {
        let Some(asker) = reads.first().and_then(Ordered::id).map(|id| id.client) else { return };
        let (now, keyspace, parameters) = (effects.now(), self.process.keyspace, self.knobs.0);
        let follows = self.lead.is_none() && self.adopted == self.promised && self.adopted == reign.0;
        let unleased = parameters.mutated(Mutation::NearWithoutLease);
        let why = match () {
            () if !follows || self.near.reign != reign && !unleased => Some("near_refused_reign"),
            () if now >= self.near.until && !unleased => Some("near_refused_lease"),
            () if self.book.delivered() < self.book.full() => Some("near_refused_unsynced"),
            () => None,
        };
        let any = parameters.mutated(Mutation::NearUnsynced);
        let mut sequences = Vec::new();
        for read in reads {
            let Some(id) = read.id().filter(|id| id.client == asker && read.reads()) else { continue };
            let mut conflicts = || self.near.conflicts(&self.book, keyspace, &read) && !any;
            match why.or_else(|| Some("near_refused_unsynced").filter(|_| conflicts())) {
                Some(why) => {
                    effects.mark(Note::Counted(why));
                    sequences.push(id.sequence);
                }
                None => {
                    effects.mark(Note::Counted("near_reads"));
                    self.near.queue.push_back(read);
                }
            }
        }
        if !sequences.is_empty() {
            let (incarnation, reign) = (asker.incarnation, self.near.reign);
            // Ahead: it claims nothing.
            effects.send_ahead(asker.process, Message::Distant(Distant { incarnation, reign, sequences }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Span;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Whatever the clocks show and at which rates they go, a copy stops before its master thinks that it has.
    #[test]
    fn a_copy_is_the_first_to_stop() {
        const MILLION: u64 = 1_000_000;
        let drift = 10_000;
        let rates = [MILLION - drift, MILLION, MILLION + drift];
        for (copy, master) in rates.into_iter().flat_map(|copy| rates.map(|master| (copy, master))) {
            for (delay, lease) in [(0, 400), (30, 400), (399, 400), (1, 5_000)] {
                // True times in nanoseconds since the copy made its stamp; its clock showed 7 s, the master's 3 s.
                let (delay, lease) = (delay * MILLION, lease * MILLION);
                let shows = |rate: u64, began: u64, time: u64| began + time / MILLION * rate;
                let arrived = at(shows(master, 3_000 * MILLION, delay));
                let until = at(shows(master, 3_000 * MILLION, lease));
                let mut reader = Reader::default();
                assert_eq!(reader.grant(1, until), None, "nothing was heard of it");
                reader.heard(1, (4, at(7_000 * MILLION)), arrived);
                let grant = reader.grant(1, until).unwrap();
                assert!(reader.may_read(at(until.as_nanos() - 1)) && !reader.may_read(until));
                let mut near = Near::<()>::new(4);
                near.heard(Reign(2, 1), Some(grant), drift);
                assert!(
                    near.until <= at(shows(copy, 7_000 * MILLION, lease)),
                    "{copy} {master} {delay} {lease}"
                );
                let lost = Span::from_nanos(lease * 6 / 100 + delay * 2 + MILLION);
                assert!(near.until + lost >= at(7_000 * MILLION + lease), "not much is lost");
            }
        }
    }

    /// A lease is of one life, one master and one version of the list; what was given up stays so.
    #[test]
    fn a_lease_that_is_over_does_not_come_back() {
        let second = Span::from_secs(1);
        let grant = |life| Some(Grant { life, at: at(5), left: second });
        let mut near = Near::<()>::new(4);
        near.heard(Reign(2, 3), grant(3), 100);
        assert_eq!(near.until, Instant::ZERO, "of a former life");
        near.heard(Reign(2, 3), grant(4), 100);
        assert!(near.until > Instant::ZERO);
        near.heard(Reign(2, 4), None, 100);
        assert_eq!((near.reign(), near.until), (Reign(2, 4), Instant::ZERO));
        near.heard(Reign(2, 3), grant(4), 100);
        assert_eq!((near.reign(), near.until), (Reign(2, 4), Instant::ZERO), "it came late");
        near.heard(Reign(2, 4), grant(4), 100);
        assert!(near.until > Instant::ZERO);
        near.void();
        assert_eq!(near.until, Instant::ZERO);

        let mut reader = Reader::default();
        reader.heard(3, (4, at(5)), at(9));
        reader.grant(3, at(1_000)).unwrap();
        assert!(!reader.heard(3, (4, at(6)), at(10)) && reader.may_read(at(11)));
        assert!(reader.heard(4, (4, at(7)), at(11)) && !reader.may_read(at(11)), "it goes by a later list");
        assert!(!reader.heard(4, (4, at(8)), at(12)), "once");
        assert_eq!(reader.grant(4, at(12)), None, "nothing is left of it");
    }
}
