//! The driver in the daemon's loop, with the kernel of the host and without writing to it.

use bgp_config::Source;
use bgp_io::{Io, IoConfig};
use tokio::time::timeout;

use super::*;

/// How long a loop must wait to be idle.
const IDLE: Duration = Duration::from_millis(200);

/// Rounds in which the loop has to become idle: the first ones read the kernel's routes.
const ROUNDS_MAX: u32 = 2000;

/// Creates a speaker without neighbors, and the driver beside it.
fn daemon() -> (Io, Kernel) {
    let text = "asn = 64512\nrouter_id = \"10.0.0.11\"\nlisten = []\n[kernel]\ninstall = false\n";
    let config: Config<KernelConfig> =
        Config::parse(&Source::new("client.toml", text)).expect("it is right");
    let intent = config.intent().expect("all in the file");
    let mut speaker = Speaker::new(intent.speaker.clone(), 1);
    let kernel = Kernel::open(&config.settings, &mut speaker, None).expect("a socket");
    let io = Io::new(speaker, IoConfig::new(Vec::new())).expect("no address to listen on");
    (io, kernel)
}

#[tokio::test]
async fn loop_with_the_kernels_routes_becomes_idle() {
    let (mut io, mut kernel) = daemon();
    for _ in 0..ROUNDS_MAX {
        let mut round = Round::new(&mut io);
        kernel.turn(&mut round).expect("the kernel answers");
        let (orders, more) = round.end();
        assert!(orders.is_empty(), "{orders:?}");
        if more {
            continue;
        }
        let ready = timeout(IDLE, async {
            tokio::select! {
                _ = io.next() => {}
                () = kernel.wait() => {}
            }
        });
        if ready.await.is_err() && report::waiting(&kernel.node).is_empty() {
            return;
        }
    }
    panic!("there was work in each of {ROUNDS_MAX} rounds");
}
