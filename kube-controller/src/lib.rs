//! The controller of Kubernetes, as a library with a thin `main`.
//!
//! [`Reader`]s list and watch the objects of each [`Watched`] kind in the API server, and convert them.
//! [`Objects`] has their resources. [`Stored`] is the content of the datastore. [`plan`] compares both,
//! without I/O, and returns the change of one resource. [`Guard`] decides whether the server may
//! delete resources. The daemon connects them.

mod balancers;
mod config;
mod controller;
mod daemon;
mod felix;
mod fenced;
mod guard;
mod hosts;
mod kinds;
mod lead;
mod lease;
pub mod limits;
mod nodes;
mod object;
mod objects;
mod pace;
mod plan;
mod reader;
mod report;
mod rivals;
mod routes;
mod settings;
mod stored;
mod target;
mod unchecked;
mod write;

pub use config::{Config, DAEMON};
pub use controller::{Controller, Counts, Input, Options};
pub use daemon::{DaemonError, run};
pub use felix::{Changed, Reports};
pub use guard::{CONFIRMED_KEY, Guard, Held, KEYS_PREFIX, Record, SERVER_KEY};
pub use kinds::Watched;
pub use kube_client::{Access, AccessError, Credential, Failure, Server, Trust};
pub use lead::LEADER_KEY;
pub use lease::{Election, LeaseName, Standing};
pub use object::{Object, ObjectId, Wanted};
pub use objects::{Completeness, Objects, Touched};
pub use plan::{Change, plan, plan_slice};
pub use reader::{News, Reader};
pub use routes::Routes;
pub use settings::{AssignIps, Settings, Variables};
pub use stored::{Part, Stored, Value};
pub use target::Target;
