//! Absences that are watched.
//!
//! Nothing is kept of a key that is not there, so that one that came and is gone again looks as if it had never come. Who has to
//! tell these apart asks by a command that leaves a number in the place of the absent key ([`Operation::Watch`]); whatever puts a
//! value there takes it away. So what a transaction finds depends on the history of the keys that it names and on nothing
//! else, as it must where commands on others may be executed in any order.
//!
//! The numbers lie beside the keys, in a store of their own, as entries whose time is over some minutes after they were last
//! asked for. A transaction that comes later finds its key changed; what nobody asks for again is swept like keys. Those
//! of keys that leave for another partition are dropped, and all by a flush.
//!
//! [`Operation::Watch`]: isochrone_core::command::Operation::Watch

use crate::Store;
use crate::turn::{Mark, Turn};
use crate::value::{Entry, Value};
use isochrone_core::command::Response;
use isochrone_core::{Blob, Span, Stamp};
use std::sync::Arc;

/// How long an absence is kept in mind after it was last asked for.
const KEPT: Span = Span::from_secs(300);

/// Keeps this in mind of a key that is absent, or nothing; nothing is left where nothing is kept of any.
pub(crate) fn set(absences: &mut Option<Arc<Store>>, key: &Blob, absence: Option<Entry>) {
    let held = absences.as_ref().is_some_and(|absences| absences.keys.contains(key));
    if !held && absence.is_none() {
        return;
    }
    let kept = Arc::make_mut(absences.get_or_insert_default());
    kept.replace(key, absence);
    if kept.is_empty() {
        *absences = None;
    }
}

impl Store {
    /// What is kept in mind of a key that is absent.
    pub(crate) fn absence(&self, key: &[u8]) -> Option<&Entry> {
        self.absences.as_ref()?.keys.get(key)
    }

    /// Whether a key has been absent since [`Turn::watch`] has told this number.
    pub(crate) fn is_absent_since(&self, key: &[u8], number: u64, stamp: Stamp) -> bool {
        let told = |absence: &Entry| absence.version == number | 1 && !absence.is_over(stamp);
        number & 1 == 0 && self.absence(key).is_some_and(told)
    }
}

impl Turn<'_> {
    /// The version of a key, or a number for its absence.
    pub(crate) fn watch(&mut self, mark: &mut Mark<'_>, key: &Blob) -> Response {
        let stamp = self.stamp;
        let store = self.store_mut();
        let found = store.version(key);
        if found != 0 {
            return Response::Integer(found as i64);
        }
        let known = store.absence(key).filter(|absence| !absence.is_over(stamp));
        let known = known.map(|absence| (absence.version, absence.deadline));
        let (version, until) = known.unwrap_or_else(|| (mark.absence(), Stamp::ZERO));
        let deadline = until.max(stamp + KEPT);
        set(&mut store.absences, key, Some(Entry { value: Value::Integer(0), deadline, version }));
        // Even, as no version is.
        Response::Integer((version & !1) as i64)
    }

    /// Forgets the absence of a key where the stamp is beyond its time.
    pub(crate) fn forget_absence(&mut self, key: &Blob) {
        let stamp = self.stamp;
        let store = self.store_mut();
        if store.absence(key).is_some_and(|absence| absence.is_over(stamp)) {
            set(&mut store.absences, key, None);
        }
    }
}
