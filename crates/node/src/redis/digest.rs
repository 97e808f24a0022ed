//! The digests by which Redis names things, in hexadecimal digits.

use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

/// The name of a script.
pub(crate) fn sha1(bytes: &[u8]) -> String {
    hexadecimal(&SHA1_FOR_LEGACY_USE_ONLY, bytes)
}

/// A password as ACL files hold it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&SHA256, bytes)
}

fn hexadecimal(algorithm: &'static Algorithm, bytes: &[u8]) -> String {
    digest(algorithm, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis' own tests and ACL files have these.
    #[test]
    fn all_digits_are_there_and_small() {
        assert_eq!(sha1(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
