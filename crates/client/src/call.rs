//! One call, at whichever node answers.

use crate::client::{Caller, Nodes};
use crate::error::{Error, Reason};
use crate::pause;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isochrone_proto::BASIC;
use std::time::{Duration, Instant};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Code, Request, Response, Status};

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
    /// No effect, and another try may go well, perhaps at another node.
    TryAgain,
    /// No effect, and it would be the same again.
    Refused(Error),
    /// The connection did not carry an answer: whether the call took effect is not known.
    Lost(String),
}

pub(crate) fn meaning(status: &Status) -> Meaning {
    match status.code() {
        // One that has a source was made on this side, of an end of the connection: no node has said that.
        _ if std::error::Error::source(status).is_some() => Meaning::Lost(told(status)),
        Code::Aborted => Meaning::TryAgain,
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unknown
        | Code::Internal
        | Code::DataLoss => Meaning::Lost(told(status)),
        _ => Meaning::Refused(Error::refused(status)),
    }
}

fn told(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// Makes a call that may be repeated, until some node answers. The answer, the node, and the tries made so far.
pub(crate) async fn repeat<M: Clone, A>(
    nodes: &Nodes,
    bounds: Bounds,
    tries: &mut u32,
    message: M,
    call: impl AsyncFn(Caller, Request<M>) -> Result<Response<A>, Status>,
) -> Result<(A, usize, Caller), Error> {
    loop {
        *tries += 1;
        let (place, caller) = nodes.current();
        match call(caller.clone(), within(message.clone(), bounds.left())).await {
            Ok(response) => return Ok((response.into_inner(), place, caller)),
            Err(status) => {
                let lost = match meaning(&status) {
                    Meaning::Refused(error) => return Err(error),
                    Meaning::TryAgain => status.message().to_owned(),
                    Meaning::Lost(why) => why,
                };
                nodes.avoid(place);
                if !bounds.again(*tries).await {
                    return Err(match nodes.len() {
                        1 => Error::Unreachable(lost),
                        _ => Error::GaveUp { reason: Reason::Unavailable, tries: *tries },
                    });
                }
            }
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
    use std::sync::Arc;

    #[test]
    fn what_no_node_has_said_says_nothing_of_an_effect() {
        for code in [Code::ResourceExhausted, Code::PermissionDenied, Code::Aborted, Code::Unavailable] {
            let mut status = Status::new(code, "GOAWAY");
            let lost = matches!(meaning(&status), Meaning::Lost(_));
            assert_eq!(lost, code == Code::Unavailable, "a node has said {code:?}");
            status.set_source(Arc::new(std::io::Error::other("enhance your calm")));
            let Meaning::Lost(why) = meaning(&status) else { panic!("{code:?} was made here") };
            assert_eq!(why, format!("{code:?}: GOAWAY"));
        }
    }
}
