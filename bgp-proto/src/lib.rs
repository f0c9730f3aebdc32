#![no_std]
//! Placeholder.
