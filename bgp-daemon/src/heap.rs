//! The memory of a configuration file that has been read.

#![allow(unsafe_code)] // A function of the C library.

/// Returns unused memory to the kernel. The text, the syntax and the positions of a file with 1,000
/// neighbors take 3 MB, and are needed only while it is read.
pub(crate) fn trim() {
    // SAFETY: it has no precondition, and moves no allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
