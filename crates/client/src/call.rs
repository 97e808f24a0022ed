//! One call, at whichever node answers.

use crate::client::{CONNECT, Caller, Nodes, SILENCE, TURNS};
use crate::error::{Code as Refusal, Error, with_causes};
use crate::pause;
use crate::resolver::RESOLVE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isochrone_proto::BASIC;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Code, ConnectError, Request, Response, Status, TimeoutExpired};

/// The least time of a try that can be made again at another node, where so much is left.
const LEAST: Duration = Duration::from_secs(1);
/// How long it may take until a call is sent, or has failed to be: the address of a node looked up, a connection, and a
/// handshake of TLS on it.
const CONNECTING: Duration = CONNECT.saturating_mul(2).saturating_add(RESOLVE);

/// What the calls begin with that a connection whose task has ended takes no more, as the generated code says it.
const NOT_READY: &str = "Service was not ready";
/// What is to be said of that: the task ends with its runtime.
const ENDED: &str =
    "the runtime in which this client was built has ended, and its connections with it; build another";
/// What may be so where a node has not answered in the time of the call.
const LATE: &str = "others may hold its keys, or there is no majority";

/// Says with every call who asks.
#[derive(Clone)]
pub(crate) struct Login(Option<MetadataValue<Ascii>>);

impl Login {
    pub(crate) fn of(login: Option<&(String, String)>) -> Result<Login, Error> {
        let Some((user, password)) = login else { return Ok(Login(None)) };
        if user.contains(':') {
            return Err(Error::Setup(format!("the user's name {user:?} holds a colon, which no name may")));
        }
        let both = STANDARD.encode(format!("{user}:{password}"));
        let mut value: MetadataValue<Ascii> = format!("{BASIC} {both}")
            .parse()
            .map_err(|_| Error::Setup("the password cannot be sent".to_owned()))?;
        value.set_sensitive(true);
        Ok(Login(Some(value)))
    }
}

impl Interceptor for Login {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Login(Some(value)) = self {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// How often something is tried, and until when.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) tries: u32,
    pub(crate) until: Instant,
}

impl Bounds {
    pub(crate) fn of(tries: u32, time: Duration) -> Bounds {
        // A year is as good as for ever, and no clock ends before.
        Bounds { tries, until: Instant::now() + time.min(Duration::from_secs(365 * 86_400)) }
    }

    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits before the next try, `tries` having been made; false where there is none.
    pub(crate) async fn again(&self, tries: u32) -> bool {
        if tries >= self.tries {
            return false;
        }
        let pause = pause::before(tries.saturating_add(1));
        if pause >= self.left() {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}

/// What a status says.
pub(crate) enum Meaning {
    /// No effect, says the node, in these words; another try may go well, perhaps at another node.
    TryAgain(String),
    /// No effect: there was no connection to send it on, for this reason.
    Unsent(String),
    /// No effect, and it would be the same again.
    Refused(Error),
    /// The connection did not carry an answer: whether the call took effect is not known.
    Lost(String),
}

pub(crate) fn meaning(status: &Status) -> Meaning {
    // One that has a source was made on this side, of an end of the connection: no node has said that.
    if let Some(source) = std::error::Error::source(status) {
        return if is_by::<ConnectError>(source) {
            Meaning::Unsent(told(status))
        } else {
            Meaning::Lost(told(status))
        };
    }
    match status.code() {
        Code::Aborted => Meaning::TryAgain(status.message().to_owned()),
        Code::Unknown if status.message().starts_with(NOT_READY) => {
            Meaning::Refused(Error::Setup(ENDED.to_owned()))
        }
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unknown
        | Code::Internal
        | Code::DataLoss => Meaning::Lost(told(status)),
        _ => Meaning::Refused(Error::refused(status)),
    }
}

/// Whether no call would fare better at the node that this one, after so long, was not answered by: there is no connection
/// to it, or it was silent for as long as a keep-alive may take. To this call's own deadline alone others owe nothing.
pub(crate) fn is_down(status: &Status, silent: Duration) -> bool {
    match std::error::Error::source(status) {
        Some(source) if !is_by::<TimeoutExpired>(source) => true,
        None if status.code() != Code::DeadlineExceeded => false,
        _ => silent >= SILENCE,
    }
}

/// Whether it was this call's own deadline.
fn is_late(status: &Status) -> bool {
    match std::error::Error::source(status) {
        Some(source) => is_by::<TimeoutExpired>(source),
        None => status.code() == Code::DeadlineExceeded,
    }
}

/// Whether this error is one of these, or was caused by one. What breaks after a connection was made, or in HTTP/2's own
/// beginning, is no [`ConnectError`].
fn is_by<E: std::error::Error + 'static>(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn told(status: &Status) -> String {
    with_causes(format!("{:?}: {}", status.code(), status.message()), std::error::Error::source(status))
}

/// A call that is tried at one node after the other.
pub(crate) struct Trying<'t> {
    nodes: &'t Arc<Nodes>,
    bounds: Bounds,
    /// Counted together with those of other calls.
    tries: &'t mut u32,
    /// Those of this call.
    asked: usize,
    /// How many nodes, from the one that all ask, it has passed by for itself.
    passed: usize,
    /// When its last try began.
    since: Instant,
    /// The last that a node has said of why it may be tried again.
    said: Option<String>,
}

impl<'t> Trying<'t> {
    pub(crate) fn new(nodes: &'t Arc<Nodes>, bounds: Bounds, tries: &'t mut u32) -> Trying<'t> {
        Trying { nodes, bounds, tries, asked: 0, passed: 0, since: Instant::now(), said: None }
    }

