//! Every limit of `cambric node start`.

use std::time::Duration;

/// Interfaces of this host that are searched. Each workload has one, and they have no usable addresses.
pub(super) const INTERFACES_MAX: usize = 65_536;

/// Elements of the list of a method of autodetection.
pub(super) const METHOD_TERMS_MAX: usize = 64;

/// Octets of a template of a CNI configuration.
pub(super) const TEMPLATE_OCTETS_MAX: usize = 256 * 1024;

/// Time between two searches of addresses, unless `AUTODETECT_POLL_INTERVAL` sets another one.
pub(super) const DETECTION_INTERVAL: Duration = Duration::from_secs(60);

/// Time between two attempts while the datastore, the API server or a daemon is not ready.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time between two attempts to request a token.
pub(super) const TOKEN_RETRY_MAX: Duration = Duration::from_secs(60);

/// Requested lifetime of the plugin's token. It is replaced after half of its lifetime.
pub(super) const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Shortest time after which a token is replaced, whatever lifetime the server sets.
pub(super) const TOKEN_AGE_MIN: Duration = Duration::from_secs(60);

/// Time for the last request at the end.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(5);
