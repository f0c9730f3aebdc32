//! Debian's etcdctl against the served store.

use std::process::Stdio;

use crate::common::{PATIENT, Served, program, soon};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

struct Ctl {
    program: std::path::PathBuf,
    url: String,
}

impl Ctl {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("ETCDCTL_API", "3")
            .envs(PATIENT)
            .args(["--endpoints", &self.url])
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> String {
        let output = soon("etcdctl", self.command(arguments).output())
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "etcdctl {arguments:?}: {text}{errors}"
        );
        text
    }

    async fn fail(&self, arguments: &[&str]) -> String {
        let output = soon("etcdctl", self.command(arguments).output())
            .await
            .unwrap();
        assert!(!output.status.success(), "etcdctl {arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    async fn txn(&self, script: &str) -> String {
        let mut child = self
            .command(&["txn"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(script.as_bytes()).await.unwrap();
        drop(stdin);
        let output = soon("etcdctl txn", child.wait_with_output()).await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[tokio::test]
async fn etcdctl_works_against_the_served_store() {
    let Some(program) = program("etcdctl") else {
        return;
    };
    let served = Served::start().await;
    let ctl = Ctl {
        program,
        url: served.address.to_string(),
    };

    // Watched from the first revision, so that the time of the watch does not matter.
    let mut watching = ctl
        .command(&["watch", "/a/", "--prefix", "--rev", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut watched = BufReader::new(watching.stdout.take().unwrap()).lines();

    assert_eq!(ctl.run(&["put", "/a/x", "1"]).await, "OK\n");
    assert_eq!(ctl.run(&["put", "/a/y", "2"]).await, "OK\n");
    assert_eq!(ctl.run(&["put", "/b/z", "3"]).await, "OK\n");
    assert_eq!(
        ctl.run(&["get", "/a/", "--prefix"]).await,
        "/a/x\n1\n/a/y\n2\n"
    );
    assert_eq!(
        ctl.run(&["get", "/", "--prefix", "--keys-only", "--order", "DESCEND"])
            .await,
        "/b/z\n\n/a/y\n\n/a/x\n\n"
    );

    let reply = ctl
        .txn("version(\"/a/x\") = \"1\"\n\nput /a/x changed\nget /a/y\n\nget /b/z\n\n")
        .await;
    assert!(reply.starts_with("SUCCESS\n\nOK\n\n/a/y\n2\n"), "{reply}");
    let reply = ctl
        .txn("value(\"/a/x\") = \"1\"\n\nput /a/x no\n\nget /b/z\n\n")
        .await;
    assert!(reply.starts_with("FAILURE\n\n/b/z\n3\n"), "{reply}");
    assert_eq!(ctl.run(&["del", "/a/y"]).await, "1\n");

    let mut lines = Vec::new();
    while lines.len() < 11 {
        lines.push(
            soon("the watch", watched.next_line())
                .await
                .unwrap()
                .unwrap(),
        );
    }
    assert_eq!(
        lines,
        [
            "PUT", "/a/x", "1", "PUT", "/a/y", "2", "PUT", "/a/x", "changed", "DELETE", "/a/y"
        ]
    );
    watching.kill().await.unwrap();

    leases(&ctl).await;
    maintenance(&ctl).await;
    served.stop().await;
}

async fn leases(ctl: &Ctl) {
    // lease 694d… granted with TTL(300s)
    let granted = ctl.run(&["lease", "grant", "300"]).await;
    let id = granted.split(' ').nth(1).unwrap();
    assert!(granted.ends_with("granted with TTL(300s)\n"), "{granted}");
    ctl.run(&["put", "--lease", id, "/l/x", "1"]).await;
    let state = ctl.run(&["lease", "timetolive", id, "--keys"]).await;
    assert!(
        state.contains("granted with TTL(300s)") && state.contains("attached keys([/l/x])"),
        "{state}"
    );
    assert!(
        ctl.run(&["lease", "keep-alive", "--once", id])
            .await
            .contains("keepalived with TTL(300)")
    );
    assert!(ctl.run(&["lease", "list"]).await.contains(id));
    ctl.run(&["lease", "revoke", id]).await;
    assert_eq!(ctl.run(&["get", "/l/x"]).await, "");
    assert!(
        ctl.fail(&["lease", "revoke", id])
            .await
            .contains("requested lease not found")
    );
}

async fn maintenance(ctl: &Ctl) {
    let json = ctl.run(&["get", "/b/z", "-w", "json"]).await;
    let reply: serde_json::Value = serde_json::from_str(&json).unwrap();
    let revision = reply["header"]["revision"].as_i64().unwrap();
    let compacted = ctl.run(&["compact", &revision.to_string()]).await;
    assert!(
        compacted.contains(&format!("compacted revision {revision}")),
        "{compacted}"
    );
    let error = ctl.fail(&["get", "/b/z", "--rev", "2"]).await;
    assert!(
        error.contains("required revision has been compacted"),
        "{error}"
    );

    let status = ctl.run(&["endpoint", "status", "-w", "json"]).await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        status[0]["Status"]["header"]["revision"].as_i64(),
        Some(revision)
    );
    assert!(
        status[0]["Status"]["version"]
            .as_str()
            .unwrap()
            .starts_with("3.4.0")
    );
    let health = soon("etcdctl", ctl.command(&["endpoint", "health"]).output())
        .await
        .unwrap();
    assert!(health.status.success());
    assert!(ctl.run(&["member", "list"]).await.contains(&ctl.url));
    assert_eq!(ctl.run(&["alarm", "list"]).await, "");
    assert!(ctl.run(&["defrag"]).await.starts_with("Finished"));
    assert!(
        ctl.fail(&["member", "add", "x", "--peer-urls", "http://127.0.0.1:1"])
            .await
            .contains("one member")
    );
}
