//! How the first replica of a world fails, so that another must take its place, in three ways: each is small enough to be
//! seen whole, where all of them in one world would not be.
//!
//! What the three have in common, and leave out: messages may be late as long as they like, and are not lost but where they
//! go to somebody who is gone; where a world says so, links keep order, as connections do. All replicas have one clock,
//! which stands still but when a timer fires: then so much time has gone by that whoever waits has waited long enough. How
//! often timers fire, and whose, is the world's to say. Disks are slow where a crash may come, and instant elsewhere. What a
//! world says never to arrive (signs of life, mostly) comes when all else is over: then everybody lives and is heard, time
//! goes by, and nothing may be stuck (`close.rs`).

use super::world::{Disks, Letter, World};
use isochrone_replication::order::Order;

impl<O: Order<Value = Letter>> World<O> {
    /// The first replica crashes at any moment, with any part of what its disk has not written, and is gone until all else
    /// is over. What it has sent still arrives. It is missed when it is gone: timers fire then.
    pub fn gone(mut self) -> World<O> {
        (self.patient, self.back_at_once) = (true, false);
        self.crashes()
    }

    /// The first replica crashes at any moment, with any part of what its disk has not written, and is back at once, while
    /// what it has sent before is still on its way. Nobody misses it.
    pub fn restarted(mut self) -> World<O> {
        self.timers.fill(0);
        self.crashes()
    }

    /// The first replica lives, and is taken for failed, since what it says comes late.
    pub fn suspected(self) -> World<O> {
        self
    }

    fn crashes(mut self) -> World<O> {
        (self.crashes, self.mortals, self.disks) = (1, vec![0], Disks::SlowForMortals);
        self
    }
}
