//! The way to the host guard's table: this process's own, or by its parent.

use host_guard::{Cover, Guard, GuardError, Holder, Loaded};

use crate::Parent;
use crate::parent::command::{Answer, Command, Refusal};

/// The way to the table.
#[derive(Clone, Debug)]
pub(crate) enum Table {
    /// This process uses nftables.
    Own,
    /// Its parent does.
    Of(Parent),
}

impl Table {
    /// Loads the table with these entries of a daemon.
    pub(crate) fn load(&self, holder: Holder, cover: &Cover) -> Result<(), Refusal> {
        match self {
            Self::Own => Ok(Guard::open()?.load(holder, cover)?),
            Self::Of(parent) => {
                let (ports, peers) = (cover.ports.clone(), cover.peers.clone());
                let command = Command::LoadGuard { ports, peers };
                parent.guard(&command).map(drop)
            }
        }
    }

    /// Removes the entries of a daemon.
    pub(crate) fn withdraw(&self, holder: Holder) -> Result<(), Refusal> {
        match self {
            Self::Own => Ok(Guard::open()?.withdraw(holder).map(drop)?),
            Self::Of(parent) => parent.guard(&Command::WithdrawGuard).map(drop),
        }
    }

    /// Reads the table; `None` if there is none.
    pub(crate) fn read(&self) -> Result<Option<Loaded>, Refusal> {
        match self {
            Self::Own => Ok(Guard::open()?.read()?),
            Self::Of(parent) => match parent.guard(&Command::ReadGuard)? {
                Answer::Guard(loaded) => Ok(loaded),
                _ => Err(Refusal::default()),
            },
        }
    }
}

impl From<GuardError> for Refusal {
    fn from(error: GuardError) -> Self {
        Self {
            errno: 0,
            is_permission: error.is_permission(),
            why: error.to_string(),
        }
    }
}
