//! Domino: a position in the log is a point in time, and clients choose it from what they measure.
//!
//! **What it is.** Two protocols in one log. A position is `(stamp, lane)`. In lane 0, *Domino's Fast Paxos*
//! (DFP), a client stamps a request with the time at which a supermajority of the replicas should have it, and
//! sends it to all; each votes for it at that stamp, and equal votes of a supermajority commit it in one round
//! trip. In lane `1 + seat`, *Domino's Mencius* (DM), the replica gives stamps itself and commits with a
//! majority. Positions that nobody used are filled with no-ops as clocks pass them. For each request a client
//! takes the way that it predicts to be faster. Source: Yan, *Reducing the Latency of Dependent Operations in
//! Large-Scale Geo-Distributed Systems*, chapter 4, as restated in `specs/domino.md`.
//!
//! **What it promises.** All replicas execute one order, each command once. With `reply = "execute"` it is
//! linearizable. With `reply = "commit"` it is sequenced: a blind write is answered when it cannot lose its
//! place, before its stamp has passed, so another client may still read what was there before, or get an
//! earlier place. One client's commands keep their order all the same: its stamps rise, and a leader gives its
//! commands stamps above all that it knows to be committed, or has sent and may still get.
//!
//! **What it assumes.** Crash faults of a minority, fair-lossy links. Clocks cost latency when they are wrong,
//! never safety: a replica's clock never goes back, not even over a restart, and one that is far ahead of most
//! is not followed (`clock`).
//!
//! **What it costs.** A fast request the round trip to the supermajority-th replica, another one the way to
//! the leader and its majority round trip; the lower of the two without load (`plan::domino`). A slow one in
//! addition the way to the coordinator and its majority round trip. Execution waits until every lane's clock
//! has passed the stamp: about the stamp's distance, the longest way and a heartbeat.
//!
//! **What survives.** Anything but the loss of a majority's journals. With fewer than a supermajority alive
//! fast requests fall to recovery, and clients take leaders.
//!
//! **Who stands where.** One replica on each node listed, one client on every node, which serves all connections
//! of its node. Where a region has several nodes the client of the first measures for all of them, and the others ask
//! it; while it is silent each measures for itself. Clients of different keyspaces on one node measure each for
//! itself: what they measure is a clock and a replication latency of their own replicas.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `Probe`, `Probed` | client, replica | replica, client | measuring |
//! | `Measure`, `Measured` | client, client | client, client of one region | measuring for others |
//! | `Propose`, `Voted`, `Rejected` | client, replica | replica, client | DFP, fast |
//! | `ProposeLed`, `Committed` | client, replica | replica, client | DM; commits |
//! | `Status`, `Standing` | client, replica | replica, client | a command without an answer |
//! | `Flow` with a beat | replica | replica | liveness, replication latency, clocks, an epoch that is about to begin |
//! | `Flow` with items, in order: | replica | replica | |
//! | `Cover`, `Vote`, `Tick` | acceptor | learner | DFP: fast votes, and the clock below which there are no others |
//! | `Lack`, `Body` | learner, anyone | anyone, learner | a command that is needed |
//! | `Recover`, `Recovered`, `Closed` | coordinator, acceptor | acceptor, coordinator | DFP, slow; degraded mode |
//! | `Lead`, `Chosen`, `Settled` | coordinator | replica | decisions, where the coordinator is the sole learner |
//! | `Prepare`, `Promise`, `Open` | new coordinator, acceptor | acceptor, new coordinator | failover |
//! | `Own`, `Accept`, `Accepted`, `Refused`, `Commit` | owner, replica | replica, owner | DM |
//! | `Revoke`, `Revoked`, `Seal`, `SealAccepted`, `Sealed`, `Outbid` | revoker, replica | replica, revoker | a silent owner's lane |
//! | `Report`, `Fetch`, `Learned`, `Trimmed` | replica | replica | catch-up |
//! | `Campaign`, `Forward` | replica | replica | administration; a clock far ahead |
//!
//! | replicas | 1 | 3 | 5 | 7 | 9 |
//! |---|---|---|---|---|---|
//! | majority: DM, recovery, failover, revocation | 1 | 2 | 3 | 4 | 5 |
//! | supermajority: fast votes | 1 | 3 | 4 | 6 | 7 |
//!
//! The fast lane may have other quorums (`fast_quorum`, `classic_quorum`; `FastQuorums` in core): a smaller fast quorum
//! is nearer, and its recovery and failover need more than a majority, up to everybody. Lanes stay with majorities.
//!
//! ```text
//!  client          r0 (coordinator)   r1          r2
//!    |  Propose @t    |               |           |     t = when the supermajority-th should have it
//!    |--------------->|               |           |
//!    |------------------------------->|           |
//!    |------------------------------------------->|
//!    |    Voted       |     Vote      |           |     behind the vote's record
//!    |<---------------|<--------------|           |     equal votes of a supermajority: committed
//!    |<-------------------------------|           |
//!    |<-------------------------------------------|
//!    |                |  Tick: clock > t, from all lanes: executed, answered
//! ```
//!
//! **What differs from the source**, which has no fault handling: votes, promises, reserves and proposals are
//! durable; clock readings go over links that keep order and completeness over loss, reordering and restarts, where
//! each session begins with what may still matter (`Resync`); a restarted coordinator opens another epoch; a
//! command that loses its position to a no-op is proposed again like one that loses to another command; the result
//! of a led command comes from its leader alone, and not from whoever executes it first; clocks are kept near each
//! other (`clock`), since the source's waits for the slowest would be waits for the wrongest; the extra delay may
//! be left to a feedback controller on the rate of fast commits (`extra_delay = "auto"`), which the source names as
//! future work.
//!
//! **What is left out** of `specs/domino.md`: commit tokens between clients. All connections of a node have one client
//! process, so what is asked at a node lies behind all that was answered there, without a token. From node to node a
//! token would have to be taken and handed on by users, in commands that Redis' clients do not have; who wants that
//! order has it by `reply = "execute"`.

mod client;
mod clock;
mod message;
mod mutation;
mod order;
mod parameters;
mod predict;
pub mod replay;
mod track;

pub use client::Client;
pub use message::{
    Beat, Item, Message, Note, Opening, Place, Promise, Record, Reject, Revoked, Round, Seal, Timer, Turn,
};
pub use mutation::Mutation;
pub use order::{Held, Order};
pub use parameters::{Estimate, Extra, Learners, Parameters, Way};
pub use predict::Predictor;

use crate::family::Replicated;
use crate::order::Ordered;
use isochrone_core::StateMachine;

/// Domino.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// Domino over the state machine `S`.
pub type Domino<S> = Replicated<S, Family>;
/// Where Domino stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "domino";
    const LED: bool = false;
    const COMMITS: bool = true;
    const LEADER_FIXED: bool = true;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = Client<S>;
}
