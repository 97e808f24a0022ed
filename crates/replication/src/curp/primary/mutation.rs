//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use crate::curp::Bug;
use isochrone_core::mutations;

mutations! {
    /// A backup says that it has something before its record is durable.
    AcknowledgeBeforeDurable = "acknowledge-before-durable",
    /// A witness accepts before its record is durable.
    AcceptBeforeDurable = "accept-before-durable",
    /// A witness accepts whatever it holds already.
    AcceptConflicts = "accept-conflicts",
    /// A witness goes on accepting after it gave its contents to a recovery.
    AcceptAfterRecovery = "accept-after-recovery",
    /// A witness accepts under any version of the list, and a master answers under the old one until the new one
    /// counts.
    IgnoreVersions = "ignore-versions",
    /// A recovery does not replay what the witness holds.
    SkipReplay = "skip-replay",
    /// A recovery asks no witness.
    ServeWithoutWitness = "serve-without-witness",
    /// No bug: a recovery replays what the witness holds in the opposite order, each request in a place of its own.
    ReplayBackwards = "replay-backwards",
    /// The same, with what each request acknowledges.
    HonourAcknowledgements = "honour-acknowledgements",
    /// A backup confirms what a master sends that was given up: its log was read before it was fenced.
    AcceptOldEpochs = "accept-old-epochs",
    /// Something counts as safe when one of the backups has it.
    SyncOnOne = "sync-on-one",
    /// A new list is ready before what was executed under the old one is on all backups.
    ReadyBeforeSync = "ready-before-sync",
    /// A new master serves although a lease may hold that it granted to the old one.
    IgnoreLeases = "ignore-leases",
    /// A read is answered at a master whose lease has run out.
    ReadAfterLease = "read-after-lease",
    /// A master that is to hand over goes on serving when it has said that it does not.
    ServeAfterYield = "serve-after-yield",
    /// Witnesses are told to forget what is not yet on all backups.
    CollectEarly = "collect-early",
    /// A copy reads for clients whatever lease it has.
    NearWithoutLease = "near-without-lease",
    /// A copy reads for clients although it holds something newer that is not known to be on all backups.
    NearUnsynced = "near-unsynced",
    /// A new list is ready although a copy that is not part of it may still read for clients, and a master gives its word
    /// although a copy may.
    DropReadersAtOnce = "drop-readers-at-once",
    /// Unified: a recovery puts what the witness of another node holds behind the log of its own.
    MixNodes = "mix-nodes",
    /// Unified: a backup leaves out what is named and not held.
    DropMissing = "drop-missing",
    /// Unified: a record that comes late is kept although the request is in the log.
    StoreAgain = "store-again",
    /// A snapshot leaves out the exactly-once table.
    DropSession = "drop-session",
    /// Shared: the master answers speculatively whatever else is tentative.
    SpeculateOnConflict = "speculate-on-conflict",
    /// Shared: reads are answered from values that are not safe.
    ReadTentative = "read-tentative",
    /// Shared: a command asked for again is told its speculative answer.
    SpeculateOnDuplicate = "speculate-on-duplicate",
    /// Shared: a master that was given up keeps what it executed speculatively.
    KeepTentative = "keep-tentative",
    /// Shared: the client counts acceptances of other reigns.
    MixReigns = "mix-reigns",
    /// Shared: the client is content with one acceptance less than needed.
    OneAcceptanceLess = "one-acceptance-less",
    /// Shared: keys that a command only reads conflict with nothing.
    ForgetReadKeys = "forget-read-keys",
    /// Shared: what fails has no place in the log, and nothing remembers it.
    ForgetFailures = "forget-failures",
    /// Shared: a command that was acknowledged, or whose client's session is over, is executed when it comes again.
    ExecuteForgotten = "execute-forgotten",
    /// Shared: a client reads at a backup first and asks its witness afterwards.
    BackupBeforeWitness = "backup-before-witness",
}

impl Mutation {
    /// The bug that it is in what the families of [`crate::curp`] share.
    pub(super) fn shared(self) -> Option<Bug> {
        Bug::named(self.name())
    }
}
