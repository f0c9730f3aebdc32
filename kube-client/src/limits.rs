//! Every limit of the client.

use std::time::Duration;

/// Octets of one page.
pub const PAGE_OCTETS_MAX: usize = 32 * 1024 * 1024;

/// Octets of one object, or of one event of a watch. An object in etcd has at most 1.5 MiB; its JSON can
/// be longer.
pub const OBJECT_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// Octets of the answer to a request that has failed, and of a single small object.
pub const STATUS_OCTETS_MAX: usize = 1024 * 1024;

/// Characters of a text of the server in a report.
pub const REASON_CHARACTERS_MAX: usize = 300;

/// Time that a connection may take, with its TLS handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that the server may take for the head of an answer, and for each further part of a list.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Time after which the server ends a watch, in seconds.
pub const WATCH_S: u64 = 300;

/// Time without any octet after which a watch counts as lost. It is longer than [`WATCH_S`].
pub const WATCH_SILENCE_MAX: Duration = Duration::from_secs(WATCH_S + 30);

/// Time without traffic after which the kernel checks a connection, and the interval and number of these checks.
pub const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);

/// The interval of these checks.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The number of checks without an answer after which the connection is closed.
pub const KEEP_ALIVE_CHECKS: u32 = 3;

/// Octets of a token, of a list of certificates or of a key.
pub const CREDENTIAL_OCTETS_MAX: usize = 1024 * 1024;

/// Octets of a kubeconfig.
pub const KUBECONFIG_OCTETS_MAX: usize = 1024 * 1024;

/// Values in a kubeconfig, and its levels.
pub const KUBECONFIG_VALUES_MAX: usize = 100_000;
/// Levels of values in a kubeconfig.
pub const KUBECONFIG_LEVELS_MAX: usize = 32;
