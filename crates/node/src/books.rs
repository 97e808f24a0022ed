//! When a process is to give a snapshot.

/// What a process has written to the journal, and what its snapshots let go of that. In bytes.
///
/// A snapshot is due after as many bytes of the process' own records as its last one has: what is written for snapshots
/// stays in proportion to what is written anyway, and a restart replays no more than it reads. But a process that
/// records little shares the journal with others, and its few records would keep all of it. So one is due, too, after as
/// many bytes of everybody's records as all last snapshots have together, as long as there is a record of its own to be
/// let go: that takes two, since the journal is trimmed to the one before the newest.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Of records since the last snapshot was begun, replayed ones included.
    since: u64,
    /// Of records before the snapshot that is under way, since the one before.
    pending: u64,
    /// Of records before the last snapshot that the journal still has, as far as is known: never too few.
    kept: u64,
    /// Of the last snapshot.
    size: u64,
    /// Of everybody's records when the last one was begun.
    all: u64,
}

impl Books {
    /// A record was written, or replayed.
    pub fn record(&mut self, bytes: u64) {
        self.since += bytes;
    }

    /// A part of the last snapshot was read. What the journal has from before it is not known.
    pub fn restore(&mut self, bytes: u64) {
        self.size += bytes;
        self.kept = self.kept.max(1);
    }

    /// How many bytes of records there were since the last snapshot.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// How many bytes the last snapshot has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether a snapshot is due, where `least` bytes of records make none worth its while, everybody has recorded `all`
    /// since the start, and all last snapshots have `sizes` together.
    pub fn due(&self, least: u64, all: u64, sizes: u64) -> bool {
        let own = self.since >= least.max(self.size);
        let keeps = self.since > 0 || self.kept > 0;
        own || (keeps && all.saturating_sub(self.all) >= least.max(sizes))
    }

    /// A snapshot was begun, when everybody had recorded `all`.
    pub fn begin(&mut self, all: u64) {
        self.pending = std::mem::take(&mut self.since);
        self.all = all;
    }

    /// The snapshot that was begun is durable and has so many bytes, or has failed.
    pub fn end(&mut self, bytes: Option<u64>) {
        let pending = std::mem::take(&mut self.pending);
        match bytes {
            Some(bytes) => (self.size, self.kept) = (bytes, pending),
            None => self.kept += pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_records_little_gives_two_snapshots_while_others_record_much() {
        let mut books = Books::default();
        let mut begun = Vec::new();
        books.record(1);
        for all in (0..1_000).step_by(10) {
            if books.due(64, all, 0) {
                books.begin(all);
                books.end(Some(5));
                begun.push(all);
            }
        }
        assert_eq!(begun, [70, 140], "then the journal has nothing of it");
        books.record(1);
        assert!(books.due(64, 1_000, 0));
    }

    #[test]
    fn snapshots_of_all_are_no_more_than_all_records() {
        let mut books = Books::default();
        books.record(1);
        assert!(!books.due(64, 999, 1_000));
        assert!(books.due(64, 1_000, 1_000));
    }

    #[test]
    fn what_failed_is_still_to_be_let_go() {
        let mut books = Books::default();
        books.record(3);
        books.begin(64);
        books.end(None);
        assert!(!books.due(64, 127, 0));
        assert!(books.due(64, 128, 0));
    }

    #[test]
    fn who_begins_from_a_snapshot_may_have_records_before_it() {
        let mut books = Books::default();
        books.restore(100);
        assert!(books.due(64, 100, 100));
        books.begin(100);
        books.end(Some(100));
        assert!(!books.due(64, 1_000_000, 100));
    }
}
