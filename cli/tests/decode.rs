//! `cambric decode` against independent decoders, message by message: bgpdump for MRT files,
//! tshark for captures and for hex lines. The data lies beside the workspace; without it, or
//! without the other decoder, a test says so and passes.
#![allow(clippy::unwrap_used)] // helpers of tests

mod decode_compare;
