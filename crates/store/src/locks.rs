//! What scripts of lock libraries do, as operations: change a key only while it holds one's token.

use crate::turn::{Mark, Turn};
use isochrone_core::command::{DeadlineChange, Refusal, Response};
use isochrone_core::{Blob, Stamp};

impl Turn<'_> {
    pub(crate) fn del_if(&mut self, key: &Blob, value: &Blob) -> Result<Response, Refusal> {
        let held = self.holds(key, value)?;
        if held {
            self.delete(key);
        }
        Ok(Response::yes(held))
    }

    pub(crate) fn expire_if(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        value: &Blob,
        change: DeadlineChange,
    ) -> Result<Response, Refusal> {
        let Some(held) = self.store().keys.get(key).map(|entry| entry.deadline) else {
            return Ok(Response::yes(false));
        };
        let deadline = match change {
            _ if !self.holds(key, value)? => return Ok(Response::yes(false)),
            DeadlineChange::To(deadline) => deadline,
            _ if held == Stamp::MAX => return Ok(Response::yes(false)),
            DeadlineChange::MoveTo(deadline) => deadline,
            DeadlineChange::MoveBy(millis) => {
                let nanos = i128::from(held.as_nanos()) + i128::from(millis) * 1_000_000;
                // Below the last stamp, which means no deadline.
                Stamp::from_nanos(nanos.clamp(0, i128::from(u64::MAX) - 1) as u64)
            }
        };
        self.redate(mark, key, deadline);
        Ok(Response::yes(true))
    }

    /// Whether a key holds this string.
    fn holds(&self, key: &Blob, value: &Blob) -> Result<bool, Refusal> {
        let Some(entry) = self.store().keys.get(key) else { return Ok(false) };
        Ok(entry.value.bytes()? == *value)
    }
}