    /// The node to try now, and its place.
    pub(crate) fn node(&mut self) -> (usize, Caller) {
        *self.tries = self.tries.saturating_add(1);
        self.asked += 1;
        self.since = Instant::now();
        self.nodes.current(self.passed)
    }

    /// Waits for one of the turns at the node at this place, for as long as a try may take.
    ///
    /// # Errors
    /// There was none, which is said as a node would say that it has not taken the call up.
    pub(crate) async fn turn(&mut self, place: usize) -> Result<SemaphorePermit<'t>, Status> {
        let nodes: &'t Arc<Nodes> = self.nodes;
        let turn = tokio::time::timeout(self.share(), nodes.turns(place).acquire()).await;
        // To have waited for others is no silence of the node's.
        self.since = Instant::now();
        if let Ok(Ok(turn)) = turn {
            return Ok(turn);
        }
        let address = nodes.address(place);
        Err(Status::aborted(format!(
            "{TURNS} calls of this client at {address} were not answered in its time"
        )))
    }

    /// Leaves the node at this place for what it has come to there: all calls do where it is down, or else this one alone.
    fn leave(&mut self, place: usize, status: &Status) {
        if is_down(status, self.since.elapsed()) {
            self.nodes.avoid(place);
        }
        if self.nodes.place(self.passed) == place {
            self.passed = (self.passed + 1) % self.nodes.len();
        }
    }

    /// How long this try may take where it can be made again: so long that a silent node leaves time to ask the others.
    pub(crate) fn share(&self) -> Duration {
        let left = self.bounds.left();
        let nodes = self.nodes.len();
        let to_ask = nodes - self.asked.saturating_sub(1) % nodes;
        (left / u32::try_from(to_ask).unwrap_or(u32::MAX)).max(LEAST).min(left)
    }

    /// Waits before the next try, where this one, at the node at this place, has come to this status.
    ///
    /// # Errors
    /// There is no other try.
    pub(crate) async fn again(&mut self, place: usize, status: &Status) -> Result<(), Error> {
        let why = match meaning(status) {
            Meaning::Refused(error) => return Err(error),
            Meaning::TryAgain(said) => {
                self.said = Some(said.clone());
                said
            }
            Meaning::Lost(why) if is_late(status) => format!("{why}; {LATE}"),
            Meaning::Unsent(why) | Meaning::Lost(why) => why,
        };
        self.leave(place, status);
        if self.bounds.again(*self.tries).await {
            return Ok(());
        }
        Err(match self.said.take() {
            Some(message) => Error::Refused { code: Refusal::Aborted, message },
            None => Error::Unreachable(format!("{}: {why}", self.nodes.address(place))),
        })
    }
}

/// One call, which with the connection that it may need first takes no longer than this.
pub(crate) async fn once<A>(
    time: Duration,
    call: impl Future<Output = Result<Response<A>, Status>>,
) -> Result<A, Status> {
    match tokio::time::timeout(time, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!("no answer within {} ms", time.as_millis()))),
    }
}

