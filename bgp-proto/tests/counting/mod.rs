//! An allocator that counts, thread by thread, what a test allocates and holds.
#![allow(dead_code)] // each test counts the one or the other
#![allow(unsafe_code)] // counting takes an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread has allocated.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// The octets that this thread holds; only the difference between two of these means anything.
pub(crate) fn live() -> usize {
    LIVE.get()
}

struct Counting;

/// The octets of malloc for a request: eight more, in steps of sixteen.
const fn rounded(octets: usize) -> usize {
    (octets + 8).next_multiple_of(16)
}

fn taken(octets: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    LIVE.set(LIVE.get().wrapping_add(rounded(octets)));
}

fn given_back(octets: usize) {
    LIVE.set(LIVE.get().wrapping_sub(rounded(octets)));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        given_back(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given_back(layout.size());
        taken(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
