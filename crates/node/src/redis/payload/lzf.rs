//! LZF, by which Redis compresses long strings: runs of bytes as they are, and copies of what came before.

/// What comes out is at most so many times as long as what goes in.
const RATIO_MAX: usize = 132;

/// What was compressed to this, which must be so long; `None` where it is not, or makes no sense.
pub(super) fn inflate(compressed: &[u8], length: usize) -> Option<Vec<u8>> {
    // Not even reserved: the length is a claim.
    if length / RATIO_MAX > compressed.len() {
        return None;
    }
    let mut out = Vec::with_capacity(length);
    let mut rest = compressed;
    while let Some((control, behind)) = rest.split_first() {
        let (high, low) = (usize::from(control >> 5), usize::from(control & 0x1f));
        if high == 0 {
            let (run, behind) = behind.split_at_checked(low + 1)?;
            out.extend_from_slice(run);
            rest = behind;
        } else {
            let (more, behind) = if high == 7 { behind.split_first()? } else { (&0, behind) };
            let (near, behind) = behind.split_first()?;
            let (count, back) = (high + usize::from(*more) + 2, (low << 8 | usize::from(*near)) + 1);
            let from = out.len().checked_sub(back)?;
            if out.len() + count > length {
                return None;
            }
            // It may copy what it is writing.
            for at in from..from + count {
                out.push(out[at]);
            }
            rest = behind;
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::inflate;

    #[test]
    fn runs_and_copies_are_followed_as_far_as_they_make_sense() {
        assert_eq!(inflate(b"\x02abc", 3).unwrap(), b"abc");
        assert_eq!(inflate(b"\x00a\xe0\x03\x00", 13).unwrap(), b"a".repeat(13), "it copies what it writes");
        assert_eq!(inflate(b"\x02abc\x20\x02", 6).unwrap(), b"abcabc");
        assert_eq!(inflate(b"", 0).unwrap(), b"");
        for (wrong, length) in [
            (&b"\x02ab"[..], 3),
            (b"\x02abc", 2),
            (b"\x02abc", 4),
            (b"\x20\x00", 3),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\xe0", 9),
            (b"\x00a\x20", 4),
            (b"\x00a\xe0\xff\x00", 9),
            (b"\x00a\xe0\xff\x00", usize::MAX),
        ] {
            assert_eq!(inflate(wrong, length), None, "{wrong:?} {length}");
        }
    }
}
