//! UPDATE: taking it apart without allocating, and writing it (RFC 4271 §4.3, §6.3).

mod batch;
mod block;
#[cfg(test)]
mod tests;
mod view;
mod writer;

pub use batch::RouteBatch;
pub use block::AttrBlock;
pub use view::UpdateView;
pub use writer::{EncodeParams, Full, UpdateWriter};
