//! Reflects routes between all peers that dial from a prefix (RFC 4456).
//!
//! `reflector LISTEN AS ROUTER-ID CLIENTS`, such as
//! `reflector 192.0.2.1:179 64512 192.0.2.1 192.0.2.0/24`.

use std::error::Error;

use cambric::io::{Io, IoConfig};
use cambric::proto::{Prefix, RouterId};
use cambric::rib::Role;
use cambric::speaker::{RangeConfig, Speaker, SpeakerConfig};

/// How many clients are accepted at once.
const CLIENTS_MAX: u16 = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, asn, id, clients] = &arguments[..] else {
        return Err("usage: reflector LISTEN AS ROUTER-ID CLIENTS".into());
    };
    let config = SpeakerConfig::new(asn.parse()?, RouterId(id.parse()?));
    let clients: Prefix = clients.parse()?;
    let client = config.neighbor(clients.addr(), Role::Client);
    let config = config.with_range(RangeConfig::new(clients, CLIENTS_MAX, client));
    let mut io = Io::new(Speaker::new(config, 1), IoConfig::new([listen.parse()?]))?;
    loop {
        for event in io.next().await {
            println!("{event:?}");
        }
    }
}
