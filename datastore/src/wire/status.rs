//! Errors as gRPC statuses. The texts are part of the API: its clients know errors by them.

use tonic::{Code, Status};

use crate::error::Error;
use crate::kv::{LeaseId, Revision};

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const NO_KEY: &str = "etcdserver: key not found";
const NO_LEASE: &str = "etcdserver: requested lease not found";
const LEASE_EXISTS: &str = "etcdserver: lease already exists";
const TOO_LARGE: &str = "etcdserver: request is too large";
const TOO_MANY: &str = "etcdserver: too many operations in txn request";
const DUPLICATE: &str = "etcdserver: duplicate key given in txn request";

/// The status that tells a client of an error.
pub(crate) fn status_out(error: &Error) -> Status {
    let (code, text) = match error {
        Error::Compacted { .. } => (Code::OutOfRange, COMPACTED),
        Error::FutureRevision => (Code::OutOfRange, FUTURE),
        Error::NoSpace => (Code::ResourceExhausted, NO_SPACE),
        Error::NoKey => (Code::InvalidArgument, NO_KEY),
        Error::NoLease(_) => (Code::NotFound, NO_LEASE),
        Error::LeaseExists(_) => (Code::FailedPrecondition, LEASE_EXISTS),
        Error::TooLarge => (Code::InvalidArgument, TOO_LARGE),
        Error::TooManyOperations => (Code::InvalidArgument, TOO_MANY),
        Error::DuplicateKey => (Code::InvalidArgument, DUPLICATE),
        Error::BadRequest(reason) => return Status::invalid_argument(reason.as_ref()),
        Error::Denied(_) => (Code::PermissionDenied, "etcdserver: permission denied"),
        Error::Unavailable(_)
        | Error::WatchLost(_)
        | Error::Conflict { .. }
        | Error::Options(_) => {
            return Status::new(Code::Unavailable, error.to_string());
        }
    };
    Status::new(code, text)
}

/// The error that a status tells of.
pub(crate) fn status_in(status: &Status) -> Error {
    let text = status.message();
    let says = |known: &str| text == known;
    match status.code() {
        Code::OutOfRange if says(COMPACTED) => Error::Compacted { at: Revision::ZERO },
        Code::OutOfRange if says(FUTURE) => Error::FutureRevision,
        // Some other limit of size, such as that of a message.
        Code::OutOfRange => Error::TooLarge,
        Code::ResourceExhausted if says(NO_SPACE) => Error::NoSpace,
        Code::ResourceExhausted if text.contains("too many requests") => {
            Error::Unavailable(text.to_owned())
        }
        Code::ResourceExhausted => Error::TooLarge,
        Code::InvalidArgument if says(NO_KEY) => Error::NoKey,
        Code::NotFound => Error::NoLease(LeaseId::NONE),
        Code::FailedPrecondition if says(LEASE_EXISTS) => Error::LeaseExists(LeaseId::NONE),
        Code::InvalidArgument if says(TOO_LARGE) => Error::TooLarge,
        Code::InvalidArgument if says(TOO_MANY) => Error::TooManyOperations,
        Code::InvalidArgument if says(DUPLICATE) => Error::DuplicateKey,
        Code::InvalidArgument if text.contains("authentication") || text.contains("user name") => {
            Error::Denied(text.to_owned())
        }
        Code::InvalidArgument => Error::BadRequest(text.to_owned().into()),
        Code::PermissionDenied | Code::Unauthenticated => Error::Denied(text.to_owned()),
        _ => Error::Unavailable(reason(status)),
    }
}

/// What a status says, with the error beneath it, which is where connections tell what happened.
fn reason(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    if text.is_empty() {
        status.code().to_string()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_way_over_the_wire() {
        for error in [
            Error::Compacted { at: Revision::ZERO },
            Error::FutureRevision,
            Error::NoSpace,
            Error::NoKey,
            Error::NoLease(LeaseId::NONE),
            Error::LeaseExists(LeaseId::NONE),
            Error::TooLarge,
            Error::TooManyOperations,
            Error::DuplicateKey,
        ] {
            assert_eq!(status_in(&status_out(&error)), error);
        }
        let lost = Error::Unavailable("it does not answer".into());
        assert!(matches!(
            status_in(&status_out(&lost)),
            Error::Unavailable(_)
        ));
    }
}
