//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// A client does not compare the entries with its cache.
    TrustTheCache = "trust-the-cache",
    /// A key on its way is read only where it comes from.
    ReadSourceOnly = "read-source-only",
    /// Whoever writes a key on its way leaves it also where it comes from.
    KeepSource = "keep-source",
    /// A move ends when it is marked: nothing is carried over.
    CarryNothing = "carry-nothing",
    /// A key that was listed and not found is done with, as behind a log.
    ForgetPending = "forget-pending",
}
