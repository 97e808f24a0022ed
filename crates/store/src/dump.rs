//! Values as a whole, out and in.

use crate::Store;
use crate::export::{self, Room};
use crate::turn::{Mark, Turn};
use isochrone_core::command::{Refusal, Response, Restore};
use isochrone_core::{Blob, Stamp};

impl Store {
    pub(crate) fn dump(&self, key: &[u8]) -> Response {
        let Some(entry) = self.keys.get(key) else { return Response::Nil };
        let (content, ..) = export::cut(&entry.value, 0, &mut Room::endless());
        Response::Content(Box::new(content))
    }
}

impl Turn<'_> {
    pub(crate) fn restore(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        restore: &Restore,
    ) -> Result<Response, Refusal> {
        if !restore.replace && self.store().keys.contains(key) {
            return Err(Refusal::BusyKey);
        }
        let value = export::value(restore.content.clone()).ok_or(Refusal::BadContent)?;
        self.put(mark, key, value, restore.deadline.unwrap_or(Stamp::MAX));
        Ok(Response::Ok)
    }
}
