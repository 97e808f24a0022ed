//! Values in parts: what no command tells or takes whole is read by several, and put back by several.

use isochrone_core::Blob;
use isochrone_core::command::{Content, Dated, StreamHead, StreamId, StreamPart};

/// A part has about so many bytes: a command that others can wait for. An element of its own may have more.
const BYTES: usize = 1 << 20;
/// Words of a part at most.
pub(super) const WORDS: usize = 10_000;

/// A type of values.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Type {
    /// As TYPE names it.
    pub(super) name: &'static str,
    /// The first byte of its plainest form, as by DUMP.
    pub(super) first: u8,
    /// The command that counts its elements; of a string, its bytes.
    pub(super) count: &'static str,
}

/// All of them, in the order of [`Content`].
static TYPES: [Type; 6] = [
    Type { name: "string", first: 0, count: "STRLEN" },
    Type { name: "hash", first: 4, count: "HLEN" },
    Type { name: "set", first: 2, count: "SCARD" },
    Type { name: "list", first: 1, count: "LLEN" },
    Type { name: "zset", first: 5, count: "ZCARD" },
    Type { name: "stream", first: 15, count: "XLEN" },
];

impl Type {
    /// The one that TYPE names so.
    pub(super) fn named(name: &str) -> Option<&'static Type> {
        TYPES.iter().find(|known| known.name == name)
    }

    /// The one whose plainest form begins so.
    pub(super) fn beginning(first: u8) -> Option<&'static Type> {
        TYPES.iter().find(|known| known.first == first)
    }

    /// That of this value, and how many elements it has.
    pub(super) fn of(content: &Content) -> (&'static Type, u64) {
        let [string, hash, set, list, sorted, stream] = &TYPES;
        let (found, count) = match content {
            Content::String(bytes) => (string, bytes.len()),
            Content::Integer(number) => (string, number.to_string().len()),
            Content::Hash(fields) => (hash, fields.len()),
            Content::Set(members) => (set, members.len()),
            Content::List(elements) => (list, elements.len()),
            Content::Sorted(members) => (sorted, members.len()),
            Content::Stream(_, entries) => (stream, entries.len()),
            Content::Parts(_, parts) => {
                (stream, parts.iter().filter(|part| matches!(part, StreamPart::Entry(_))).count())
            }
        };
        (found, count as u64)
    }
}

/// What the words of a part are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Where it begins in a string, and bytes.
    Text,
    /// Elements of a list.
    List,
    /// Members of a set.
    Set,
    /// Scores, each before its member.
    Sorted,
    /// Fields, each before its value.
    Hash,
    /// The identifier of an entry, and its fields, each before its value.
    Entry,
    /// A group, the last entry that it has delivered, and how many it has read where that is known.
    Group,
    /// A group, and one of its consumers.
    Consumer,
    /// A group, one of its consumers, the entry that this one was given, when (milliseconds since 1970), and how often.
    Pending,
    /// The highest identifier that a stream has given, how many entries it ever had, the highest that was deleted.
    Last,
}

impl What {
    const ALL: [What; 10] = [
        What::Text,
        What::List,
        What::Set,
        What::Sorted,
        What::Hash,
        What::Entry,
        What::Group,
        What::Consumer,
        What::Pending,
        What::Last,
    ];

    /// As a file has it.
    pub(super) fn tag(self) -> u8 {
        What::ALL.iter().zip(1..).find_map(|(what, tag)| (*what == self).then_some(tag)).unwrap_or(0)
    }

    /// What a file has so.
    pub(super) fn tagged(tag: u8) -> Option<What> {
        What::ALL.get(usize::from(tag).checked_sub(1)?).copied()
    }
}

/// A part of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// What the words are.
    pub(super) what: What,
    /// They.
    pub(super) words: Vec<Vec<u8>>,
}

impl Part {
    /// Bytes of its words.
    pub(super) fn bytes(&self) -> u64 {
        self.words.iter().map(|word| word.len() as u64).sum()
    }

    /// The command that puts it back into this key.
    pub(super) fn command<'p>(&'p self, key: &'p [u8]) -> Vec<&'p [u8]> {
        let word = |at: usize| self.words.get(at).map_or(&b""[..], Vec::as_slice);
        let mut command: Vec<&'p [u8]> = match self.what {
            What::Text => vec![&b"SETRANGE"[..], key],
            What::List => vec![&b"RPUSH"[..], key],
            What::Set => vec![&b"SADD"[..], key],
            What::Sorted => vec![&b"ZADD"[..], key],
            What::Hash => vec![&b"HSET"[..], key],
            What::Entry => vec![&b"XADD"[..], key],
            What::Consumer => vec![&b"XGROUP"[..], b"CREATECONSUMER", key],
            What::Group => vec![&b"XGROUP"[..], b"CREATE", key, word(0), word(1), b"MKSTREAM"],
            What::Pending => {
                let given = [&b"TIME"[..], word(3), b"RETRYCOUNT", word(4), b"FORCE", b"JUSTID"];
                [&b"XCLAIM"[..], key, word(0), word(1), b"0", word(2)].into_iter().chain(given).collect()
            }
            What::Last => {
                vec![&b"XSETID"[..], key, word(0), b"ENTRIESADDED", word(1), b"MAXDELETEDID", word(2)]
            }
        };
        match self.what {
            What::Pending | What::Last => {}
            What::Group => {
                command.extend(self.words.get(2).into_iter().flat_map(|read| [&b"ENTRIESREAD"[..], read]));
            }
            _ => command.extend(self.words.iter().map(Vec::as_slice)),
        }
        command
    }
}

