//! What a load saw, as a history that `isochrone check` reads.

use super::engine::Seen;
use anyhow::Context;
use isochrone_check::{Operation, Outcome, Value, Writer};
use isochrone_core::command;
use isochrone_workload::described;
use redis_protocol::resp2::types::OwnedFrame;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// A history file that is being written.
pub(crate) struct Recording {
    writer: Writer<BufWriter<File>>,
    /// Records that were there before the run.
    loaded: u64,
    failed: Option<anyhow::Error>,
}

impl Recording {
    /// Makes the file, replacing one that is there.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Recording> {
        let file = crate::output::create(path)?;
        Ok(Recording { writer: Writer::new(BufWriter::new(file)), loaded: 0, failed: None })
    }

    /// Puts a request down. A failure is kept and told at the end.
    pub(crate) fn see(&mut self, seen: &Seen<'_>) {
        let (op, keys, args) = described(seen.operation);
        let (outcome, value) = match seen.reply {
            None => (Outcome::Unknown, None),
            Some(OwnedFrame::Error(text)) if text.starts_with("UNKNOWN") => (Outcome::Unknown, None),
            Some(OwnedFrame::Error(text)) if !refused_by_the_type(text) => (Outcome::Failed, None),
            Some(frame) => (Outcome::Ok, Some(value(frame))),
        };
        let operation = Operation {
            client: seen.connection as u64,
            session: seen.life,
            sequence: seen.sequence,
            keys: keys.into_iter().map(Into::into).collect(),
            op: op.into(),
            args,
            stamp: None,
            invoked: seen.sent.as_nanos(),
            returned: (outcome != Outcome::Unknown).then(|| seen.answered.as_nanos()),
            outcome,
            value,
        };
        self.write(&operation);
    }

    /// Puts down what was loaded before the run, by a client of its own: each record as one write, at a time before all
    /// else. Nobody reads while a batch is written, so nobody can tell; and keys that nothing else joins are checked apart.
    /// A load that is refused, or whose answers are lost, ends the run.
    pub(crate) fn loaded(&mut self, client: u64, batch: &command::Operation) {
        let (_, keys, values) = described(batch);
        for (key, written) in keys.into_iter().zip(values) {
            self.loaded += 1;
            self.write(&Operation {
                client,
                session: 0,
                sequence: self.loaded,
                keys: vec![key.into()],
                op: "set".into(),
                args: vec![written],
                stamp: None,
                invoked: 0,
                returned: Some(0),
                outcome: Outcome::Ok,
                value: Some(Value::Text("OK".to_owned())),
            });
        }
    }

    fn write(&mut self, operation: &Operation) {
        if self.failed.is_none()
            && let Err(error) = self.writer.write(operation)
        {
            self.failed = Some(error.into());
        }
    }

    /// Ends the file.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        match self.failed {
            Some(error) => Err(error.context("the history is not whole")),
            None => self.writer.flush().context("the history is not whole"),
        }
    }
}

/// Errors that the state machine gave are answers; all others say that nothing was done.
fn refused_by_the_type(text: &str) -> bool {
    text.starts_with("WRONGTYPE")
        || text.starts_with("ERR value is not")
        || text.starts_with("ERR hash value")
}

fn value(frame: &OwnedFrame) -> Value {
    let text = |bytes: &[u8]| Value::Text(String::from_utf8_lossy(bytes).into_owned());
    match frame {
        OwnedFrame::Null => Value::Nil,
        OwnedFrame::Integer(number) => Value::Integer(*number),
        OwnedFrame::SimpleString(bytes) | OwnedFrame::BulkString(bytes) => text(bytes),
        OwnedFrame::Error(error) => Value::Error(error.to_string()),
        OwnedFrame::Array(frames) => Value::List(frames.iter().map(value).collect()),
    }
}
