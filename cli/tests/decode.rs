//! `cambric decode` against independent decoders, message by message: bgpdump for MRT files, tshark
//! for captures and for hex lines. The data is in a directory beside the workspace; without it, or
//! without the other decoder, a test reports that and passes.
#![allow(clippy::unwrap_used)] // helpers of tests

mod decode_compare;
