//! What stands before every call: how many there may be at once, who asks, and what is counted.

use super::METHODS;
use super::health::Checks;
use super::held::{Held, Reading};
use super::pieces::Pieces;
use super::reflection::Reflection;
use super::service::{Ended, status};
use super::socket::Peer;
use crate::audit::{Act, Audit, Decision};
use crate::gateway::Secret;
use crate::metrics::NodeMetrics;
use crate::reactor::calls::{Ask, By, Line, Refusal, Said, Why};
use crate::redis::FLOODED;
use crate::security::{self, Print};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isochrone_proto::BASIC;
use isochrone_proto::health::{self, HealthServer};
use ring::hmac;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::{Code, Status};
use zeroize::Zeroize;

/// Answers of so many bytes are not counted: there are no more of them than calls.
const NOTHING: usize = 4 << 10;
/// The longest message of a health check, as the library takes it.
const CHECK_MOST: usize = 4 << 20;
/// Why who has gone was not let in, as for Redis clients.
const GONE: &str = "gone before the answer";

/// The user that asks, and how: every call that has passed finds this among its extensions.
#[derive(Clone)]
pub(super) struct User(pub(super) Arc<str>, pub(super) By);

/// What answers whoever asks: nobody logs in for it.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) health: HealthServer<Checks>,
    pub(super) reflection: Reflection,
}

/// Places of calls under way. Those that have shown what nobody has logged in with yet have places of their own: however
/// many they are, they keep nobody out who has.
#[derive(Clone)]
struct Room {
    users: Arc<Semaphore>,
    /// Shared by all connections, beside the few that each has of its own.
    strangers: Arc<Semaphore>,
    most: usize,
}

/// Where a call stands.
enum Place {
    User(OwnedSemaphorePermit),
    Stranger(OwnedSemaphorePermit),
}

impl Room {
    fn new(most: usize) -> Room {
        let most = most.min(Semaphore::MAX_PERMITS);
        let places = || Arc::new(Semaphore::new(most));
        Room { users: places(), strangers: places(), most }
    }

    fn user(&self, metrics: &NodeMetrics) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.users).try_acquire_owned().map_err(|_| {
            metrics.grpc.limited("in_flight");
            let text = format!("{} calls are under way at this node; send fewer at once", self.most);
            Status::resource_exhausted(text)
        })
    }

    /// One of this connection's own, which no other can take, or else one of those that all share.
    fn stranger(&self, peer: Option<&Peer>, metrics: &NodeMetrics) -> Result<OwnedSemaphorePermit, Status> {
        if peer.is_some_and(|peer| !peer.may_log_in()) {
            metrics.grpc.limited("login_commands");
            let text = "too many logins on this connection were refused; use another";
            return Err(Status::unauthenticated(text));
        }
        if let Some(own) = peer.and_then(Peer::place) {
            return Ok(own);
        }
        Arc::clone(&self.strangers).try_acquire_owned().map_err(|_| {
            metrics.grpc.limited("login_commands");
            let text = "too many calls wait to be told whether they have logged in; send one, and the others once it \
                        is answered";
            Status::resource_exhausted(text)
        })
    }
}

/// Stands before the service `S`.
#[derive(Clone)]
pub(super) struct Guard<S> {
    inner: S,
    open: Open,
    line: Line,
    room: Room,
    /// Bytes of a message.
    message: usize,
    /// Bytes of answers that a connection may leave unread before it is asked to read them.
    output: usize,
    /// What users are remembered under by their connections: by the print of what they have shown, which is not kept.
    key: hmac::Key,
    metrics: Arc<NodeMetrics>,
    audit: Option<Audit>,
}

impl<S> Guard<S> {
    /// `most` calls may be under way at once, and as many may wait to be told whether they have logged in; a message may have
    /// `message` bytes; a connection may have `output` bytes unread when it asks; users are remembered under this key.
    pub(super) fn new(
        inner: S,
        open: Open,
        line: Line,
        (most, message, output): (usize, usize, usize),
        key: hmac::Key,
        metrics: Arc<NodeMetrics>,
        audit: Option<Audit>,
    ) -> Guard<S> {
        Guard { inner, open, line, room: Room::new(most), message, output, key, metrics, audit }
    }

    /// A health check, for which nobody logs in. While it is read it has a place, of its own connection's only: one whose end never
    /// comes keeps nobody on another connection from logging in.
    fn check(&self, running: Running, peer: Option<&Peer>, request: http::Request<Body>) -> Answering {
        let Some(place) = peer.and_then(Peer::place) else {
            let text = "too many health checks at once on this connection; send one after the other";
            return self.full(running, "login_commands", text);
        };
        let mut health = self.open.health.clone();
        let request = request.map(|body| Reading::of(body, CHECK_MOST, &self.metrics));
        Box::pin(async move {
            let (_place, mut running) = (place, running);
            let response = health.call(request).await?;
            running.outcome = outcome(&response);
            Ok(response)
        })
    }

