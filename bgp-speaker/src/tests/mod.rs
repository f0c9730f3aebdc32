//! Whole speakers talking to each other over in-memory octet streams, in virtual time.

mod exchange;
mod fabric;
mod helper;
mod refresh;
mod wire;
