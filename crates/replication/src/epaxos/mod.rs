//! EPaxos: every replica leads the commands of its clients, and only what interferes is ordered.
//!
//! **What it is.** The replica that is asked, the *command leader*, puts a batch of commands into its next
//! *instance* and proposes what must come before it: its *attributes*, the interfering instances it knows and
//! a number of order. Others add what they know. If a *fast quorum* adds nothing, the instance is committed in
//! one round trip; else the union is voted on in a second. Committed instances form a graph; its strongly
//! connected components are executed dependencies first, each inside by number of order.
//! Source: Moraru, Andersen, Kaminsky, *There Is More Consensus in Egalitarian Parliaments* (SOSP '13), as
//! restated in `specs/sdpaxos.md` 5.3 and `specs/domino.md` 5; recovery is that of EPaxos\* (Ryabinin,
//! Gotsman, Sutra, *Making Democracy Work*, OPODIS '25, arXiv 2511.02743), which is sound with the small fast
//! quorum.
//!
//! **What it promises.** Linearizable, with each client command executed exactly once. Commands that commute are
//! executed in different orders at different replicas. Where blind commands are answered at their commit (`reply =
//! "commit"`), the commands of each key are linearizable by themselves, and no more: let one of the keys x and y be on
//! its way, a write of x be committed behind it, and then a write of y without it; the one may still get its place
//! behind the write of y, and then that comes before the write of x, which was answered before it was asked.
//!
//! **What it assumes.** Crash faults of a minority, fair-lossy links. No clock.
//!
//! **What it costs.** A client beside the replica at r waits `m(r)`, the round trip to the fast quorum, and
//! with five or more replicas under interference the round trip to a majority more. At three replicas the
//! nearest other one, the *delegate*, settles the attributes by itself, so that interference costs nothing
//! before execution; the third then only listens, without a sync or an answer. Execution waits for what interferes.
//!
//! **What survives.** Anything but the loss of a majority's journals. A failure costs those nothing whose
//! commands do not interfere with what the failed replica led; others the patience after which the silent are
//! suspected, and two or three round trips. A replica whose delegate has failed proposes nothing new until what
//! that one left open is given up, so that this is proposed again ahead of what the same client has sent later.
//! While fewer live than a fast quorum needs, commands take the slow path at once.
//!
//! **Who stands where.** One replica on each node listed, seven at most; clients ask the nearest.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `PreAccept`, `PreAccepted` | leader, acceptor | all (thrifty: a fast quorum), leader | attributes |
//! | `Accept`, `Accepted` | leader or recoverer, acceptor | all (thrifty: a majority), back | slow path |
//! | `Commit` | whoever finds it chosen, or is asked | all, or who asked | commit |
//! | `Recover`, `Recovered` | recoverer, acceptor | all, recoverer | recovery: promises |
//! | `Validate`, `Validated` | recoverer, who promised | who promised, recoverer | recovery of a fast commit |
//! | `Waiting` | recoverer | all | recoveries that wait for each other |
//! | `Rejected` | acceptor | one with an old ballot | all of these |
//! | `Fetch`, `Trimmed`, `Driven` | one who lacks, anyone, its driver | anyone, one who lacks | repair |
//! | `Heartbeat`, `Heard` | anyone | all, back | life, round trips, what is executed |
//!
//! | replicas n | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|---|
//! | quorum n - f | 1 | 2 | 2 | 3 | 3 | 4 | 4 |
//! | fast quorum n - e, the leader among it | 1 | 2 | 2 | 3 | 3 | 4 | 5 |
//!
//! ```text
//!  client          leader         acceptor       acceptor
//!    |  Requests     |               |              |
//!    |-------------->|  PreAccept    |              |     ahead of the leader's own record
//!    |               |-------------->|              |
//!    |               |----------------------------->|
//!    |               |  PreAccepted *|              |     behind the record; equal to what was proposed
//!    |               |<--------------|              |
//!    |               |  PreAccepted *|              |
//!    |               |<-----------------------------|     a fast quorum of equal answers:
//!    |    Replies  * |  Commit     * |              |     committed, behind the leader's record of it;
//!    |<--------------|-------------->|              |     executed and answered, if nothing is waited for
//!    |               |----------------------------->|
//! ```
//!
//! # Dependencies as one number a seat
//! Attributes name for each seat the *highest* interfering instance, and stand for it and all before it.
//! That is more than interferes, so whatever holds for the sets of the source holds for these: they are closed
//! under union, an acceptor's contain the leader's, and two interfering commands of which one was known where
//! the other was pre-accepted are ordered. The surplus is left out again when a committed instance is linked
//! into the graph: an edge goes only to those that interfere, which is a function of what instances hold and
//! so the same everywhere. Where an instance may hold anything, what it holds is waited for; where it is known
//! not to interfere, its commit is not. Of one seat's instances the later lead to the earlier that they interfere
//! with, which their leader knew, so an edge to the last that touches something stands for those to all before it.
//!
//! # Why one order is executed
//! *Agreement*: an instance is committed with one content and one set of attributes. *Visibility*: of two
//! interfering instances committed with commands, one is among the dependencies of the other. Then the graph
//! over what an instance leads to is the same at every replica that executes it, any two interfering instances
//! are ordered by an edge or share a component, and inside a component the order (number, seat, instance) is
//! the same everywhere. A command that is executed leads to nothing that begins later, so real time is kept;
//! one that is answered at its commit has a lower number of order than any interfering one that begins later,
//! so it is kept for each key as well.
//!
//! # Why recovery agrees
//! Every instance is a consensus of its own. Ballot 0 is its leader's; a recoverer takes a higher one. An
//! acceptor keeps *two* ballots, the one it has promised and the one of its last vote. Write n replicas, f of
//! which may fail, majorities n - f, fast quorums n - e, with n >= 2e + f - 1; c(i) for the leader of i.
//!
//! - *The slow path is Paxos*: a value chosen by a majority in a ballot is reported to every later recoverer,
//!   who adopts the vote in the highest ballot. In ballot 0 the leader proposes one value only, or, at three
//!   replicas, leaves that to the one delegate, whose answer is its vote; the leader's own vote is its record
//!   of the commit. Leader and delegate are the majority that knows the instance before that; what the third has
//!   heard, it may forget, and it counts for nothing in a recovery.
//! - *A leader knows what it has let out, or that it may have*: an instance leaves ahead of its record, so a
//!   restart may have lost it. Numbers are reserved by a durable record before anything leaves under them. A
//!   leader that starts again uses none of these twice. Until those it knows nothing of are settled, mostly
//!   given up by itself, every command that it proposes or answers for has them all among its dependencies, and
//!   it takes no part in a validation that they could rule out. So it stays one of the majority that has
//!   pre-accepted them. (Whatever it said after it let one out, it said behind the record of it.)
//! - *A fast commit rests on the leader alone*: nobody else knows that its answers were equal. So it leaves
//!   the leader behind the record of it, and a leader that answers `Recover` without a commit has not
//!   committed, and never will in ballot 0: the instance is given up (`NoOp`), and its leader proposes the
//!   commands anew.
//! - *Else the leader is not in the quorum Q that has promised.* If i was committed fast with attributes D,
//!   all but e of Q pre-accepted exactly D; if fewer did, i is given up. If that many did, D may or may not be
//!   committed. It is then proposed unless something rules the fast path out, and `Validate` makes i known at
//!   all of Q, so that no command passes it by from then on. Each of Q names the interfering j that are in its
//!   way: j not in D, and i not among the dependencies j was committed with, or else proposed with.
//!   - Nobody names any: D is safe to propose. Every interfering j not in D was, or will be, pre-accepted or
//!     validated by a majority, which meets Q at some r. If r learnt of j after it was asked about i, its
//!     answer about j contains i; if before, it would have named j, unless i was in what was proposed for j,
//!     which every outcome of j contains.
//!   - Some j is committed so: by visibility, i was not committed fast. Give it up.
//!   - Exactly |Q| - e have pre-accepted D, and c(j) is not in Q: if i was committed fast, all outside Q had
//!     to pre-accept D, c(j) among them, and before it began j, since j is not in D. Then i would be in what
//!     c(j) proposed for j. So it was not.
//!   - Else wait until each j is committed, either as given up or behind i (then propose D) or neither (then
//!     give i up). Recoveries that wait tell how many of their quorum have pre-accepted as proposed: if that
//!     is k > n - f - e for j, i is given up too. For those k pre-accepted j without i, so that they did not
//!     pre-accept i as D, and neither did c(j), which is not among them; were i committed fast, there were
//!     n >= (n - e) + k + 1 > 2n - f - 2e + 1 replicas, against n >= 2e + f - 1.
//! - *Nobody waits for ever*: when all that live have promised, j either ends, or its leader lives and so
//!   gives it up, or it waits with k > n - f - e, and then whoever waits for it gives up.
//!
//! An instance of which nobody knows the content is given up as well: no fast quorum has it.
//!
//! # What is forgotten, and why that is safe
//! A replica tells in its heartbeats what it has executed *durably*. What all have executed goes: it comes
//! before whatever is committed later, everywhere, and a new instance's attributes contain all of it. Beyond
//! bounds commands go earlier; a replica that lacks them takes in somebody's state, and executes nothing
//! until it has one that contains all it has executed itself. Its own votes stay until all have executed what
//! they are for, since only votes make quorums meet.
//!
//! **Exactly once.** A client's mark "I have all answers below" may come by before commands below it do, since
//! they commute. What is answered at its commit is not below it until it is executed somewhere; see
//! [`OnceTable::commuting`](isochrone_core::OnceTable::commuting).
//!
//! **Chains.** Under contention instances lead to ever newer ones. Own instances that are not *executed*
//! count against the window, so that a chain ends; the sizes of components are counted
//! (`components_of_...`).
//!
//! **Membership** changes by a stop, which interferes with everything.
//!
//! **What differs from the sources.** A fast commit needs answers equal to what the leader proposed, not only
//! to each other (EPaxos\*); numbers of order are kept, of which EPaxos\* has no need, for replies at commit;
//! delegates, batches, links only where something interferes, and numbers reserved ahead, so that a command
//! waits for two syncs, one after the other, and not for three, are ours. Reads go through the protocol.

pub mod order;

mod message;
mod mutation;
mod parameters;

pub use message::{
    Attributes, Committed, Content, InstanceId, Message, Note, Phase, Record, Report, Role, SEATS, Timer,
};
pub use mutation::Mutation;
pub use order::Order;
pub use parameters::Parameters;

use crate::family::AskingClient;
use crate::order::Ordered;
use crate::service::{Reply, Service};
use isochrone_core::{Guarantee, StateMachine};

/// EPaxos.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// Where EPaxos stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "epaxos";
    const LED: bool = false;
    const COMMITS: bool = true;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = AskingClient<Family, S>;

    /// What interferes keeps real time from its commit on: the later one has the other among its dependencies, or the
    /// higher number of order. What does not interfere keeps it only where answers follow execution.
    fn guarantee(_: &Parameters, service: &Service) -> Guarantee {
        match service.reply {
            Reply::Execute => Guarantee::Linearizable,
            Reply::Commit => Guarantee::LinearizableByKey,
        }
    }
}
