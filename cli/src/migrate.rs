//! `cambric datastore migrate`: locks and unlocks the datastore.

use std::process::ExitCode;

use anyhow::{Error, Result};
use calico_store::resources::ResourceError;
use clap::Subcommand;

use crate::resources::Connection;

/// The arguments of `cambric datastore`, as calicoctl has them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum What {
    /// Lock or unlock the datastore, so that the daemons apply no partial state
    #[command(subcommand)]
    Migrate(Migrate),
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Migrate {
    /// Lock the datastore: it can be written, but the daemons do not apply it
    Lock,
    /// Unlock the datastore: the daemons apply it again
    Unlock,
}

/// Runs `cambric datastore`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let resources = args.connection.resources().await?;
    let What::Migrate(step) = args.what;
    let (ready, done) = match step {
        Migrate::Lock => (false, "Datastore locked."),
        Migrate::Unlock => (true, "Datastore unlocked."),
    };
    match resources.set_ready(ready).await {
        Err(missing @ ResourceError::Missing(_)) => {
            let why = "the datastore is not initialized, and no daemon applies it; the first write of \
                       `cambric` or calicoctl initializes it";
            return Err(Error::new(missing).context(why));
        }
        result => result?,
    }
    println!("{done}");
    Ok(ExitCode::SUCCESS)
}
