//! `cambric lab` in a build without the feature `lab`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};

/// Takes any arguments, so that the answer is the same for all of them.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

/// Reports that this program has no lab, and how to build one that has.
///
/// # Errors
///
/// Always.
pub(crate) fn run(_: Args) -> Result<ExitCode> {
    bail!(
        "this program was built without `lab`: cargo build -p cambric-cli --features lab builds one with it"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;

    #[test]
    fn any_lab_command_names_the_missing_feature() {
        for words in ["", "demo", "up --nodes 3", "demo --help", "--help"] {
            let words = ["cambric", "lab"]
                .into_iter()
                .chain(words.split_whitespace());
            let cli = Cli::try_parse_from(words).expect("any arguments are taken");
            let error = cli.run().expect_err("no lab").to_string();
            assert!(error.contains("built without `lab`"), "{error}");
        }
    }
}