/// The same for one that is not to be made again: its time runs once it is sent, so that one that was not is known.
pub(crate) async fn only_once<A>(
    time: Duration,
    call: impl Future<Output = Result<Response<A>, Status>>,
) -> Result<A, Status> {
    once(time.saturating_add(CONNECTING), call).await
}

/// Makes a call that may be repeated, until some node answers.
pub(crate) async fn repeat<M: Clone, A>(
    nodes: &Arc<Nodes>,
    bounds: Bounds,
    message: M,
    call: impl AsyncFn(Caller, Request<M>) -> Result<Response<A>, Status>,
) -> Result<A, Error> {
    let mut tries = 0;
    let mut trying = Trying::new(nodes, bounds, &mut tries);
    loop {
        let (place, caller) = trying.node();
        let turn = trying.turn(place).await;
        let time = trying.share();
        let answer = match turn {
            Ok(_turn) => once(time, call(caller, within(message.clone(), time))).await,
            Err(status) => Err(status),
        };
        match answer {
            Ok(answer) => return Ok(answer),
            Err(status) => trying.again(place, &status).await?,
        }
    }
}

/// Makes a call that changes something, until some node takes it up. What that has answered; or, where the call may have
/// taken effect, and is not to be repeated, why nobody knows.
pub(crate) async fn change<M: Clone, A>(
    nodes: &Arc<Nodes>,
    bounds: Bounds,
    message: M,
    call: impl AsyncFn(Caller, Request<M>) -> Result<Response<A>, Status>,
) -> Result<Result<A, String>, Error> {
    let mut tries = 0;
    let mut trying = Trying::new(nodes, bounds, &mut tries);
    loop {
        let (place, caller) = trying.node();
        let turn = trying.turn(place).await;
        let time = bounds.left();
        let answer = match turn {
            Ok(_turn) => only_once(time, call(caller, within(message.clone(), time))).await,
            Err(status) => Err(status),
        };
        let status = match answer {
            Ok(answer) => return Ok(Ok(answer)),
            Err(status) => status,
        };
        match meaning(&status) {
            Meaning::Lost(why) => {
                trying.leave(place, &status);
                return Ok(Err(why));
            }
            _ => trying.again(place, &status).await?,
        }
    }
}

/// A message with a deadline.
pub(crate) fn within<M>(message: M, time: Duration) -> Request<M> {
    let mut request = Request::new(message);
    // gRPC carries eight digits; what is below a millisecond has no chance.
    request.set_timeout(time.clamp(Duration::from_millis(1), Duration::from_secs(86_400)));
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_node_has_said_says_nothing_of_an_effect() {
        for code in [Code::ResourceExhausted, Code::PermissionDenied, Code::Aborted, Code::Unavailable] {
            let mut status = Status::new(code, "GOAWAY");
            let lost = matches!(meaning(&status), Meaning::Lost(_));
            assert_eq!(lost, code == Code::Unavailable, "a node has said {code:?}");
            status.set_source(Arc::new(std::io::Error::other("enhance your calm")));
            let Meaning::Lost(why) = meaning(&status) else { panic!("{code:?} was made here") };
            assert_eq!(why, format!("{code:?}: GOAWAY: enhance your calm"));
            // A refused connection is no break of one.
            let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            status.set_source(Arc::new(refused()));
            assert!(matches!(meaning(&status), Meaning::Lost(_)));
            status.set_source(Arc::new(ConnectError(Box::new(refused()))));
            assert!(matches!(meaning(&status), Meaning::Unsent(_)));
        }
    }

    #[test]
    fn a_connection_whose_runtime_has_ended_carries_nothing() {
        let status = Status::unknown("Service was not ready: transport error");
        let Meaning::Refused(Error::Setup(why)) = meaning(&status) else { panic!("{status:?}") };
        assert_eq!(why, ENDED);
    }

    #[test]
    fn a_calls_own_deadline_says_nothing_of_the_node() {
        let short = SILENCE.saturating_sub(Duration::from_millis(1));
        let mut status = Status::cancelled("late");
        status.set_source(Arc::new(TimeoutExpired(())));
        for late in [status.clone(), Status::deadline_exceeded("no answer within 50 ms")] {
            assert!(is_late(&late) && !is_down(&late, short) && is_down(&late, SILENCE), "{late:?}");
        }
        assert!(!is_down(&Status::aborted("others were before it"), SILENCE));
        status.set_source(Arc::new(std::io::Error::other("it broke")));
        assert!(is_down(&status, Duration::ZERO) && !is_late(&status));
    }
}
