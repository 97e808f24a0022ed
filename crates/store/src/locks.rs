//! What scripts of lock libraries do, as operations: change a key only while it holds one's token.

use crate::turn::{Mark, Turn};
use isochrone_core::command::{DeadlineChange, Response};
use isochrone_core::{Blob, Stamp};

impl Turn<'_> {
    pub(crate) fn del_if(&mut self, key: &Blob, value: &Blob) -> Response {
        let held = self.holds(key, value);
        if held {
            self.delete(key);
        }
        Response::yes(held)
    }

    pub(crate) fn expire_if(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        value: &Blob,
        change: DeadlineChange,
    ) -> Response {
        let Some(held) = self.store().keys.get(key).map(|entry| entry.deadline) else {
            return Response::yes(false);
        };
        let deadline = match change {
            _ if !self.holds(key, value) => return Response::yes(false),
            DeadlineChange::To(deadline) => deadline,
            _ if held == Stamp::MAX => return Response::yes(false),
            DeadlineChange::MoveTo(deadline) => deadline,
            DeadlineChange::MoveBy(millis) => {
                let nanos = i128::from(held.as_nanos()) + i128::from(millis) * 1_000_000;
                // Below the last stamp, which means no deadline.
                Stamp::from_nanos(nanos.clamp(0, i128::from(u64::MAX) - 1) as u64)
            }
        };
        self.redate(mark, key, deadline);
        Response::yes(true)
    }

    /// Whether a key holds this string; another type is another value.
    fn holds(&self, key: &Blob, value: &Blob) -> bool {
        let held = self.store().keys.get(key).and_then(|entry| entry.value.bytes().ok());
        held.is_some_and(|held| held == *value)
    }
}
