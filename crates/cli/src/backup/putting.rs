//! A value that is longer than a node takes at once, put back in parts: into a key of its own, which gets the name of the one that is
//! meant when all of it is there. Until then what was there stays, whatever happens to the rest. A key that is left has a deadline.

use super::parts::{self, Part, Type, What};
use super::restore::Limits;
use super::wire::{Connection, Reply};
use super::{Patience, passes, passes_by, shown};
use anyhow::anyhow;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a user needs.
const RIGHTS: &str = "the user needs +@read +@write +multi +exec for a value that is put back in parts";
/// Commands of a transaction at most, and about so many bytes: of a command as well, but for an element that has more. The least that
/// `bulk` can be leaves twice as many.
const PARTS: usize = 1_024;
const BYTES: u64 = 1 << 19;
/// Transactions under way.
pub(super) const WINDOW: usize = 4;
/// Words of a command where the node does not tell how many it takes: the least that `elements` can be.
const LEAST: u64 = 16;
/// What keys begin with that values are put back into.
const NAME: &str = "isochrone-restore:";
/// So long such a key stays behind its last part, and where it does not get its name, milliseconds: longer than anything is waited for.
const STAYS: &[u8] = b"3600000";
/// So many names are tried where no name is sure to be of the same partition, of which there are at most 1,024; and so many at once.
const NAMES: u64 = 16 * 1_024;
const AT_ONCE: u64 = 64;

/// Why a value is not put back.
#[derive(Debug)]
pub(super) enum Stop {
    /// The key is there, and was left as it is.
    Exists,
    /// It is refused.
    Refused(String),
    /// It is to be begun anew: nobody knows what was executed, or in which order.
    Again(String),
    /// Nothing more can be asked.
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Stop {
        Stop::Broken(error)
    }
}

/// A transaction that is not answered yet.
struct Sent {
    /// Commands in it.
    queued: usize,
    /// Elements that it appends to a list.
    pushed: i64,
}

/// A key whose value is put back.
pub(super) struct Putting<'a> {
    connection: &'a mut Connection,
    key: &'a [u8],
    limits: Limits,
    /// What is there is replaced.
    replace: bool,
    /// The key that has the value until all of it is there, and whether something of it may be.
    beside: Vec<u8>,
    opened: bool,
    /// Something of it is there for certain.
    begun: bool,
    /// Elements of a list that are there.
    length: i64,
    /// Not sent yet.
    batch: Vec<Part>,
    bytes: u64,
    /// Parts that a transaction may have.
    most: usize,
    /// Transactions that may be under way, and those that are.
    window: usize,
    under_way: VecDeque<Sent>,
    patience: Patience,
}

