//! A value that is longer than a node takes at once, put back in parts: into a key that was not there, or is deleted with the first
//! of them. What is refused in the middle is deleted again.

use super::parts::{Part, Type, What, text_of};
use super::restore::Limits;
use super::wire::{Connection, Reply};
use super::{Patience, passes, passes_by};

/// What a user needs.
const RIGHTS: &str =
    "the user needs +@read +@write +watch +multi +exec for a value that is put back in parts";
/// Parts of a transaction at most, and about so many bytes.
const PARTS: usize = 64;
const BYTES: u64 = 1 << 20;

/// Why a value is not put back.
#[derive(Debug)]
pub(super) enum Stop {
    /// The key is there, and was left as it is.
    Exists,
    /// It is refused.
    Refused(String),
    /// Nobody knows whether something of it is there.
    Unknown(String),
    /// Nothing more can be asked.
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Stop {
        Stop::Broken(error)
    }
}

/// A key whose value is put back.
pub(super) struct Putting<'a> {
    connection: &'a mut Connection,
    key: &'a [u8],
    limits: Limits,
    /// Delete what is there, with the first parts.
    replace: bool,
    /// Something of it is there, and then all of it.
    begun: bool,
    complete: bool,
    /// Not sent yet.
    batch: Vec<Part>,
    bytes: u64,
    /// Parts that a transaction may have.
    most: usize,
    patience: Patience,
}

impl<'a> Putting<'a> {
    /// Nothing is written yet.
    pub(super) fn new(
        connection: &'a mut Connection,
        key: &'a [u8],
        limits: Limits,
        replace: bool,
    ) -> Putting<'a> {
        let patience = Patience::new();
        Putting {
            connection,
            key,
            limits,
            replace,
            begun: false,
            complete: false,
            batch: Vec::new(),
            bytes: 0,
            most: PARTS,
            patience,
        }
    }

    /// Whether something of it is there, and not all.
    pub(super) fn is_torn(&self) -> bool {
        self.begun && !self.complete
    }

    /// The next part.
    pub(super) fn take(&mut self, part: Part) -> Result<(), Stop> {
        let Limits { bulk, command } = self.limits;
        if part.what == What::Text
            && let [from, bytes] = part.words.as_slice()
            && let Ok(most) = usize::try_from(bulk)
            && bytes.len() > most
        {
            let from = std::str::from_utf8(from).ok().and_then(|from| from.parse().ok()).unwrap_or(0_u64);
            return bytes.chunks(most.max(1)).zip(0_u64..).try_for_each(|(piece, number)| {
                let words = vec![text_of(&(from + number * bulk)), piece.to_vec()];
                self.take(Part { what: What::Text, words })
            });
        }
        let longest = part.words.iter().map(|word| word.len() as u64).max().unwrap_or(0);
        let bytes = part.command(self.key).iter().map(|word| word.len() as u64 + 16).sum::<u64>();
        if longest > bulk || bytes > command {
            return Err(Stop::Refused(format!(
                "an element has {longest} bytes and what it is written with {bytes}, and the node takes {bulk} in an argument and \
                 {command} in a command; raise `bulk` in [limits]"
            )));
        }
        if !self.batch.is_empty() && (self.batch.len() >= PARTS || self.bytes + bytes > BYTES.min(command)) {
            self.send()?;
        }
        self.bytes += bytes;
        self.batch.push(part);
        Ok(())
    }

    /// Sends the rest, sees that there are so many elements, where that is known, and says when the key expires.
    pub(super) fn finish(
        &mut self,
        kind: &Type,
        elements: Option<u64>,
        deadline: Option<u64>,
    ) -> Result<(), Stop> {
        self.send()?;
        self.complete = true;
        let reply = self.ask(&[kind.count.as_bytes(), self.key])?;
        let Reply::Number(found) = reply else { return Err(self.connection.strange().into()) };
        if let Some(elements) = elements.filter(|elements| u64::try_from(found) != Ok(*elements)) {
            return Err(Stop::Refused(format!(
                "{found} elements are there once its {elements} are written: somebody else has written it, and it is left so"
            )));
        }
        if let Some(deadline) = deadline {
            self.ask(&[b"PEXPIREAT", self.key, deadline.to_string().as_bytes()])?;
        }
        Ok(())
    }

    /// Deletes what is there of it.
    pub(super) fn undo(&mut self) -> Result<(), Stop> {
        self.ask(&[b"DEL", self.key]).map(drop)
    }

    /// Asks what may be asked again.
    fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Stop> {
        loop {
            match self.connection.ask(words)? {
                Reply::Error(text) if passes_by(&text) && self.patience.wait(self.connection.at(), &text) => {
                }
                Reply::Error(text) => return Err(refused(text)),
                reply => {
                    self.patience.renew();
                    return Ok(reply);
                }
            }
        }
    }

    /// Sends what was not sent yet.
    fn send(&mut self) -> Result<(), Stop> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        let mut rest = batch.as_slice();
        while !rest.is_empty() {
            let (parts, behind) = rest.split_at(self.most.min(rest.len()));
            match self.execute(parts)? {
                None => {
                    (self.begun, rest) = (true, behind);
                    self.patience.renew();
                }
                Some(text) if passes(&text) => {
                    if !self.patience.wait(self.connection.at(), &text) {
                        return Err(Stop::Broken(anyhow::anyhow!("{}: {text}", self.connection.at())));
                    }
                }
                Some(text) if text.starts_with("UNKNOWN ") => return Err(Stop::Unknown(text)),
                // So many may be more than a transaction of this protocol takes.
                Some(_) if parts.len() > 1 => self.most = (parts.len() / 2).max(1),
                Some(text) => return Err(refused(text)),
            }
        }
        Ok(())
    }

    /// Writes these parts, all of them or none; the error where it is none.
    fn execute(&mut self, parts: &[Part]) -> Result<Option<String>, Stop> {
        if !self.begun && !self.replace {
            self.ask(&[b"WATCH", self.key])?;
            if self.ask(&[b"EXISTS", self.key])? != Reply::Number(0) {
                return Err(Stop::Exists);
            }
        }
        // Without it the others would be executed by themselves.
        if let Reply::Error(text) = self.connection.ask(&[b"MULTI"])? {
            return Err(refused(text));
        }
        let mut queued = parts.len();
        if !self.begun && self.replace {
            self.connection.push(&[b"DEL", self.key]);
            queued += 1;
        }
        for part in parts {
            self.connection.push(&part.command(self.key));
        }
        self.connection.push(&[b"EXEC"]);
        self.connection.flush()?;
        let mut wrong = None;
        for _ in 0..queued {
            if let Reply::Error(text) = self.connection.answer()? {
                wrong = wrong.or(Some(text));
            }
        }
        match self.connection.answer()? {
            Reply::List(answers) => {
                let error = answers.into_iter().find_map(|answer| match answer {
                    Reply::Error(text) => Some(text),
                    _ => None,
                });
                // Of the others some were executed.
                self.begun = true;
                error.map_or(Ok(None), |text| Err(refused(text)))
            }
            // Somebody has made the key since it was looked at.
            Reply::Nothing => Err(Stop::Exists),
            Reply::Error(text) => Ok(Some(wrong.unwrap_or(text))),
            _ => Err(self.connection.strange().into()),
        }
    }
}

fn refused(text: String) -> Stop {
    Stop::Refused(if text.starts_with("NOPERM") { format!("{text}; {RIGHTS}") } else { text })
}
