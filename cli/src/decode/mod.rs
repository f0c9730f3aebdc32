//! `cambric decode`: BGP messages of files as JSON, one object a line.
//!
//! The schema is in `docs/operate/decode.md`.

mod attributes;
mod hex;
mod message;
mod mrt_file;
mod octets;
mod open;
mod output;
mod pcap_file;
mod run;
mod schema;
#[cfg(test)]
mod tests;
mod update;

pub(crate) use run::{Args, run};
