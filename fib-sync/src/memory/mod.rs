//! A kernel in a value, for simulation: it outlives the daemons attached to it, and can refuse,
//! overrun, lose notifications and answers, cut dumps short and hold foreign routes.

mod attachment;
mod faults;
mod fib;
mod kernel;
mod links;

pub use self::attachment::Attachment;
pub use self::faults::Faults;
pub use self::fib::MemoryFib;
pub use self::kernel::Kernel;