impl<'a> Putting<'a> {
    /// Nothing is written yet.
    pub(super) fn new(
        connection: &'a mut Connection,
        key: &'a [u8],
        limits: Limits,
        replace: bool,
        window: usize,
    ) -> Putting<'a> {
        // Two commands go with them.
        let most = limits.elements.map_or(PARTS, |elements| elements.saturating_sub(2) as usize);
        Putting {
            connection,
            key,
            limits,
            replace,
            beside: beside(key, 0),
            opened: false,
            begun: false,
            length: 0,
            batch: Vec::new(),
            bytes: 0,
            most: most.clamp(1, PARTS),
            window,
            under_way: VecDeque::new(),
            patience: Patience::new(),
        }
    }

    /// Whether the node takes what this part is written with, as far as its limits are known; nothing is asked.
    pub(super) fn check(part: Part, key: &[u8], limits: Limits) -> Result<(), Stop> {
        let beside = beside(key, 0);
        pieces(part, limits).iter().try_for_each(|piece| fits(piece, &beside, limits).map(drop))
    }

    /// The next part.
    pub(super) fn take(&mut self, part: Part) -> Result<(), Stop> {
        for piece in pieces(part, self.limits) {
            let bytes = fits(&piece, &self.beside, self.limits)?;
            let full = self.batch.len() >= self.most || self.bytes + bytes > BYTES.min(self.limits.command);
            if !self.batch.is_empty() && full {
                self.send()?;
            }
            self.bytes += bytes;
            self.batch.push(piece);
        }
        Ok(())
    }

    /// Sends the rest, sees that there are so many elements, where that is known, and gives the value its deadline and its key.
    pub(super) fn finish(
        &mut self,
        kind: &Type,
        elements: Option<u64>,
        deadline: Option<u64>,
    ) -> Result<(), Stop> {
        self.send()?;
        while !self.under_way.is_empty() {
            self.settle()?;
        }
        if !self.begun {
            let text = "nothing of it was saved: it was written, or had gone, while it was read";
            return Err(Stop::Refused(text.to_owned()));
        }
        let beside = self.beside.clone();
        if let Some(elements) = elements {
            let reply = self.ask(&[kind.count.as_bytes(), beside.as_slice()])?;
            let Reply::Number(found) = reply else { return Err(self.connection.strange().into()) };
            if u64::try_from(found) != Ok(elements) {
                let text = format!("{found} elements were there once its {elements} had been written");
                return Err(Stop::Refused(text));
            }
        }
        let deadline = deadline.map(|deadline| deadline.to_string());
        let dated: Vec<&[u8]> = match &deadline {
            Some(deadline) => vec![&b"PEXPIREAT"[..], beside.as_slice(), deadline.as_bytes()],
            None => vec![&b"PERSIST"[..], beside.as_slice()],
        };
        if deadline.is_some() {
            self.try_deadline(&dated)?;
        }
        self.rename(&dated)
    }

    /// Sees that the deadline is taken: where it were refused with the name, that would be given all the same. In the same step the key
    /// has the one back that it goes by until then.
    fn try_deadline(&mut self, dated: &[&[u8]]) -> Result<(), Stop> {
        loop {
            self.connection.push(&[b"MULTI"]);
            self.connection.push(dated);
            self.connection.push(&[b"PEXPIRE", self.beside.as_slice(), STAYS]);
            self.connection.push(&[b"EXEC"]);
            self.connection.flush()?;
            match self.answers(2)? {
                Ok(answers) => {
                    self.patience.renew();
                    return match answers.into_iter().next() {
                        Some(Reply::Error(text)) => Err(refused(text)),
                        _ => Ok(()),
                    };
                }
                Err(text) if passes_by(&text) && self.patience.wait(self.connection.at(), &text) => {}
                Err(text) => return Err(refused(text)),
            }
        }
    }

    /// Gives what was written the key that is meant, with its deadline, in one step.
    fn rename(&mut self, dated: &[&[u8]]) -> Result<(), Stop> {
        let name: &[u8] = if self.replace { b"RENAME" } else { b"RENAMENX" };
        let mut unknown = false;
        loop {
            self.connection.push(&[b"MULTI"]);
            self.connection.push(dated);
            self.connection.push(&[name, self.beside.as_slice(), self.key]);
            // Where it is there still, the other key is as well.
            self.connection.push(&[b"PEXPIRE", self.beside.as_slice(), STAYS]);
            self.connection.push(&[b"EXEC"]);
            self.connection.flush()?;
            let answers = match self.answers(3)? {
                Ok(answers) => answers,
                Err(text) if passes_by(&text) && self.patience.wait(self.connection.at(), &text) => {
                    unknown |= !passes(&text);
                    continue;
                }
                Err(text) => return Err(refused(text)),
            };
            return match answers.into_iter().nth(1) {
                Some(Reply::Number(0)) => Err(Stop::Exists),
                Some(Reply::Error(text)) if text.starts_with("ERR no such key") => {
                    // It may have been done, as nobody knew.
                    let done = unknown && self.ask(&[b"EXISTS", self.key])? != Reply::Number(0);
                    if done { Ok(()) } else { Err(gone()) }
                }
                Some(Reply::Error(text)) => Err(refused(text)),
                Some(_) => Ok(()),
                None => Err(self.connection.strange().into()),
            };
        }
    }

    /// Deletes what is there of it, once all is answered that was asked.
    pub(super) fn undo(&mut self) -> anyhow::Result<()> {
        for Sent { queued, .. } in std::mem::take(&mut self.under_way) {
            drop(self.answers(queued)?);
        }
        if self.opened {
            // Where that is refused it goes by its deadline.
            self.connection.ask(&[b"DEL", self.beside.as_slice()])?;
        }
        Ok(())
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

    /// Sends what was not sent yet. The first is waited for, so that most of what is refused is refused there; and so is each where no
    /// more may be under way.
    fn send(&mut self) -> Result<(), Stop> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        if !self.opened {
            self.open()?;
        }
        if self.begun && self.window > 1 {
            if self.under_way.len() >= self.window {
                self.settle()?;
            }
            let sent = self.push(&batch)?;
            self.under_way.push_back(sent);
            return Ok(());
        }
        let mut rest = batch.as_slice();
        while !rest.is_empty() {
            let (parts, behind) = rest.split_at(self.most.min(rest.len()));
            let sent = self.push(parts)?;
            match self.hear(&sent)? {
                None => rest = behind,
                Some(text) if passes(&text) => {
                    if !self.patience.wait(self.connection.at(), &text) {
                        return Err(Stop::Broken(anyhow!("{}: {text}", self.connection.at())));
                    }
                }
                Some(text) if text.starts_with("UNKNOWN ") => return Err(Stop::Again(text)),
                // So many may be more than a transaction of this protocol takes.
                Some(_) if parts.len() > 1 => self.most = (parts.len() / 2).max(1),
                Some(text) => return Err(refused(text)),
            }
        }
        Ok(())
    }

    /// Finds a key that can be renamed to the one that is meant, and sees whether that one is there.
    fn open(&mut self) -> Result<(), Stop> {
        let key = self.key;
        // What is said goes out whole, before anything is heard.
        let at_once = (BYTES / (2 * key.len() as u64 + 64)).clamp(1, AT_ONCE);
        let mut tried = 0;
        while tried < NAMES {
            // Most keys have a neighbour that is sure.
            let count = if tried == 0 { 1 } else { at_once.min(NAMES - tried) };
            let names: Vec<Vec<u8>> = (tried..tried + count).map(|nth| beside(key, nth)).collect();
            for name in &names {
                self.connection.push(&[b"EXISTS", key, name.as_slice()]);
            }
            self.connection.flush()?;
            let mut replies = Vec::new();
            for _ in &names {
                replies.push(self.connection.answer()?);
            }
            let mut passing = None;
            for (name, reply) in names.into_iter().zip(replies) {
                match reply {
                    Reply::Number(1..) if !self.replace => return Err(Stop::Exists),
                    Reply::Number(_) => {
                        self.patience.renew();
                        self.beside = name;
                        self.opened = true;
                        return Ok(());
                    }
                    Reply::Error(text) if text.starts_with("CROSSSLOT") => {}
                    Reply::Error(text) if passes_by(&text) => passing = Some(text),
                    Reply::Error(text) => return Err(refused(text)),
                    _ => return Err(self.connection.strange().into()),
                }
            }
            match passing {
                None => {
                    self.patience.renew();
                    tried += count;
                }
                Some(text) if self.patience.wait(self.connection.at(), &text) => {}
                Some(text) => return Err(refused(text)),
            }
        }
        Err(Stop::Refused(format!(
            "none of {NAMES} other keys lies in its partition, so that it could be renamed to this one; such a key lies beside any whose \
             name has no `}}`, or something between its first braces"
        )))
    }

    /// Sends these parts, to be written all or none.
    fn push(&mut self, parts: &[Part]) -> anyhow::Result<Sent> {
        let Putting { connection, beside, .. } = self;
        connection.push(&[b"MULTI"]);
        connection.push(&[b"EXISTS", beside.as_slice()]);
        for part in parts {
            connection.push(&part.command(beside));
        }
        connection.push(&[b"PEXPIRE", beside.as_slice(), STAYS]);
        connection.push(&[b"EXEC"]);
        connection.flush()?;
        let pushed = parts.iter().filter(|part| part.what == What::List).map(|part| part.words.len() as i64);
        Ok(Sent { queued: parts.len() + 2, pushed: pushed.sum() })
    }

    /// Hears of a transaction; the error where none of it was executed.
    fn hear(&mut self, sent: &Sent) -> Result<Option<String>, Stop> {
        let answers = match self.answers(sent.queued)? {
            Ok(answers) => answers,
            Err(text) => return Ok(Some(text)),
        };
        let error = answers.iter().find_map(|answer| match answer {
            Reply::Error(text) => Some(text.clone()),
            _ => None,
        });
        if let Some(text) = error {
            // Of the others some were executed.
            return Err(refused(text));
        }
        // Else it would have only what was written since.
        if answers.first() != Some(&Reply::Number(i64::from(self.begun))) {
            return Err(gone());
        }
        self.begun = true;
        self.length += sent.pushed;
        let length = answers.len().checked_sub(2).and_then(|at| answers.get(at));
        if sent.pushed > 0 && length != Some(&Reply::Number(self.length)) {
            return Err(Stop::Refused(
                "its elements were written in another order than they have".to_owned(),
            ));
        }
        self.patience.renew();
        Ok(None)
    }

    /// Hears of the oldest transaction under way. Where it is refused, what was sent behind it may have been executed.
    fn settle(&mut self) -> Result<(), Stop> {
        let Some(sent) = self.under_way.pop_front() else { return Ok(()) };
        match self.hear(&sent) {
            Ok(None) => Ok(()),
            Ok(Some(text)) | Err(Stop::Refused(text)) => Err(Stop::Again(text)),
            Err(stop) => Err(stop),
        }
    }

    /// What is answered to a transaction of so many commands; the error where none of them was executed.
    fn answers(&mut self, queued: usize) -> anyhow::Result<Result<Vec<Reply>, String>> {
        let mut wrong = None;
        for _ in 0..=queued {
            if let Reply::Error(text) = self.connection.answer()? {
                // The connection ends with it. All was measured before, where the node has told its limits.
                if text.starts_with("ERR Protocol error") {
                    let (at, key) = (self.connection.at(), shown(self.key));
                    return Err(anyhow!("{at}: {key}: {text}\n  raise `elements` in [limits]"));
                }
                wrong = wrong.or(Some(text));
            }
        }
        match self.connection.answer()? {
            Reply::List(answers) => Ok(Ok(answers)),
            Reply::Error(text) => Ok(Err(wrong.unwrap_or(text))),
            _ => Err(self.connection.strange()),
        }
    }
}

