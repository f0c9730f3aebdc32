//! A connection to the simulated kernel, as a driver.

use core::task::{Context, Poll};
use std::cell::RefCell;
use std::rc::Rc;

use super::attachment::Attachment;
use super::kernel::Kernel;
use crate::port::{Command, Event, Fib};

/// A connection to a shared [`Kernel`] as a [`Fib`].
#[derive(Debug)]
pub struct MemoryFib {
    kernel: Rc<RefCell<Kernel>>,
    attachment: Attachment,
}

impl MemoryFib {
    /// Connects to the kernel. Dropping the connection is like a crash of the program: its routes
    /// stay.
    pub fn new(kernel: &Rc<RefCell<Kernel>>) -> Self {
        let attachment = kernel.borrow_mut().attach();
        Self {
            kernel: Rc::clone(kernel),
            attachment,
        }
    }

    /// Returns the identifier of the connection.
    pub fn attachment(&self) -> Attachment {
        self.attachment
    }
}

impl Fib for MemoryFib {
    fn submit(&mut self, command: Command) {
        self.kernel.borrow_mut().submit(self.attachment, command);
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let mut kernel = self.kernel.borrow_mut();
        match kernel.poll(self.attachment) {
            Some(event) => Poll::Ready(event),
            None => {
                kernel.wake_later(self.attachment, cx.waker());
                Poll::Pending
            }
        }
    }
}

impl Drop for MemoryFib {
    fn drop(&mut self) {
        self.kernel.borrow_mut().detach(self.attachment);
    }
}
