//! The system's allocator, which says what it gives away and gets back, so that a node knows what it uses
//! ([`isochrone_node::memory`]).

#![allow(
    unsafe_code,
    reason = "the trait of allocators is unsafe; all that is computed is safe code of `isochrone_node`"
)]
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "each function passes on what it was given, under the same contract"
)]

use isochrone_node::memory;
use std::alloc::{GlobalAlloc, Layout, System};

struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

// SAFETY: every call goes to the system's allocator with the arguments that it came with, so what that asks of its callers was asked of
// ours, and what it promises holds; a layout is valid by the contract of each function. Counting asks for no memory and does not panic.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        given(System.alloc(layout), layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        given(System.alloc_zeroed(layout), layout)
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        memory::gave(layout.size());
        System.dealloc(piece, layout);
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let moved = System.realloc(piece, layout, size);
        // Else the piece is as it was.
        if !moved.is_null() {
            memory::resized(layout.size(), size);
        }
        moved
    }
}

fn given(piece: *mut u8, layout: Layout) -> *mut u8 {
    if !piece.is_null() {
        memory::took(layout.size());
    }
    piece
}

#[cfg(test)]
mod tests {
    use isochrone_node::memory::used_bytes;
    use std::hint::black_box;

    /// Larger than what other tests of this process take or give back meanwhile.
    const LARGE: u64 = 256 << 20;
    const ABOUT: u64 = LARGE / 2;

    #[test]
    fn what_is_taken_made_larger_and_given_back_is_counted() {
        let before = used_bytes();
        assert!(before > 0);
        let mut taken: Vec<u8> = Vec::with_capacity(LARGE as usize);
        let first = used_bytes();
        assert!(first > before + ABOUT, "{before} {first}");
        black_box(&mut taken).push(1);
        black_box(&mut taken).reserve_exact(3 * LARGE as usize);
        let second = used_bytes();
        assert!(second > first + LARGE + ABOUT, "{first} {second}");
        black_box(&mut taken).shrink_to_fit();
        let third = used_bytes();
        assert!(third < second - 2 * LARGE - ABOUT, "{second} {third}");
        let zeroed = black_box(vec![0_u8; LARGE as usize]);
        let fourth = used_bytes();
        assert!(zeroed[LARGE as usize - 1] == 0 && fourth > third + ABOUT, "{third} {fourth}");
        drop(zeroed);
        assert!(used_bytes() < fourth - ABOUT);
    }
}
