//! A simulated kernel: it survives the daemons attached to it, and can refuse writes, overrun, lose
//! notifications and answers, truncate dumps and hold foreign routes.

mod attachment;
mod faults;
mod fib;
mod kernel;
mod links;
mod nexthops;

pub use self::attachment::Attachment;
pub use self::faults::Faults;
pub use self::fib::MemoryFib;
pub use self::kernel::Kernel;
