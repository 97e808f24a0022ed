//! A body that leaves piece by piece.

use bytes::Bytes;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// A body in pieces of at most so many bytes: the server takes the next one when the client has room for it, however long that
/// is, and would keep what it has taken. What is held, it holds until the last one was taken, or its stream has ended.
pub(super) struct Pieces<H> {
    body: Body,
    rest: Bytes,
    most: usize,
    _held: H,
}

impl<H: Send + Unpin + 'static> Pieces<H> {
    /// This body, while this is held.
    pub(super) fn of(body: Body, most: usize, held: H) -> Body {
        Body::new(Pieces { body, rest: Bytes::new(), most, _held: held })
    }
}

impl<H: Unpin> http_body::Body for Pieces<H> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let me = self.get_mut();
        if me.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut me.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => me.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = me.rest.split_to(me.rest.len().min(me.most));
        Poll::Ready(Some(Ok(http_body::Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}
