//! A daemon's answers before its datastore has been read.

use bgp_config::Source as Text;
use daemon_common::client::{CallError, call};
use tokio::time::{Instant, sleep};

use super::*;
use crate::driver::tests::{Plain, Tested};

/// A request that is not delayed is answered within this time.
const AT_ONCE: std::time::Duration = std::time::Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn questions_are_held_for_the_first_second_of_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("control.sock");
    // Port 9 of the loopback interface: nothing listens there.
    let text = format!("control = {path:?}\n[datastore]\nendpoints = [\"http://127.0.0.1:9\"]\n");
    let config: Config<Plain> = Config::parse(&Text::new("tested.toml", text)).expect("correct");
    let store = config.store().expect("a datastore");
    let mut source = Source::open(&config, store, 1).await.expect("options");
    let mut sockets = Sockets::bind(&config).expect("a socket");
    let mut signals = SignalDriver::new(None).expect("signals");
    let mut service_manager = ServiceManager::default();
    let outside = (&mut sockets, &mut signals, &mut service_manager);
    let asked = async {
        let started = Instant::now();
        let (status, neighbors) = tokio::join!(
            call(&path, &Command::Status {}),
            call(&path, &Command::Neighbors {}),
        );
        let held = started.elapsed();
        assert!(
            held >= ANSWERS_AFTER && held < ANSWERS_AFTER + AT_ONCE,
            "{held:?}"
        );
        let Ok(Reply::Status(status)) = status else {
            panic!("no status: {status:?}");
        };
        let [waiting] = &status.waiting_for[..] else {
            panic!("one thing is waited for: {status:?}");
        };
        let Err(CallError::Daemon { message, .. }) = neighbors else {
            panic!("no refusal: {neighbors:?}");
        };
        assert_eq!(message, format!("waiting for {waiting}"));
        sleep(ANSWERS_AFTER / 2).await;
        let later = Instant::now();
        call(&path, &Command::Status {}).await.expect("a status");
        assert!(later.elapsed() < AT_ONCE, "{:?}", later.elapsed());
    };
    tokio::select! {
        derived = first::<Tested>(&config, &mut source, outside) => {
            panic!("there is no datastore: {derived:?}");
        }
        () = asked => {}
    }
}
