//! What clients make the node hold: no data, for which others would be refused.

use crate::metrics::NodeMetrics;
use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// What stands before a message: whether it is compressed, and how long it is.
const HEAD: usize = 5;

/// Bytes that are held for a client, as long as this is.
pub(super) struct Held {
    metrics: Arc<NodeMetrics>,
    bytes: usize,
}

impl Held {
    pub(super) fn new(metrics: &Arc<NodeMetrics>, bytes: usize) -> Held {
        metrics.grpc.held.fetch_add(bytes as u64, Relaxed);
        Held { metrics: Arc::clone(metrics), bytes }
    }

    fn grow(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.bytes);
        self.metrics.grpc.held.fetch_add(more as u64, Relaxed);
        self.bytes += more;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.metrics.grpc.held.fetch_sub(self.bytes as u64, Relaxed);
    }
}

/// The body of a request of one message: it is held until that is whole, and has room from its head on.
pub(super) struct Reading {
    body: Body,
    /// Bytes that a message may have.
    most: usize,
    head: [u8; HEAD],
    read: usize,
    held: Held,
}

impl Reading {
    pub(super) fn of(body: Body, most: usize, metrics: &Arc<NodeMetrics>) -> Body {
        let held = Held::new(metrics, 0);
        Body::new(Reading { body, most, head: [0; HEAD], read: 0, held })
    }

    fn took(&mut self, bytes: &[u8]) {
        let head = self.head.get_mut(self.read..).unwrap_or_default();
        head.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        self.read += bytes.len();
        let [_, length @ ..] = self.head;
        let length = u32::from_be_bytes(length) as usize;
        // One that is too long is refused at its head; what comes behind the message is read and let go, and not held.
        let room = match self.read {
            read if read < HEAD => read,
            _ if length > self.most => HEAD,
            _ => HEAD + length,
        };
        self.held.grow(room);
    }
}

impl http_body::Body for Reading {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let me = self.get_mut();
        let frame = ready!(Pin::new(&mut me.body).poll_frame(context));
        if let Some(bytes) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            me.took(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is read to the end of the call, and let go.
    #[test]
    fn what_comes_behind_the_message_is_not_held() {
        let metrics = Arc::new(NodeMetrics::default());
        let held = Held::new(&metrics, 0);
        let mut reading = Reading { body: Body::empty(), most: 100, head: [0; HEAD], read: 0, held };
        let holds = || metrics.grpc.held.load(Relaxed);
        reading.took(b"\0\0");
        assert_eq!(holds(), 2);
        reading.took(b"\0\0\x04fo");
        assert_eq!(holds(), 9);
        for _ in 0..1_000 {
            reading.took(b"ur\0\0\0\0\0");
        }
        assert_eq!(holds(), 9);
        drop(reading);
        assert_eq!(holds(), 0);
    }
}
