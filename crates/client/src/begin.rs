//! Begin, and what is open at a node since.

use crate::call::{self, Bounds, Meaning, Trying, meaning};
use crate::client::{Caller, Nodes};
use crate::error::Error;
use crate::keyspace::strange;
use bytes::Bytes;
use isochrone_proto::v1;
use isochrone_proto::v1::begin_response::Outcome;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tonic::Code;

/// How long giving a transaction up may take, while its client waits for that and in the background. If nobody hears of
/// it, it ends by itself.
const FAREWELL: Duration = Duration::from_secs(1);
const BACKGROUND: Duration = Duration::from_secs(10);
/// How long a name is, bytes.
const NAME: usize = 16;

/// What may be open at a node: a transaction, or a Begin that was not answered. Where it is dropped before it has ended,
/// the node is told in the background that it was given up.
pub(crate) struct Open {
    /// By its `txn`, or by its name as long as that is not known.
    which: v1::AbortRequest,
    pub(crate) caller: Caller,
    pub(crate) place: usize,
    open: bool,
}

impl Open {
    /// What is about to begin at the node at this place.
    fn new(place: usize, caller: Caller) -> Open {
        let mut name = [0; NAME];
        // Without randomness it has no name, and ends by itself where its answer is lost.
        let name = match getrandom::fill(&mut name) {
            Ok(()) => Bytes::copy_from_slice(&name),
            Err(_) => Bytes::new(),
        };
        Open { which: v1::AbortRequest { txn: Bytes::new(), name }, caller, place, open: false }
    }

    pub(crate) fn txn(&self) -> Bytes {
        self.which.txn.clone()
    }

    /// The node has said that it is open no more.
    pub(crate) fn ended(mut self) {
        self.open = false;
    }

    /// Tells the node that nobody will commit it.
    pub(crate) async fn give_up(mut self) {
        // Where that takes too long it goes on in the background.
        self.open = !abort(self.caller.clone(), self.which.clone(), FAREWELL).await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        // Outside of a runtime nobody can be told.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(abort(self.caller.clone(), std::mem::take(&mut self.which), BACKGROUND));
    }
}

/// Aborts it, again and again for so long, until the node has done so, or would refuse it each time; false where neither.
async fn abort(mut caller: Caller, which: v1::AbortRequest, time: Duration) -> bool {
    let bounds = Bounds::of(u32::MAX, time);
    let mut tries = 0;
    loop {
        let left = bounds.left();
        let Err(status) = call::once(left, caller.abort(call::within(which.clone(), left))).await else {
            return true;
        };
        // A limit that was met may not be the next time. To repeat any other refusal, such as of a password, helps nobody.
        if matches!(meaning(&status), Meaning::Refused(_)) && status.code() != Code::ResourceExhausted {
            return true;
        }
        tries += 1;
        if !bounds.again(tries).await {
            return false;
        }
    }
}

/// Begins at whichever node answers. What it was answered, and what is open since.
pub(crate) async fn begin(
    nodes: &Arc<Nodes>,
    bounds: Bounds,
    tries: &mut u32,
    message: v1::BeginRequest,
) -> Result<(Outcome, Open), Error> {
    let mut trying = Trying::new(nodes, bounds, tries);
    let mut before: Option<Open> = None;
    loop {
        let (place, mut caller) = trying.node();
        // By the same name, the node ends what it has begun unheard. What another has begun is given up here.
        let mut open = before
            .take()
            .filter(|open| open.place == place)
            .unwrap_or_else(|| Open::new(place, caller.clone()));
        open.caller = caller.clone();
        let turn = trying.turn(place).await;
        let unheard = std::mem::replace(&mut open.open, true);
        let message = v1::BeginRequest { name: open.which.name.clone(), ..message.clone() };
        let time = trying.share();
        let answer = match turn {
            Ok(_turn) => call::once(time, caller.begin(call::within(message, time))).await,
            Err(status) => Err(status),
        };
        let status = match answer {
            Ok(v1::BeginResponse { outcome }) => {
                match &outcome {
                    Some(Outcome::Begun(v1::Begun { txn, .. })) => {
                        open.which = v1::AbortRequest { txn: txn.clone(), name: Bytes::new() };
                    }
                    Some(Outcome::Snapshot(_) | Outcome::Aborted(_)) => open.open = false,
                    None => {}
                }
                return Ok((outcome.ok_or_else(strange)?, open));
            }
            Err(status) => status,
        };
        // A refusal too may have been made on this side, of an answer that is too large.
        open.open = unheard || !matches!(meaning(&status), Meaning::Unsent(_) | Meaning::TryAgain(_));
        before = Some(open);
        trying.again(place, &status).await?;
    }
}
