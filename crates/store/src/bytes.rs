//! The bytes of a string. A long one that is edited is cut into pieces that are shared copy on write, so that an edit costs a
//! piece and not the string: beside it, answers, views and [`crate::Before`] go on holding what was there.
//!
//! A string is put in as one and stays so until it is first edited; then it is copied once. Of what it looks like nothing can
//! be seen: equality, hash and weight are those of the bytes.

use crate::sequence::Sequence;
use isochrone_core::Blob;
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The bytes of a string. See the module.
#[derive(Clone)]
pub(crate) enum Bytes {
    Whole(Blob),
    Pieces(Arc<Pieces>),
}

/// At least [`LONG_MIN`] bytes.
#[derive(Clone)]
pub(crate) struct Pieces {
    len: usize,
    /// Of [`PIECE`] bytes each; zeros behind the end.
    pieces: Sequence<Blob>,
    /// All of them in one, since somebody has read them so: many who ask for them have one copy.
    whole: OnceLock<Blob>,
}

/// A string of this length is edited in pieces. To copy one that is shorter takes some microseconds.
pub(crate) const LONG_MIN: usize = 32 * 1024;
/// Bytes of a piece: what an edit copies. A string of the greatest length has 1,024 blocks of them, which it copies the
/// references to.
pub(crate) const PIECE: usize = 4096;

impl Bytes {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Bytes::Whole(bytes) => bytes.len(),
            Bytes::Pieces(pieces) => pieces.len,
        }
    }

    /// All of them. If they lie in pieces, a copy, which is kept until the next edit.
    pub fn blob(&self) -> Blob {
        match self {
            Bytes::Whole(bytes) => bytes.clone(),
            Bytes::Pieces(pieces) => pieces.whole.get_or_init(|| pieces.copy()).clone(),
        }
    }

    /// The same for who reads all of them once: no copy is kept.
    pub fn copy(&self) -> Blob {
        match self {
            Bytes::Whole(bytes) => bytes.clone(),
            Bytes::Pieces(pieces) => pieces.whole.get().cloned().unwrap_or_else(|| pieces.copy()),
        }
    }

    /// All of them where they lie in one, as those of every short string do.
    pub fn whole(&self) -> Option<&Blob> {
        if let Bytes::Whole(bytes) = self { Some(bytes) } else { None }
    }

    /// Those at these positions; there are none beyond the end.
    pub fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        let end = range.end.min(self.len());
        let range = range.start.min(end)..end;
        match self {
            Bytes::Whole(bytes) => Cow::Borrowed(&bytes[range]),
            Bytes::Pieces(pieces) => pieces.read(range),
        }
    }

    /// The byte at a position; zero beyond the end.
    pub fn byte(&self, at: usize) -> u8 {
        self.read(at..at.saturating_add(1)).first().copied().unwrap_or(0)
    }

    /// Makes it at least so long, with zeros.
    pub fn pad(&mut self, len: usize) {
        if len > self.len() {
            self.write(len, &[]);
        }
    }

    /// Puts these at a position, behind zeros where it ends before.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        let len = self.len().max(end);
        if let Bytes::Whole(held) = self {
            if len < LONG_MIN {
                let mut edited = held.to_vec();
                edited.resize(len, 0);
                edited[at..end].copy_from_slice(bytes);
                *held = Blob::from(edited);
                return;
            }
            let pieces = held.chunks(PIECE).map(|bytes| Pieces::piece(0, bytes)).collect();
            *self = Bytes::Pieces(Arc::new(Pieces { len: held.len(), pieces, whole: OnceLock::new() }));
        }
        if let Bytes::Pieces(pieces) = self {
            Arc::make_mut(pieces).write(at, bytes);
        }
    }
}

impl Pieces {
    /// A piece that holds these at a position, and else zeros.
    fn piece(at: usize, bytes: &[u8]) -> Blob {
        let mut piece = [0; PIECE];
        piece[at..at + bytes.len()].copy_from_slice(bytes);
        Blob::new(&piece)
    }

    fn copy(&self) -> Blob {
        Blob::from(self.read(0..self.len).into_owned())
    }

    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        let (first, start) = (range.start / PIECE, range.start % PIECE);
        if start + range.len() <= PIECE {
            let piece = self.pieces.get(first).map_or(&[][..], |piece| &piece[..]);
            return Cow::Borrowed(piece.get(start..start + range.len()).unwrap_or_default());
        }
        let mut bytes = Vec::with_capacity(range.len());
        for (at, piece) in (first..).zip(self.pieces.range(first..range.end.div_ceil(PIECE))) {
            let start = if at == first { start } else { 0 };
            bytes.extend_from_slice(&piece[start..PIECE.min(range.end - at * PIECE)]);
        }
        Cow::Owned(bytes)
    }

    fn write(&mut self, mut at: usize, mut bytes: &[u8]) {
        self.whole.take();
        self.len = self.len.max(at + bytes.len());
        // Zeros are there once, however many.
        let missing = self.len.div_ceil(PIECE) - self.pieces.len();
        let zeros = (missing > 0).then(|| Pieces::piece(0, &[]));
        zeros.iter().cycle().take(missing).for_each(|piece| self.pieces.push_back(piece.clone()));
        while !bytes.is_empty() {
            let start = at % PIECE;
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - start));
            let place = self.pieces.place(at / PIECE);
            self.pieces.edit(place, |piece| {
                let mut edited = [0; PIECE];
                edited.copy_from_slice(piece);
                edited[start..start + now.len()].copy_from_slice(now);
                *piece = Blob::new(&edited);
            });
            (at, bytes) = (at + now.len(), later);
        }
    }
}

impl From<Blob> for Bytes {
    fn from(bytes: Blob) -> Bytes {
        Bytes::Whole(bytes)
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Whole(Blob::default())
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        match (self, other) {
            (Bytes::Whole(one), Bytes::Whole(other)) => one == other,
            (Bytes::Pieces(one), Bytes::Pieces(other)) => one.len == other.len && one.pieces == other.pieces,
            (one, other) => one.len() == other.len() && one.copy() == other.copy(),
        }
    }
}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.copy().hash(state);
    }
}
