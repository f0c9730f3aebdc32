use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nix::unistd::{Gid, Uid, chown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{BindError, Control};
use crate::bird::View;
use crate::client::{self, CallError};
use crate::limits::{CONNECTIONS_MAX, REQUEST_OCTETS_MAX};
use crate::report::Status;
use crate::{Command, Reply};

/// Answers `requests` requests with a status that has the number of the requests before.
async fn answer(control: &mut Control, requests: u64) {
    for count in 0..requests {
        let request = control.next().await;
        let reply = match request.command {
            Command::Status {} => Reply::Status(Status {
                uptime_s: count,
                ..Status::default()
            }),
            ref other => Reply::not_here("test", other),
        };
        request.reply(reply);
    }
}

#[tokio::test]
async fn call_and_answer() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("deep/down/test.sock");
    let mut control = Control::bind(&path).expect("bind");
    let mode = std::fs::metadata(&path)
        .expect("metadata")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    let call = async {
        let first = client::call(&path, &Command::Status {})
            .await
            .expect("status");
        assert_eq!(first, Reply::Status(Status::default()));
        let second = client::call(&path, &Command::Fib {}).await;
        match second {
            Err(CallError::Daemon { message, .. }) => assert!(message.contains("'fib'")),
            other => panic!("{other:?}"),
        }
    };
    tokio::join!(answer(&mut control, 2), call);
    drop(control);
    assert!(!path.exists());
}

/// Also where new files have another group than the process, and another mask than usual.
#[tokio::test]
async fn sockets_have_the_mode_and_the_group_of_their_place() {
    let directory = tempfile::tempdir().expect("directory");
    let group = Gid::from_raw(4711);
    let is_root = Uid::effective().is_root();
    if is_root {
        chown(directory.path(), None, Some(group)).expect("owned");
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o2755)).expect("set");
    }
    let (path, bird) = ["test.sock", "bird.ctl"]
        .map(|name| directory.path().join(name))
        .into();
    let mut control = Control::bind(&path).expect("bind");
    control.bind_bird(&bird, View::Both).expect("bind");
    for path in [path, bird] {
        let found = std::fs::metadata(path).expect("metadata");
        assert_eq!(found.mode() & 0o7777, 0o660);
        assert!(!is_root || found.gid() == group.as_raw());
    }
    // Other files have the mask of the process as before.
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("write");
    let mask = std::fs::read_to_string("/proc/self/status").expect("status");
    let mask = mask.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = u32::from_str_radix(mask.expect("a mask").trim(), 8).expect("octal");
    let mode = std::fs::metadata(file).expect("metadata").mode();
    assert_eq!(mode & 0o777, 0o666 & !mask);
}

#[tokio::test]
async fn stale_socket_is_replaced_live_one_is_not() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("test.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket without a server"));
    let control = Control::bind(&path).expect("replace");
    assert!(matches!(Control::bind(&path), Err(BindError::InUse(_))));
    drop(control);
    std::fs::write(&path, "precious").expect("write");
    assert!(matches!(
        Control::bind(&path),
        Err(BindError::NotASocket(_))
    ));
    assert_eq!(std::fs::read(&path).expect("read"), b"precious");
}

#[tokio::test]
async fn absent_and_stopped_daemons_are_distinguished() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("test.sock");
    let absent = client::call(&path, &Command::Status {})
        .await
        .expect_err("absent");
    assert!(matches!(absent, CallError::Absent(_)), "{absent:?}");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    let stale = client::call(&path, &Command::Status {})
        .await
        .expect_err("stale");
    assert!(matches!(stale, CallError::Refused(_)), "{stale:?}");
}

#[tokio::test]
async fn nonsense_is_answered_and_survived() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("test.sock");
    let mut control = Control::bind(&path).expect("bind");
    let mut stream = UnixStream::connect(&path).await.expect("connect");
    stream
        .write_all(b"hello\n{\"command\":\"reboot\"}\n")
        .await
        .expect("write");
    let mut text = String::new();
    while text.lines().count() < 2 || !text.ends_with('\n') {
        let mut octets = [0; 1024];
        let count = stream.read(&mut octets).await.expect("read");
        assert_ne!(count, 0, "closed early: {text}");
        text.push_str(std::str::from_utf8(&octets[..count]).expect("text"));
    }
    assert!(
        text.lines().all(|line| line.starts_with(r#"{"error""#)),
        "{text}"
    );
    assert!(text.contains("reboot"), "{text}");
    let call = client::call(&path, &Command::Status {});
    let ((), reply) = tokio::join!(answer(&mut control, 1), call);
    assert!(reply.is_ok(), "{reply:?}");
}

#[tokio::test]
async fn an_endless_line_ends_the_connection() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("test.sock");
    let _control = Control::bind(&path).expect("bind");
    let mut stream = UnixStream::connect(&path).await.expect("connect");
    let endless = vec![b'x'; REQUEST_OCTETS_MAX + 1];
    // The daemon may close while the test still writes.
    let _ = stream.write_all(&endless).await;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("at most"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn idle_clients_do_not_lock_out_others() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("test.sock");
    let mut control = Control::bind(&path).expect("bind");
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        idle.push(UnixStream::connect(&path).await.expect("connect"));
    }
    // Virtual time advances once all wait: the idle ones are closed, then this one is served.
    let mut stream = UnixStream::connect(&path).await.expect("connect");
    stream
        .write_all(b"{\"command\":\"status\"}\n")
        .await
        .expect("write");
    answer(&mut control, 1).await;
    let mut octets = [0; 16];
    assert_ne!(stream.read(&mut octets).await.expect("read"), 0);
}

#[tokio::test]
async fn dropped_request_is_an_error() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("test.sock");
    let mut control = Control::bind(&path).expect("bind");
    let status = Command::Status {};
    let (request, reply) = tokio::join!(
        async { drop(control.next().await) },
        client::call(&path, &status)
    );
    let () = request;
    assert!(matches!(reply, Err(CallError::Daemon { .. })), "{reply:?}");
}
