//! Numbers that may be used ahead of the records of what they are used for.

/// Own numbers, from one on, below an end that is recorded before any of them is used. A restart, which may have lost
/// what they were used for, uses none of them again. The end lies ahead by a step, so it is recorded once a step.
#[derive(Copy, Clone, Hash, Debug)]
pub(crate) struct Reserve {
    end: u64,
    durable: u64,
}

impl Default for Reserve {
    fn default() -> Reserve {
        Reserve { end: 1, durable: 1 }
    }
}

impl Reserve {
    /// Behind the last number reserved.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Where no more than half of `ahead` is left from `next` on, the new end, which is to be recorded.
    pub(crate) fn renew(&mut self, next: u64, ahead: u64) -> Option<u64> {
        if next + ahead / 2 < self.end {
            return None;
        }
        self.end = next + ahead;
        Some(self.end)
    }

    /// Numbers below this end are reserved by a record that may not be durable yet.
    pub(crate) fn raise(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// The record of this end is durable.
    pub(crate) fn grant(&mut self, end: u64) {
        self.durable = self.durable.max(end);
    }

    /// A life begins: what the journal holds is durable.
    pub(crate) fn begin(&mut self) {
        self.durable = self.end;
    }

    /// Whether all numbers below this one are reserved durably, so that what they are used for may leave at once.
    pub(crate) fn covers(&self, end: u64) -> bool {
        end <= self.durable
    }
}
