//! How much of what was delivered is kept for replicas that lag.

/// Bytes kept while a peer takes in this replica's state.
const HELD_BYTES: usize = 256 << 20;

/// How much is kept: values, or places of them, and bytes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Keep {
    pub(crate) values: usize,
    pub(crate) bytes: usize,
}

impl Keep {
    /// What the parameters say, and more while it is [held](crate::order::Order::hold).
    pub(crate) fn new(values: usize, bytes: usize, held: bool) -> Keep {
        match held {
            true => Keep { values: usize::MAX, bytes: bytes.max(HELD_BYTES) },
            false => Keep { values, bytes },
        }
    }

    /// Whether so much is more than that.
    pub(crate) fn exceeded(self, values: usize, bytes: usize) -> bool {
        values > self.values || bytes > self.bytes
    }
}
