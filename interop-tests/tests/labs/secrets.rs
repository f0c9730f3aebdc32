//! No output of the programs contains a secret of their files: the BGP client and Felix with their
//! logs and answers, and `cambric guard`, which reads the file of a BGP daemon.

use std::path::PathBuf;

use daemon_common::client::call;
use daemon_common::command::EventQuery;
use daemon_common::report::Status;
use daemon_common::{Command, Reply};
use interop_tests::{PATIENCE, Site, in_ground, own};
use netns_lab::{Process, Program, until};
use nix::sys::signal::Signal;

/// The secret. Any three octets of it in an output are a leak.
const MARK: &str = "QXZQXZQXZQXZ";
const PART: &str = "QXZ";

/// Invalid lines of a table, each with a secret.
const MISTAKES: [&str; 8] = [
    "password = [\"QXZQXZQXZQXZ\"]",
    "password = QXZQXZQXZQXZ",
    "password \"QXZQXZQXZQXZ\"",
    "pasword = \"QXZQXZQXZQXZ\"",
    "pasword = \"QXZQXZQXZQXZ\" hold_time = 9",
    "pasword = \"QXZQXZQXZQXZ\"\nhold_tiem = 9",
    "pasword = \"\"\"QXZQXZQXZQXZ",
    "#password = \"QXZQXZQXZQXZ\"\nhold_tiem = 1",
];

/// A daemon with its valid file, and its outputs so far.
struct Watched<'a> {
    site: &'a Site,
    name: &'static str,
    process: Process,
    good: String,
    outputs: Vec<String>,
}

impl<'a> Watched<'a> {
    /// Starts a daemon that logs everything, and waits until it answers.
    async fn start(site: &'a Site, name: &'static str, keys: &str) -> Self {
        let control = site.host.directory().join(format!("{name}.sock"));
        let good = format!("control = {control:?}\nlog = \"trace\"\n{keys}");
        let file = site.save(&format!("{name}.toml"), &good);
        let daemon = Program::new(own(&format!("cambric-{name}")));
        let program = daemon.arg("--config").arg(file);
        let process = site.host.spawn(name, &program).expect("a process");
        let watched = Self {
            site,
            name,
            process,
            good,
            outputs: Vec::new(),
        };
        watched.reports("it answers", |_| true).await;
        watched
    }

    fn file(&self) -> PathBuf {
        let directory = self.site.host.directory();
        directory.join(format!("{}.toml", self.name))
    }

    async fn reports(&self, what: &str, wanted: impl Fn(&Status) -> bool) {
        let control = self.site.host.directory();
        let control = control.join(format!("{}.sock", self.name));
        let answer = until(PATIENCE, what, async || {
            let reply = call(control.clone(), &Command::Status {}).await;
            Ok::<_, netns_lab::Error>(match reply {
                Ok(Reply::Status(status)) if wanted(&status) => Ok(()),
                other => Err(format!("{other:?}")),
            })
        });
        let reported = answer.await;
        reported.unwrap_or_else(|error| panic!("{error}\n{}", self.process.log_tail()));
    }

    /// Keeps the answers to all queries, as a program reads them and as JSON.
    async fn ask(&mut self) {
        let control = self.site.host.directory();
        let control = control.join(format!("{}.sock", self.name));
        for command in [
            Command::Reload {},
            Command::Status {},
            Command::Config {},
            Command::Neighbors {},
            Command::Endpoints {},
            Command::Readiness {},
            Command::Drain {
                on: None,
                until_stop: false,
            },
            Command::Rules {},
            Command::Limits {},
            Command::Log {},
            Command::Events(EventQuery::default()),
        ] {
            let reply = call(control.clone(), &command).await;
            self.outputs.push(format!("{reply:?}"));
            let json = reply.map(|reply| serde_json::to_string(&reply).expect("JSON"));
            self.outputs.extend(json);
        }
    }

