//! A value that is longer than a node takes at once, put back in parts: into a key that was not there, or is deleted with the first
//! of them. What can be told to be refused is told before anything is written; what a node refuses in the middle is deleted again.

use super::parts::{Part, Type, What};
use super::restore::Limits;
use super::wire::{Connection, Reply};
use super::{Patience, passes, passes_by, shown};
use anyhow::anyhow;

/// What a user needs.
const RIGHTS: &str =
    "the user needs +@read +@write +watch +multi +exec for a value that is put back in parts";
/// Commands of a transaction at most, and about so many bytes: of a command as well, but for an element that has more. The least that
/// `bulk` can be leaves twice as many.
const PARTS: usize = 256;
const BYTES: u64 = 1 << 19;
/// Words of a command that may be as many as one likes, beside its name and the key: the least that `elements` can be is 16, and no node
/// tells it.
const WORDS: usize = 12;

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
    /// Something of it is there.
    begun: bool,
    /// All of it is, or what others have made of it.
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

    /// Whether the node takes what this part is written with, as far as its limits are known; nothing is asked.
    pub(super) fn check(part: Part, key: &[u8], limits: Limits) -> Result<(), Stop> {
        pieces(part).iter().try_for_each(|piece| fits(piece, key, limits).map(drop))
    }

    /// The next part.
    pub(super) fn take(&mut self, part: Part) -> Result<(), Stop> {
        for piece in pieces(part) {
            let bytes = fits(&piece, self.key, self.limits)?;
            let full = self.batch.len() >= PARTS || self.bytes + bytes > BYTES.min(self.limits.command);
            if !self.batch.is_empty() && full {
                self.send()?;
            }
            self.bytes += bytes;
            self.batch.push(piece);
        }
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
        if !self.begun {
            let text = "nothing of it was saved: it was written, or had gone, while it was read";
            return Err(Stop::Refused(text.to_owned()));
        }
        let reply = match self.ask(&[kind.count.as_bytes(), self.key]) {
            Err(Stop::Refused(text)) if text.starts_with("WRONGTYPE") => return Err(self.left(&text)),
            reply => reply?,
        };
        let Reply::Number(found) = reply else { return Err(self.connection.strange().into()) };
        if let Some(elements) = elements.filter(|elements| u64::try_from(found) != Ok(*elements)) {
            let text = format!("{found} elements are there once its {elements} are written");
            return Err(self.left(&text));
        }
        if let Some(deadline) = deadline {
            self.ask(&[b"PEXPIREAT", self.key, deadline.to_string().as_bytes()])?;
        }
        // Not before: what is without its deadline would stay for good.
        self.complete = true;
        Ok(())
    }

    /// What is there is no longer its own to delete.
    fn left(&mut self, text: &str) -> Stop {
        self.complete = true;
        Stop::Refused(format!("{text}: somebody else has written it, and it is left so"))
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
                        return Err(Stop::Broken(anyhow!("{}: {text}", self.connection.at())));
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
        if !self.begun && !self.replace && !self.holds(b"EXISTS", 0)? {
            return Err(Stop::Exists);
        }
        if self.begun
            && let Some(from) = parts.first().and_then(beginning).filter(|from| *from > 0)
            && !self.holds(b"STRLEN", from)?
        {
            // It would have zeros where the parts before are no longer.
            return Err(self.left("its length is another than what is written so far"));
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
                // The connection ends with it. All was measured before, but for the words of an entry, which has all of its fields.
                if text.starts_with("ERR Protocol error") {
                    let (at, key) = (self.connection.at(), shown(self.key));
                    return Err(anyhow!("{at}: {key}: {text}\n  raise `elements` in [limits]").into());
                }
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
                match error {
                    None => Ok(None),
                    Some(text) if text.starts_with("WRONGTYPE") => Err(self.left(&text)),
                    Some(text) => Err(refused(text)),
                }
            }
            // Somebody has written the key since it was looked at.
            Reply::Nothing if self.begun => Err(self.left("it has changed since its length was asked for")),
            Reply::Nothing => Err(Stop::Exists),
            Reply::Error(text) => Ok(Some(wrong.unwrap_or(text))),
            _ => Err(self.connection.strange().into()),
        }
    }

    /// Watches the key, and says whether this command answers this number; where it does not, the key is no longer watched.
    fn holds(&mut self, name: &[u8], number: u64) -> Result<bool, Stop> {
        self.ask(&[b"WATCH", self.key])?;
        let holds = match self.ask(&[name, self.key]) {
            Ok(Reply::Number(told)) => Ok(u64::try_from(told) == Ok(number)),
            Ok(_) => Err(self.connection.strange().into()),
            Err(Stop::Refused(text)) if text.starts_with("WRONGTYPE") => Ok(false),
            Err(stop) => Err(stop),
        };
        if matches!(holds, Ok(false) | Err(Stop::Refused(_) | Stop::Unknown(_))) {
            // `EXEC` of the next key would fail for this one; `UNWATCH` wants a right of its own.
            self.connection.push(&[b"MULTI"]);
            self.connection.push(&[b"EXEC"]);
            self.connection.flush()?;
            self.connection.answer()?;
            self.connection.answer()?;
        }
        holds
    }
}

/// Where a part of a string begins.
fn beginning(part: &Part) -> Option<u64> {
    match (part.what, part.words.as_slice()) {
        (What::Text, [from, _]) => std::str::from_utf8(from).ok()?.parse().ok(),
        _ => None,
    }
}

/// Cuts a part between its elements, so that each piece is a command that nodes with small limits take.
fn pieces(part: Part) -> Vec<Part> {
    let element = match part.what {
        What::List | What::Set => 1,
        What::Sorted | What::Hash => 2,
        _ => return vec![part],
    };
    let mut pieces: Vec<Part> = Vec::new();
    let mut room = 0;
    for words in part.words.chunks(element) {
        let bytes = words.iter().map(|word| word.len() as u64).sum::<u64>();
        match pieces.last_mut() {
            Some(last) if last.words.len() < WORDS && bytes <= room => {
                last.words.extend_from_slice(words);
                room -= bytes;
            }
            _ => {
                pieces.push(Part { what: part.what, words: words.to_vec() });
                room = BYTES.saturating_sub(bytes);
            }
        }
    }
    pieces
}

/// The bytes of the command that this is written with; an error where the node does not take it.
fn fits(part: &Part, key: &[u8], Limits { bulk, command }: Limits) -> Result<u64, Stop> {
    let words = part.command(key);
    let longest = words.iter().map(|word| word.len() as u64).max().unwrap_or(0);
    let bytes = words.iter().map(|word| word.len() as u64 + 16).sum::<u64>();
    if longest > bulk || bytes > command {
        return Err(Stop::Refused(format!(
            "a word of it has {longest} bytes and what it is written with {bytes}, and the node takes {bulk} in an argument and \
             {command} in a command; raise `bulk` in [limits]"
        )));
    }
    let end = beginning(part).map_or(0, |from| {
        let piece = part.words.last().map_or(0, |piece| piece.len() as u64);
        from.saturating_add(piece)
    });
    if end > bulk {
        return Err(Stop::Refused(format!(
            "a string that has {end} bytes or more, and the node takes {bulk}; raise `bulk` in [limits]"
        )));
    }
    Ok(bytes)
}

fn refused(text: String) -> Stop {
    Stop::Refused(if text.starts_with("NOPERM") { format!("{text}; {RIGHTS}") } else { text })
}
