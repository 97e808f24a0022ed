//! What a load saw, as a history that `isochrone check` reads.

use super::engine::Seen;
use crate::Usage;
use crate::output::{create, unwritable, writable};
use isochrone_check::{Operation, Outcome, Value, Writer};
use isochrone_core::command;
use isochrone_workload::described;
use redis_protocol::resp2::types::OwnedFrame;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// A history file that is being written.
pub(crate) struct Recording {
    path: PathBuf,
    /// Nothing before the first request: a run that reaches nobody leaves the file that is there.
    writer: Option<Writer<BufWriter<File>>>,
    /// Records that were there before the run.
    loaded: u64,
    failed: Option<Usage>,
}

impl Recording {
    /// Of what is to come, in a file that replaces one that is there.
    ///
    /// # Errors
    /// A path that cannot be written.
    pub(crate) fn at(path: &Path) -> Result<Recording, Usage> {
        writable(path)?;
        Ok(Recording { path: path.to_owned(), writer: None, loaded: 0, failed: None })
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
        if self.failed.is_none() {
            self.failed = self.put(operation).err();
        }
    }

    fn put(&mut self, operation: &Operation) -> Result<(), Usage> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(Writer::new(BufWriter::new(create(&self.path)?))),
        };
        writer.write(operation).map_err(|cause| unwritable(&self.path, &cause))
    }

    /// Ends the file.
    ///
    /// # Errors
    /// It is not whole.
    pub(crate) fn finish(self) -> Result<(), Usage> {
        match (self.failed, self.writer) {
            (Some(wrong), _) => Err(wrong),
            (None, Some(mut writer)) => writer.flush().map_err(|cause| unwritable(&self.path, &cause)),
            (None, None) => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_workload::Workload;

    /// What makes one record exist.
    fn one() -> command::Operation {
        let mut workload = Workload::named("set").unwrap();
        workload.records = 1;
        let mut batches = workload.load();
        let one = batches.next().expect("even a single record is loaded");
        assert!(batches.next().is_none());
        one
    }

    #[test]
    fn a_run_that_reaches_nobody_leaves_the_file_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        std::fs::write(&path, "of an earlier run").unwrap();
        Recording::at(&path).unwrap().finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of an earlier run");
        let mut recording = Recording::at(&path).unwrap();
        recording.loaded(7, &one());
        recording.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\"client\":7,") && text.lines().count() == 1, "{text}");
    }

    /// Linux has a file that is always full.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_history_that_cannot_be_written_is_named() {
        if !Path::new("/dev/full").exists() {
            return;
        }
        let mut recording = Recording::at(Path::new("/dev/full")).unwrap();
        recording.loaded(0, &one());
        let wrong = recording.finish().unwrap_err().to_string();
        assert!(wrong.starts_with("/dev/full: cannot be written: No space left"), "{wrong}");
    }
}
