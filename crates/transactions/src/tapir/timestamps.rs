//! The timestamps of a client: its wall clock, made unique.

use isochrone_core::{ProcessId, Stamp};
use isochrone_store::versions::Version;

/// Bits below the clock's, which name the client: nanoseconds are cut to about four microseconds.
const CLIENT_BITS: u32 = 12;
const CLIENT_MASK: u64 = (1 << CLIENT_BITS) - 1;

/// The source of a client's timestamps.
///
/// A timestamp is the wall clock in nanoseconds, with the low 12 bits replaced by the number of the client's node (and
/// its instance above the lower eight). So two clients of up to 4,096 nodes never take the same one, and a client, which
/// counts on by one step where its clock has not moved, never takes one twice in one life. Should two be equal all the
/// same (more nodes; a clock set back across a restart), they are in each other's way, and no harm is done.
#[derive(Clone, Hash, Debug)]
pub struct Timestamps {
    client: u64,
    last: u64,
}

impl Timestamps {
    /// Those of this client.
    pub fn of(client: ProcessId) -> Timestamps {
        let bits = u64::from(client.node.0) ^ u64::from(client.instance) << 8;
        Timestamps { client: bits & CLIENT_MASK, last: 0 }
    }

    /// The next one: by the clock, above all before it and above `above`.
    pub fn next(&mut self, clock: Stamp, above: Version) -> Version {
        let least = self.last.max(above.0) | CLIENT_MASK;
        let ticks = (clock.as_nanos() & !CLIENT_MASK).max(least.saturating_add(1));
        self.last = ticks | self.client;
        Version(self.last)
    }

    /// Those to come are above this one.
    pub fn pass(&mut self, above: Version) {
        self.last = self.last.max(above.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(node: u64) -> Timestamps {
        Timestamps::of(ProcessId::from_u64(node << 48))
    }

    #[test]
    fn they_follow_the_clock_rise_and_differ_between_clients() {
        let (mut a, mut b) = (client(1), client(2));
        let clock = Stamp::from_nanos(1_700_000_000_000_000_000);
        let (first, second, other) =
            (a.next(clock, Version::NONE), a.next(clock, Version::NONE), b.next(clock, Version::NONE));
        assert!(first.0.abs_diff(clock.as_nanos()) < 1 << CLIENT_BITS);
        assert!(first < second && first != other && second != other);
        let above = Version(clock.as_nanos() + 1_000_000);
        assert!(a.next(clock, above) > above, "above what was asked for");
        let far = Version(clock.as_nanos() + 162_000_000_000);
        b.pass(far);
        assert!(b.next(clock, Version::NONE) > far, "above what it was told of");
    }
}
