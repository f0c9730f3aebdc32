//! Tests a speaker: sends it an OPEN of BGP version 3, and expects the NOTIFICATION of RFC 4271 §6.2.
//!
//! `bad-open ADDRESS`, such as `bad-open 192.0.2.2:179`. The speaker must accept this host as a peer.

use std::error::Error;

use cambric::proto::MessageKind;
use cambric::testkit::{Raw, Received, TcpPeer, notification};
use tokio::net::TcpStream;

/// OPEN and its body: version 3, AS 64512, a hold time of 90 seconds, 192.0.2.9, no parameters.
const OPEN: Raw<'static> = Raw(1, &[3, 0xfc, 0, 0, 90, 192, 0, 2, 9, 0]);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: bad-open ADDRESS")?;
    let mut peer = TcpPeer::new(TcpStream::connect(address).await?);
    peer.send(OPEN).await?;
    peer.expect(MessageKind::Open).await;
    // Ends the program with what was expected and what came, if it is something else.
    let Received::Notification(refused) = peer.expect(notification(2, 1)).await else {
        return Err("a NOTIFICATION was expected".into());
    };
    println!("refused as it should be: {refused}");
    Ok(())
}
