//! The controller of Kubernetes, and the API server of the tests. No namespaces of the kernel.

mod balanced;
mod collected;
mod configured;
mod failures;
mod guarded;
mod kubectl;
mod program;
mod replicas;
mod rig;
mod served;
mod server;
mod start;
mod stock;
mod written;
