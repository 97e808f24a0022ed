//! A value as a payload: in the plainest form of its type, which every Redis since 5.0 reads and then keeps in the form
//! that it likes best.

use super::kind;
use super::packed::backwards;
use super::streams::{SAME_FIELDS, UNKNOWN};
use isochrone_core::command::{Content, Dated, StreamId, StreamPart};

/// Entries that one node of a stream has at most, and about how many bytes: as Redis makes them.
const NODE_ENTRIES: usize = 100;
/// See [`NODE_ENTRIES`].
const NODE_BYTES: usize = 4096;

pub(super) fn value(content: &Content, to: &mut Vec<u8>) {
    match content {
        Content::String(bytes) => {
            to.push(kind::STRING);
            string(bytes, to);
        }
        Content::Integer(number) => {
            to.push(kind::STRING);
            string(number.to_string().as_bytes(), to);
        }
        Content::List(elements) => {
            to.push(kind::LIST);
            length(elements.len() as u64, to);
            elements.iter().for_each(|element| string(element, to));
        }
        Content::Set(members) => {
            to.push(kind::SET);
            length(members.len() as u64, to);
            members.iter().for_each(|member| string(member, to));
        }
        Content::Hash(fields) => {
            to.push(kind::HASH);
            length(fields.len() as u64, to);
            for (field, value) in fields {
                string(field, to);
                string(value, to);
            }
        }
        Content::Sorted(members) => {
            to.push(kind::SORTED);
            length(members.len() as u64, to);
            for (score, member) in members {
                string(member, to);
                to.extend_from_slice(&score.get().to_le_bytes());
            }
        }
        Content::Stream(last, entries) => {
            to.push(kind::STREAM);
            stream(*last, entries, to);
            // No groups.
            length(0, to);
        }
        Content::Parts(head, parts) => {
            to.push(kind::STREAM_2);
            let entries: Vec<Dated> = parts.iter().map_while(entry).cloned().collect();
            stream(head.last, &entries, to);
            id(entries.first().map_or(StreamId::MIN, |(id, _)| *id), to);
            id(head.deleted, to);
            length(head.added, to);
            groups(&parts[entries.len()..], to);
        }
    }
}

fn length(length: u64, to: &mut Vec<u8>) {
    match length {
        0..0x40 => to.push(length as u8),
        0x40..0x4000 => to.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            to.push(0x80);
            to.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            to.push(0x81);
            to.extend_from_slice(&length.to_be_bytes());
        }
    }
}

