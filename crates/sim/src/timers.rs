//! The timers of one process.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// What a queued timer event turns out to be.
pub(crate) enum Fire {
    /// Overtaken by a newer event, or nobody waits any more.
    Stale,
    /// The timer was armed again for later: the event goes back in.
    Early { deadline: u64, generation: u32 },
    /// It has run out.
    Due { arming: u32 },
}

struct Slot<T> {
    timer: T,
    /// By the steady clock.
    deadline: u64,
    armed: bool,
    /// Counts armings, so that one that is replaced before its input is handled does not fire.
    arming: u32,
    /// True time of the queued event; `u64::MAX` for none.
    due: u64,
    generation: u32,
}

/// One slot for each value. Arming again for later only moves the deadline and leaves the queued event,
/// which goes back in when it fires early: no dead events pile up behind timers that are armed often.
pub(crate) struct Timers<T> {
    slots: Vec<Slot<T>>,
    /// Never iterated.
    index: FxHashMap<T, u32>,
    free: Vec<u32>,
    generation: u32,
}

impl<T: Clone + Eq + Hash> Timers<T> {
    pub(crate) fn new() -> Timers<T> {
        Timers { slots: Vec::new(), index: FxHashMap::default(), free: Vec::new(), generation: 0 }
    }

    /// Arms a timer. Gives slot and generation where an event must be queued for `due`.
    pub(crate) fn arm(&mut self, timer: T, deadline: u64, due: u64) -> Option<(u32, u32)> {
        let slot = match self.index.get(&timer) {
            Some(slot) => *slot,
            None => self.slot(timer),
        };
        let entry = &mut self.slots[slot as usize];
        entry.deadline = deadline;
        entry.armed = true;
        entry.arming = entry.arming.wrapping_add(1);
        if entry.due <= due {
            return None;
        }
        entry.due = due;
        self.generation = self.generation.wrapping_add(1);
        entry.generation = self.generation;
        Some((slot, entry.generation))
    }

    fn slot(&mut self, timer: T) -> u32 {
        let fresh =
            Slot { timer: timer.clone(), deadline: 0, armed: false, arming: 0, due: u64::MAX, generation: 0 };
        let slot = match self.free.pop() {
            Some(slot) => {
                let arming = self.slots[slot as usize].arming;
                self.slots[slot as usize] = Slot { arming, ..fresh };
                slot
            }
            None => {
                self.slots.push(fresh);
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(timer, slot);
        slot
    }

    pub(crate) fn disarm(&mut self, timer: &T) {
        if let Some(slot) = self.index.get(timer).copied() {
            self.slots[slot as usize].armed = false;
            self.release(slot);
        }
    }

    /// Frees a slot that neither waits nor has an event.
    fn release(&mut self, slot: u32) {
        let entry = &self.slots[slot as usize];
        if !entry.armed && entry.due == u64::MAX && self.index.remove(&entry.timer).is_some() {
            self.free.push(slot);
        }
    }

    /// A queued event is due at `now` by the steady clock.
    pub(crate) fn fire(&mut self, slot: u32, generation: u32, now: u64) -> Fire {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return Fire::Stale };
        if entry.generation != generation || entry.due == u64::MAX {
            return Fire::Stale;
        }
        entry.due = u64::MAX;
        if !entry.armed {
            self.release(slot);
            return Fire::Stale;
        }
        if now < entry.deadline {
            return Fire::Early { deadline: entry.deadline, generation };
        }
        Fire::Due { arming: entry.arming }
    }

    /// The event of a slot went back in.
    pub(crate) fn queued(&mut self, slot: u32, due: u64) {
        self.slots[slot as usize].due = due;
    }

    /// The input of a timer that ran out is handled: its value, unless it was stopped or armed again.
    pub(crate) fn expire(&mut self, slot: u32, arming: u32) -> Option<T> {
        let entry = self.slots.get_mut(slot as usize)?;
        if !entry.armed || entry.arming != arming {
            return None;
        }
        entry.armed = false;
        let timer = entry.timer.clone();
        self.release(slot);
        Some(timer)
    }

    /// New events for those that are now due sooner than their queued event.
    pub(crate) fn hurry(&mut self, when: impl Fn(u64) -> u64) -> Vec<(u32, u32, u64)> {
        let mut sooner = Vec::new();
        for (slot, entry) in self.slots.iter_mut().enumerate() {
            let due = when(entry.deadline);
            if entry.armed && entry.due != u64::MAX && due < entry.due {
                self.generation = self.generation.wrapping_add(1);
                (entry.due, entry.generation) = (due, self.generation);
                sooner.push((slot as u32, entry.generation, due));
            }
        }
        sooner
    }

    /// All timers are gone; their events become stale.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.index.clear();
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arming_later_leaves_the_event_and_arming_sooner_replaces_it() {
        let mut timers = Timers::new();
        let (slot, first) = timers.arm('a', 10, 10).unwrap();
        assert_eq!(timers.arm('a', 20, 20), None);
        let Fire::Early { deadline: 20, generation } = timers.fire(slot, first, 10) else {
            panic!("must go back in")
        };
        timers.queued(slot, 20);
        let (_, sooner) = timers.arm('a', 15, 15).unwrap();
        let Fire::Due { arming } = timers.fire(slot, sooner, 15) else { panic!("must be due") };
        assert!(matches!(timers.fire(slot, generation, 20), Fire::Stale));
        assert_eq!(timers.expire(slot, arming), Some('a'));
        assert_eq!(timers.expire(slot, arming), None, "once");
    }

    #[test]
    fn what_is_stopped_while_it_waits_to_be_handled_does_not_fire() {
        let mut timers = Timers::new();
        let (slot, generation) = timers.arm('a', 10, 10).unwrap();
        let Fire::Due { arming } = timers.fire(slot, generation, 10) else { panic!("must be due") };
        timers.disarm(&'a');
        assert_eq!(timers.expire(slot, arming), None);
        let (slot, _) = timers.arm('b', 10, 10).unwrap();
        assert_eq!(slot, 0, "slots are used again");
    }
}
