//! Whole speakers talking to each other over in-memory octet streams, in virtual time.

mod add_path;
mod addresses;
mod awaited;
mod bounded;
mod changes;
mod cluster;
mod exchange;
mod extended;
mod fabric;
mod handshake;
mod helper;
mod identity;
mod keys;
mod prefix_limit;
mod refresh;
mod reload;
mod restarter;
mod wire;
