//! What a table says of its own sizes is believed only as far as it can be true. The libraries that read tables reserve what a
//! damaged length asks for, and where that memory is not there, the process ends.

use crate::memory::can_hold;
use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// How bytes are packed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Packing {
    Snappy,
    Lz4,
    Gzip,
    Zstd,
    /// One that this reader knows nothing of, or none.
    Other,
}

impl Packing {
    /// So many bytes at most come out of one that went in, by the format: a copy of Snappy takes 3 bytes for 64; a byte more
    /// makes a match of LZ4 255 longer; deflate has a match of 258 in 2 bits; a block of Zstandard takes 4 bytes for 128 KiB.
    fn most(self) -> Option<u64> {
        match self {
            Packing::Snappy => Some(22),
            Packing::Lz4 => Some(255),
            Packing::Gzip => Some(1032),
            Packing::Zstd => Some(32 << 10),
            Packing::Other => None,
        }
    }

    /// Whether so many bytes can have been packed into these few, and there is room for them.
    pub(super) fn unpacks(self, packed: u64, said: u64) -> io::Result<()> {
        if self.most().is_some_and(|most| said > packed.saturating_mul(most)) {
            let told =
                format!("it says of {packed} bytes that they were {said} before {self:?}, which cannot be");
            return Err(damaged(&told));
        }
        room(said)
    }
}

/// More is never there: where this crate is tested, so little that a table that wants more is small.
const MOST: u64 = if cfg!(test) { 4 << 20 } else { 1 << 62 };

/// Whether there is memory for so many bytes at a time.
pub(super) fn room(bytes: u64) -> io::Result<()> {
    if bytes <= MOST && can_hold(bytes) {
        return Ok(());
    }
    let told = format!("it takes {bytes} bytes at a time, for which there is no memory; or it is damaged");
    Err(io::Error::new(io::ErrorKind::OutOfMemory, told))
}

/// What is said of contents that contradict themselves.
pub(super) fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is damaged: {what}"))
}

/// What a library does; of damaged contents it may panic where a length or a place is beyond what there is. Its words are in the
/// error then, and are not printed.
pub(super) fn caught<T>(act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !CATCHING.get() {
                others(panic);
            }
        }));
    });
    let before = CATCHING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(act));
    CATCHING.set(before);
    done.unwrap_or_else(|panic| Err(damaged(words(&*panic))))
}

thread_local! {
    /// Whether this thread is within [`caught`].
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    formatted.or(panic.downcast_ref::<&str>().copied()).unwrap_or("its parts contradict one another")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_have_been_packed_is_believed() {
        for (packing, most) in [(Packing::Snappy, 22), (Packing::Lz4, 255), (Packing::Gzip, 1032)] {
            packing.unpacks(10, 10 * most).unwrap();
            let error = packing.unpacks(10, 10 * most + 1).unwrap_err().to_string();
            let told =
                format!("of 10 bytes that they were {} before {packing:?}, which cannot be", 10 * most + 1);
            assert!(error.ends_with(&told), "{error}");
        }
        let error = Packing::Other.unpacks(1, u64::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn a_panic_is_an_error_of_its_words() {
        let at = std::hint::black_box(3);
        let error = caught(|| Ok([1, 2][at])).unwrap_err().to_string();
        assert!(error.starts_with("it is damaged: index out of bounds"), "{error}");
        caught(|| Ok(())).unwrap();
        assert!(!CATCHING.get());
    }
}
