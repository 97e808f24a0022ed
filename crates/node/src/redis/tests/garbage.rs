//! Whatever arrives, however it is cut: no panic, and the same answers.

use super::super::fuzz_resp;
use super::{World, encode, parse_response};
use crate::gateway::{Ask, Login, Outcome};
use proptest::collection::vec;
use proptest::prelude::*;

/// Sends pieces and answers every request at once with something; returns all replies.
fn converse(pieces: &[&[u8]]) -> Vec<u8> {
    let mut world = World::new(Login::Open);
    for piece in pieces {
        world.receive(piece);
        while !world.requests.is_empty() {
            for request in std::mem::take(&mut world.requests) {
                let outcome = match request.ask {
                    Ask::Execute { .. } => Outcome::Done(parse_response("int 1")),
                    Ask::Verify { .. } => Outcome::Verified { accepted: true },
                };
                world.answer(request.id, outcome);
            }
        }
    }
    world.out
}

/// Bytes that look like requests more often than chance would have it.
fn looks_like_requests() -> impl Strategy<Value = Vec<u8>> {
    let names = super::super::table::COMMANDS
        .iter()
        .copied()
        .flatten()
        // What INFO counts depends on what has been answered before.
        .filter(|spec| spec.name != "info")
        .map(|spec| spec.name.as_bytes().to_vec())
        .collect::<Vec<_>>();
    let words = prop_oneof![
        Just(b"1".to_vec()),
        Just(b"-1".to_vec()),
        Just(b"key".to_vec()),
        Just(b"(1".to_vec()),
        Just(b"[a".to_vec()),
        Just(b"WITHSCORES".to_vec()),
        Just(b"LIMIT".to_vec()),
        Just(b"COUNT".to_vec()),
        Just(b"NX".to_vec()),
        Just(b"EX".to_vec()),
        Just(b"9223372036854775807".to_vec()),
        vec(any::<u8>(), 0..6),
    ];
    let request = (prop::sample::select(names), vec(words, 0..7)).prop_map(|(name, words)| {
        let mut all: Vec<&[u8]> = vec![&name];
        all.extend(words.iter().map(Vec::as_slice));
        encode(&all)
    });
    let piece = prop_oneof![
        8 => request,
        1 => vec(any::<u8>(), 0..20),
        1 => "[*$:+\\-]?[0-9]{0,3}\r\n".prop_map(String::into_bytes),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_do_harm(bytes in vec(any::<u8>(), 0..300)) {
        fuzz_resp(&bytes);
    }

    #[test]
    fn no_requests_do_harm(bytes in looks_like_requests()) {
        fuzz_resp(&bytes);
    }

    #[test]
    fn replies_do_not_depend_on_how_input_is_cut(bytes in looks_like_requests(), cuts in vec(any::<u16>(), 0..8)) {
        let mut places: Vec<usize> = cuts.iter().map(|cut| *cut as usize % (bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let (cut, whole) = (converse(&pieces), converse(&[&bytes]));
        prop_assert_eq!(cut.escape_ascii().to_string(), whole.escape_ascii().to_string());
    }
}
