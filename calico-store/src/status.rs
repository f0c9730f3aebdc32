//! Errors as gRPC statuses. The texts are part of the API, because its clients identify errors by
//! them.

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
const DENIED: &str = "etcdserver: permission denied";

/// Returns the status for an error.
pub fn status_out(error: &Error) -> Status {
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
        Error::Denied(_) => (Code::PermissionDenied, DENIED),
        Error::Unavailable(_)
        | Error::WatchLost(_)
        | Error::Conflict { .. }
        | Error::Options(_) => {
            return Status::new(Code::Unavailable, error.to_string());
        }
    };
    Status::new(code, text)
}

/// Returns the error for a status. The text decides, because proxies pass on the text, but not the
/// code.
pub(crate) fn status_in(status: &Status) -> Error {
    let text = status.message();
    match text {
        COMPACTED => return Error::Compacted { at: Revision::ZERO },
        FUTURE => return Error::FutureRevision,
        NO_SPACE => return Error::NoSpace,
        NO_KEY => return Error::NoKey,
        NO_LEASE => return Error::NoLease(LeaseId::NONE),
        LEASE_EXISTS => return Error::LeaseExists(LeaseId::NONE),
        TOO_LARGE => return Error::TooLarge,
        TOO_MANY => return Error::TooManyOperations,
        DUPLICATE => return Error::DuplicateKey,
        DENIED => return Error::Denied(text.to_owned()),
        _ => {}
    }
    match status.code() {
        // Another size limit, such as that of a message.
        Code::OutOfRange => Error::TooLarge,
        Code::ResourceExhausted if text.contains("too many requests") => {
            Error::Unavailable(text.to_owned())
        }
        Code::ResourceExhausted => Error::TooLarge,
        Code::NotFound => Error::NoLease(LeaseId::NONE),
        Code::InvalidArgument if text.contains("authentication") || text.contains("user name") => {
            Error::Denied(text.to_owned())
        }
        Code::InvalidArgument => Error::BadRequest(text.to_owned().into()),
        Code::PermissionDenied | Code::Unauthenticated => Error::Denied(text.to_owned()),
        _ => Error::Unavailable(reason(status)),
    }
}

/// Returns the text of a status and of the error beneath it, which for connections contains the
/// cause.
fn reason(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
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
