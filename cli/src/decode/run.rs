//! The command's arguments, and its main function.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::ArgGroup;

use crate::decode::output::Output;
use crate::decode::{hex, mrt_file, pcap_file};

/// Print the BGP messages of a file as JSON, one object a line
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("file").required(true).args(["mrt", "hex", "pcap"]))]
pub(crate) struct Args {
    /// MRT file: messages or tables, plain, gzip or bzip2
    #[arg(long, value_name = "FILE")]
    mrt: Option<PathBuf>,
    /// Text file with a message in hex a line, after optional fields like as4=1 ap=1
    #[arg(long, value_name = "FILE")]
    hex: Option<PathBuf>,
    /// Packet capture: pcap or pcapng, plain, gzip or bzip2
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// TCP port of BGP in the packet capture
    #[arg(long, value_name = "PORT", default_value_t = 179, requires = "pcap")]
    port: u16,
}

/// Prints the messages of a file. Malformed messages are reported among the others; only a file
/// that cannot be opened is an error.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut out = Output(BufWriter::new(io::stdout().lock()));
    let result = match &args {
        Args {
            mrt: Some(path), ..
        } => mrt_file::run(path, &mut out),
        Args {
            hex: Some(path), ..
        } => hex::run(path, &mut out),
        Args {
            pcap: Some(path),
            port,
            ..
        } => pcap_file::run(path, *port, &mut out),
        _ => Ok(()),
    };
    let result = result.and_then(|()| Ok(out.0.flush()?));
    match result {
        // The reader has closed the pipe.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