    /// What the services are, for which nobody logs in either.
    fn reflect(&self, running: Running, peer: Option<&Peer>, request: http::Request<Body>) -> Answering {
        let answer = match self.open.reflection.answer(peer, request) {
            Ok(answer) => answer,
            Err(text) => return self.full(running, "reflections", text),
        };
        Box::pin(async move {
            let mut running = running;
            let response = answer.await?;
            running.outcome = outcome(&response);
            Ok(response)
        })
    }

    /// Turns a call away that has met this limit.
    fn full(&self, mut running: Running, limit: &'static str, text: impl Into<String>) -> Answering {
        self.metrics.grpc.limited(limit);
        let status = Status::resource_exhausted(text);
        running.outcome = word(status.code());
        Box::pin(std::future::ready(Ok(status.into_http())))
    }
}

/// A call that is answered in the end.
type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, std::convert::Infallible>> + Send>>;

/// A call under way; dropped before its end, it was cancelled.
struct Running {
    metrics: Arc<NodeMetrics>,
    method: usize,
    since: Instant,
    outcome: &'static str,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.grpc.in_flight.fetch_sub(1, Relaxed);
        self.metrics.grpc.called(self.method, self.outcome, self.since.elapsed());
    }
}

impl<S> Service<http::Request<Body>> for Guard<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = std::convert::Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default();
        let method = METHODS.iter().position(|known| *known == name).unwrap_or(METHODS.len() - 1);
        self.metrics.grpc.in_flight.fetch_add(1, Relaxed);
        let mut running = Running {
            metrics: Arc::clone(&self.metrics),
            method,
            since: Instant::now(),
            outcome: "cancelled",
        };
        let peer = request.extensions().get::<Peer>().cloned();
        if request.uri().path().starts_with(health::PATH) {
            return self.check(running, peer.as_ref(), request);
        }
        if Reflection::is_asked(request.uri().path()) {
            return self.reflect(running, peer.as_ref(), request);
        }
        let refused = |running: &mut Running, status: Status| {
            running.outcome = word(status.code());
            Ok(status.into_http())
        };
        let shown = request.headers().get(http::header::AUTHORIZATION).cloned();
        let bytes = shown.as_ref().map(http::HeaderValue::as_bytes);
        let print = security::print(&self.key, bytes.unwrap_or_default());
        let place = if peer.as_ref().is_some_and(|peer| peer.has_seen(&print)) {
            self.room.user(&self.metrics).map(Place::User)
        } else {
            self.room.stranger(peer.as_ref(), &self.metrics).map(Place::Stranger)
        };
        let place = match place {
            Ok(place) => place,
            Err(status) => {
                let response = refused(&mut running, status);
                return Box::pin(std::future::ready(response));
            }
        };
        // The one that was asked whether it is ready is the one that is called.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let (line, room, audit) = (self.line.clone(), self.room.clone(), self.audit.clone());
        let (message, output) = (self.message, self.output);
        let by = By { method: METHODS[method], address: peer.as_ref().map(|peer| peer.address) };
        Box::pin(async move {
            let act = |user: Option<&str>, decision: Decision, why: Option<&str>| Act {
                user: user.map(str::to_owned),
                address: by.address.map(|address| address.to_string()),
                why: why.map(str::to_owned),
                login: true,
                ..Act::new("grpc", by.method, decision)
            };
            let tell = |user: Option<&str>, decision: Decision, why: Option<&str>| {
                if let Some(audit) = &audit {
                    audit.tell(act(user, decision, why));
                }
            };
            let named = || credentials(shown.as_ref()?.as_bytes()).ok().map(|(user, _)| user);
            let attempt = Attempt(match (&audit, &place) {
                (Some(audit), Place::Stranger(_)) if shown.is_some() => {
                    Some((audit.clone(), act(named().as_deref(), Decision::Denied, Some(GONE))))
                }
                _ => None,
            });
            let asked = who(peer.as_ref(), shown.as_ref(), print, &line, by).await;
            attempt.ends();
            let user = match asked {
                Ok((user, fresh)) => {
                    // Who shows nothing has not logged in.
                    if fresh && shown.is_some() {
                        tell(Some(&*user), Decision::Allowed, None);
                    }
                    user
                }
                Err(refusal) => {
                    if refusal.why == Why::Stranger {
                        peer.iter().for_each(Peer::refuse);
                        tell(named().as_deref(), Decision::Denied, Some(refusal.text.as_str()));
                    }
                    return refused(&mut running, status(refusal));
                }
            };
            request.extensions_mut().insert(User(user, by));
            let _place = match place {
                Place::User(place) => place,
                Place::Stranger(place) => {
                    drop(place);
                    match room.user(&running.metrics) {
                        Ok(place) => place,
                        Err(status) => return refused(&mut running, status),
                    }
                }
            };
            if peer.as_ref().is_some_and(|peer| peer.unread() > output) {
                running.metrics.grpc.limited("output");
                let text = "this connection has not read what it was answered; read it first, or use another";
                return refused(&mut running, Status::resource_exhausted(text));
            }
            let metrics = Arc::clone(&running.metrics);
            let request = request.map(|body| Reading::of(body, message, &metrics));
            let response = inner.call(request).await?;
            running.outcome = outcome(&response);
            drop(running);
            let bytes = response.extensions().get::<Ended>().map_or(0, |ended| ended.bytes);
            let Some(peer) = peer.filter(|_| bytes > NOTHING) else { return Ok(response) };
            let answered = peer.answers(bytes, output.saturating_mul(FLOODED));
            let held = (answered, Held::new(&metrics, bytes));
            Ok(response.map(|body| Pieces::of(body, PIECE, held)))
        })
    }
}

