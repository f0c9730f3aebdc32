//! No output of the program contains a secret of its file.

use daemon_common::command::EventQuery;
use daemon_common::report::Status;
use daemon_common::{Command, Reply};

use super::{CONFIG, Reflector, outcome};

/// The secret. Any three octets of it in an output are a leak.
const MARK: &str = "QXZQXZQXZQXZ";
const PART: &str = "QXZ";

/// Invalid entries, each beside a secret or in place of one.
const MISTAKES: [&str; 8] = [
    "password = [\"QXZQXZQXZQXZ\"]",
    "password = QXZQXZQXZQXZ",
    "password \"QXZQXZQXZQXZ\"",
    "pasword = \"QXZQXZQXZQXZ\"",
    "password = \"QXZQXZQXZQXZ\" hold_time = 9",
    "password = \"QXZQXZQXZQXZ\"\nhold_tiem = 9",
    "password = \"\"\"QXZQXZQXZQXZ",
    "#password = \"QXZQXZQXZQXZ\"\nhold_time = 1",
];

// Promise: as bgp-config secrets_are_not_quoted_wherever_a_file_is_damaged
#[tokio::test]
async fn secret_in_a_bad_file_reaches_no_output() {
    let mut reflector = Reflector::start().await;
    let good = std::fs::read_to_string(reflector.config()).expect("read");
    let good = format!("{good}password = \"{MARK}\"\n");
    let mut outputs = Vec::new();
    for mistake in MISTAKES {
        // The valid file between two invalid ones shows that each was read.
        for (text, refused) in [
            (good.clone(), false),
            (
                good.replace("limit = 2", &format!("limit = 2\n{mistake}")),
                true,
            ),
        ] {
            std::fs::write(reflector.config(), text).expect("write");
            reflector.signal(nix::sys::signal::Signal::SIGHUP);
            let is_read = |status: &Status| status.config_error.is_some() == refused;
            let status = reflector.until("it is read", is_read).await;
            outputs.push(format!("{status:?}"));
        }
        let (passed, output) = outcome(&reflector.config(), &["--check"]);
        assert!(!passed, "{mistake}");
        outputs.push(output);
        for command in [
            Command::Status {},
            Command::Config {},
            Command::Neighbors {},
            Command::Limits {},
            Command::Events(EventQuery::default()),
        ] {
            let reply: Result<Reply, _> = reflector.call(command).await;
            outputs.push(format!("{reply:?}"));
        }
    }
    reflector.signal(nix::sys::signal::Signal::SIGTERM);
    let mut log = String::new();
    let mut stderr = reflector.process.stderr.take().expect("piped");
    std::io::Read::read_to_string(&mut stderr, &mut log).expect("a log");
    assert!(log.contains("configuration rejected"), "{log}");
    outputs.push(log);
    let (_, output) = outcome(&reflector.config(), &[]);
    outputs.push(output);
    for output in outputs {
        assert!(!output.contains(PART), "a secret is in:\n{output}");
    }
}

#[test]
fn log_level_and_keepalive_that_do_not_fit_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("rr.toml");
    for (text, words) in [
        (
            format!("log = \"verbose\"\n{CONFIG}"),
            ["rr.toml:1:7", "`verbose` is not a level"],
        ),
        (
            format!("{CONFIG}hold_time = 9\nkeepalive = 10\n"),
            ["rr.toml:14:13", "not below the hold time of 9 seconds"],
        ),
        (
            CONFIG.replace("router_id = \"127.0.0.1\"", "router_id = \"192.0.2.2\""),
            ["rr.toml:3:13", "is the example of the packaged file"],
        ),
        (
            format!("{CONFIG}[[neighbor]]\naddress = \"127.0.0.1\"\nport = 1\nasn = 64512\n")
                .replace("127.0.0.1:0", "127.0.0.1:1"),
            ["rr.toml:14:11", "is this daemon itself"],
        ),
    ] {
        std::fs::write(&config, text).expect("write");
        for more in [&["--check"][..], &[]] {
            let (passed, output) = outcome(&config, more);
            assert!(!passed, "{output}");
            for words in words {
                assert!(output.contains(words), "{words} not in:\n{output}");
            }
        }
    }
    std::fs::write(&config, format!("log = \"Warning\"\n{CONFIG}")).expect("write");
    let (passed, output) = outcome(&config, &["--check"]);
    assert!(passed, "{output}");
}
