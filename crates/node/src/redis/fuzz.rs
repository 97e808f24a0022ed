//! The entry for fuzzing, and for whoever wants a connection without a node.

use super::Connection;
use crate::gateway::{Ask, Context, Counters, KeyspaceView, Login, NodeView, Outcome, Request, Session};
use crate::hub::Hub;
use crate::limits::Limits;
use isochrone_core::command::Response;
use isochrone_core::{Instant, KeyspaceId, Random, Stamp};
use std::collections::BTreeMap;

/// Feeds arbitrary bytes to a connection, cut into pieces by the first of them, and answers what it asks
/// in reverse order. Nothing may panic, and what the connection keeps stays in proportion to its input.
///
/// # Panics
/// Where a connection keeps more than it was sent, or asks twice under one number.
pub fn fuzz_resp(bytes: &[u8]) {
    let step = 1 + usize::from(bytes.first().copied().unwrap_or_default() % 64);
    let limits = Limits::default();
    let node = NodeView::default();
    let keyspaces = [KeyspaceView::new(KeyspaceId(1), "main", 0, "multipaxos", 3)];
    let (mut random, mut clients, mut counters) = (Random::seeded(1), BTreeMap::new(), Counters::default());
    let mut hub = Hub::default();
    let mut context = Context {
        now: Instant::ZERO,
        stamp: Stamp::from_nanos(1_700_000_000_000_000_000),
        connection: 1,
        unsent: 0,
        random: &mut random,
        limits: &limits,
        node: &node,
        keyspaces: &keyspaces,
        login: if bytes.len().is_multiple_of(5) { Login::Required } else { Login::Open },
        clients: &mut clients,
        counters: &mut counters,
        hub: &mut hub,
    };
    let mut connection = Connection::new(&context);
    let (mut out, mut requests) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(step) {
        if connection.closing() {
            break;
        }
        connection.receive(piece, &mut context, &mut out, &mut requests);
        assert!(connection.buffered() <= bytes.len() + SLACK);
    }
    let mut answered = 0;
    while let Some(Request { id, ask }) = requests.pop() {
        let outcome = match ask {
            Ask::Execute { .. } => Outcome::Done(Response::Array(vec![Response::Nil])),
            Ask::Verify { .. } => Outcome::Verified { accepted: id.is_multiple_of(2) },
        };
        connection.answer(id, outcome.clone(), &mut context, &mut out, &mut requests);
        // A second answer is to be ignored.
        connection.answer(id, outcome, &mut context, &mut out, &mut requests);
        answered += 1;
        assert!(answered <= bytes.len(), "more requests than bytes");
    }
}

/// What empty buffers may hold on to.
const SLACK: usize = 1 << 20;