fn string(bytes: &[u8], to: &mut Vec<u8>) {
    length(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

fn stream(last: StreamId, entries: &[Dated], to: &mut Vec<u8>) {
    let nodes: Vec<&[Dated]> = nodes(entries).collect();
    length(nodes.len() as u64, to);
    for entries in nodes {
        let (first, fields) = &entries[0];
        string(&long_id(*first), to);
        string(&node(*first, fields, entries), to);
    }
    length(entries.len() as u64, to);
    id(last, to);
}

fn id(id: StreamId, to: &mut Vec<u8>) {
    length(id.millis, to);
    length(id.sequence, to);
}

/// An identifier as a key of Redis' trees.
fn long_id(id: StreamId) -> [u8; 16] {
    (u128::from(id.millis) << 64 | u128::from(id.sequence)).to_be_bytes()
}

fn entry(part: &StreamPart) -> Option<&Dated> {
    if let StreamPart::Entry(entry) = part { Some(entry) } else { None }
}

/// The groups in these parts of a stream, each with its consumers and what is pending.
fn groups(parts: &[StreamPart], to: &mut Vec<u8>) {
    let groups = parts.chunk_by(|_, next| !matches!(next, StreamPart::Group(..)));
    length(groups.clone().count() as u64, to);
    for group in groups {
        let (mut consumers, mut pending) = (Vec::new(), Vec::new());
        for part in group {
            match part {
                StreamPart::Group(name, last, read) => {
                    string(name, to);
                    id(*last, to);
                    length(read.unwrap_or(UNKNOWN), to);
                }
                StreamPart::Consumer(name, seen) => consumers.push((name, *seen, Vec::new())),
                StreamPart::Pending(id, held) => {
                    pending.push((*id, *held));
                    let at = usize::try_from(held.consumer).ok();
                    if let Some((.., ids)) = at.and_then(|at| consumers.get_mut(at)) {
                        ids.push(*id);
                    }
                }
                StreamPart::Entry(_) => {}
            }
        }
        length(pending.len() as u64, to);
        for (id, held) in pending {
            to.extend_from_slice(&long_id(id));
            to.extend_from_slice(&held.delivered.to_le_bytes());
            length(held.count, to);
        }
        length(consumers.len() as u64, to);
        for (name, seen, ids) in consumers {
            string(name, to);
            to.extend_from_slice(&seen.to_le_bytes());
            length(ids.len() as u64, to);
            ids.into_iter().for_each(|id| to.extend_from_slice(&long_id(id)));
        }
    }
}

/// The entries in pieces, none of them empty.
fn nodes(mut rest: &[Dated]) -> impl Iterator<Item = &[Dated]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(NODE_ENTRIES).take_while(|(_, fields)| {
            let before = bytes;
            bytes += fields.iter().map(|(field, value)| field.len() + value.len()).sum::<usize>();
            before < NODE_BYTES
        });
        let (node, behind) = rest.split_at(fits.count());
        rest = behind;
        (!node.is_empty()).then_some(node)
    })
}

fn node(
    first: StreamId,
    shared: &[(isochrone_core::Blob, isochrone_core::Blob)],
    entries: &[Dated],
) -> Vec<u8> {
    let mut pack = Listpack::default();
    pack.number(entries.len() as i64);
    pack.number(0);
    pack.number(shared.len() as i64);
    shared.iter().for_each(|(field, _)| pack.bytes(field));
    pack.number(0);
    for (id, fields) in entries {
        let same = fields.iter().map(|(field, _)| field).eq(shared.iter().map(|(field, _)| field));
        pack.number(if same { SAME_FIELDS } else { 0 });
        pack.number(id.millis.wrapping_sub(first.millis) as i64);
        pack.number(id.sequence.wrapping_sub(first.sequence) as i64);
        if !same {
            pack.number(fields.len() as i64);
        }
        for (field, value) in fields {
            if !same {
                pack.bytes(field);
            }
            pack.bytes(value);
        }
        let number = fields.len() as i64;
        pack.number(if same { number + 3 } else { 2 * number + 4 });
    }
    pack.finish()
}

/// A listpack that is being filled.
struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for Listpack {
    fn default() -> Listpack {
        Listpack { bytes: vec![0; 6], count: 0 }
    }
}

impl Listpack {
    fn number(&mut self, number: i64) {
        let from = self.bytes.len();
        match number {
            0..=127 => self.bytes.push(number as u8),
            -32_768..=32_767 => {
                self.bytes.push(0xf1);
                self.bytes.extend_from_slice(&(number as i16).to_le_bytes());
            }
            _ => {
                self.bytes.push(0xf4);
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        self.close(from);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let from = self.bytes.len();
        match bytes.len() {
            length @ 0..0x40 => self.bytes.push(0x80 | length as u8),
            length @ 0x40..0x1000 => self.bytes.extend_from_slice(&(0xe000 | length as u16).to_be_bytes()),
            length => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(bytes);
        self.close(from);
    }

    fn close(&mut self, from: usize) {
        let (length, digits) = backwards(self.bytes.len() - from);
        self.bytes.extend_from_slice(&length[..digits]);
        self.count += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0xff);
        let (length, count) = (self.bytes.len() as u32, u16::try_from(self.count).unwrap_or(u16::MAX));
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        self.bytes[4..6].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}
