//! Locks shared by all calls of this host.
//!
//! Each lock is one octet of one file (open file description locks): the kernel releases it when
//! the process ends, however it ends, and no file has to be removed. There is one lock per
//! attachment, held during any operation on it, and one for address management, so that many calls
//! of one host do not contend for its blocks in the datastore.

use std::fmt::Display;
use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use sha1::{Digest, Sha1};
use tokio::time::timeout;

use crate::failure::{Code, Failure};
use crate::limits::LOCK_TIMEOUT;

/// Directory of the file.
const DIRECTORY: &str = "/run/cambric";
const FILE: &str = "cni.lock";

/// The octet of address management; the octets of attachments follow it.
const IPAM: i64 = 0;

/// A lock that is held until this value is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Takes the lock of the attachment with this interface on the host. Every left-over object of an
/// attachment identifies this interface.
pub(crate) async fn attachment(interface: &str) -> Result<Lock, Failure> {
    lock(octet(interface), interface).await
}

/// Takes the lock of an attachment if it is free; `None` if another process holds it.
pub(crate) fn attachment_at_rest(interface: &str) -> Result<Option<Lock>, Failure> {
    let file = open(interface)?;
    match take(&file, octet(interface), Wait::No) {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
        Err(error) => Err(fail(interface, &error)),
    }
}

/// Returns the octet of an attachment, which is the same in every version of this program. Two
/// attachments with the same octet merely wait for each other.
fn octet(interface: &str) -> i64 {
    let digest = Sha1::digest(interface);
    let number = digest.iter().take(7);
    number.fold(0, |number, octet| number << 8 | i64::from(*octet)) + IPAM + 1
}

/// Takes the lock of address management.
pub(crate) async fn ipam() -> Result<Lock, Failure> {
    lock(IPAM, "address management").await
}

fn fail(what: &str, error: &dyn Display) -> Failure {
    let message = format!("locking {what} in {DIRECTORY}/{FILE}: {error}");
    Failure::new(Code::Io, message)
}

/// Opens the file, to lock `what` in it.
fn open(what: &str) -> Result<File, Failure> {
    fs::create_dir_all(DIRECTORY).map_err(|error| fail(what, &error))?;
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(Path::new(DIRECTORY).join(FILE));
    file.map_err(|error| fail(what, &error))
}

async fn lock(at: i64, what: &str) -> Result<Lock, Failure> {
    let file = open(what)?;
    // Usually the lock is free.
    if take(&file, at, Wait::No).is_ok() {
        return Ok(Lock { _file: file });
    }
    // A thread that still waits after the timeout ends with the process.
    let waiting = tokio::task::spawn_blocking(move || take(&file, at, Wait::Yes).map(|()| file));
    match timeout(LOCK_TIMEOUT, waiting).await {
        Ok(Ok(Ok(file))) => Ok(Lock { _file: file }),
        Ok(Ok(Err(error))) => Err(fail(what, &error)),
        Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        Err(_) => {
            let message = format!("{what} has been locked by another call for {LOCK_TIMEOUT:?}");
            Err(Failure::new(Code::Later, message))
        }
    }
}

/// Whether to wait for a lock that is held.
#[derive(Debug, Clone, Copy)]
enum Wait {
    No,
    Yes,
}

fn take(file: &File, at: i64, wait: Wait) -> nix::Result<()> {
    let range = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    };
    loop {
        let how = match wait {
            Wait::No => FcntlArg::F_OFD_SETLK(&range),
            Wait::Yes => FcntlArg::F_OFD_SETLKW(&range),
        };
        match fcntl(file, how) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_has_the_same_octet_in_every_version() {
        // The first 56 bits of SHA-1, plus one.
        assert_eq!(octet("caliaa960f0d82e"), 0x00b9_8291_1a6c_7de6 + 1);
        assert_eq!(octet(""), 0x00da_39a3_ee5e_6b4b + 1);
        assert!(octet("cali9f3c0123456") > IPAM);
    }
}