    /// Runs a program to its end. Keeps its whole output, and returns whether it succeeded.
    async fn run(&mut self, program: &str, arguments: &[&str]) -> bool {
        let program = Program::new("sh")
            .args(["-c", "exec \"$@\" 2>&1", "sh"])
            .arg(own(program))
            .args(arguments.iter().copied())
            .arg(self.file());
        let ended = self.site.host.output(&program).await;
        let (status, text) = ended.expect("the program runs");
        self.outputs
            .push(String::from_utf8_lossy(&text).into_owned());
        status.success()
    }

    /// Reloads a file with a mistake, and then the valid file.
    async fn reload(&mut self, bad: &str, check: impl AsyncFn(&mut Self, bool)) {
        for (text, is_bad) in [(bad.to_owned(), true), (self.good.clone(), false)] {
            self.site.save(&format!("{}.toml", self.name), &text);
            self.process.signal(Signal::SIGHUP).expect("it runs");
            let is_read = |status: &Status| status.config_error.is_some() == is_bad;
            self.reports(bad, is_read).await;
            self.ask().await;
            let daemon = format!("cambric-{}", self.name);
            let accepted = self.run(&daemon, &["--check", "--config"]).await;
            assert_eq!(accepted, !is_bad, "{text}");
            check(self, is_bad).await;
        }
    }

    /// Stops the daemon, and asserts that none of its outputs has a secret.
    async fn finish(mut self) {
        self.process.signal(Signal::SIGTERM).expect("it runs");
        self.process.wait(PATIENCE).await.expect("it ends");
        let log = std::fs::read(self.process.log()).expect("a log");
        let log = String::from_utf8_lossy(&log).into_owned();
        assert!(log.contains("configuration rejected"), "{log}");
        self.outputs.push(log);
        for output in self.outputs {
            assert!(!output.contains(PART), "a secret is in:\n{output}");
        }
    }
}

// Promise: as bgp-config secrets_are_not_quoted_wherever_a_file_is_damaged
#[test]
fn secret_of_a_bgp_client_reaches_no_output() {
    in_ground(&[], "secrets of a BGP client", async |ground| {
        let site = ground.site(1).await.expect("a host");
        let keys = format!(
            "asn = 64512\nrouter_id = \"10.0.0.1\"\nlisten = [\"10.0.0.1:179\"]\n\
             [[neighbor]]\nname = \"rr\"\naddress = \"10.0.0.2\"\nasn = 64512\n\
             password = \"{MARK}\"\n"
        );
        let mut client = Watched::start(&site, "bgp-client", &keys).await;
        for mistake in MISTAKES {
            let bad = format!("{}{mistake}\n", client.good);
            let guard = async |client: &mut Watched<'_>, is_bad: bool| {
                for arguments in [
                    &["guard", "--bgp-client"][..],
                    &["guard", "--check", "--bgp-client"],
                ] {
                    let done = client.run("cambric", arguments).await;
                    // It leaves mistakes in the tables of neighbors to the daemon.
                    assert!(done || is_bad, "{:?}", client.outputs.last());
                }
            };
            client.reload(&bad, guard).await;
        }
        client.finish().await;
    });
}

/// The password for the datastore is in a file of its own, or by mistake in Felix's.
// Promise: as bgp-config secrets_are_not_quoted_wherever_a_file_is_damaged
#[test]
fn secret_of_felix_reaches_no_output() {
    in_ground(&[], "secrets of Felix", async |ground| {
        // This datastore has no users, and refuses to authenticate one.
        let _store = ground.store().await.expect("a store");
        let site = ground.site(1).await.expect("a host");
        let password = site.save("password", &format!("{MARK}\n"));
        let keys = format!(
            "hostname = \"h1\"\n[datastore]\nendpoints = [\"http://10.0.0.254:2379\"]\n\
             username = \"felix\"\npassword_file = {password:?}\n"
        );
        let mut felix = Watched::start(&site, "felix", &keys).await;
        for mistake in MISTAKES {
            let bad = format!("{}{mistake}\n", felix.good);
            felix.reload(&bad, async |_, _| {}).await;
        }
        let address = format!("http://root:{MARK}@10.0.0.254:2379");
        let bad = felix.good.replace("http://10.0.0.254:2379", &address);
        felix.reload(&bad, async |_, _| {}).await;
        felix.finish().await;
    });
}
