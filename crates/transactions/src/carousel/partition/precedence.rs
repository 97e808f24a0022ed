//! Precedence by age: who comes first again and again is not to keep others from ever getting on.
//!
//! Readers share a key, so that a writer finds no gap among such as never cease; and among writers of single keys who reads all
//! of them hardly ever finds all free at once. So a leader remembers for each key how old the oldest is of those who want it and
//! have come again, and refuses the younger as for any conflict. The oldest of all is refused for nothing but what is prepared
//! already, which ends soon.
//!
//! - *Age* is how long ago the first try began, by the client's steady clock: nothing of clocks that differ. Messages are under
//!   way for longer to one leader than to another, so only what is older by more than that goes before: else two could be
//!   before one another, each at another leader.
//! - Only who has been refused for a while is remembered ([`Parameters::patience`](crate::carousel::Parameters)): where nobody
//!   conflicts there is nothing here, and where many do, of writers of single keys and one that reads all, the writers are not stopped
//!   for each try of the reader's.
//! - Whom a leader refuses is its own affair, decided in one step with the check for conflicts: what is prepared together is so
//!   as before. In the fast variant followers know nothing of it; they vote, and no votes settle anything without the
//!   leader's. It ends with the leader's term.
//! - Who does not come to an end is waited for a while, whatever it says of its age, and not for many times as long after that.

use crate::carousel::message::Part;
use crate::directory::located::is_entry;
use crate::request::TxnId;
use isochrone_core::{Blob, Instant, Span};
use std::collections::BTreeMap;

/// Those who go before others, by key: who reads it, and who writes it.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Precedence(BTreeMap<Blob, [Option<Wait>; 2]>);

#[derive(Copy, Clone, Hash, Debug)]
struct Wait {
    /// Its latest try.
    txn: TxnId,
    /// When the first one began, by this leader's clock.
    began: Instant,
    /// When it was first remembered.
    since: Instant,
    /// Until when the younger are refused.
    until: Instant,
    /// Until when nobody is remembered after that.
    rests: Instant,
}

/// Times as long as the younger were refused for somebody who came to no end, nobody is for the same key after that.
const RESTS: u64 = 4;
/// Keys at a time. What is beyond has no precedence.
const KEYS_MAX: usize = 16_384;
/// Keys of one transaction here: one that touches more has none, and leaves room for others.
const OWN_MAX: usize = 1_024;

impl Wait {
    fn precedes(&self, began: Instant, apart: Span) -> bool {
        self.began + apart < began
    }
}