/// An answer counts as unread until it has left, in pieces of so many bytes.
const PIECE: usize = 64 << 10;

/// How a call has ended, for those who count.
fn outcome(response: &http::Response<Body>) -> &'static str {
    let code = response.headers().get(Status::GRPC_STATUS);
    match code.map(|code| Code::from_bytes(code.as_bytes())) {
        // The status of a call that went well comes behind its message.
        None | Some(Code::Ok) => response.extensions().get::<Ended>().map_or("ok", |ended| ended.word),
        Some(code) => word(code),
    }
}

fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "cancelled",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted | Code::OutOfRange => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "try_again",
        Code::Unimplemented => "unimplemented",
        Code::Unauthenticated => "unauthenticated",
        _ => "error",
    }
}

/// Who asks, and has shown this, which has this print; and whether it has not been shown on this connection before.
///
/// Only its own connection remembers a user. Were another one's memory of use, who guesses would be told at once what is right,
/// where all other answers are held back since many were wrong.
async fn who(
    peer: Option<&Peer>,
    shown: Option<&http::HeaderValue>,
    print: Print,
    line: &Line,
    by: By,
) -> Result<(Arc<str>, bool), Refusal> {
    if let Some(user) = peer.and_then(|peer| peer.remembers(&print)) {
        return Ok((user, false));
    }
    let _asking = peer.map(Peer::asks);
    let named = shown.map(|shown| credentials(shown.as_bytes())).transpose()?;
    let from = peer.map_or(std::net::IpAddr::from([0, 0, 0, 0]), |peer| peer.address);
    let gone = || Refusal::new(Why::TryAgain, "this node has stopped; ask another");
    match line.send(Ask::Login { named, from }, by)?.await.map_err(|_| gone())? {
        Ok(Said::User(user)) => {
            let fresh = peer.is_none_or(|peer| peer.let_in(print, &user));
            Ok((user, fresh))
        }
        refused => {
            peer.iter().for_each(|peer| peer.forget(&print));
            Err(refused.err().unwrap_or_else(gone))
        }
    }
}

/// A login that is asked about. Dropped before that has an end, its call was cancelled, and the audit log is told this.
struct Attempt(Option<(Audit, Act)>);

impl Attempt {
    /// What became of it is told elsewhere.
    fn ends(mut self) {
        self.0 = None;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some((audit, act)) = self.0.take() {
            audit.tell(act);
        }
    }
}

/// The user and the password in the metadata `authorization`.
pub(super) fn credentials(shown: &[u8]) -> Result<(String, Secret), Refusal> {
    let wrong = || {
        let form = "`authorization` is not of the form `Basic <base64 of user:password>`";
        Refusal::new(Why::Stranger, form)
    };
    let (scheme, rest) = shown.split_at_checked(BASIC.len()).ok_or_else(wrong)?;
    if !scheme.eq_ignore_ascii_case(BASIC.as_bytes()) {
        return Err(wrong());
    }
    let mut both = STANDARD.decode(rest.trim_ascii()).map_err(|_| wrong())?;
    let colon = both.iter().position(|byte| *byte == b':');
    let parts =
        colon.map(|at| (String::from_utf8(both[..at].to_vec()), Secret::new(both[at + 1..].to_vec())));
    both.zeroize();
    match parts {
        // Redis' clients that name no user mean this one.
        Some((Ok(user), password)) if user.is_empty() => Ok(("default".to_owned(), password)),
        Some((Ok(user), password)) => Ok((user, password)),
        _ => Err(wrong()),
    }
}