/// Cuts words, of which an element has so many, into parts.
pub(super) fn cut<E>(
    what: What,
    element: usize,
    words: impl IntoIterator<Item = Vec<u8>>,
    each: &mut impl FnMut(Part) -> Result<(), E>,
) -> Result<(), E> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for word in words {
        let full = bytes + word.len() > BYTES || part.len() >= WORDS;
        if full && !part.is_empty() && part.len().is_multiple_of(element) {
            each(Part { what, words: std::mem::take(&mut part) })?;
            bytes = 0;
        }
        bytes += word.len();
        part.push(word);
    }
    if part.is_empty() { Ok(()) } else { each(Part { what, words: part }) }
}

/// The parts of a value.
pub(super) fn of<E>(content: &Content, each: &mut impl FnMut(Part) -> Result<(), E>) -> Result<(), E> {
    match content {
        Content::String(bytes) => text(bytes, each),
        Content::Integer(number) => text(number.to_string().as_bytes(), each),
        Content::List(elements) => cut(What::List, 1, elements.iter().map(|one| one.to_vec()), each),
        Content::Set(members) => cut(What::Set, 1, members.iter().map(|one| one.to_vec()), each),
        Content::Hash(fields) => cut(What::Hash, 2, fields.iter().flat_map(pair), each),
        Content::Sorted(members) => {
            let words = members.iter().flat_map(|(score, member)| [text_of(score), member.to_vec()]);
            cut(What::Sorted, 2, words, each)
        }
        Content::Stream(last, entries) => {
            entries.iter().try_for_each(|dated| each(entry(dated)))?;
            let head = StreamHead { last: *last, added: entries.len() as u64, deleted: StreamId::MIN };
            each(remembered(&head))
        }
        Content::Parts(head, parts) => {
            groups(parts, each)?;
            each(remembered(head))
        }
    }
}

fn text<E>(bytes: &[u8], each: &mut impl FnMut(Part) -> Result<(), E>) -> Result<(), E> {
    bytes.chunks(BYTES).enumerate().try_for_each(|(number, piece)| {
        each(Part { what: What::Text, words: vec![text_of(&(number * BYTES)), piece.to_vec()] })
    })
}

/// The parts of a stream, whatever they are.
fn groups<E>(parts: &[StreamPart], each: &mut impl FnMut(Part) -> Result<(), E>) -> Result<(), E> {
    let (mut group, mut consumers) = (Vec::new(), Vec::new());
    for part in parts {
        let (what, words) = match part {
            StreamPart::Entry(dated) => {
                each(entry(dated))?;
                continue;
            }
            StreamPart::Group(name, last, read) => {
                (group, consumers) = (name.to_vec(), Vec::new());
                let words = [group.clone(), text_of(last)].into_iter().chain(read.as_ref().map(text_of));
                (What::Group, words.collect())
            }
            StreamPart::Consumer(name, _) => {
                consumers.push(name.to_vec());
                (What::Consumer, vec![group.clone(), name.to_vec()])
            }
            StreamPart::Pending(id, held) => {
                let consumer = usize::try_from(held.consumer).ok().and_then(|at| consumers.get(at));
                let consumer = consumer.cloned().unwrap_or_default();
                let words = [text_of(id), text_of(&held.delivered), text_of(&held.count)];
                (What::Pending, [group.clone(), consumer].into_iter().chain(words).collect())
            }
        };
        each(Part { what, words })?;
    }
    Ok(())
}

fn entry((id, fields): &Dated) -> Part {
    let words = std::iter::once(text_of(id)).chain(fields.iter().flat_map(pair));
    Part { what: What::Entry, words: words.collect() }
}

fn remembered(StreamHead { last, added, deleted }: &StreamHead) -> Part {
    Part { what: What::Last, words: vec![text_of(last), text_of(added), text_of(deleted)] }
}

fn pair((one, other): &(Blob, Blob)) -> [Vec<u8>; 2] {
    [one.to_vec(), other.to_vec()]
}

/// As commands have it.
pub(super) fn text_of(what: &impl ToString) -> Vec<u8> {
    what.to_string().into_bytes()
}