impl Precedence {
    /// Whether somebody who is older goes before a transaction that began then: who writes a key before all, who reads it before
    /// who writes it.
    pub(super) fn refuses(&self, part: &Part, began: Instant, now: Instant, apart: Span) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let older = |key: &Blob, writes: bool| {
            let holds =
                |wait: Option<Wait>| wait.is_some_and(|wait| now < wait.until && wait.precedes(began, apart));
            self.0.get(key).is_some_and(|[reader, writer]| holds(*writer) || writes && holds(*reader))
        };
        part.reads.iter().any(|key| older(key, false)) || part.writes.iter().any(|key| older(key, true))
    }

    /// A transaction comes again: whoever is younger is refused at its keys for so long, and for twice as long at most if it
    /// comes once more. Of entries of the directory nobody is remembered, which all read ([`super::Yields`]).
    pub(super) fn comes(
        &mut self,
        txn: TxnId,
        part: &Part,
        began: Instant,
        now: Instant,
        (apart, hold): (Span, Span),
    ) {
        if part.reads.len() + part.writes.len() > OWN_MAX {
            return;
        }
        for (keys, place) in [(&part.reads, 0), (&part.writes, 1)] {
            for key in keys.iter().filter(|key| !is_entry(key)) {
                if self.0.len() >= KEYS_MAX && !self.0.contains_key(key) {
                    continue;
                }
                let wait = &mut self.0.entry(key.clone()).or_default()[place];
                let (began, since) = match wait {
                    // Each try has a name of its own, so one that is about as old is taken for the same transaction.
                    Some(held) if now < held.until && held.precedes(began, apart) => continue,
                    Some(held) if now < held.until => (held.began.min(began), held.since),
                    Some(held) if now < held.rests => continue,
                    _ => (began, now),
                };
                let until = (now + hold).min(since + hold * 2);
                let rests = until + until.since(since) * RESTS;
                *wait = Some(Wait { txn, began, since, until, rests });
            }
        }
    }

    /// A transaction has come to an end, and will not come again.
    pub(super) fn ends(&mut self, txn: TxnId, part: &Part) {
        for key in part.reads.iter().chain(part.writes.iter()) {
            let Some(waits) = self.0.get_mut(key) else { continue };
            for wait in waits.iter_mut().filter(|wait| wait.is_some_and(|wait| wait.txn == txn)) {
                *wait = None;
            }
            if waits.iter().all(Option::is_none) {
                self.0.remove(key);
            }
        }
    }

    /// Forgets what has no effect any more.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, waits| waits.iter().flatten().any(|wait| now < wait.rests));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::{ClientId, KeyspaceId, NodeId, PartitionId, ProcessId, Role};

    const APART: Span = Span::from_millis(100);
    const HOLD: Span = Span::from_millis(1_000);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    fn txn(sequence: u64) -> TxnId {
        let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
        let process = ProcessId { node: NodeId(1), keyspace, partition, role: Role(1), instance: 0 };
        TxnId { client: ClientId { process, incarnation: 1 }, sequence }
    }

    fn part(reads: &[&str], writes: &[&str]) -> Part {
        let keys = |keys: &[&str]| keys.iter().map(|key| Blob::from(*key)).collect();
        Part { partition: PartitionId(0), reads: keys(reads), writes: keys(writes) }
    }

    /// What comes again at a moment and began at another.
    fn comes(precedence: &mut Precedence, sequence: u64, part: &Part, began: u64, now: u64) {
        precedence.comes(txn(sequence), part, at(began), at(now), (APART, HOLD));
    }

    fn refuses(precedence: &Precedence, part: &Part, began: u64, now: u64) -> bool {
        precedence.refuses(part, at(began), at(now), APART)
    }

    #[test]
    fn the_younger_are_refused_where_they_do_not_share() {
        let (reads, writes) = (part(&["a", "b"], &[]), part(&[], &["a"]));
        let mut precedence = Precedence::default();
        assert!(!refuses(&precedence, &writes, 500, 500));
        comes(&mut precedence, 1, &reads, 0, 400);
        assert!(refuses(&precedence, &writes, 500, 500));
        assert!(refuses(&precedence, &part(&["c"], &["b"]), 500, 500), "of any of its keys");
        assert!(!refuses(&precedence, &reads, 500, 500), "readers share");
        assert!(!refuses(&precedence, &part(&["c"], &["d"]), 500, 500));
        // Those that are about as old, itself among them, and older ones are not.
        assert!(!refuses(&precedence, &writes, 100, 500));
        assert!(refuses(&precedence, &writes, 101, 500));
        let mut precedence = Precedence::default();
        comes(&mut precedence, 1, &writes, 0, 400);
        assert!(refuses(&precedence, &reads, 500, 500) && refuses(&precedence, &writes, 500, 500));
    }

    #[test]
    fn who_is_older_takes_the_place_of_who_is_younger() {
        let both = part(&["a"], &["a"]);
        let mut precedence = Precedence::default();
        comes(&mut precedence, 1, &both, 1_000, 1_400);
        comes(&mut precedence, 2, &both, 500, 1_500);
        assert!(refuses(&precedence, &both, 1_000, 1_500));
        comes(&mut precedence, 1, &both, 1_000, 1_600);
        assert!(refuses(&precedence, &both, 1_000, 1_600), "and keeps it");
        precedence.ends(txn(1), &both);
        assert!(refuses(&precedence, &both, 1_000, 1_700), "it is not who waits");
        precedence.ends(txn(2), &both);
        assert!(!refuses(&precedence, &both, 1_000, 1_700));
    }

    #[test]
    fn who_has_come_to_an_end_is_not_waited_for() {
        let both = part(&["a"], &["a"]);
        let mut precedence = Precedence::default();
        comes(&mut precedence, 1, &both, 0, 400);
        comes(&mut precedence, 2, &part(&["a", "b"], &[]), 50, 500);
        precedence.ends(txn(1), &both);
        assert!(!refuses(&precedence, &part(&["a"], &[]), 900, 900));
        assert!(refuses(&precedence, &both, 900, 900), "another still reads it");
        precedence.ends(txn(2), &part(&["a", "b"], &[]));
        assert!(precedence.0.is_empty());
    }

    /// For one that comes again and again, says that it is as old as can be, and never ends.
    #[test]
    fn the_younger_are_refused_for_a_fraction_of_the_time() {
        let both = part(&["a"], &["a"]);
        let (mut precedence, mut refused) = (Precedence::default(), 0);
        for now in 0..100_000 {
            comes(&mut precedence, now, &both, 0, now);
            refused += u64::from(refuses(&precedence, &both, now, now));
        }
        let (longest, round) = (2_000, 2_000 * (1 + RESTS));
        // While it is not older by enough yet, nobody is.
        assert_eq!(refused, longest * 100_000_u64.div_ceil(round) - 101);
    }

    #[test]
    fn one_that_touches_very_many_keys_leaves_the_room_to_others() {
        let keys: Vec<String> = (0..=OWN_MAX).map(|number| number.to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut precedence = Precedence::default();
        comes(&mut precedence, 1, &part(&keys, &[]), 0, 400);
        assert!(precedence.0.is_empty());
        comes(&mut precedence, 1, &part(&keys[1..], &[]), 0, 400);
        assert_eq!(precedence.0.len(), OWN_MAX);
    }

    #[test]
    fn keys_are_bounded_and_forgotten() {
        let mut precedence = Precedence::default();
        let of = |number: usize| part(&[], &[number.to_string().as_str()]);
        for number in 0..KEYS_MAX + 10 {
            comes(&mut precedence, 1, &of(number), 0, 400);
        }
        assert_eq!(precedence.0.len(), KEYS_MAX);
        assert!(refuses(&precedence, &of(KEYS_MAX - 1), 400, 400));
        assert!(!refuses(&precedence, &of(KEYS_MAX), 400, 400));
        precedence.forget(at(400 + 1_000 * (1 + RESTS) - 1));
        assert_eq!(precedence.0.len(), KEYS_MAX);
        precedence.forget(at(400 + 1_000 * (1 + RESTS)));
        assert!(precedence.0.is_empty());
    }
}