/// A key that nobody else has, another for each number. Where this one can have such a neighbour, it lies in the same partition
/// whatever that is, by what is between the first braces; else in any.
fn beside(key: &[u8], nth: u64) -> Vec<u8> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let number =
        xxh3_64_with_seed(key, since ^ u64::from(std::process::id()).rotate_left(32)).wrapping_add(nth);
    let begin = format!("{NAME}{number:016x}:").into_bytes();
    if key.is_empty() || key.contains(&b'}') {
        [&begin[..], key].concat()
    } else {
        [&begin[..], b"{", key, b"}"].concat()
    }
}

fn gone() -> Stop {
    Stop::Refused(
        "what was written of it has gone: somebody has deleted it, or its deadline has passed".to_owned(),
    )
}

/// Where a part of a string begins.
fn beginning(part: &Part) -> Option<u64> {
    match (part.what, part.words.as_slice()) {
        (What::Text, [from, _]) => std::str::from_utf8(from).ok()?.parse().ok(),
        _ => None,
    }
}

/// Cuts a part between its elements, so that each piece is a command that the node takes.
fn pieces(part: Part, limits: Limits) -> Vec<Part> {
    let element = match part.what {
        What::List | What::Set => 1,
        What::Sorted | What::Hash => 2,
        _ => return vec![part],
    };
    // Beside the command's name and the key.
    let most = (limits.elements.unwrap_or(LEAST).saturating_sub(2) as usize).min(parts::WORDS);
    let mut pieces: Vec<Part> = Vec::new();
    let mut room = 0;
    for words in part.words.chunks(element) {
        let bytes = words.iter().map(|word| word.len() as u64).sum::<u64>();
        match pieces.last_mut() {
            Some(last) if last.words.len() + element <= most && bytes <= room => {
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
fn fits(part: &Part, key: &[u8], Limits { bulk, command, elements }: Limits) -> Result<u64, Stop> {
    let words = part.command(key);
    if let Some(elements) = elements.filter(|elements| words.len() as u64 > *elements) {
        return Err(Stop::Refused(format!(
            "an entry of it is written with a command of {} words, and the node takes {elements}; raise `elements` in [limits]",
            words.len()
        )));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::key_tag;

    #[test]
    fn a_key_that_is_to_be_renamed_lies_where_the_other_does() {
        for key in [&b"a"[..], b"a{b", b"{tag}", b"a{tag}b}{c}", b"{{}"] {
            assert_eq!(key_tag(&beside(key, 0)), key_tag(key), "{}", shown(key));
        }
        // No other key lies there: names are tried until one is of the same partition.
        for key in [&b""[..], b"a}", b"{}a", b"a{}{b}"] {
            let (one, other) = (beside(key, 0), beside(b"other", 0));
            assert_eq!(key_tag(&one), one, "{}", shown(key));
            assert_ne!(one[..NAME.len() + 16], other[..NAME.len() + 16]);
        }
    }
}
