//! Snapshots of orders in chunks of about [`CHUNK_MAX`] bytes.

use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Blob, Snapshot, wire};
use serde::Serialize;
use std::collections::VecDeque;

/// Chunks that hold all of these: `image` makes one of those that fit in it. There is a first one in any case.
pub(crate) fn chunked<T, I>(mut rest: VecDeque<T>, image: impl Fn(Vec<T>) -> I + Send + 'static) -> Snapshot
where
    T: Serialize + Send + 'static,
    I: Serialize,
{
    let mut first = true;
    Box::new(std::iter::from_fn(move || {
        if !std::mem::take(&mut first) && rest.is_empty() {
            return None;
        }
        Some(Blob::from(wire::encode(&image(fill(&mut rest, &mut 0)))))
    }))
}

/// Takes from the front what fits in a chunk that holds `size` bytes already, and adds its bytes to that.
pub(crate) fn fill<T: Serialize>(rest: &mut VecDeque<T>, size: &mut usize) -> Vec<T> {
    let mut taken = Vec::new();
    while *size < CHUNK_MAX
        && let Some(one) = rest.pop_front()
    {
        *size += wire::encoded_size(&one);
        taken.push(one);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_the_chunks_in_order_and_each_has_about_the_size() {
        for count in [0, 1, 2, 3, 10] {
            let held: Vec<(u32, Vec<u8>)> = (0..count).map(|name| (name, vec![7; CHUNK_MAX / 2])).collect();
            let chunks = chunked(held.clone().into(), |held| (1_u8, held));
            let mut found = Vec::new();
            let mut number = 0;
            for chunk in chunks {
                let (_, held): (u8, Vec<(u32, Vec<u8>)>) = wire::decode(&chunk).unwrap();
                assert!(chunk.len() < 2 * CHUNK_MAX, "{}", chunk.len());
                found.extend(held);
                number += 1;
            }
            assert_eq!(found, held);
            assert_eq!(number, count.div_ceil(2).max(1));
        }
    }
}
