//! The handles of a client process: each has one transaction at a time, as a client of the public code.

use std::collections::VecDeque;

/// Handles, and which transaction each had last.
///
/// A process serves many sessions and is not told which asks. A transaction takes the handle that was idle for longest:
/// where every session goes on as soon as its transaction has ended, or in step, that is the one that it had before.
#[derive(Clone, Hash, Debug, Default)]
pub struct Handles {
    last: Vec<u64>,
    idle: VecDeque<usize>,
}

impl Handles {
    /// Takes an idle one, or one more.
    pub fn take(&mut self) -> usize {
        self.idle.pop_front().unwrap_or_else(|| {
            self.last.push(0);
            self.last.len() - 1
        })
    }

    /// Gives one back, after the transaction of this sequence.
    pub fn free(&mut self, handle: usize, sequence: u64) {
        if let Some(last) = self.last.get_mut(handle) {
            *last = sequence;
            self.idle.push_back(handle);
        }
    }

    /// The last transaction of a handle; 0 for none.
    pub fn last(&self, handle: usize) -> u64 {
        self.last.get(handle).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_alone_has_one_handle_and_several_take_turns() {
        let mut handles = Handles::default();
        for sequence in 1..5 {
            let handle = handles.take();
            assert_eq!((handle, handles.last(handle)), (0, sequence - 1));
            handles.free(handle, sequence);
        }
        let (a, b) = (handles.take(), handles.take());
        assert_eq!((a, b), (0, 1));
        handles.free(b, 6);
        handles.free(a, 5);
        assert_eq!([handles.take(), handles.take(), handles.take()], [b, a, 2]);
    }
}
